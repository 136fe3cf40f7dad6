"""Convert cells to values: numbers, names, times and flags. Whole numbers never become floats on the way."""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from sbil.demonstrations.schema import LARGEST

MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "?")
TRUE, FALSE = ("1", "true", "yes"), ("0", "false", "no")
WHOLE = re.compile(r"-?(0|[1-9]\d{0,299})")  # Python reads no whole number of thousands of digits
# A number in any notation: point or comma, with or without marks between the thousands.
NUMERAL = r"^\s*[+-]?(?:(?:\d+|\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+)(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?\s*$"
# Timestamps, with a blank for the T and a zone for the Z. The first format that fits the whole first batch is kept.
CLOCKS = ("", " %H:%M:%S%.f", " %H:%M", " %I:%M:%S %p", " %I:%M %p")
DAY_FIRST, MONTH_FIRST = (tuple(f"{day}{clock}" for clock in CLOCKS) for day in ("%d/%m/%Y", "%m/%d/%Y"))
FORMATS = (
    "%Y-%m-%d",
    *(f"%Y-%m-%d {clock}{zone}" for zone in ("", "%#z") for clock in ("%H:%M:%S%.f", "%H:%M")),
    *(f"{day}{clock}" for day in ("%d.%m.%Y", "%d %b %Y") for clock in CLOCKS),
    *DAY_FIRST,
    *MONTH_FIRST,
)
DATES = {"day-first": DAY_FIRST, "month-first": MONTH_FIRST}  # what a person says of 03/04/2026
OTHER = {"day-first": "month-first", "month-first": "day-first"}
# Other ways to write the same: the part that is replaced, and what stands for it.
SPELLINGS = (
    (r"Z$", "+00:00"),
    (r"^(\d{4})/(\d{1,2})/(\d{1,2})", "$1-$2-$3"),
    (r"^(\d{1,2})-(\d{1,2})-(\d{4})", "$1/$2/$3"),
    (r"^(\d{1,2})[ -]?([A-Za-z]{3})[a-z]*\.?,?[ -]?(\d{4}):?", "$1 $2 $3 "),
    (r"^([A-Za-z]{3})[a-z]*\.? (\d{1,2}),? (\d{4})", "$2 $1 $3"),
)
YEAR = r"(^|\D)\d{4}\D|\D\d{4}$"  # of four digits
HOUR = {"ms": 3.6e6, "us": 3.6e9, "ns": 3.6e12}  # by the unit of a time
HEAD = 200  # cells from which the formats are found that may fit


class Values(NamedTuple):
    """The values of the cells of a column, and which cells have no value."""

    values: np.ndarray
    missing: np.ndarray  # [n]
    wrong: np.ndarray  # [n] neither a value nor missing
    huge: np.ndarray  # [n] a number beyond what float32 can hold


def _no(length: int) -> np.ndarray:
    return np.zeros(length, bool)


def _values(
    values: np.ndarray, missing: np.ndarray, wrong: np.ndarray | None = None, huge: np.ndarray | None = None
) -> Values:
    """Return values; None: no cell is wrong or huge."""
    no = _no(len(values))
    return Values(values, missing, no if wrong is None else wrong, no if huge is None else huge)


def is_text(column: pl.Series) -> bool:
    """Whether the cells are text."""
    return column.dtype == pl.String or isinstance(column.dtype, pl.Categorical | pl.Enum)


def has_no_text(column: pl.Series) -> bool:
    """Whether the cells are lists, objects, bytes or durations, which have no plain text."""
    return column.dtype.is_nested() or column.dtype in (pl.Object, pl.Binary, pl.Duration)


def numbers(column: pl.Series, decimal: str = ".") -> Values:
    """Convert cells to float64 numbers."""
    if is_text(column):
        return _parsed(column.cast(pl.String), decimal)
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)):
        return _values(np.full(len(column), np.nan), _no(len(column)), wrong=~_no(len(column)))
    values = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
    return _values(values, np.isnan(values), huge=np.abs(values) > LARGEST)


def _parsed(column: pl.Series, decimal: str) -> Values:
    values = column.cast(pl.Float64, strict=False)
    if decimal == ",":  # a point can only separate thousands, which are not read
        values = values.set(column.str.contains(".", literal=True).fill_null(False), None)
    odd = values.is_null().to_numpy()
    result = values.fill_null(np.nan).to_numpy(writable=True)
    if not odd.any():
        return _values(result, np.isnan(result), huge=np.abs(result) > LARGEST)
    places = np.flatnonzero(odd)
    cells = column.gather(places).str.strip_chars()
    missing = _absent(cells)
    points = cells.str.replace_all(".", "x", literal=True).str.replace(",", ".", literal=True)
    again = (points if decimal == "," else cells).cast(pl.Float64, strict=False)
    result[places] = again.fill_null(np.nan).to_numpy()
    wrong = _no(len(column))
    wrong[places] = again.is_null().to_numpy() & ~missing
    return _values(result, np.isnan(result) & ~wrong, wrong, np.abs(result) > LARGEST)


