"""A whole table beside the states of training: is it the same kind of data?

Three things are compared: how many states are unfamiliar, how familiar they are on average, and how the values of each
column lie between the quantiles of training. A difference counts if it is large and chance does not explain it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sbil.demonstrations import Demonstrations
from sbil.evaluation.decided import observed
from sbil.policy import Policy
from sbil.policy.guard import Guard
from sbil.statistics import least_share
from sbil.text import counted

MOVED = 0.25  # the share of a column's values that must lie elsewhere than in training
LEAST = 0.02  # the share of unfamiliar states that must be exceeded
CHANCE = 0.001  # of a false alarm by chance, over all columns of a table
MOST = 100_000  # decisions that are looked at
BLOCK = 1 << 16  # rows looked at together
SHOWN = 5  # columns in the sentence


class Moved(NamedTuple):
    """A column whose values lie elsewhere than in training.

    share: of the values, at least so many would have to move to lie as in training.
    middle, before: the median here, and in training.
    """

    column: str
    share: float
    middle: float
    before: float


@dataclass(frozen=True)
class Alarm:
    """A table beside the states of training.

    flagged: how many states are unfamiliar; expected: the share that is, among states like those of training.
    mean_percentile: the mean of the states' percentiles; it is about 50 for states like those of training.
    outside: by column, how many of its values lie outside its range in training; without the columns with none.
    moved: the columns that lie elsewhere, the farthest first.
    raised: whether the table is unlike the training data.
    """

    rows: int
    flagged: int
    expected: float
    mean_percentile: float
    outside: dict[str, int]
    moved: tuple[Moved, ...]
    raised: bool

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "moved": [column._asdict() for column in self.moved], "sentence": str(self)}

    def __str__(self) -> str:
        share = self.flagged / max(self.rows, 1)
        word = "is unlike" if self.raised else "is like"
        told = (
            f"{'ALARM: this' if self.raised else 'This'} table {word} the training data: {share:.1%} of "
            f"{counted(self.rows, 'state')} are flagged as unfamiliar ({self.expected:.1%} expected), and the mean "
            f"percentile is {self.mean_percentile:.0f} (50 expected)"
        )
        worst = sorted(self.outside, key=lambda name: -self.outside[name])[:SHOWN]
        parts = [f"'{name}' {self.outside[name] / self.rows:.1%}" for name in worst]
        told += f"; outside their range: {', '.join(parts)}{_more(self.outside)}" if worst else ""
        parts = [f"'{name}' (median {here:.4g}, in training {then:.4g})" for name, _, here, then in self.moved[:SHOWN]]
        return f"{told}; moved: {', '.join(parts)}{_more(self.moved)}." if parts else f"{told}."


def alarm(
    policy: Policy,
    observations: np.ndarray,
    percentiles: np.ndarray,
    units: Sequence[Any] | np.ndarray | None,
    above: float = 99.0,
) -> Alarm | None:
    """Compare states [n, columns] with those of training; None if the policy does not know its columns.

    percentiles: [n] of the states, as `Policy.percentile` gives them; above: from which on a state is unfamiliar.
    units: [n] the episode of each state, or its group. States of one unit are alike, so they count as one.
    """
    if policy.guard is None or not len(observations):
        return None
    rows, flagged, expected = len(observations), int((percentiles > above).sum()), 1 - above / 100
    counts = sum(policy.guard.outside(part).sum(axis=0) for part in _blocks(observations))
    outside = {policy.observation_names[column]: int(counts[column]) for column in np.flatnonzero(counts)}
    count = rows if units is None else len(np.unique(np.asarray(units)))
    found = moved(policy.guard, policy.observation_names, observations, count)
    strange = least_share(flagged * count / rows, count, CHANCE) > max(2 * expected, LEAST)
    mean = float(np.mean(percentiles))
    return Alarm(rows, flagged, expected, mean, outside, found, bool(strange or found))


def alarm_of(policy: Policy, demonstrations: Demonstrations, units: np.ndarray) -> Alarm | None:
    """The alarm of the states at which decisions were taken; at most MOST of them, drawn at random."""
    if policy.guard is None:
        return None
    seen = np.concatenate([*observed(demonstrations)])
    if len(seen) > MOST:
        chosen = np.sort(np.random.default_rng(0).choice(len(seen), MOST, replace=False))
        seen, units = seen[chosen], units[chosen]
    return alarm(policy, seen, policy.percentile(seen).round(1), units)


def outside(policy: Policy, demonstrations: Demonstrations) -> np.ndarray | None:
    """[decisions, columns] which numbers lie outside their range in training; None if the ranges are not known."""
    if policy.guard is None:
        return None
    return np.concatenate([policy.outside(part) for part in observed(demonstrations)])


def moved(guard: Guard, names: tuple[str, ...], observations: np.ndarray, count: int) -> tuple[Moved, ...]:
    """The columns whose values lie elsewhere than in training, the farthest first.

    At each of five quantiles of training, the share of values at or below it is compared with the share in training.
    count: how many of the states are independent. By the inequality of Dvoretzky, Kiefer and Wolfowitz, chance rarely
        makes a difference beyond a bound.
    """
    rows = np.asarray(observations, np.float32)
    below = [sum((part <= at).sum(axis=0) for part in _blocks(rows)) for at in guard.quantiles.T]
    chance = float(np.sqrt(np.log(2 * max(len(names), 1) / CHANCE) / (2 * count)))
    apart = np.abs(np.stack(below, axis=1) / len(rows) - guard.shares).max(axis=1)
    middles = np.median(rows, axis=0)
    far = [column for column in np.argsort(-apart, kind="stable") if apart[column] > MOVED + chance]
    before = guard.quantiles[:, guard.quantiles.shape[1] // 2]
    return tuple(Moved(names[i], float(apart[i]), float(middles[i]), float(before[i])) for i in far)


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows, some at a time."""
    return (rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK))


def _more(listed: Any) -> str:
    return f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
