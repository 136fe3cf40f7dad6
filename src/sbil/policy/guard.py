"""What a policy knows of the columns that it learned from, and the check of rows against it.

The guard holds ranges, rounded quantiles and the policy's measure of the unfamiliar as plain arrays. A check needs
NumPy alone. No recorded extreme is stored; `learned` explains the rule.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sbil.errors import UserError
from sbil.policy.guard_measures import Measure, in_blocks, quantiles_of

FEW = 10  # trajectories, or rows: an end of a range has at least so many beyond it before it is widened
MANY = 40  # trajectories from which on FEW counts trajectories
LEAST = 40  # states that ranges are made from
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the quantiles
FURTHER = 5  # times FEW values lie beyond the place from which the tail is drawn on
BEYOND, OF = 2, 1000  # an end is put where two would lie beyond it; of fewer than 1,000 the same share
SHORT, DEVIATIONS = 0.2, 10.0  # deviations: a tail is too short; where the end is then
STEPS = 20  # at least so many steps of rounding in a range
FINER = 10  # times smaller steps for the quantiles
LARGEST = float(np.finfo(np.float32).max)
ENTRIES = ("low", "high", "quantiles", "shares", "whole")


@dataclass(frozen=True, eq=False)
class Guard:
    """What is known of each number that a policy sees.

    inside: at least this share of the training states has every number inside its range.
    rows: how many training states the ranges come from.
    measure: what decides whether a state is unfamiliar; None leaves that to the energy.
    """

    low: np.ndarray  # [columns] float32
    high: np.ndarray  # [columns]
    quantiles: np.ndarray  # [columns, 5] at LEVELS
    shares: np.ndarray  # [columns, 5] of the training states at or below each quantile
    whole: np.ndarray  # [columns] 1.0 for codes, which must be whole numbers
    inside: float
    rows: int
    measure: Measure | None = None

    def outside(self, rows: np.ndarray) -> np.ndarray:
        """[..., columns] which numbers lie outside what was seen in training."""
        rows = np.asarray(rows, np.float32)
        broken = (self.whole > 0) & (rows != np.floor(rows))
        return (rows < self.low) | (rows > self.high) | broken

    def beyond(self, rows: np.ndarray) -> np.ndarray:
        """[n] how far the farthest number is from its median: 0 at the median, 1 at an end of its range."""
        return in_blocks(self._beyond, rows)

    def _beyond(self, rows: np.ndarray) -> np.ndarray:
        rows, middle = np.asarray(rows, np.float64), self.quantiles[:, len(LEVELS) // 2].astype(np.float64)
        distance = np.where(rows > middle, rows - middle, middle - rows)
        reach = np.where(rows > middle, self.high - middle, middle - self.low)
        room = np.maximum(reach, 1e-9 * np.maximum(np.abs(middle), 1))
        codes = np.where(self.outside(rows), np.maximum(2.0, distance / room), 0.0)
        return np.minimum(np.where(self._narrow, codes, distance / room), LARGEST).max(axis=-1, initial=0.0)

    @property
    def _narrow(self) -> np.ndarray:
        """[columns] whether a number is a code, or 0 or 1 in training, or never varied."""
        two = (self.low == 0) & (self.high == 1) & np.isin(self.quantiles, (0, 1)).all(axis=1)
        return (self.whole > 0) | (self.high <= self.low) | two

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array by its name in the file of weights."""
        own = {f"guard.{name}": np.asarray(getattr(self, name), np.float32) for name in ENTRIES}
        return own if self.measure is None else own | self.measure.arrays()

    def as_json(self) -> dict[str, Any]:
        """What stands in policy.json; the arrays are with the weights."""
        facts = {"inside": self.inside, "rows": self.rows}
        return {**facts, "measure": None if self.measure is None else self.measure.as_json()}