def negative(read: Values) -> Values:
    """The numbers, of which negative ones are wrong."""
    return read._replace(wrong=read.wrong | (read.values < 0))


def foreign(column: pl.Series, wrong: np.ndarray) -> np.ndarray:
    """[n] whether a wrong cell is a number with another decimal sign or with thousands separators."""
    found = _no(len(column))
    if wrong.any() and is_text(column):
        places = np.flatnonzero(wrong)
        found[places] = column.cast(pl.String).gather(places).str.contains(NUMERAL).fill_null(False).to_numpy()
    return found


def unnamed(column: pl.Series, missing: np.ndarray, known: Collection[str] = ()) -> np.ndarray:
    """[n] whether a cell without a number has no name either, by the rule of `label`."""
    if not (missing.any() and is_text(column)):
        return missing
    places = np.flatnonzero(missing)
    texts = column.cast(pl.String).gather(places).str.strip_chars().fill_null("")
    found = missing.copy()
    found[places] = ~((texts.str.to_lowercase() == "none") | texts.is_in(list(known))).to_numpy()
    return found


def _absent(cells: pl.Series) -> np.ndarray:
    return (cells.is_null() | cells.str.to_lowercase().is_in(list(MISSING)).fill_null(False)).to_numpy()


def label(cell: str | None, decimal: str = ".", known: Collection[str] = ()) -> str | None:
    """Return a cell as a name without blanks around it, or None if it is missing; 2.0 becomes 2.

    "none" is a name, because no treatment is a decision too. So is every name that a schema lists.
    """
    text = (cell or "").strip()
    if text.lower() in MISSING and text.lower() != "none" and text not in known:
        return None
    whole = re.fullmatch(rf"([+-]?\d{{1,300}}){re.escape(decimal)}0+", text)
    return str(int(whole[1])) if whole else text


class Levels:
    """The distinct names of a column, numbered in the order of their first rows.

    order: of an ordered category, its names from the first to the last.
    """

    def __init__(self, column: str, most: int | None = None, known: Collection[str] = ()) -> None:
        self.column, self.most, self.known = column, most, known
        self.index: dict[str, int] = {}
        self.order: dict[str, None] = {}

    @property
    def too_many(self) -> bool:
        """Whether there are more names than allowed; further names are then no longer distinguished."""
        return self.most is not None and len(self.index) > self.most

    def codes(self, column: pl.Series, decimal: str) -> np.ndarray:
        """[n] the number of each cell's name; -1 if the cell is missing."""
        if self.too_many:
            return np.zeros(len(column), np.int32)
        if isinstance(column.dtype, pl.Enum):
            self.order |= dict.fromkeys(label(name, decimal, self.known) or "" for name in column.dtype.categories)
        texts = column.cast(pl.String)
        found = texts.unique()
        names = [label(cell, decimal, self.known) for cell in found.to_list()]
        numbers = [-1 if name is None else self.index.setdefault(name, len(self.index)) for name in names]
        codes = texts.replace_strict(found, pl.Series(numbers, dtype=pl.Int32), return_dtype=pl.Int32)
        return codes.fill_null(-1).to_numpy()

    @property
    def names(self) -> list[str]:
        """By number."""
        return list(self.index)

    @property
    def in_order(self) -> list[str]:
        """The names in their own order, if they are an ordered category; else numbers by size and words by alphabet."""
        known = [name for name in self.order if name in self.index]
        return [*known, *in_order([name for name in self.index if name not in self.order])]

    def ranks(self, levels: Sequence[str]) -> np.ndarray:
        """[names] the place of each name in `levels`, or -1 without one."""
        place = {name: rank for rank, name in enumerate(levels)}
        return np.array([place.get(name, -1) for name in self.index], np.int32)


def in_order(names: Collection[str]) -> list[str]:
    """Sort names: numbers by size, other names by the alphabet."""
    if all(WHOLE.fullmatch(name) for name in names):
        return sorted(names, key=int)
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)


