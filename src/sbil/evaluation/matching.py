"""How well recorded decisions are matched: every metric with its interval, the confusion matrix, a row per action."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from sbil.errors import UserError
from sbil.evaluation import metrics
from sbil.evaluation.decided import Decided
from sbil.evaluation.metrics.base import PreparedDecisions, areas, rankings
from sbil.statistics import Interval, affordable, interval, unit_counts

METRICS = tuple(metrics.METRICS)  # their names


class Intervals(NamedTuple):
    """Every metric with its interval, and how many resamples the intervals rest on."""

    metrics: dict[str, Interval]
    resamples: int


class MethodScores(NamedTuple):
    """Every metric of one method, with its interval: a row of a table that compares methods."""

    method: str
    metrics: dict[str, Interval]

    def as_json(self) -> dict[str, Any]:
        return {"method": self.method, **{name: found.as_json() for name, found in self.metrics.items()}}


class ActionScores(NamedTuple):
    """How well one action is matched; NaN where a score is not defined."""

    taken: int
    precision: float
    recall: float
    f1: float
    auc: float
    apr: float


def scores(decided: Decided, names: Collection[str] = METRICS) -> dict[str, float]:
    """The metrics called `names`, as scikit-learn computes them; `sbil.evaluation.metrics` defines each."""
    prepared = PreparedDecisions(decided)
    return {name: float(metrics.METRICS[name].prepare(prepared)(prepared.everything)[0]) for name in names}


class Agreement(NamedTuple):
    """Agreement with recorded decisions in one line: what is printed after training."""

    accuracy: float
    log_loss: float
    majority_accuracy: float  # of always choosing the commonest of these decisions
    steps: int

    @classmethod
    def of(cls, decided: Decided) -> "Agreement":
        """The agreement of a policy, or a baseline, with recorded decisions."""
        count = len(decided.actions)
        commonest = float(np.bincount(decided.actions).max() / count)
        return cls(**scores(decided, ("accuracy", "log_loss")), majority_accuracy=commonest, steps=count)


def intervals(decided: Decided, resamples: int = 1000, seed: int = 0) -> Intervals:
    """`scores`, each with a percentile bootstrap interval over episodes, or groups, which are resampled whole.

    An average over actions has the same actions in every resample: a resample without one of them does not count.
    For very many decisions fewer resamples are drawn than asked for, but at least 100.
    """
    values, resampled, count = _resampled(decided, resamples, seed)
    found = {name: interval(values[name], resampled[name], count) for name in METRICS}
    return Intervals(found, len(resampled["accuracy"]))


def scores_of_methods(decided: Mapping[str, Decided]) -> tuple[MethodScores, ...]:
    """The scores of several methods, by name, on the same decisions."""
    return tuple(MethodScores(name, intervals(made).metrics) for name, made in decided.items())


def differences(decided: Decided, baseline: Decided, resamples: int = 1000, seed: int = 0) -> Intervals:
    """The scores of one minus those of another on the same decisions, with intervals from the same resamples."""
    same = np.array_equal(decided.actions, baseline.actions) and np.array_equal(decided.episodes, baseline.episodes)
    if not same:
        raise UserError("the two did not decide on the same decisions; compare them on the same demonstrations.")
    (mine, draws, units), (theirs, their_draws, _) = (_resampled(one, resamples, seed) for one in (decided, baseline))
    found = {name: interval(mine[name] - theirs[name], draws[name] - their_draws[name], units) for name in METRICS}
    return Intervals(found, len(draws["accuracy"]))


def _resampled(decided: Decided, resamples: int, seed: int) -> tuple[dict[str, float], dict[str, np.ndarray], int]:
    """The metrics of all decisions, those of every resample, and the number of units."""
    prepared, rows = PreparedDecisions(decided), len(decided.actions)
    resamples = affordable(resamples, rows, len(prepared.rankings) + 3)
    under = {name: metric.prepare(prepared) for name, metric in metrics.METRICS.items()}
    whole = {name: float(value(prepared.everything)[0]) for name, value in under.items()}
    blocks = unit_counts(prepared.units, resamples, rows, seed)
    parts = [{name: value(weights) for name, value in under.items()} for weights in blocks]
    return whole, {name: np.concatenate([part[name] for part in parts]) for name in under}, prepared.units


def confusion(decided: Decided) -> np.ndarray:
    """[actions, actions] how often each action was taken (row) when each was the most probable (column)."""
    count = decided.probabilities.shape[1]
    return np.bincount(count * decided.actions + decided.chosen, minlength=count**2).reshape(count, count)


def per_action(decided: Decided) -> list[ActionScores]:
    """How well each action is matched, one row per action."""
    table = confusion(decided)
    hits, taken, chosen = table.diagonal(), table.sum(axis=1), table.sum(axis=0)
    with np.errstate(invalid="ignore"):
        precision, recall, f1 = hits / chosen, hits / taken, 2 * hits / (taken + chosen)
    everything = np.ones((1, 1))
    rows, unit = [], np.zeros(len(decided.actions), np.int32)
    for action, count in enumerate(taken):
        under = areas(rankings(decided, action, unit), everything)
        values = (precision[action], recall[action], f1[action], under.roc[0], under.precision[0])
        rows.append(ActionScores(int(count), *map(float, values)))
    return rows
