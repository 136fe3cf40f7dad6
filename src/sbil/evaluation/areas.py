"""Areas under curves, and sums over groups, that are quick to compute again for every resample.

A resample says how often each unit (an episode, a group of episodes) was taken (see `sbil.statistics`). Rows are sorted
once; every resample then needs cumulative sums only.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Areas(NamedTuple):
    """Areas under the ROC curve and the precision-recall curve (average precision), [resamples] each.

    NaN if no row is positive or every row is: then there is nothing to rank.
    """

    roc: np.ndarray
    precision: np.ndarray
    pairs: np.ndarray  # how many pairs of a positive and another row; `roc` is a mean over them
    positives: np.ndarray  # how many positive rows; `precision` is a mean over them; 0 if no row is negative

    @classmethod
    def together(cls, parts: Sequence["Areas"]) -> "Areas":
        """Average over the pairs and the positive rows of several parts. Rows of different parts are not compared."""
        pairs, positives = (sum(counts, np.zeros(1)) for counts in zip(*(part[2:] for part in parts), strict=True))
        with np.errstate(invalid="ignore"):
            roc = sum(np.nan_to_num(part.roc) * part.pairs for part in parts) / pairs
            precision = sum(np.nan_to_num(part.precision) * part.positives for part in parts) / positives
        return cls(roc, precision, pairs, positives)


Ranking = Callable[[np.ndarray], Areas]  # weights [resamples, units] -> areas


def ranking(scores: np.ndarray, positive: np.ndarray, unit: np.ndarray) -> Ranking:
    """Rank rows [n] from the highest score to the lowest; some rows are positive, and rows of one score form a tie.

    Rows are sorted once. Neighbours that share unit and tie are merged into one row, which counts as many times.
    """
    order, edges = ranked(scores)
    unit, positive = unit[order], positive[order]
    starts = _runs(unit, edges[:-1])
    times = np.diff(starts, append=len(unit)) if len(starts) < len(unit) else None  # None: no row was merged
    among = np.add.reduceat(positive, starts, dtype=np.int64)
    unit, edges, places = unit[starts], np.searchsorted(starts, edges), np.flatnonzero(among)
    several = among[places]  # how many positive rows were merged at each place that has some
    tie = np.searchsorted(edges, places, side="right")
    start, end = edges[tie - 1], edges[tie]  # how many rows are above the tie of each place, without and with the tie
    first, last = np.searchsorted(places, start), np.searchsorted(places, end)  # the same for the places

    def areas(weights: np.ndarray) -> Areas:
        rows = weights.take(unit, axis=1)
        hits = rows.take(places, axis=1)
        if times is not None:
            rows, hits = rows * times, hits * several
        seen, found = running(rows), running(hits)
        seen_end, found_end = seen.take(end, axis=1), found.take(last, axis=1)
        wrong = seen_end - found_end + seen.take(start, axis=1) - found.take(first, axis=1)
        positives = found[:, -1]
        negatives = seen[:, -1] - positives
        pairs = positives * negatives
        with np.errstate(invalid="ignore"):
            precision = np.where(hits > 0, found_end / seen_end, 0.0)
            roc = (hits * (negatives[:, None] - wrong / 2)).sum(axis=1) / pairs
            average = np.where(negatives > 0, (hits * precision).sum(axis=1) / positives, np.nan)
        return Areas(roc, average, pairs, np.where(negatives > 0, positives, 0.0))

    return areas


def sums(group: np.ndarray, value: np.ndarray, unit: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of weights [resamples, units] to the sums of values by group, [resamples, groups with rows].

    Rows are sorted once. Neighbours that share unit and group are summed beforehand.
    """
    order = np.argsort(group, kind="stable")
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    unit = unit[order]
    starts = _runs(unit, begins)
    units, values, start = unit[starts], np.add.reduceat(value[order], starts), np.searchsorted(starts, begins)
    return lambda weights: np.add.reduceat(weights.take(units, axis=1) * values, start, axis=1)


def _runs(unit: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Return the places at which another unit begins, or one of the parts that begin at `begins`."""
    new = np.ones(len(unit), bool)
    np.not_equal(unit[1:], unit[:-1], out=new[1:])
    new[begins] = True
    return np.flatnonzero(new)


def ranked(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the order from the highest score to the lowest, and the places at which ties begin, with the end added."""
    order = np.argsort(-scores, kind="stable")
    descending = scores[order]
    return order, np.concatenate([[0], 1 + np.flatnonzero(descending[1:] != descending[:-1]), [len(scores)]])


def running(values: np.ndarray) -> np.ndarray:
    """Return [resamples, n + 1], the sum of the values before each place."""
    sums = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums
