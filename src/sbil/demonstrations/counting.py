"""What `check` counts in a table, in one pass and in bounded memory. The rules judge what it means."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import polars as pl

from sbil.demonstrations import values
from sbil.demonstrations.checking import SMALL, ColumnFacts
from sbil.demonstrations.columns import MOST_LEVELS
from sbil.demonstrations.table import Batch

SENTINELS = (-9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0)
SHOWN_LEVELS = 12
READ_AS_NAMES = ("episode", "group", "action", "category", "one-hot")  # roles
TOLD_APART = 256  # values that float32 must tell apart in the range of a column
MOST_ROWS = 10_000_000  # rows that are compared with one another, 8 bytes each
FEW_UNITS = 50  # among fewer episodes a measurement may differ in each by chance
NEARLY = 0.95  # the share of episodes with a value of their own that makes an identifier


class Tally:
    """What is counted of one column."""

    def __init__(self, name: str, known: Collection[str] = ()) -> None:
        self.name, self.known_names = name, known
        self.rows = self.missing = self.unnamed = self.numbers = self.foreign = 0
        self.sentinels: Counter[float] = Counter()
        self.counts: Counter[str] | None = Counter()
        self.total, self.low, self.high = 0.0, np.inf, -np.inf
        self.plain_low, self.plain_high = np.inf, -np.inf  # without sentinels
        self.whole = True

    def add(self, batch: Batch, read: values.Values | None) -> None:
        """Count a batch; `read` are its numbers, if they were read already."""
        column = batch.frame[self.name]
        read = read or values.numbers(column, batch.decimal)
        self.rows += len(column)
        self.missing += int(read.missing.sum())
        self.unnamed += int(values.unnamed(column, read.missing, self.known_names).sum())
        self.foreign += int(values.foreign(column, read.wrong).sum())
        good = read.values[~(read.missing | read.wrong | read.huge)]
        if len(good):
            self._add_numbers(good)
        self._count(column, batch.decimal)

    def _add_numbers(self, good: np.ndarray) -> None:
        self.numbers += len(good)
        self.total += float(good.sum())
        self.low, self.high = min(self.low, float(good.min())), max(self.high, float(good.max()))
        self.whole = self.whole and bool((good == np.floor(good)).all())
        special = np.isin(good, SENTINELS)
        self.sentinels.update(good[special].tolist())
        plain = good[~special] if special.any() else good
        if len(plain):
            self.plain_low = min(self.plain_low, float(plain.min()))
            self.plain_high = max(self.plain_high, float(plain.max()))

    def _count(self, column: pl.Series, decimal: str) -> None:
        if self.counts is None or values.has_no_text(column):
            self.counts = None
            return
        counted = column.cast(pl.String).value_counts(name="n")
        if len(counted) > MOST_LEVELS:
            self.counts = None
            return
        for cell, count in counted.iter_rows():
            if (name := values.label(cell, decimal, self.known_names)) is not None:
                self.counts[name] += count
        self.counts = self.counts if len(self.counts) <= MOST_LEVELS else None

    def facts(self, role: str, numeric: bool, named: bool, missing: int | None) -> ColumnFacts:
        """The facts of a column.

        numeric: whether reading takes it for numbers. named: whether its cells are read as names, and "none" is a name.
        missing: the missing values that reading counted, if it read the column.
        """
        numeric = numeric and not (named and self.missing > self.unnamed)
        missing = (self.unnamed if named else self.missing) if missing is None else missing
        ranged = numeric and self.numbers > 0 and role not in READ_AS_NAMES
        low, mean, high = (self.low, self.total / self.numbers, self.high) if ranged else (None, None, None)
        kind = "whole number" if self.whole and not self.foreign else "number"
        distinct = None if self.counts is None else len(self.counts)
        levels = self._levels() if role in ("action", "category", "one-hot") else ()
        share = missing / self.rows
        kind = kind if numeric else "text"
        return ColumnFacts(self.name, role, kind, missing, share, distinct, low, mean, high, levels)

    def _levels(self) -> tuple[str, ...]:
        """The names, if they are few; without the rare ones."""
        if self.counts is None or len(self.counts) > SHOWN_LEVELS:
            return ()
        return tuple(name for name, count in sorted(self.counts.items()) if count >= SMALL)

    @property
    def coarse(self) -> bool:
        """Whether the numbers vary by less than float32 can tell apart at their size."""
        if not self.numbers:
            return False
        size = np.float32(max(abs(self.low), abs(self.high)))
        step = float(size - np.nextafter(size, np.float32(0)))
        return bool(0 < self.high - self.low < TOLD_APART * step)

    @property
    def strange(self) -> int:
        """How many numbers such as -9 or 999 stand apart from all others."""
        if not np.isfinite(self.plain_low):
            return 0
        positive, far = self.plain_low >= 0, 2 * max(self.plain_high, 0)
        return sum(count for number, count in self.sentinels.items() if (positive if number < 0 else number > far))


def _hashes(column: pl.Series) -> np.ndarray:
    return (column.cast(pl.String) if values.is_text(column) else column).hash(seed=1).to_numpy()


class Copies:
    """Rows that are the same in every column, found by a hash of each row."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.rows = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Keep the hashes of a batch, unless there are too many rows."""
        self.rows += frame.height
        if self.rows > MOST_ROWS:
            self.parts = []
            return
        total = np.zeros(frame.height, np.uint64)
        for column in frame.iter_columns():
            if not values.has_no_text(column):
                total = total * np.uint64(0x9E3779B97F4A7C15) + _hashes(column)
        self.parts.append(total)

    def found(self) -> tuple[int, int] | None:
        """(how many rows are copies of an earlier row, the first of them); None if there are too many rows to count."""
        if self.rows > MOST_ROWS or not self.parts:
            return None
        copies = np.ones(self.rows, bool)
        copies[np.unique(np.concatenate(self.parts), return_index=True)[1]] = False
        return int(copies.sum()), int(np.argmax(copies))


