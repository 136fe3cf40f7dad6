"""What spoils a table without being wrong anywhere: rows that are copies, columns that name the episode."""

from __future__ import annotations

import numpy as np
import polars as pl

from sbil.demonstrations import values as cells

MOST_ROWS = 10_000_000  # rows that are compared with one another, 8 bytes each
FEW_UNITS = 50  # among fewer episodes a measurement may differ in each by chance
NEARLY = 0.95  # of the episodes have a value of their own


def _hashes(column: pl.Series) -> np.ndarray:
    return (column.cast(pl.String) if cells.is_text(column) else column).hash(seed=1).to_numpy()


class Copies:
    """Rows that are the same in every column, by a hash of each."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.rows = 0

    def add(self, frame: pl.DataFrame) -> None:
        self.rows += frame.height
        if self.rows > MOST_ROWS:
            self.parts = []
            return
        total = np.zeros(frame.height, np.uint64)
        for column in frame.iter_columns():
            if not cells.has_no_text(column):
                total = total * np.uint64(0x9E3779B97F4A7C15) + _hashes(column)
        self.parts.append(total)

    def found(self) -> tuple[int, int] | None:
        """(how many rows are copies of an earlier one, the place of the first), or nothing where not counted."""
        if self.rows > MOST_ROWS or not self.parts:
            return None
        hashes = np.concatenate(self.parts)
        ascending = np.sort(hashes)
        again = ascending[1:] == ascending[:-1]
        if not again.any():
            return 0, -1
        order = np.argsort(hashes, kind="stable")  # of equals the earlier comes first
        return int(again.sum()), int(order[1:][again].min())


class Identifiers:
    """Columns with one value an episode, and another in nearly every one."""

    def __init__(self, names: list[str]) -> None:
        self.first = {name: np.zeros(0, np.uint64) for name in names}  # by episode, the hash of its value
        self.known = np.zeros(0, bool)
        self.looked = 0  # how many episodes there were when values were last counted

    def add(self, frame: pl.DataFrame, episodes: np.ndarray) -> None:
        """Keep a batch; a column that changes within an episode, or repeats much, is dropped for good."""
        rows = np.flatnonzero(episodes >= 0)
        codes = episodes[rows]
        more = max(int(codes.max(initial=-1)) + 1 - len(self.known), 0)
        self.known = np.append(self.known, np.zeros(more, bool))
        new = ~self.known[codes]
        known = self.known.copy()
        known[codes] = True
        count = int(known.sum())
        look = count >= 2 * self.looked
        self.looked = count if look else self.looked
        for name, before in list(self.first.items()):
            if cells.has_no_text(frame[name]):
                del self.first[name]
                continue
            values, first = _hashes(frame[name])[rows], np.append(before, np.zeros(more, np.uint64))
            first[codes[new]] = values[new]
            self.first[name] = first
            if (first[codes] != values).any() or (look and len(np.unique(first[known])) * 10 < count):
                del self.first[name]
        self.known = known

    def found(self, groups: np.ndarray | None) -> dict[str, dict[str, bool]]:
        """Of the columns left, whether they have nearly one value an episode, or one a group (`groups` by episode)."""
        return {name: self._found(first, groups) for name, first in self.first.items()}

    def _found(self, first: np.ndarray, groups: np.ndarray | None) -> dict[str, bool]:
        values, of = first[self.known], int(self.known.sum())
        distinct = len(np.unique(values))
        own = of >= FEW_UNITS and distinct >= NEARLY * of
        if groups is not None and not own:
            owners = groups[self.known]
            several = len(np.unique(owners))
            pairs = len(np.unique(np.stack([owners.astype(np.uint64), values]), axis=1).T)
            own = several >= FEW_UNITS and distinct >= NEARLY * several and pairs * NEARLY <= several
        return {"own": own, "many": distinct >= max(20, of // 10)}
