"""How well recorded decisions are matched, as tables for people and plain values for programs."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbil.evaluation.familiarity import Familiarity
    from sbil.evaluation.matching import Decided
    from sbil.policy import Policy

HEADS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced",
    "auc": "AUC",
    "apr": "APR",
    "log_loss": "log-loss",
    "brier": "Brier",
    "ece": "ECE",
}
SHIFTS = {
    "noise": "noise of one deviation",
    "out_of_range": "a value out of range",
    "permuted": "columns shuffled",
    "another": "another population",
}
FEW = 12  # actions that have a table of their own


def rows(found: "Mapping[str, Decided]") -> list[dict[str, Any]]:
    """A row a method: every metric with its interval over episodes."""
    from sbil.evaluation.matching import intervals

    table = []
    for name, made in found.items():
        metrics = intervals(made).metrics
        table.append({"method": name, **{metric: _plain(value) for metric, value in metrics.items()}})
    return table


def beside(policy: "Policy", held_out: Any) -> "dict[str, Decided]":
    """What the commonest and the previous action say of held-out decisions, by the counts that a policy carries."""
    from sbil.evaluation.baselines import Baselines

    counts = policy.provenance.get("baselines")
    return Baselines.from_json(counts).decided(held_out) if counts else {}


def show(table: Sequence[Mapping[str, Any]], title: str) -> None:
    """Methods down, metrics across, each with its interval below it."""
    from rich.table import Table

    grid = Table(title=title, title_justify="left")
    grid.add_column("")
    for head in HEADS.values():
        grid.add_column(head, justify="right")
    for row in table:
        grid.add_row(row["method"], *(_cell(row[metric]) for metric in HEADS))
    _print(grid)


def show_actions(made: "Decided", names: Sequence[str]) -> None:
    """A row an action, and which action was chosen in place of which."""
    from rich.table import Table

    from sbil.evaluation.matching import confusion, per_action

    if len(names) > FEW:
        return
    grid = Table(title="By action; right, how often each action was the most probable", title_justify="left")
    for head in ("recorded", "count", "precision", "recall", "F1", "AUC", "APR", *(f"-> {name}" for name in names)):
        grid.add_column(head, justify="left" if head == "recorded" else "right")
    for name, row, chosen in zip(names, per_action(made), confusion(made), strict=True):
        grid.add_row(name, str(row.taken), *(_number(value) for value in row[1:]), *map(str, chosen))
    _print(grid)


def show_familiarity(found: "Familiarity") -> None:
    """Accuracy against coverage, detection of shifted states, and what both say."""
    from rich.table import Table

    accuracy = found.coverage.accuracy
    shares = list(next(iter(accuracy.values())))
    grid = Table(title="Accuracy when only the most familiar states are decided", title_justify="left")
    for head in ("by", *(f"{share:.0%}" for share in shares)):
        grid.add_column(head, justify="left" if head == "by" else "right")
    for name, curve in accuracy.items():
        grid.add_row(name, *(_cell(_plain(curve[share])) for share in shares))
    _print(grid)
    grid = Table(title="Telling shifted states from held-out ones (AUROC, 0.5 is chance)", title_justify="left")
    for head in ("shift", *accuracy):
        grid.add_column(head, justify="left" if head == "shift" else "right")
    for kind, detected in found.detection.items():
        grid.add_row(SHIFTS[kind], *(_cell(_plain(detected.auroc[name])) for name in accuracy))
    _print(grid)
    print(found.sentence)
    for note in found.notes:
        print(note)


def _print(grid: Any) -> None:
    from rich.console import Console

    Console().print(grid)


def _plain(found: Any) -> dict[str, float | None]:
    """An interval as plain values; what is not defined is None."""
    return {name: None if math.isnan(value) else float(value) for name, value in found._asdict().items()}


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.3f}"


def _cell(found: Mapping[str, float | None]) -> str:
    return f"{_number(found['value'])}\n[{_number(found['low'])}, {_number(found['high'])}]"