class Identifiers:
    """Columns with one value per episode, and with another value in nearly every episode."""

    def __init__(self, names: list[str]) -> None:
        self.first = {name: np.zeros(0, np.uint64) for name in names}  # by episode, the hash of its value
        self.known = np.zeros(0, bool)
        self.looked = 0  # how many episodes there were when values were last counted

    def add(self, frame: pl.DataFrame, episodes: np.ndarray) -> None:
        """Keep a batch; forget a column that changes within an episode or often repeats, for it is no identifier."""
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
            if values.has_no_text(frame[name]):
                del self.first[name]
                continue
            hashes, first = _hashes(frame[name])[rows], np.append(before, np.zeros(more, np.uint64))
            first[codes[new]] = hashes[new]
            self.first[name] = first
            if (first[codes] != hashes).any() or (look and len(np.unique(first[known])) * 10 < count):
                del self.first[name]
        self.known = known

    def judged(self, name: str, groups: np.ndarray | None) -> tuple[bool, bool] | None:
        """(whether nearly every episode or group has its own value, whether there are many values); None if forgotten.

        groups: [episodes] the number of the group of each.
        """
        if name not in self.first:
            return None
        hashes, episodes = self.first[name][self.known], int(self.known.sum())
        distinct = len(np.unique(hashes))
        own = episodes >= FEW_UNITS and distinct >= NEARLY * episodes
        if groups is not None and not own:
            owners = groups[self.known]
            several = len(np.unique(owners))
            pairs = len(np.unique(np.stack([owners.astype(np.uint64), hashes]), axis=1).T)
            own = several >= FEW_UNITS and distinct >= NEARLY * several and pairs * NEARLY <= several
        return own, distinct >= max(20, episodes // 10)


class TableCounts:
    """Everything that `check` counts in a table beside what reading counts."""

    def __init__(
        self, names: Sequence[str], roles: Mapping[str, str | None], known: Mapping[str, Collection[str]]
    ) -> None:
        self.episode, self.rows = roles["episode"], 0
        self.tallies = {name: Tally(name, known.get(name, ())) for name in names}
        free = [name for name in names if name not in roles.values()]
        self.identifiers = Identifiers(free if self.episode else [])
        self.copies = None if roles["time"] else Copies()  # two rows at one time are a problem of their own

    def add(self, batch: Batch, codes: Mapping[str, np.ndarray], numbers: Mapping[str, values.Values]) -> None:
        """Count a batch; `codes` and `numbers` are what reading made of its columns."""
        self.rows += len(batch.rows)
        for tally in self.tallies.values():
            tally.add(batch, numbers.get(tally.name))
        if self.episode and self.episode in codes:
            self.identifiers.add(batch.frame, codes[self.episode])
        if self.copies:
            self.copies.add(batch.frame)
