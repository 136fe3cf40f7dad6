"""The columns of a table as arrays on the disk, read batch by batch."""

import io
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sbil.demonstrations import rules, values
from sbil.demonstrations.problems import Problem, Problems
from sbil.demonstrations.rules import Seen
from sbil.demonstrations.schema import ENDS, LARGEST, Schema
from sbil.demonstrations.table import Batch
from sbil.demonstrations.values import Levels, Times, Values

if TYPE_CHECKING:
    from sbil.demonstrations.order import Order

MOST_LEVELS = 1_000
MISSING, UNSEEN = -1, -2  # instead of the place of a name


class Growing:
    """A NumPy file that rows are appended to; it can be read at any time."""

    def __init__(self, path: Path, dtype: Any, width: tuple[int, ...] = ()) -> None:
        self.path, self.dtype, self.width, self.length = path, np.dtype(dtype), width, 0
        path.touch()
        self.add(np.empty((0, *width)))

    def add(self, rows: np.ndarray) -> None:
        self.length += len(rows)
        with self.path.open("r+b") as file:
            # NumPy leaves room in the header for a first dimension of any size.
            header = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length, *self.width)}
            np.lib.format.write_array_header_1_0(file, header)
            file.seek(0, io.SEEK_END)
            file.write(np.ascontiguousarray(rows, self.dtype).data)

    def all(self) -> np.ndarray:
        """Every row, mapped from the disk."""
        return np.asarray(np.load(self.path, mmap_mode="r"))


