"""Percentile bootstrap over whole episodes, and areas under curves that are quick to compute again for every resample.

Resampling is weighting: a resample is how often each unit (an episode, a group of episodes) was drawn. What has to be
sorted is sorted once, and every resample is then a matter of cumulative sums.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
BLOCK = 2**19  # weights of rows held in memory at once
WORK = 2**30  # weights of rows that may be looked at for one set of intervals: half a minute
FEWEST = 100  # resamples, whatever the work


class Interval(NamedTuple):
    """A value and its 95 % interval, which is not a number where there is a single unit."""

    value: float
    low: float
    high: float

    def as_json(self) -> dict[str, float | None]:
        """As plain values; what is not a number is None."""
        return {name: value if math.isfinite(value) else None for name, value in self._asdict().items()}


def affordable(resamples: int, rows: int, passes: int) -> int:
    """As many resamples as asked for, or fewer where `rows` seen `passes` times for each would take too long."""
    return min(resamples, max(WORK // (rows * passes), FEWEST))


def draws(units: int, resamples: int, rows: int, seed: int) -> Iterator[np.ndarray]:
    """How often each unit is drawn, [resamples, units], so many at a time that weights of `rows` fit into memory."""
    rng, most = np.random.default_rng(seed), max(BLOCK // max(rows, units), 1)
    for start in range(0, resamples, most):
        count = min(most, resamples - start)
        drawn = rng.integers(units, size=(count, units)) + units * np.arange(count)[:, None]
        yield np.bincount(drawn.ravel(), minlength=count * units).reshape(count, units).astype(np.float64)


def interval(value: float, resampled: np.ndarray, units: int) -> Interval:
    """A value and the middle 95 % of what it is in the resamples; those in which it is not defined do not count."""
    known = resampled[~np.isnan(resampled)]
    if units < 2 or not len(known) or np.isnan(value):
        return Interval(float(value), float("nan"), float("nan"))
    low, high = np.quantile(known, TAILS)
    return Interval(float(value), float(low), float(high))


def numbered(units: np.ndarray) -> tuple[np.ndarray, int]:
    """[n] the units numbered from 0, and how many there are."""
    names, numbers = np.unique(units, return_inverse=True)
    return numbers.astype(np.int32), len(names)


class Areas(NamedTuple):
    """Areas under the ROC curve and the precision-recall curve (average precision), [resamples] each.

    Not a number where there is no positive row, or nothing but positive rows: then there is nothing to rank.
    """

    roc: np.ndarray
    precision: np.ndarray
    pairs: np.ndarray  # of a positive and another row, which the first area is a mean over
    positives: np.ndarray  # which the second is a mean over: those beside which there are others

    @classmethod
    def together(cls, parts: Sequence["Areas"]) -> "Areas":
        """The means over the pairs and the positive rows of several parts; rows of different parts are not compared."""
        pairs, positives = (sum(counts, np.zeros(1)) for counts in zip(*(part[2:] for part in parts), strict=True))
        with np.errstate(invalid="ignore"):
            roc = sum(np.nan_to_num(part.roc) * part.pairs for part in parts) / pairs
            precision = sum(np.nan_to_num(part.precision) * part.positives for part in parts) / positives
        return cls(roc, precision, pairs, positives)


class Ranking(NamedTuple):
    """Rows from the highest score to the lowest; some of them are positive. Rows of one score are a tie.

    Neighbours of one unit in one tie are looked at together, as one row that counts as often.
    """

    unit: np.ndarray  # [n]
    times: np.ndarray | None  # [n], how many rows each is; none where each is one
    positive: np.ndarray  # [p], the places of those among which there are positive rows
    hits: np.ndarray | None  # [p], how many; none where each is one
    start: np.ndarray  # [p], how many are above the tie of each
    end: np.ndarray  # [p], and with the tie
    first: np.ndarray  # [p], how many with positive rows are above the tie
    last: np.ndarray  # [p], and with the tie

    @classmethod
    def of(cls, scores: np.ndarray, positive: np.ndarray, unit: np.ndarray) -> "Ranking":
        """Sort once."""
        order, edges = ranked(scores)
        unit, positive = unit[order], positive[order]
        starts = _runs(unit, edges[:-1])
        times = hits = None
        if len(starts) < len(unit):
            times, among = np.diff(starts, append=len(unit)), np.add.reduceat(positive, starts, dtype=np.int64)
            unit, positive, edges = unit[starts], among > 0, np.searchsorted(starts, edges)
            hits = among[positive]
        places = np.flatnonzero(positive)
        tie = np.searchsorted(edges, places, side="right")
        start, end = edges[tie - 1], edges[tie]
        first, last = np.searchsorted(places, start), np.searchsorted(places, end)
        return cls(unit, times, places, hits, start, end, first, last)

    def areas(self, weights: np.ndarray) -> Areas:
        """The areas for weights [resamples, units]."""
        rows = weights.take(self.unit, axis=1)
        hits = rows.take(self.positive, axis=1)
        if self.times is not None and self.hits is not None:
            rows, hits = rows * self.times, hits * self.hits
        seen, found = running(rows), running(hits)
        seen_end, found_end = seen.take(self.end, axis=1), found.take(self.last, axis=1)
        wrong = seen_end - found_end + seen.take(self.start, axis=1) - found.take(self.first, axis=1)
        positives = found[:, -1]
        negatives = seen[:, -1] - positives
        pairs = positives * negatives
        with np.errstate(invalid="ignore"):
            precision = np.where(hits > 0, found_end / seen_end, 0.0)
            roc = (hits * (negatives[:, None] - wrong / 2)).sum(axis=1) / pairs
            average = np.where(negatives > 0, (hits * precision).sum(axis=1) / positives, np.nan)
        return Areas(roc, average, pairs, np.where(negatives > 0, positives, 0.0))


class Sums(NamedTuple):
    """Values of rows to be summed group by group; those of neighbours of one unit in one group are summed before."""

    unit: np.ndarray  # [n], sorted by group
    value: np.ndarray  # [n]
    start: np.ndarray  # [groups that have rows]

    @classmethod
    def of(cls, group: np.ndarray, value: np.ndarray, unit: np.ndarray) -> "Sums":
        """Sort once."""
        order = np.argsort(group, kind="stable")
        begins = np.flatnonzero(np.diff(group[order], prepend=-1))
        unit = unit[order]
        starts = _runs(unit, begins)
        return cls(unit[starts], np.add.reduceat(value[order], starts), np.searchsorted(starts, begins))

    def under(self, weights: np.ndarray) -> np.ndarray:
        """[resamples, groups that have rows], for weights [resamples, units]."""
        rows = weights.take(self.unit, axis=1)
        return np.add.reduceat(rows * self.value, self.start, axis=1)


def _runs(unit: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Where another unit begins, or one of the parts that begin at `begins`."""
    new = np.ones(len(unit), bool)
    np.not_equal(unit[1:], unit[:-1], out=new[1:])
    new[begins] = True
    return np.flatnonzero(new)


def ranked(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order from the highest score to the lowest, and the places where ties begin, the end added."""
    order = np.argsort(-scores, kind="stable")
    descending = scores[order]
    return order, np.concatenate([[0], 1 + np.flatnonzero(descending[1:] != descending[:-1]), [len(scores)]])


def running(values: np.ndarray) -> np.ndarray:
    """[resamples, n + 1], the sum of the values before each place."""
    sums = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums
