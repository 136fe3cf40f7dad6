"""Small tables, and numbers as a reader wants them."""

import math
from collections.abc import Iterable, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

WIDTH_OF_FILES = 150  # where the output is not a terminal

_console = Console(highlight=False)
if not _console.is_terminal:
    _console.width = WIDTH_OF_FILES


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", words: int = 1) -> None:
    """Print a table; the first `words` columns are text, the others are numbers."""
    table = Table(title=title, caption=caption or None, title_justify="left", caption_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < words else "right")
    for row in rows:
        table.add_row(*row)
    _console.print(table)


def line(text: str) -> None:
    """Print one line."""
    _console.print(text, markup=False, soft_wrap=True)


def number(value: float) -> str:
    """Three figures, with thousands apart."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if abs(value) < 1e-3:
        return f"{value:.1e}"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def spread(values: Sequence[float]) -> str:
    """The median, and the smallest and the largest behind it."""
    return f"{number(median(values))} ({number(min(values))} to {number(max(values))})"