class Gathered:
    """The columns of a table that a schema names, read batch by batch, and where their rows stand.

    keep_numbers: whether the numbers are written to the disk; without, they are only looked at.
    texts: columns to read as names whose missing values do not matter: more columns, or the action.
    """

    def __init__(
        self, schema: Schema, folder: Path, problems: Problems, keep_numbers: bool = True, texts: Sequence[str] = ()
    ) -> None:
        self.problems, self.keep_numbers = problems, keep_numbers
        self.numeric = numeric_columns(schema)
        few = {**schema.levels, schema.action: schema.actions}
        needed = [name for name in (schema.episode, schema.group, schema.action, *sorted(schema.levels)) if name]
        self.optional = {*texts} - ({*needed} - {schema.action})
        self.levels = {
            name: Levels(name, MOST_LEVELS if name in few else None, few.get(name, ())) for name in (*needed, *texts)
        }
        # By column the numbers of its names, -1 where missing.
        self.codes = {name: Growing(folder / f"codes_{i}.npy", np.int32) for i, name in enumerate(self.levels)}
        self.numbers = Growing(folder / "numbers.npy", np.float32, (len(self.numeric),))  # NaN where missing
        self.rows = Growing(folder / "rows.npy", np.int64)
        self.incomplete = Growing(folder / "incomplete.npy", bool)  # whether a needed value is missing
        self.flag_columns = {role: name for role in ENDS if (name := schema.roles[role])}
        self.flags = {role: Growing(folder / f"{role}_flags.npy", np.int8) for role in self.flag_columns}
        self.weights_column = schema.weights
        self.weights = Growing(folder / "row_weights.npy", np.float32)
        self.times = Times(schema.time, schema.dates) if schema.time else None
        self.missing: dict[str, int] = {}  # missing values by column, where there are any
        self.firsts: dict[str, int] = {}  # the first row of each such column that misses one
        self.files: list[tuple[int, Batch]] = []  # the first row of each file, and its first batch without the cells
        self.totals, self.known = np.zeros(len(self.numeric)), np.zeros(len(self.numeric), np.int64)

    def __len__(self) -> int:
        return self.rows.length

    @property
    def means(self) -> np.ndarray:
        """[number columns] the mean of each, NaN where there is no number."""
        means = np.divide(self.totals, self.known, out=np.full(len(self.totals), np.nan), where=self.known > 0)
        return np.clip(means, -LARGEST, LARGEST)

    @cached_property
    def time(self) -> np.ndarray | None:
        """[n] every time, once all batches are read."""
        return self.times.all() if self.times else None

    def ranks(self, column: str, levels: Sequence[str] = ()) -> np.ndarray:
        """[n] the place of each row's name in `levels`, by default in all names in order.

        It is -1 (MISSING) where there is no name, and -2 (UNSEEN) where `levels` do not have it.
        """
        known = self.levels[column]
        places = known.ranks(levels or known.in_order)
        places[places < 0] = UNSEEN
        return np.append(places, np.int32(MISSING))[self.codes[column].all()]

    def unseen(self, schema: Schema) -> dict[str, int]:
        """How many names the schema does not list, by column."""
        known = {**schema.levels, schema.action: schema.actions}
        listed = {name: levels for name, levels in known.items() if levels and name in self.levels}
        found = {name: int((self.ranks(name, levels) == UNSEEN).sum()) for name, levels in listed.items()}
        return {name: count for name, count in found.items() if count}

    def at(self, index: int) -> dict[str, Any]:
        """Where a row stands, for a problem."""
        batch = next(batch for start, batch in reversed(self.files) if start <= index)
        return batch._replace(rows=self.rows.all()).at(index)

    def problem(
        self, rule: str, wrong: np.ndarray, message: str, remedy: str, column: str | None, order: "Order | None" = None
    ) -> Problem | None:
        """The problem that some rows are wrong, if there are any; `order` is that of `wrong`, if not the table's."""
        if not wrong.any():
            return None
        first, count = int(np.argmax(wrong)), int(wrong.sum())
        place = self.at(order.row(first) if order else first)
        return Problem(rule, "stops", message, remedy, column, **place, count=count, noun="row")

    def add_all(self, batches: Iterable[Batch]) -> "Gathered":
        for batch in batches:
            self.add(batch)
        return self

    def add(self, batch: Batch) -> tuple[dict[str, np.ndarray], dict[str, Values]]:
        """Read a batch; returns the codes of its names and its numbers, by column."""
        if not self.files or self.files[-1][1].name != batch.name:
            self.files.append((len(self), batch._replace(frame=batch.frame.clear(), rows=batch.rows[:0])))
        numbers = self._add_numbers(batch)
        codes = self._add_names(batch)
        gone = {name: read.missing for name, read in numbers.items()}
        gone |= {name: code < 0 for name, code in codes.items() if name not in self.optional}
        if self.times:
            read = self.times.add(batch.frame[self.times.column], batch.decimal)
            gone[self.times.column] = self._checked(rules.OF_TIMES, self.times.column, read, batch).missing
        for role, name in self.flag_columns.items():
            read = values.flags(batch.frame[name], batch.decimal)
            gone[name] = self._checked(rules.OF_FLAGS, name, read, batch).missing
            self.flags[role].add(read.values)
        if self.weights_column:
            read = values.negative(values.numbers(batch.frame[self.weights_column], batch.decimal))
            found = self._checked(rules.OF_WEIGHTS, self.weights_column, read, batch)
            gone[self.weights_column] = found.missing
            self.weights.add(np.minimum(read.values, LARGEST))  # a problem says already what is too large
        self._count(gone)
        self.rows.add(batch.rows)
        return codes, numbers

    def _add_numbers(self, batch: Batch) -> dict[str, Values]:
        found: dict[str, Values] = {}
        block = np.empty((len(batch.rows), len(self.numeric)), np.float32)
        for name, place in self.numeric.items():
            read = self._checked(rules.OF_NUMBERS, name, values.numbers(batch.frame[name], batch.decimal), batch)
            found[name] = read
            self.known[place] += int((~read.missing).sum())
            with np.errstate(over="ignore", invalid="ignore"):  # a problem says already what is too large
                block[:, place] = read.values
                self.totals[place] += np.nansum(read.values) if read.missing.any() else read.values.sum()
        if self.keep_numbers:
            self.numbers.add(block)
        return found

    def _add_names(self, batch: Batch) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for name, levels in self.levels.items():
            cells = batch.frame[name]
            if values.has_no_text(cells):
                self.problems.add([rules.no_text(name, batch)])
                found[name] = np.zeros(len(cells), np.int32)
            else:
                found[name] = levels.codes(cells, batch.decimal)
                self.problems.add([rules.too_many_names(levels)])
            self.codes[name].add(found[name])
        return found

    def _checked(self, of: tuple[rules.CellRule, ...], name: str, read: Values, batch: Batch) -> Values:
        if read.wrong.any() or read.huge.any():
            seen = Seen(name, batch.frame[name], read, batch)
            found = [problem for rule in of if (problem := rule(seen))]
            found.sort(key=lambda problem: problem.row or 0)
            self.problems.add(found)
        return read

    def _count(self, gone: dict[str, np.ndarray]) -> None:
        for name, mask in gone.items():
            if mask.any():
                self.firsts.setdefault(name, len(self) + int(np.argmax(mask)))
                self.missing[name] = self.missing.get(name, 0) + int(mask.sum())
        self.incomplete.add(np.logical_or.reduce([*gone.values()]))


def numeric_columns(schema: Schema) -> dict[str, int]:
    """The columns of numbers, and the place of each among them."""
    return {name: i for i, name in enumerate(c.name for c in schema.columns if c.kind == "number")}
