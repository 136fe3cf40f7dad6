"""The match with recorded decisions, as tables on the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbil.evaluation.decided import Decided
    from sbil.evaluation.familiarity import Familiarity
    from sbil.evaluation.matching import MethodScores

SHIFTS = {
    "noise": "noise of one deviation",
    "out_of_range": "a value out of range",
    "permuted": "columns shuffled",
    "another": "another population",
}
FEW = 12  # actions that have a table of their own


def show_methods(rows: "Sequence[MethodScores]", title: str) -> None:
    """Return a table: metrics down, methods across, each value with its interval below it."""
    from sbil.evaluation.metrics import METRICS

    grid = _grid(title, "", [row.method for row in rows])
    for name, metric in METRICS.items():
        grid.add_row(metric.heading, *(_cell(row.metrics[name].as_json()) for row in rows))
    _print(grid)


def show_actions(made: "Decided", names: Sequence[str]) -> None:
    """Return one row per action, and which action was chosen instead of which."""
    from rich.text import Text

    from sbil.evaluation.matching import confusion, per_action

    if len(names) > FEW:
        print(f"the table by action is left out, because there are {len(names)} actions; --json has it")
        return
    heads = ("count", "precision", "recall", "F1", "AUC", "APR", *(f"-> {name}" for name in names))
    grid = _grid("By recorded action; on the right, how often each action was the most probable", "recorded", heads)
    for name, row, chosen in zip(names, per_action(made), confusion(made), strict=True):
        grid.add_row(Text(name), str(row.taken), *(_number(value) for value in row[1:]), *map(str, chosen))
    _print(grid)


def show_familiarity(found: "Familiarity") -> None:
    """Return accuracy against coverage, detection of shifted states, and what both mean."""
    accuracy = found.coverage.accuracy
    grid = _grid("Accuracy when the least familiar states are left to a human", "decided", list(accuracy))
    for share in next(iter(accuracy.values())):
        grid.add_row(f"{share:.0%}", *(_cell(curve[share].as_json()) for curve in accuracy.values()))
    _print(grid)
    grid = _grid("Telling shifted states from held-out ones (AUROC, 0.5 is chance)", "shift", list(accuracy))
    for kind, detected in found.detection.items():
        grid.add_row(SHIFTS[kind], *(_cell(detected.auroc[name].as_json()) for name in accuracy))
    _print(grid)
    print(found.sentence)
    for note in found.notes:
        print(note)


def _grid(title: str, first: str, heads: Sequence[str]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    grid.add_column(first)
    for head in heads:
        grid.add_column(Text(head), justify="right")
    return grid


def _print(grid: Any) -> None:
    from rich.console import Console

    from sbil.cli.progress import roomy

    roomy(Console()).print(grid)


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.3f}"


def _cell(found: Mapping[str, float | None]) -> str:
    value, low, high = (found[name] for name in ("value", "low", "high"))
    return _number(value) + ("" if low is None or high is None else f"\n{_number(low)} to {_number(high)}")
