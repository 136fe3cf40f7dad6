"""Small tables, and numbers as a reader wants them."""

import math
from collections.abc import Iterable, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

console = Console(highlight=False)


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> None:
    """Print a table; the first column is text, the others are numbers."""
    table = Table(title=title, caption=caption or None, title_justify="left", caption_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def line(text: str) -> None:
    """Print one line."""
    console.print(text, markup=False, soft_wrap=True)


def number(value: float) -> str:
    """Three figures, with thousands apart."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = max(2 - math.floor(math.log10(abs(value))), 0)
    return f"{round(value, 2 - math.floor(math.log10(abs(value)))):,.{digits}f}"


def middle(values: Sequence[float]) -> str:
    """The median."""
    return number(median(values))


def spread(values: Sequence[float]) -> str:
    """The smallest and the largest."""
    return f"{number(min(values))} to {number(max(values))}"
