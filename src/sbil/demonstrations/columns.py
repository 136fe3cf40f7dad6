"""The cells of a table as arrays on the disk, batch by batch; a cell that cannot be used is refused with its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbil.demonstrations import values as cells
from sbil.demonstrations.formats.dialect import SIGNS
from sbil.demonstrations.schema import LARGEST, Schema
from sbil.demonstrations.table import Batch, Table
from sbil.demonstrations.values import Cells, Levels, Times
from sbil.errors import UserError

MOST_LEVELS = 1_000


class Growing:
    """A NumPy file that rows are appended to."""

    def __init__(self, path: Path, dtype: Any, width: tuple[int, ...] = ()) -> None:
        self.path, self.dtype, self.width, self.length = path, np.dtype(dtype), width, 0
        self._header("wb")

    def _header(self, mode: str) -> None:
        # NumPy leaves room in the header for a first dimension of any size.
        shape = (self.length, *self.width)
        with self.path.open(mode) as file:
            description = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, description)

    def add(self, rows: np.ndarray) -> None:
        with self.path.open("ab") as file:
            file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.length += len(rows)

    def finish(self) -> np.ndarray:
        """Every row, mapped from the disk."""
        self._header("r+b")
        return np.load(self.path, mmap_mode="r")


@dataclass(frozen=True)
class Gathered:
    """A table as it was read: what its columns hold, row by row, and where its rows stand."""

    numbers: np.ndarray  # [n, number columns], NaN where missing
    means: np.ndarray  # [number columns], NaN where there is no number
    codes: dict[str, np.ndarray]  # [n] of the columns that hold names, -1 where missing
    levels: dict[str, Levels]
    time: np.ndarray | None  # [n]
    terminal: np.ndarray | None  # [n]
    incomplete: np.ndarray  # [n] whether a needed value is missing
    missing: dict[str, int]  # missing values by column, where there are any
    firsts: dict[str, int]  # the first row of each such column that misses one
    rows: np.ndarray  # [n]
    files: list[tuple[int, str]]  # the first of the rows of each file
    row: str

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, index: int) -> str:
        """The file and the row, for a message."""
        name = next(name for start, name in reversed(self.files) if start <= index)
        return f"{name}, {self.row} {self.rows[index]}"


class Wanted(NamedTuple):
    """The columns to read beside the numbers observed."""

    named: tuple[str, ...]  # those that hold names: episodes, groups, actions, categories
    time: str | None = None
    terminal: str | None = None


def gather(table: Table, batches: Iterator[Batch], schema: Schema, wanted: Wanted, folder: Path) -> Gathered:
    """Read the columns that a schema observes, and those `wanted`, to the end of the table."""
    numeric = numeric_columns(schema)
    few = {column.name: column.levels for column in schema.columns if column.kind != "number"}
    few[schema.action] = schema.actions
    levels = {name: Levels(name, MOST_LEVELS if name in few else None, few.get(name, ())) for name in wanted.named}
    stores = {name: Growing(folder / f"codes_{i}.npy", np.int32) for i, name in enumerate(levels)}
    matrix = Growing(folder / "numbers.npy", np.float32, (len(numeric),))
    rows, incomplete = Growing(folder / "rows.npy", np.int64), Growing(folder / "incomplete.npy", bool)
    ends = Growing(folder / "ends.npy", np.int8)
    times = Times(wanted.time) if wanted.time else None
    missing: dict[str, int] = {}
    firsts: dict[str, int] = {}
    files: list[tuple[int, str]] = []
    total, known = np.zeros(len(numeric)), np.zeros(len(numeric), np.int64)
    for batch in batches:
        if not files or files[-1][1] != batch.name:
            files.append((rows.length, batch.name))
        gone: dict[str, np.ndarray] = {}
        block = np.empty((len(batch.rows), len(numeric)), np.float32)
        for name, place in numeric.items():
            values = cells.numbers(batch.frame[name], batch.decimal)
            _refuse_cells(values, batch, name, table)
            block[:, place], gone[name] = values.values, values.missing
            total[place] += np.nansum(values.values) if values.missing.any() else values.values.sum()
            known[place] += len(values.missing) - int(values.missing.sum())
        matrix.add(block)
        for name, store in stores.items():
            codes = levels[name].codes(batch.frame[name], batch.decimal)
            store.add(codes)
            gone[name] = codes < 0
        if times:
            values = times.add(batch.frame[times.column], batch.decimal)
            _refuse_times(values, batch, times.column, table)
            gone[times.column] = values.missing
        if wanted.terminal:
            values = cells.flags(batch.frame[wanted.terminal], batch.decimal)
            _refuse_flags(values, batch, wanted.terminal, table)
            ends.add(values.values)
            gone[wanted.terminal] = values.missing
        for name, mask in gone.items():
            if mask.any():
                firsts.setdefault(name, rows.length + int(np.argmax(mask)))
                missing[name] = missing.get(name, 0) + int(mask.sum())
        incomplete.add(np.logical_or.reduce([*gone.values()]))
        rows.add(batch.rows)
    return Gathered(
        matrix.finish(),
        np.clip(np.divide(total, known, out=np.full(len(total), np.nan), where=known > 0), -LARGEST, LARGEST),
        {name: store.finish() for name, store in stores.items()},
        levels,
        times.all() if times else None,
        ends.finish() if wanted.terminal else None,
        incomplete.finish(),
        missing,
        firsts,
        rows.finish(),
        files,
        table.row,
    )


def _place(batch: Batch, table: Table, wrong: np.ndarray, column: str) -> str:
    return f"{batch.name}, {table.row} {batch.rows[np.argmax(wrong)]}, column '{column}'"


def _refuse_cells(values: Cells, batch: Batch, column: str, table: Table) -> None:
    """Refuse the first cell that is no number."""
    if values.wrong.any():
        place = _place(batch, table, values.wrong, column)
        sign = SIGNS[batch.decimal]
        if cells.foreign(batch.frame[column], values.wrong)[np.argmax(values.wrong)]:
            raise UserError(
                f"{place}: a number in another notation; the file is read with a {sign} and without thousands "
                "separators. Write it so; if it is a code, train with the column as a category, or without it."
            )
        if (
            table.row == "line"
            and values.wrong[0]
            and values.wrong.sum() == 1 < len(values.wrong)
            and batch.rows[0] <= 3
        ):
            raise UserError(f"{place}: text above numbers; is this a row of units? Remove it; a schema can hold units.")
        if values.wrong.all():
            raise UserError(
                f"{place}: no number; mend the column, or train with it as a category (--categories) or without it."
            )
        raise UserError(
            f"{place}: not a number, while others in the column are; mend the cell, or write NA for a missing value "
            f"and a {sign} without thousands separators."
        )
    if values.huge.any():
        place = _place(batch, table, values.huge, column)
        raise UserError(f"{place}: the number is infinite or too large for float32; mend it, or write NA if unknown.")


def _refuse_times(values: Cells, batch: Batch, column: str, table: Table) -> None:
    if values.wrong.any():
        raise UserError(
            f"{_place(batch, table, values.wrong, column)}: not a time like the others; write numbers throughout, or "
            "timestamps such as 2020-01-31 13:45:00, all with or all without a time zone."
        )


def _refuse_flags(values: Cells, batch: Batch, column: str, table: Table) -> None:
    if values.wrong.any():
        raise UserError(
            f"{_place(batch, table, values.wrong, column)}: the end of an episode is 0 or 1, false or true."
        )


def numeric_columns(schema: Schema) -> dict[str, int]:
    """The columns of numbers, and the place of each among them."""
    return {name: i for i, name in enumerate(c.name for c in schema.columns if c.kind == "number")}