class Times:
    """The times in a column, all of one kind: whole numbers, numbers, or timestamps."""

    def __init__(self, column: str, dates: str | None = None) -> None:
        self.column, self.kind = column, ""
        self.formats = tuple(form for form in FORMATS if dates is None or form not in DATES[OTHER[dates]])
        self.ambiguous = False  # whether the first number of 03/04/2026 may be the day or the month
        self.large = False  # whether a whole number was too large for a float
        self.hour = 1.0  # how much of a time is one hour; 1 for numbers, whose unit nobody knows
        self.parts: list[np.ndarray] = []

    def add(self, column: pl.Series, decimal: str) -> Values:
        """Keep a batch; return which cells are missing and which are not times."""
        values, kind = self._read(column, decimal)
        if kind and self.kind and kind != self.kind:
            if {kind, self.kind} != {"whole", "number"}:
                values = values._replace(wrong=~values.missing)
            kind = "number"
        self.kind = kind or self.kind
        if self.kind not in ("", "whole", "number"):
            self.hour = HOUR[getattr(column.dtype, "time_unit", "ns") if self.kind == "span" else "us"]
        if values.values.dtype == np.int64:
            self.large = self.large or bool((np.abs(values.values) > 2**53).any())
        self.parts.append(values.values)
        return values

    @property
    def inexact(self) -> bool:
        """Whether the column has fractions and also whole numbers that a float would round."""
        return self.kind == "number" and self.large

    def all(self) -> np.ndarray:
        """[n] every time, in a type that orders them."""
        self.parts = [np.concatenate(self.parts)]
        return self.parts[0]

    def _read(self, column: pl.Series, decimal: str) -> tuple[Values, str]:
        gone = column.is_null().to_numpy()
        if is_text(column):
            return self._text(column.cast(pl.String), decimal)
        if column.dtype.is_integer():
            whole = column.cast(pl.Int64, strict=False)
            return _plain(whole, gone, whole.is_null().to_numpy() & ~gone), "whole"
        if column.dtype == pl.Date or isinstance(column.dtype, pl.Datetime):
            zoned = getattr(column.dtype, "time_zone", None)
            return _plain(column.cast(pl.Datetime("us")).to_physical(), gone), "zoned" if zoned else "timestamp"
        if column.dtype == pl.Time or isinstance(column.dtype, pl.Duration):
            return _plain(column.to_physical(), gone), "span"
        return _finite(numbers(column)), "number"

    def _text(self, column: pl.Series, decimal: str) -> tuple[Values, str]:
        cells = column.str.strip_chars()
        missing = _absent(cells)
        if missing.all():
            return _values(np.zeros(len(column), np.int64), missing), ""
        whole = cells.cast(pl.Int64, strict=False)
        if not (whole.is_null().to_numpy() & ~missing).any():
            return _plain(whole, missing), "whole"
        real = _finite(numbers(cells, decimal))
        if not real.wrong.any():
            return real, "number"
        plain = _spelled(cells)
        fitting = [_stamped(plain, form, missing) for form in self._fitting(plain, missing)]
        fewest = min(int(found[0].wrong.sum()) for found in fitting)
        best = [found for found in fitting if int(found[0].wrong.sum()) == fewest]
        if fewest > len(cells) / 2 and not real.wrong.all():
            return real, "number"
        slashes = [found[1] in DAY_FIRST for found in best if found[1] in DAY_FIRST + MONTH_FIRST]
        self.ambiguous = self.ambiguous or (fewest < (~missing).sum() and {*slashes} == {True, False})
        return best[0]

    def _fitting(self, cells: pl.Series, missing: np.ndarray) -> list[str]:
        """The formats that fit most of the first cells; only the earlier one if there was a batch before."""
        if self.kind in FORMATS:
            return [self.kind]
        known = np.flatnonzero(~missing)[:HEAD]
        wrong = {form: int(_stamped(cells.gather(known), form, missing[known])[0].wrong.sum()) for form in self.formats}
        return [form for form, count in wrong.items() if count == min(wrong.values())]


def _spelled(cells: pl.Series) -> pl.Series:
    """Timestamps in the spelling of `FORMATS`. A year of two digits is not read."""
    plain = cells.str.replace(r"(\d)T(\d)", "$1 $2")
    for written, spelling in SPELLINGS:
        plain = plain.str.replace(written, spelling)
    plain = plain.str.strip_chars()
    return plain.set(~plain.str.contains(YEAR).fill_null(False), None)


def _plain(whole: pl.Series, missing: np.ndarray, wrong: np.ndarray | None = None) -> Values:
    """Return whole numbers, with 0 for cells without one."""
    return _values(whole.fill_null(0).to_numpy(), missing, wrong)


def _finite(values: Values) -> Values:
    """Read times: infinite times are wrong, large ones are not."""
    return values._replace(wrong=values.wrong | np.isinf(values.values), huge=_no(len(values.values)))


def _stamped(cells: pl.Series, form: str, missing: np.ndarray) -> tuple[Values, str]:
    stamps = cells.str.to_datetime(form, strict=False, time_unit="us").to_physical()
    return _plain(stamps, missing, stamps.is_null().to_numpy() & ~missing), form


def flags(column: pl.Series, decimal: str = ".") -> Values:
    """Convert cells to 0 or 1: numbers, booleans, or words for yes and no."""
    if has_no_text(column):
        return _values(np.zeros(len(column), np.int8), _no(len(column)), wrong=~_no(len(column)))
    texts = column.cast(pl.String)
    found = texts.unique()
    words = pl.Series([label(cell, decimal) for cell in found.to_list()], dtype=pl.String)
    lower = words.str.to_lowercase()
    number = lower.replace_strict([*TRUE, *FALSE], [1, 1, 1, 0, 0, 0], default=-1, return_dtype=pl.Int8)
    number = number.set(words.is_null(), 2)
    values = texts.replace_strict(found, number, return_dtype=pl.Int8).fill_null(2).to_numpy()
    return _values((values == 1).astype(np.int8), values == 2, values == -1)
