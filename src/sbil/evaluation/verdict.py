"""The verdict on a method: is it better or worse than others on the same held-out decisions, by how much, how surely?

Every comparison is the difference of log-loss per decision, paired decision by decision. Episodes (or groups) are
resampled whole. A difference is sure if its 95 % interval excludes zero and, with few units, an exact sign-flip test
agrees. With fewer than six units no difference can be sure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from sbil.evaluation.baselines import MAJORITY, PREVIOUS
from sbil.evaluation.decided import Decided
from sbil.evaluation.metrics.log_loss import losses
from sbil.statistics import Interval, affordable, interval, numbered, sign_flip, unit_counts
from sbil.text import counted, plural

LEAST = 6  # units; with fewer no sign-flip test can be sure
MANY = 100  # units from which on the interval is enough
RESAMPLES = 1000
GAP = 1.1  # times the log-loss on training: a smaller gap is not named
NAMES = {
    MAJORITY: "the most frequent action",
    PREVIOUS: "repeating the last action",
    "logistic": "logistic regression",
    "trees": "gradient-boosted trees",
}
WORST = (MAJORITY, PREVIOUS)  # who is worse than one of these must not be deployed


class Difference(NamedTuple):
    """The log-loss of a method minus that of another, per decision; below zero, the method is better."""

    against: str
    log_loss: Interval
    sure: bool

    @property
    def verdict(self) -> Literal["better", "worse", "unclear"]:
        if not self.sure:
            return "unclear"
        return "better" if self.log_loss.value < 0 else "worse"

    @property
    def words(self) -> str:
        """The other method, and by how much."""
        return f"{NAMES.get(self.against, self.against)} ({self.size})"

    @property
    def size(self) -> str:
        """The difference and its interval, as words."""
        value, low, high = self.log_loss
        if self.sure:
            ends = sorted((abs(low), abs(high)))
            return f"{abs(value):.3f} {'lower' if value < 0 else 'higher'}, {ends[0]:.3f} to {ends[1]:.3f}"
        return f"{low:+.3f} to {high:+.3f}"

    def as_json(self) -> dict[str, Any]:
        return {"against": self.against, "log_loss": self.log_loss.as_json(), "verdict": self.verdict}


@dataclass(frozen=True)
class Verdict:
    """What paired differences say of a method.

    log_loss: of the method on the decisions that are judged.
    on_training: its log-loss on the decisions that it learned from, if that is known.
    known: whether the method learned from the decisions that are judged. Then there is no verdict.
    best: whether the method was taken because it has the smallest log-loss of several.
    """

    method: str
    unit: str
    units: int
    log_loss: Interval
    differences: tuple[Difference, ...]
    on_training: float | None = None
    known: bool = False
    best: bool = False

    @classmethod
    def of(
        cls,
        decided: Mapping[str, Decided],
        method: str,
        unit: str,
        *,
        on_training: float | None = None,
        known: bool = False,
        best: bool = False,
    ) -> "Verdict":
        """Compare a method with every other one on the same decisions."""
        own = losses(decided[method])
        others = {name: made for name, made in decided.items() if name != method}
        if PREVIOUS in others and MAJORITY in others and _alike(others[PREVIOUS], others[MAJORITY]):
            del others[PREVIOUS]  # no decision has one before
        episodes = decided[method].episodes
        found = tuple(difference(name, own - losses(made), episodes) for name, made in others.items())
        _, units = numbered(episodes)
        return cls(method, unit, units, _mean(own, episodes), found, on_training, known, best)

    @classmethod
    def of_best(cls, decided: Mapping[str, Decided], unit: str) -> "Verdict":
        """Compare the method with the smallest log-loss, among those that learn, with every other one."""
        learned = [name for name in decided if name not in WORST]
        best = min(learned, key=lambda name: losses(decided[name]).mean())
        return cls.of(decided, best, unit, best=len(learned) > 1)

    @property
    def words(self) -> str:
        """A few sentences."""
        if self.known:
            return "No verdict: the policy was trained on these decisions, or on some of them."
        if self.units < LEAST:
            return f"No verdict: {self._over}, too few to tell which method is better."
        told = [f"Of the methods that learn, {self.method} has the smallest log-loss."] if self.best else []
        told += _compared(self.method, self.differences)
        told.append(f"In brackets: the difference of log-loss, with its 95 % interval over {self._over}.")
        return " ".join([*told, *self._gap()])

    @property
    def _over(self) -> str:
        return counted(self.units, self.unit)

    def _gap(self) -> list[str]:
        """The sentence that names a training score much better than the score on the decisions that are judged."""
        if self.on_training is None or not self.on_training < min(self.log_loss.low, self.log_loss.value / GAP):
            return []
        return [
            f"Its log-loss is {self.on_training:.3f} on the decisions that it learned from and "
            f"{self.log_loss.value:.3f} on these: a part of what it learned does not hold for other "
            f"{plural(self.unit)}."
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "words": self.words,
            "unit": self.unit,
            "units": self.units,
            "log_loss": self.log_loss.as_json(),
            "log_loss_on_training": self.on_training,
            "known": self.known,
            "differences": [one.as_json() for one in self.differences],
        }


def difference(against: str, values: np.ndarray, episodes: np.ndarray) -> Difference:
    """Judge the mean of values [n], one per decision, whose units are `episodes` [n]."""
    found = _mean(values, episodes)
    unit, units = numbered(episodes)
    sure = units >= LEAST and (found.high < 0 or found.low > 0)
    if sure and units <= MANY:
        sure = sign_flip(np.bincount(unit, values, minlength=units)) < 0.05
    return Difference(against, found, bool(sure))


def _mean(values: np.ndarray, episodes: np.ndarray) -> Interval:
    """The mean per decision, and its interval over units."""
    unit, units = numbered(episodes)
    totals, counts = np.bincount(unit, values, minlength=units), np.bincount(unit, minlength=units)
    blocks = unit_counts(units, affordable(RESAMPLES, units, 2), units, 0)
    drawn = [(weights @ totals) / (weights @ counts) for weights in blocks]
    return interval(float(values.mean()), np.concatenate(drawn), units)


def _alike(one: Decided, other: Decided) -> bool:
    return bool(np.allclose(one.probabilities, other.probabilities))


def _compared(method: str, differences: Sequence[Difference]) -> list[str]:
    """Say what the method is worse than, what it is better than, and what it cannot be told from."""
    by_verdict: dict[str, list[Difference]] = {"worse": [], "better": [], "unclear": []}
    for one in differences:
        by_verdict[one.verdict].append(one)
    forbidding = [one for one in by_verdict["worse"] if one.against in WORST]
    told = [f"{method} is worse than {NAMES[one.against]}: do not deploy ({one.size})." for one in forbidding]
    groups = {
        "is worse than": [one for one in by_verdict["worse"] if one.against not in WORST],
        "is better than": by_verdict["better"],
        "cannot be told from": by_verdict["unclear"],
    }
    return told + [f"{method} {verb} {_listed([one.words for one in some])}." for verb, some in groups.items() if some]


def _listed(parts: Sequence[str]) -> str:
    """A, B and C."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
