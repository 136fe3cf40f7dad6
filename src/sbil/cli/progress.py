"""Progress for people: a bar on the terminal's error stream; nothing when it is not a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sbil.training import Report

console = Console(stderr=True)


def metrics_text(report: Report) -> str:
    """Mean losses of the runs that are sound, and how many are not."""
    sound = ~report.diverged
    if not sound.any():
        return "all runs diverged"
    shown = {"policy_loss": "loss", "energy_gap": "energy gap", "agreement": "agreement", "margin": "margin"}
    means = {word: np.mean(report.metrics[name][sound]) for name, word in shown.items() if name in report.metrics}
    parts = [f"{word} {mean:.3f}" for word, mean in means.items()]
    return ", ".join(parts) + (f", {int(report.diverged.sum())} diverged" if report.diverged.any() else "")


@contextmanager
def bar(total: int, label: str) -> Iterator[Callable[[float, str], None]]:
    """A bar that is told how much is done and what to show beside it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=total, note="")

        def advance(done: float, note: str) -> None:
            progress.update(task, completed=done, note=note)

        yield advance