def shapes_of(described: Mapping[str, Any], columns: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of a guard that policy.json describes; a wrong description is refused."""
    if not isinstance(described, Mapping) or set(described) != {"inside", "rows", "measure"}:
        raise UserError("the guard is not described as it should be; the folder is damaged.")
    good = type(described["inside"]) in (int, float) and 0 <= described["inside"] <= 1
    if not (good and type(described["rows"]) is int and described["rows"] >= 0):
        raise UserError("the guard's counts are wrong; the folder is damaged.")
    wide = (columns, len(LEVELS))
    own: dict[str, tuple[int, ...]] = {}
    own |= {f"guard.{name}": wide if name in ("quantiles", "shares") else (columns,) for name in ENTRIES}
    return own if described["measure"] is None else own | Measure.shapes(described["measure"], columns)


def restored(described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Guard:
    """The guard of a description and its arrays, whose shapes were checked."""
    own = {name: arrays[f"guard.{name}"] for name in ENTRIES}
    measure = None if described["measure"] is None else Measure.restored(described["measure"], arrays)
    if (own["low"] > own["high"]).any() or (np.diff(own["quantiles"], axis=1) < 0).any():
        raise UserError("a range of the guard ends before it begins; the folder is damaged.")
    return Guard(**own, inside=float(described["inside"]), rows=described["rows"], measure=measure)


def learned(rows: np.ndarray, units: np.ndarray, codes: Sequence[int] = ()) -> Guard | None:
    """What the states [n, columns] of training say of each column; None for fewer than 40 states.

    Its measure is the range, until another is chosen.

    units: [n] the trajectory of each state, or its group.
    codes: by column how many levels it has; 0 for a column of numbers.

    An end of a range is made in three steps, so that it is nobody's value. First, take the value that ten trajectories
    (of fewer than forty: ten states) reach or pass, and the value that fifty do. Second, draw the tail on through
    both, as an exponential one, to where two would lie beyond; of fewer than a thousand, the same share of them. Third,
    round outward. If most values are equal, ten deviations from the median replace the second step. Quantiles are
    rounded too, and lie between the values of the first step.
    """
    if len(rows) < LEAST:
        return None
    rows = np.asarray(rows, np.float64)
    numbers = np.unique(units, return_inverse=True)[1]
    levels = [*codes] or [0] * rows.shape[1]
    found = [_column(column, numbers, count) for column, count in zip(rows.T, levels, strict=True)]
    low, high = (np.array([one[end] for one in found], np.float32) for end in (0, 1))
    quantiles = np.array([one[2] for one in found], np.float32)
    shares = np.array([[_share(column <= q) for q in own] for column, own in zip(rows.T, quantiles, strict=True)])
    whole = np.array([float(count > 0) for count in levels], np.float32)
    guard = Guard(low, high, quantiles, shares.astype(np.float32), whole, 0.0, len(rows))
    few = max(int(guard.outside(rows).any(axis=1).sum()), FEW)
    inside = math.floor(1000 * (1 - few / len(rows))) / 1000
    return replace(guard, inside=inside, measure=Measure("range", scores=quantiles_of(guard.beyond(rows))))


def _share(below: np.ndarray) -> float:
    """The share of values that are below, in hundredths; fewer than ten on a side count as none."""
    count = int(below.sum())
    count = 0 if count < FEW else len(below) if len(below) - count < FEW else count
    return round(count / len(below), 2)


def _column(column: np.ndarray, units: np.ndarray, levels: int) -> tuple[float, float, np.ndarray]:
    """The range of a column and its quantiles."""
    if levels:
        return 0.0, float(levels - 1), np.quantile(column, LEVELS, method="inverted_cdf")
    if np.isin(column, (0, 1)).all():
        return 0.0, 1.0, np.quantile(column, LEVELS, method="inverted_cdf")
    top, high = _end(column, units)
    bottom, low = (-value for value in _end(-column, units))
    bottom = min(bottom, top)
    quantiles = np.clip(np.quantile(column, LEVELS), bottom, top)
    middle = float(quantiles[len(LEVELS) // 2])
    least = (high - low) / STEPS
    low = 0.0 - _outward(-low, -middle, least, bool((column >= 0).all()))
    high = _outward(high, middle, least, bool((column <= 0).all()))
    fine = _step(high - low, max(abs(high), abs(low))) / FINER
    quantiles = np.clip(np.round(quantiles / fine) * fine, max(low, -LARGEST), min(high, LARGEST))
    return max(low, -LARGEST), min(high, LARGEST), quantiles


def _outward(end: float, middle: float, least: float, stops: bool) -> float:
    """The upper end of a range, rounded upward.

    least: the distance from the median is taken to be at least this. stops: at 0, because no value is above 0.
    The steps suit the distance from the median, which may be short on one side and long on the other. A little more is
    added, so that float32 cannot put a value of the range outside.
    """
    step = _step(max(end - middle, least), abs(end))
    rounded = (math.ceil(end / step - 1e-6) + 1e-6) * step
    return min(rounded, 0.0) if stops else rounded


def _end(column: np.ndarray, units: np.ndarray) -> tuple[float, float]:
    """The value that FEW trajectories reach or pass, and the upper end of the range: the tail drawn on from there.

    Most values of a column may be equal, for example those that were filled in. Then the tail says nothing, and the end
    is ten times the deviation above the median.
    """
    count = int(units.max()) + 1
    most = column
    if count >= MANY:
        most = np.full(count, -np.inf)
        np.maximum.at(most, units, column)
    descending = np.sort(most)[::-1]
    further = min(FURTHER * FEW, len(most) // 2)
    near, far = float(descending[FEW - 1]), float(descending[further - 1])
    beyond = BEYOND * min(1.0, len(most) / OF)
    reach = (near - far) * math.log(FEW / beyond) / math.log(further / FEW)
    middle = float(np.median(column))
    cut = np.minimum(column, np.sort(column)[-FEW])  # so that no nine states move the end
    deviation = float(np.sqrt(np.mean(np.maximum(cut - middle, 0.0) ** 2)))
    if reach < SHORT * deviation and cut.max() > near + reach:
        return near, middle + DEVIATIONS * deviation
    return near, near + reach


def _step(width: float, size: float) -> float:
    """The step of rounding: a power of ten of which a range holds 20 to 200."""
    most = width if width > 1e-6 * size else size
    return float(10.0 ** math.floor(math.log10(most / STEPS))) if most > 1e-30 else 1e-30
