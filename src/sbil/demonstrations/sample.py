"""A sample of a table for rules that would be too slow for every row: whole episodes, always the same ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from sbil.demonstrations import values
from sbil.demonstrations.columns import Gathered
from sbil.demonstrations.schema import LARGEST
from sbil.demonstrations.table import Batch

MOST, LEAST = 20_000, 500  # rows of a sample
CELLS = 4_000_000  # of a sample; a wide table has a smaller one


def _scattered(numbers: np.ndarray) -> np.ndarray:
    """[n] whole numbers as other whole numbers that have no order in common with them (splitmix64)."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class Sample:
    """The rows of some episodes, or some of the rows where there are no episodes, collected batch by batch.

    numeric: by column whether it is read as numbers; other columns are read as names.
    """

    def __init__(self, numeric: Mapping[str, bool]) -> None:
        self.numeric = numeric
        self.most = max(min(MOST, CELLS // max(len(numeric), 1)), LEAST)
        self.seen = 0  # rows of the table so far
        self.last = np.iinfo(np.uint64).max  # rows with a larger key are not sampled
        self.keys, self.rows = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self.parts: list[pl.DataFrame] = []

    def add(self, batch: Batch, episodes: np.ndarray | None, numbers: Mapping[str, values.Values]) -> None:
        """Keep the sampled rows of a batch; `numbers` are the columns that were read already."""
        rows = self.seen + np.arange(len(batch.rows))
        self.seen += len(rows)
        keys = _scattered(rows if episodes is None else episodes)
        chosen = np.flatnonzero(keys <= self.last)
        if not len(chosen):
            return
        self.keys, self.rows = np.append(self.keys, keys[chosen]), np.append(self.rows, rows[chosen])
        self.parts.append(pl.DataFrame([self._cells(name, batch, chosen, numbers) for name in self.numeric]))
        if len(self.rows) > 2 * self.most:
            self._shrink()

    def _cells(self, name: str, batch: Batch, chosen: np.ndarray, numbers: Mapping[str, values.Values]) -> pl.Series:
        column = batch.frame[name]
        if values.has_no_text(column):
            return pl.Series(name, [None] * len(chosen), dtype=pl.Float64 if self.numeric[name] else pl.String)
        if not self.numeric[name]:
            return column.gather(chosen).cast(pl.String)
        read = numbers.get(name)
        found = values.numbers(column.gather(chosen), batch.decimal).values if read is None else read.values[chosen]
        return pl.Series(name, found, dtype=pl.Float64)

    def _shrink(self) -> None:
        """Keep the rows with the smallest keys: whole episodes, but the first rows of an only one."""
        ranked = np.sort(self.keys)
        self.last = ranked[self.most]
        keep = np.flatnonzero(self.keys < self.last)
        if len(keep):
            self.last = self.keys[keep].max()
        else:
            keep = np.flatnonzero(self.keys == self.last)[: self.most]
        self.parts = [pl.concat(self.parts)[keep]]
        self.keys, self.rows = self.keys[keep], self.rows[keep]

    def finish(self) -> None:
        """Bring the sample to its size, after the last batch."""
        if len(self.rows) > self.most:
            self._shrink()

    def ordered(self, read: Gathered, action: str | None, episode: str | None) -> "Sampled | None":
        """The sampled rows whose action is known, by episode and time; None if there are none."""
        if not self.parts or action not in read.codes:
            return None
        self.finish()
        taken = read.codes[action].all()[self.rows]
        place = np.arange(len(self.rows))
        unit = read.codes[episode].all()[self.rows] if episode in read.codes else self.rows
        time = place if read.time is None else read.time[self.rows]
        order = np.lexsort((place, time, unit))
        order = order[(taken[order] >= 0) & (unit[order] >= 0)]
        if not len(order):
            return None
        starts = np.append(True, np.diff(unit[order]) != 0)
        frame = pl.concat(self.parts)[order]
        return Sampled(frame, self.rows[order], taken[order], starts, read.levels[action].names)


@dataclass(frozen=True, eq=False)
class Sampled:
    """The rows of a sample, by episode and time.

    frame: numbers as float64, NaN where there is none; names as text.
    rows: [n] the place of each row in the table.
    action: [n] the number of the action, a place in `actions`.
    starts: [n] whether the row is the first of its episode.
    """

    frame: pl.DataFrame
    rows: np.ndarray
    action: np.ndarray
    starts: np.ndarray
    actions: Sequence[str]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ends(self) -> np.ndarray:
        """[n] whether the row is the last of its episode."""
        return np.append(self.starts[1:], True)

    @property
    def episode(self) -> np.ndarray:
        """[n] the number of the episode, from 0."""
        return np.cumsum(self.starts) - 1

    def is_text(self, name: str) -> bool:
        """Whether a column holds names."""
        return self.frame[name].dtype == pl.String

    def numbers(self, name: str) -> np.ndarray:
        """[n] the numbers of a column; names are numbered by the alphabet. What is missing or too large is -inf."""
        column = self.frame[name]
        if not self.is_text(name):
            found = column.to_numpy()
            return np.where(np.abs(found) <= LARGEST, found, -np.inf)
        return numbered(column.to_list())


def numbered(names: Sequence[str | None]) -> np.ndarray:
    """[n] the place of each name among all of them by the alphabet; -inf where there is none."""
    texts = pl.Series([None if name is None else name.strip() or None for name in names], dtype=pl.String)
    return texts.rank("dense").cast(pl.Float64).fill_null(-np.inf).to_numpy()
