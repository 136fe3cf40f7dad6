"""Tables on the terminal, among them the match with recorded decisions.

What is not a terminal has room for every word, so nothing is cut there.
"""

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from sbil.evaluation.decided import Decided
    from sbil.evaluation.familiarity import Familiarity
    from sbil.evaluation.matching import Agreement, MethodScores
    from sbil.statistics import Interval

SHIFTS = {
    "noise": "noise of one deviation",
    "out_of_range": "a value out of range",
    "permuted": "columns shuffled",
    "another": "another population",
}
FEW = 12  # actions that have a table of their own
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


def agreement_in_words(found: "Agreement", word: str) -> str:
    """The agreement with decisions, which `word` names, in one line."""
    from sbil.text import counted

    return (
        f"{found.accuracy:.1%} agreement on {counted(found.steps, word)}, log-loss {found.log_loss:.3f} "
        f"(the most frequent action: {found.majority_accuracy:.1%})"
    )


def show_methods(rows: "Sequence[MethodScores]", title: str) -> None:
    """Print metrics down, methods across, each value with its interval below it."""
    from sbil.evaluation.metrics import METRICS

    lines = [[metric.heading, *(_cell(row.metrics[name]) for row in rows)] for name, metric in METRICS.items()]
    show_grid(["", *(row.method for row in rows)], lines, title)


def show_actions(made: "Decided", names: Sequence[str]) -> None:
    """Print one row per action, and which action was chosen instead of which."""
    from sbil.evaluation.matching import confusion, per_action

    if len(names) > FEW:
        print(f"the table by action is left out, because there are {len(names)} actions; --json has it")
        return
    heads = ("recorded", "count", "precision", "recall", "F1", "AUC", "APR", *(f"-> {name}" for name in names))
    rows = [
        [name, str(row.taken), *map(_number, row[1:]), *map(str, chosen)]
        for name, row, chosen in zip(names, per_action(made), confusion(made), strict=True)
    ]
    show_grid(heads, rows, "By recorded action; on the right, how often each action was the most probable")


def show_familiarity(found: "Familiarity") -> None:
    """Print accuracy against coverage, detection of shifted states, and what both mean."""
    curves, measures = found.coverage.accuracy.values(), [*found.coverage.accuracy]
    rows = [[f"{share:.0%}", *(_cell(curve[share]) for curve in curves)] for share in next(iter(curves))]
    show_grid(["decided", *measures], rows, "Accuracy when the least familiar states are left to a human")
    rows = [[SHIFTS[kind], *(_cell(one.auroc[name]) for name in measures)] for kind, one in found.detection.items()]
    show_grid(["shift", *measures], rows, "Telling shifted states from held-out ones (AUROC, 0.5 is chance)")
    print(found.sentence, *found.notes, sep="\n")


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "-"


def _cell(found: "Interval") -> str:
    value, low, high = map(_number, found)
    return value if "-" in (low, high) else f"{value}\n{low} to {high}"
