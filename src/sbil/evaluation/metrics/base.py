"""What a metric is, and what metrics share: decisions that are sorted and summed once, and weighed for every resample.

Whole units (episodes, or groups of them) are resampled, so a resample is how often each unit was drawn: its weight.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from sbil.evaluation.areas import Areas, Ranking, ranking
from sbil.evaluation.decided import Decided
from sbil.statistics import numbered

Under = Callable[[np.ndarray], np.ndarray]  # weights [resamples, units] -> values [resamples]


class PreparedDecisions:
    """Decisions in the form that metrics need for every resample."""

    def __init__(self, decided: Decided) -> None:
        self.decided = decided
        self.unit, self.units = numbered(decided.episodes)  # [n] the unit of each decision; how many units there are
        self.everything = np.ones((1, self.units))  # the weights of the data themselves
        self._areas: tuple[np.ndarray, Areas] | None = None

    def totals(self, values: np.ndarray | None = None) -> np.ndarray:
        """[units] the sum of values [n] over the decisions of each unit; without values, the number of decisions."""
        return np.bincount(self.unit, values, minlength=self.units).astype(np.float64)

    @cached_property
    def decisions(self) -> np.ndarray:
        """[units] how many decisions each unit has."""
        return self.totals()

    @cached_property
    def rankings(self) -> list[list[Ranking]]:
        """For each action that was taken, the decisions sorted by its probability, one ranking per fold."""
        return [rankings(self.decided, action, self.unit) for action in np.unique(self.decided.actions)]

    def areas(self, weights: np.ndarray) -> Areas:
        """[actions taken, resamples] the areas under the curves. The latest are kept, because two metrics use them."""
        if self._areas is None or self._areas[0] is not weights:
            each = [areas(of_action, weights) for of_action in self.rankings]
            self._areas = weights, Areas(*map(np.array, zip(*each, strict=True)))
        return self._areas[1]


class Metric(NamedTuple):
    """A number that says how well recorded decisions are matched."""

    heading: str  # its name in tables
    better: Literal["higher", "lower"]
    prepare: Callable[[PreparedDecisions], Under]


def mean_over_decisions(values: Callable[[Decided], np.ndarray]) -> Callable[[PreparedDecisions], Under]:
    """The mean of one value per decision: `values` gives [n]."""

    def prepare(prepared: PreparedDecisions) -> Under:
        totals = prepared.totals(values(prepared.decided))
        return lambda weights: (weights @ totals) / (weights @ prepared.decisions)

    return prepare


def mean_over_actions(values: Callable[[PreparedDecisions], Under]) -> Callable[[PreparedDecisions], Under]:
    """The mean of one value per action: `values` gives a function of weights to [actions, resamples].

    The mean is over the actions that have a value in the data; a resample in which one of them has none is NaN.
    """

    def prepare(prepared: PreparedDecisions) -> Under:
        each = values(prepared)
        defined = ~np.isnan(each(prepared.everything)[:, 0])

        def under(weights: np.ndarray) -> np.ndarray:
            if not defined.any():
                return np.full(len(weights), np.nan)
            mean: np.ndarray = each(weights)[defined].mean(axis=0)
            return mean

        return under

    return prepare


def rankings(decided: Decided, action: int, unit: np.ndarray) -> list[Ranking]:
    """The decisions sorted by the probability of an action, one ranking per fold.

    Probabilities of different policies do not rank decisions, so folds are not mixed.
    """
    folds = np.zeros(len(unit), np.int8) if decided.folds is None else decided.folds
    parts = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]
    return [ranking(decided.probabilities[p, action], decided.actions[p] == action, unit[p]) for p in parts]


def areas(rankings: list[Ranking], weights: np.ndarray) -> Areas:
    """The areas under the curves of one action, averaged over folds."""
    return Areas.together([of_fold(weights) for of_fold in rankings])
