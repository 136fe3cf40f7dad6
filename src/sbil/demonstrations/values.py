"""Cells to values: numbers, names that are counted, and times. Whole numbers never pass through a float."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import polars as pl

from sbil.demonstrations.schema import LARGEST
from sbil.errors import UserError

MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "?")
TRUE, FALSE = ("1", "true", "yes"), ("0", "false", "no")
WHOLE = re.compile(r"-?(0|[1-9]\d{0,299})")  # Python reads no whole number of thousands of digits
# A number however it is written: point or comma, with or without marks between the thousands.
NUMERAL = r"^\s*[+-]?(?:(?:\d+|\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+)(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?\s*$"
# Timestamps with a blank for the T and a zone for the Z; the first that fits all of the first batch is kept.
FORMATS = (
    "%Y-%m-%d",
    *(f"%Y-%m-%d {clock}{zone}" for zone in ("", "%#z") for clock in ("%H:%M:%S%.f", "%H:%M")),
    *("%d.%m.%Y", "%d.%m.%Y %H:%M:%S%.f", "%d.%m.%Y %H:%M"),
)


class Cells(NamedTuple):
    """The values of a column's cells, and which cells hold none."""

    values: np.ndarray
    missing: np.ndarray  # [n]
    wrong: np.ndarray  # [n] neither a value nor missing
    huge: np.ndarray  # [n] a number beyond what float32 can hold


def is_text(column: pl.Series) -> bool:
    """Whether the cells are text, or the like."""
    return column.dtype == pl.String or isinstance(column.dtype, pl.Categorical | pl.Enum)


def has_no_text(column: pl.Series) -> bool:
    """Whether the cells are lists, objects, bytes or spans of time, which no text stands for."""
    return column.dtype.is_nested() or column.dtype in (pl.Object, pl.Binary, pl.Duration)


def numbers(column: pl.Series, decimal: str = ".") -> Cells:
    """Cells as float64 numbers."""
    if is_text(column):
        return _parsed(column.cast(pl.String), decimal)
    nothing = np.zeros(len(column), bool)
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)):
        return Cells(np.full(len(column), np.nan), nothing, ~nothing, nothing)
    values = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
    return _checked(values, np.isnan(values))


def _parsed(column: pl.Series, decimal: str) -> Cells:
    values = column.cast(pl.Float64, strict=False)
    if decimal == ",":  # a point can only mark thousands, and then the cell is no number here
        values = values.set(column.str.contains(".", literal=True).fill_null(False), None)
    odd = values.is_null().to_numpy()
    result = values.fill_null(np.nan).to_numpy(writable=True)
    if not odd.any():
        return _checked(result, np.isnan(result))
    places = np.flatnonzero(odd)
    cells = column.gather(places).str.strip_chars()
    missing = _absent(cells)
    points = cells.str.replace_all(".", "x", literal=True).str.replace(",", ".", literal=True)
    again = (points if decimal == "," else cells).cast(pl.Float64, strict=False)
    result[places] = again.fill_null(np.nan).to_numpy()
    wrong = np.zeros(len(column), bool)
    wrong[places] = again.is_null().to_numpy() & ~missing
    return _checked(result, np.isnan(result) & ~wrong)._replace(wrong=wrong)


def foreign(column: pl.Series, wrong: np.ndarray) -> np.ndarray:
    """[n] which of the cells that are no number would be one with another decimal sign or without thousands marks."""
    found = np.zeros(len(column), bool)
    if wrong.any() and is_text(column):
        places = np.flatnonzero(wrong)
        found[places] = column.cast(pl.String).gather(places).str.contains(NUMERAL).fill_null(False).to_numpy()
    return found


def unnamed(column: pl.Series, missing: np.ndarray, known: Collection[str] = ()) -> np.ndarray:
    """[n] which of the cells that hold no number hold no name either, by the rule of `label`."""
    if not (missing.any() and is_text(column)):
        return missing
    places = np.flatnonzero(missing)
    texts = column.cast(pl.String).gather(places).str.strip_chars().fill_null("")
    found = missing.copy()
    found[places] = ~((texts.str.to_lowercase() == "none") | texts.is_in(list(known))).to_numpy()
    return found


def _absent(cells: pl.Series) -> np.ndarray:
    return (cells.is_null() | cells.str.to_lowercase().is_in(list(MISSING)).fill_null(False)).to_numpy()


def _checked(values: np.ndarray, missing: np.ndarray) -> Cells:
    return Cells(values, missing, np.zeros(len(values), bool), np.abs(values) > LARGEST)


def label(cell: str | None, decimal: str = ".", known: Collection[str] = ()) -> str | None:
    """A cell as a name: trimmed, whole numbers without a fraction (2.0 is 2); nothing where it is missing.

    Among names "none" is one, the treatment withheld, and so is whatever a schema lists.
    """
    text = (cell or "").strip()
    if text.lower() in MISSING and text.lower() != "none" and text not in known:
        return None
    whole = re.fullmatch(rf"([+-]?\d{{1,300}}){re.escape(decimal)}0+", text)
    return str(int(whole[1])) if whole else text


