"""How well recorded decisions are matched, as tables for people and plain values for programs."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbil.demonstrations import Demonstrations
    from sbil.evaluation.familiarity import Familiarity
    from sbil.evaluation.matching import Decided
    from sbil.policy import Policy

SHIFTS = {
    "noise": "noise of one deviation",
    "out_of_range": "a value out of range",
    "permuted": "columns shuffled",
    "another": "another population",
}
FEW = 12  # actions that have a table of their own
PARTS = 1000  # of which a share is so many


def rows(found: "Mapping[str, Decided]") -> list[dict[str, Any]]:
    """A row a method: every metric with its interval over episodes, or groups."""
    from sbil.evaluation.matching import intervals

    table = []
    for name, made in found.items():
        metrics = intervals(made).metrics
        table.append({"method": name, **{metric: value.as_json() for metric, value in metrics.items()}})
    return table


def resampled(demonstrations: "Demonstrations") -> dict[str, Any]:
    """What the intervals are over, and how many of them there are."""
    groups = demonstrations.groups
    return {"unit": demonstrations.unit, "count": len(demonstrations if groups is None else set(groups.tolist()))}


def beside(policy: "Policy", held_out: "Demonstrations", training: "Demonstrations | None") -> "dict[str, Decided]":
    """What the commonest and the previous action say of held-out decisions.

    A policy tells the shares of the actions, which is enough for the commonest one (older ones have counts); what
    followed what is in the training data alone.
    """
    import numpy as np

    from sbil.evaluation.baselines import MAJORITY, Baselines

    if training:
        return Baselines.from_demonstrations(training).decided(held_out)
    if counts := policy.provenance.get("baselines"):
        return Baselines.from_json(counts).decided(held_out)
    shares: Any = policy.provenance.get("shares")
    if not _sound(shares, len(policy.action_names)):
        return {}
    rest = max(1 - sum(share for share in shares if share is not None), 0) / max(shares.count(None), 1)
    parts = np.array([round(PARTS * (rest if share is None else share)) for share in shares])
    return {MAJORITY: Baselines(parts, np.zeros((len(parts), len(parts)), int)).decided(held_out)[MAJORITY]}


def _sound(shares: Any, count: int) -> bool:
    """Whether they are what a policy may say: one an action, from 0 to 1, or none."""
    return (
        isinstance(shares, list)
        and len(shares) == count
        and all(share is None or (type(share) in (int, float) and 0 <= share <= 1) for share in shares)
    )


def show(table: Sequence[Mapping[str, Any]], title: str) -> None:
    """Metrics down, methods across, each with its interval below it."""
    from sbil.policy.card import HEADS

    grid = _grid(title, "", [row["method"] for row in table])
    for metric, head in HEADS.items():
        grid.add_row(head, *(_cell(row[metric]) for row in table))
    _print(grid)


def by_action(made: "Decided", names: Sequence[str]) -> dict[str, Any]:
    """A row an action, the confusion matrix and the calibration curve, as plain values."""
    from sbil.evaluation.calibration import reliability
    from sbil.evaluation.matching import confusion, per_action

    def plain(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}

    rows = zip(names, per_action(made), strict=True)
    return {
        "actions": [{"action": name, **plain(row._asdict())} for name, row in rows],
        "confusion": confusion(made).tolist(),
        "reliability": [plain(part._asdict()) for part in reliability(made)],
    }


def show_actions(made: "Decided", names: Sequence[str]) -> None:
    """A row an action, and which action was chosen in place of which."""
    from rich.text import Text

    from sbil.evaluation.matching import confusion, per_action

    if len(names) > FEW:
        print(f"the table by action is left out: there are {len(names)} of them; --json has it")
        return
    heads = ("count", "precision", "recall", "F1", "AUC", "APR", *(f"-> {name}" for name in names))
    grid = _grid("By recorded action; right, how often each was the most probable", "recorded", heads)
    for name, row, chosen in zip(names, per_action(made), confusion(made), strict=True):
        grid.add_row(Text(name), str(row.taken), *(_number(value) for value in row[1:]), *map(str, chosen))
    _print(grid)


def show_familiarity(found: "Familiarity") -> None:
    """Accuracy against coverage, detection of shifted states, and what both say."""
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
