"""Methods: algorithms, written as in "edm:released+noise=0.1", and baselines that tables of decisions add to them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sbil import algorithms
from sbil.dataset import Standardisation
from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.evaluation.baselines import MAJORITY, PREVIOUS
from sbil.evaluation.baselines import Baselines as Counts
from sbil.evaluation.decided import Decided, decided, units
from sbil.policy import Policy


@dataclass(frozen=True)
class Method:
    """An algorithm, one of its presets, and settings changed by hand; or the name of a baseline of the task.

    Where the values of a setting are separated by slashes, each run chooses one of them on held-out demonstrations
    (see `sbil.selection`).
    """

    algorithm: str
    preset: str = "default"
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = self.algorithm if self.preset == "default" else f"{self.algorithm}:{self.preset}"
        return "+".join((name, *self.settings))

    @classmethod
    def parse(cls, text: str) -> "Method":
        """From "edm", "edm:released", "edm:released+noise=0.1" or "bc+weight_decay=0/0.1/1"."""
        name, *settings = text.strip().split("+")
        algorithm, _, preset = name.partition(":")
        return cls(algorithm, preset or "default", tuple(settings))

    @property
    def candidates(self) -> dict[str, Any]:
        """The Configs that the settings allow, by name; if there are several, every run chooses among them."""
        settings = algorithms.parse_words(self.algorithm, self.settings)
        return algorithms.candidates(self.algorithm, self.preset, settings)

    def updates(self, asked: int | None) -> int:
        """Return the number of updates: the one asked for, or the preset's own."""
        return algorithms.updates_for(self.algorithm, self.preset, self.candidates.values(), asked)


class Learning(NamedTuple):
    """The part of a dataset that a method learns from."""

    demonstrations: Demonstrations
    scaling: Standardisation | None  # None: states are taken as they are
    seed: int


Says = Callable[[Demonstrations], Decided]  # what was learned -> what it thinks of decisions
Baseline = Callable[[Learning], Says]

LOGISTIC, TREES = "logistic regression", "gradient-boosted trees"


def reference(policy: Policy) -> Baseline:
    """A policy that is known and learns nothing."""
    return lambda part: partial(decided, policy)


def _counted(name: str, part: Learning) -> Says:
    counts = Counts.from_demonstrations(part.demonstrations)
    return lambda judged: counts.decided(judged)[name]


def _classified(name: str, part: Learning) -> Says:
    """Fit a classifier of scikit-learn with its defaults. If the data have only one action, it always predicts that.

    The algorithms `logistic` and `trees` have other settings, and other titles.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise UserError(f"{name} needs scikit-learn; install it with: pip install 'sbil[clinical]'") from None
    trees = name == TREES
    model = HistGradientBoostingClassifier(random_state=part.seed) if trees else LogisticRegression(max_iter=2000)
    steps, actions = part.demonstrations.flat(), len(part.demonstrations.action_names)
    taken = np.unique(steps.action)
    if len(taken) > 1:
        model.fit(scaled(part.scaling, steps.observation), steps.action)

    def says(judged: Demonstrations) -> Decided:
        asked = judged.flat()
        probabilities = np.zeros((len(asked.action), actions))
        known = model.predict_proba(scaled(part.scaling, asked.observation)) if len(taken) > 1 else 1
        probabilities[:, taken] = known
        return Decided(probabilities, asked.action, units(judged, asked.trajectory))

    return says


def scaled(scaling: Standardisation | None, observations: np.ndarray) -> np.ndarray:
    """Return the observations, standardised if a scaling is given."""
    return scaling.apply(observations) if scaling else observations


BASELINES: dict[str, Baseline] = {
    **{name: partial(_counted, name) for name in (MAJORITY, PREVIOUS)},
    **{name: partial(_classified, name) for name in (LOGISTIC, TREES)},
}
