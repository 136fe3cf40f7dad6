"""Which rows of a table are used, and in which order: by episode and time."""

from typing import NamedTuple

import numpy as np

from sbil.demonstrations.columns import Gathered
from sbil.demonstrations.schema import Schema


class Order(NamedTuple):
    """Which rows are used, in which order, and where the episodes lie among them."""

    chosen: np.ndarray | None  # [n] rows of the table; None where all are used as they stand
    starts: np.ndarray  # [episodes] by name of the episode
    ends: np.ndarray
    moved: bool

    def of(self, column: np.ndarray) -> np.ndarray:
        """The values of the table's rows, in this order."""
        return column if self.chosen is None else column[self.chosen]

    def row(self, place: int | np.integer) -> int:
        """The row of the table at a place of this order."""
        return int(place if self.chosen is None else self.chosen[place])

    def first(self, length: int) -> np.ndarray:
        """[n] where the episode of each place begins."""
        begins = np.sort(self.starts)
        return np.repeat(begins, np.diff(begins, append=length))

    def carried(self, missing: np.ndarray) -> np.ndarray:
        """[n] the nearest place at or before each where nothing is missing, -1 if there is none in the episode."""
        last = np.maximum.accumulate(np.where(missing, -1, np.arange(len(missing))))
        return np.where(last >= self.first(len(missing)), last, -1)


def ordered(read: Gathered, schema: Schema, kept: np.ndarray | None) -> Order:
    """Rows grouped by episode and sorted by time; rows that already are stay where they are.

    kept: the rows to use; None for all.
    """
    length = len(read) if kept is None else len(kept)
    if not (schema.episode and schema.episode in read.codes):
        starts = np.arange(length)
        return Order(kept, starts, starts + 1, False)
    rank = _of(read.ranks(schema.episode), kept)
    time = None if read.time is None else _of(read.time, kept)
    moved = not _in_order(rank, time)
    if moved:
        by = np.argsort(rank, kind="stable") if time is None else np.lexsort((time, rank))
        kept, rank = by if kept is None else kept[by], rank[by]
    begins = _begins(rank)
    ends = np.append(begins[1:], length)
    by_name = np.argsort(rank[begins], kind="stable")
    return Order(kept, begins[by_name], ends[by_name], moved)


def _of(column: np.ndarray, kept: np.ndarray | None) -> np.ndarray:
    return column if kept is None else column[kept]


def _in_order(rank: np.ndarray, time: np.ndarray | None) -> bool:
    begins = _begins(rank)
    if len(np.unique(rank[begins])) < len(begins):
        return False
    return time is None or not bool(((time[1:] < time[:-1]) & (rank[1:] == rank[:-1])).any())


def _begins(rank: np.ndarray) -> np.ndarray:
    return np.append(0, np.flatnonzero(rank[1:] != rank[:-1]) + 1)
