"""The match with recorded decisions, as tables on the terminal."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbil.cli.grids import show_grid

if TYPE_CHECKING:
    from sbil.evaluation.agreement import Agreement
    from sbil.evaluation.decided import Decided
    from sbil.evaluation.familiarity import Familiarity
    from sbil.evaluation.matching import MethodScores
    from sbil.statistics import Interval

SHIFTS = {
    "noise": "noise of one deviation",
    "out_of_range": "a value out of range",
    "permuted": "columns shuffled",
    "another": "another population",
}
FEW = 12  # actions that have a table of their own


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
