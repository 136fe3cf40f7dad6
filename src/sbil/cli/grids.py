"""Tables on the terminal. What is not a terminal has room for every word, so nothing is cut there."""

from collections.abc import Collection, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE = 10_000  # columns of a file


def roomy(console: Console) -> Console:
    """The console; if it is not a terminal, it cuts nothing.

    COLUMNS does not count there: Python's readline sets it to 80 for every process that Python starts.
    """
    if not console.is_terminal:
        console.width = WIDE
    return console


def show_grid(heads: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", left: Collection[str] = ()) -> None:
    """Print rows under their heads. The first column and those named in `left` begin at the left."""
    grid = Table(title=Text(title) if title else None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, head in enumerate(heads):
        grid.add_column(Text(head), justify="left" if number == 0 or head in left else "right")
    for row in rows:
        grid.add_row(*map(Text, row))
    roomy(Console()).print(grid)
