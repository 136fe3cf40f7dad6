"""A table: named columns with rows that are read batch by batch. Each row keeps its number in the file."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sbil.errors import UserError

if TYPE_CHECKING:
    import polars as pl

CELLS = 4_000_000  # cells of a batch of typed columns
EXACT = 2**53  # a float rounds larger whole numbers


class Batch(NamedTuple):
    """Some rows, in order."""

    frame: "pl.DataFrame"
    rows: np.ndarray  # [n] the line of a text file, or the row from 1
    name: str  # of the file
    decimal: str = "."  # the decimal sign of the file
    numbering: str = "row"  # what `rows` counts: "line" or "row"

    def at(self, index: int | np.integer) -> dict[str, Any]:
        """Return the place of a row, for a problem."""
        return {"file": self.name, "row": int(self.rows[index]), "numbering": self.numbering}


@dataclass(frozen=True)
class Table:
    """Named columns, and a function that reads them from the beginning, batch by batch."""

    names: tuple[str, ...]
    batches: Callable[[], Iterator[Batch]]
    description: str = ""


def of_frame(frame: "pl.LazyFrame", name: str, description: str) -> Table:
    """The table of a lazy frame, collected part by part; `name` is what messages call its source."""
    names = checked_names(frame.collect_schema().names())

    def batches() -> Iterator[Batch]:
        import polars as pl

        height = frame.select(pl.len()).collect().item()
        step = max(CELLS // len(names), 1)
        for start in range(0, height, step):
            part = frame.slice(start, step).collect()
            yield Batch(part, np.arange(start + 1, start + 1 + part.height), name)

    return Table(names, batches, description)


def of_values(name: str, values: Sequence[Any]) -> "pl.Series":
    """A column of Python values: numbers, true and false, or text; None is missing. Mixed values become text."""
    import polars as pl

    known = [value for value in values if value is not None]
    kinds = {*map(type, known)}
    if not kinds <= {bool, int, float, str}:
        return pl.Series(name, values, dtype=pl.Object)
    if str in kinds or not _fit(known, kinds):
        return pl.Series(name, [None if value is None else _as_text(value) for value in values], dtype=pl.String)
    types = {float: pl.Float64, int: pl.Int64, bool: pl.Boolean}
    kind = next((kind for type_, kind in types.items() if type_ in kinds), pl.Null)
    return pl.Series(name, values, dtype=kind, strict=False)


def _fit(numbers: Sequence[Any], kinds: set[type]) -> bool:
    """Whether one type of numbers holds all of them exactly."""
    limit = EXACT if float in kinds else 2**63 - 1
    return all(isinstance(number, float) or abs(number) <= limit for number in numbers)


def _as_text(value: bool | int | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns. Refuse a column without a name, and two columns with the same name."""
    for place, name in enumerate(names, 1):
        if not name:
            what = f"column {place} has no name in the header"
            raise UserError(f"{what}; name it or remove it (Pandas: to_csv(..., index=False)).")
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice:
        header = ", or write a header above the rows" if re.fullmatch(r"[\d.,+-]+", twice) else ""
        raise UserError(f"two columns are called '{twice}'; rename one of them{header}.")
    if not names:
        raise UserError("the table has no columns.")
    return tuple(names)