class Levels:
    """The different names in a column, numbered as they come."""

    def __init__(self, column: str, most: int | None = None, known: Collection[str] = ()) -> None:
        self.column, self.most, self.known = column, most, known
        self.index: dict[str, int] = {}

    def codes(self, column: pl.Series, decimal: str) -> np.ndarray:
        """[n] the number of each cell's name, -1 where it is missing."""
        if has_no_text(column):
            raise UserError(f"column '{self.column}' holds lists, objects or spans of time; save plain values.")
        texts = column.cast(pl.String)
        found = texts.unique()
        names = [label(cell, decimal, self.known) for cell in found.to_list()]
        numbers = [-1 if name is None else self.index.setdefault(name, len(self.index)) for name in names]
        if self.most and len(self.index) > self.most:
            raise UserError(
                f"column '{self.column}' has more than {self.most:,} different values; is it a number? "
                "An action or a category is one of a few."
            )
        codes = texts.replace_strict(found, pl.Series(numbers, dtype=pl.Int32), return_dtype=pl.Int32)
        return codes.fill_null(-1).to_numpy()

    @property
    def names(self) -> list[str]:
        """By number."""
        return list(self.index)

    def in_order(self) -> list[str]:
        """Numbers by size, anything else by the alphabet."""
        return in_order(self.index)

    def ranks(self, levels: list[str]) -> np.ndarray:
        """[numbers] the place of each name in `levels`, -1 where it is not there."""
        place = {name: rank for rank, name in enumerate(levels)}
        return np.array([place.get(name, -1) for name in self.index], np.int32)


def in_order(names: dict[str, int] | list[str]) -> list[str]:
    """Names sorted: numbers by size, anything else by the alphabet."""
    if all(WHOLE.fullmatch(name) for name in names):
        return sorted(names, key=int)
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)


class Times:
    """The times of a table: whole numbers, numbers, or timestamps; one kind throughout."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.kind = ""
        self.parts: list[np.ndarray] = []

    def add(self, column: pl.Series, decimal: str) -> Cells:
        """Keep a batch; says which cells are missing or no time."""
        cells, kind = self._read(column, decimal)
        if kind and self.kind and kind != self.kind:
            if {kind, self.kind} != {"whole", "number"}:
                cells = cells._replace(wrong=~cells.missing)
            kind = "number"
        self.kind = kind or self.kind
        self.parts.append(cells.values)
        return cells

    def all(self) -> np.ndarray:
        """[n] every time, in a type that orders them."""
        if self.kind == "number" and any(p.dtype == np.int64 and (np.abs(p) > 2**53).any() for p in self.parts):
            raise UserError(f"column '{self.column}' mixes fractions and whole numbers too large for them.")
        return np.concatenate(self.parts)

    def _read(self, column: pl.Series, decimal: str) -> tuple[Cells, str]:
        nothing = np.zeros(len(column), bool)
        gone = column.is_null().to_numpy()
        if column.dtype.is_integer():
            whole = column.cast(pl.Int64, strict=False)
            return Cells(whole.fill_null(0).to_numpy(), gone, whole.is_null().to_numpy() & ~gone, nothing), "whole"
        if column.dtype == pl.Date or isinstance(column.dtype, pl.Datetime):
            return Cells(
                column.cast(pl.Datetime("us")).to_physical().fill_null(0).to_numpy(), gone, nothing, nothing
            ), ("zoned" if getattr(column.dtype, "time_zone", None) else "timestamp")
        if column.dtype in (pl.Time,) or isinstance(column.dtype, pl.Duration):
            return Cells(column.to_physical().fill_null(0).to_numpy(), gone, nothing, nothing), "span"
        if not is_text(column):
            cells = numbers(column)
            return cells._replace(wrong=cells.wrong | np.isinf(cells.values), huge=nothing), "number"
        return self._text(column.cast(pl.String), decimal)

    def _text(self, column: pl.Series, decimal: str) -> tuple[Cells, str]:
        cells = column.str.strip_chars()
        missing = _absent(cells)
        nothing = np.zeros(len(column), bool)
        if missing.all():
            return Cells(np.zeros(len(column), np.int64), missing, nothing, nothing), ""
        whole = cells.cast(pl.Int64, strict=False)
        if not (whole.is_null().to_numpy() & ~missing).any():
            return Cells(whole.fill_null(0).to_numpy(), missing, nothing, nothing), "whole"
        real = numbers(cells, decimal)
        real = real._replace(wrong=real.wrong | np.isinf(real.values), huge=nothing)
        if not real.wrong.any():
            return real, "number"
        plain = cells.str.replace("T", " ", literal=True).str.replace("Z$", "+00:00")
        formats = (self.kind,) if self.kind in FORMATS else FORMATS
        best = min((_stamped(plain, form, missing) for form in formats), key=lambda found: int(found[0].wrong.sum()))
        if best[0].wrong.sum() > len(cells) / 2 and not real.wrong.all():
            return real, "number"
        return best


def _stamped(cells: pl.Series, form: str, missing: np.ndarray) -> tuple[Cells, str]:
    stamps = cells.str.to_datetime(form, strict=False, time_unit="us").to_physical()
    wrong = stamps.is_null().to_numpy() & ~missing
    return Cells(stamps.fill_null(0).to_numpy(), missing, wrong, np.zeros(len(cells), bool)), form


def flags(column: pl.Series, decimal: str = ".") -> Cells:
    """Cells as 0 or 1: numbers, booleans, or yes and no in words."""
    if has_no_text(column):
        nothing = np.zeros(len(column), bool)
        return Cells(np.zeros(len(column), np.int8), nothing, ~nothing, nothing)
    texts = column.cast(pl.String)
    found = texts.unique()
    words = pl.Series([label(cell, decimal) for cell in found.to_list()], dtype=pl.String)
    lower = words.str.to_lowercase()
    number = lower.replace_strict([*TRUE, *FALSE], [1, 1, 1, 0, 0, 0], default=-1, return_dtype=pl.Int8)
    number = number.set(words.is_null(), 2)
    values = texts.replace_strict(found, number, return_dtype=pl.Int8).fill_null(2).to_numpy()
    return Cells(np.maximum(values, 0), values == 2, values == -1, np.zeros(len(values), bool))
