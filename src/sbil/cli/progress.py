"""Progress on the error stream: a bar or a table on a terminal; plain lines, or nothing, elsewhere."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sbil.training import Report

if TYPE_CHECKING:
    from sbil.experiments import Cell, Result

console = Console(stderr=True)


def say(text: str, style: str = "") -> None:
    """Print a line on the error stream. However wide the console is, it is not wrapped, cut or read as markup."""
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def bar(total: int, label: str) -> Iterator[Callable[[float, str], None]]:
    """A bar; it yields a function to call with how much is done and what to show beside it."""
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


@dataclass
class Board:
    """The state of a grid: which cells are done, running and left, and how long the rest may take."""

    cells: "Sequence[Cell]"
    scores: "dict[Cell, float]" = field(default_factory=dict)  # of the cells that are done
    running: "dict[Cell, float]" = field(default_factory=dict)  # the share of each that is done
    seconds: dict[str, list[float]] = field(default_factory=dict)  # per run of cells finished now, by method
    work: float = 0.0  # seconds of work in those cells
    note: str = ""
    said: set[str] = field(default_factory=set)  # notes that were printed
    started: float = field(default_factory=time.monotonic)
    elapsed: float = 0.0  # from the start to the last cell that was finished now

    def advance(self, group: "Sequence[Cell]", share: float, report: Report) -> None:
        self.running |= {cell: share for cell in group if cell not in self.scores}
        if report.note and report.note not in self.said:
            self.said.add(report.note)
            say(report.note, "dim")
        self.note = report.words

    def finish(self, result: "Result", fresh: bool) -> None:
        cell = result.cell
        self.running.pop(cell, None)
        self.scores[cell] = float(result.scores.mean())
        if fresh:
            taken = sum(result.seconds.values()) / len(cell.runs)
            self.seconds.setdefault(str(cell.method), []).append(taken)
            self.elapsed = time.monotonic() - self.started
            self.work += sum(result.seconds.values())

    def left(self) -> float | None:
        """Seconds to go, from the time that runs of the same method, or of all methods, took; None before one is known.

        Groups that run side by side finish faster, and the estimate includes that.
        """
        every = [value for values in self.seconds.values() for value in values]
        if not every:
            return self._left_of_the_first()
        usual = {method: float(np.mean(values)) for method, values in self.seconds.items()}
        waiting = [cell for cell in self.cells if cell not in self.scores]
        pace = min(self.elapsed / self.work, 1.0) if self.work > 0 else 1.0
        return pace * sum(
            usual.get(str(cell.method), float(np.mean(every))) * len(cell.runs) * (1 - self.running.get(cell, 0))
            for cell in waiting
        )

    def _left_of_the_first(self) -> float | None:
        """Seconds to go before the first cell is done, from the pace of the cells that run."""
        done = sum(len(cell.runs) * share for cell, share in self.running.items())
        waiting = sum(len(cell.runs) for cell in self.cells if cell not in self.scores)
        return (waiting - done) * (time.monotonic() - self.started) / done if done else None

    def line(self) -> str:
        """12 of 80 cells done, 5 running, 63 left, about 4 min to go."""
        waiting = len(self.cells) - len(self.scores) - len(self.running)
        seconds = self.left()
        to_go = "" if seconds is None else f", about {duration(seconds)} to go"
        counts = f"{len(self.scores)} of {len(self.cells)} cells done, {len(self.running)} running, {waiting} left"
        return counts + to_go

    def __rich__(self) -> Group:
        rows: dict[tuple[str, str], list[Cell]] = {}
        for cell in self.cells:
            rows.setdefault((cell.setting, str(cell.method)), []).append(cell)
        columns = list(dict.fromkeys((cell.size, cell.task.unlabelled) for cell in self.cells))
        room = max(console.height - 8, 4)
        # If not all rows fit, those that run come first, then those that wait.
        kept = set(sorted(rows, key=lambda row: self._urgency(rows[row]))[:room])
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("setting")
        table.add_column("method")
        for size, unlabelled in columns:
            table.add_column(_heading(size, unlabelled), justify="right")
        for row in (row for row in rows if row in kept):
            places = {(cell.size, cell.task.unlabelled): cell for cell in rows[row]}
            table.add_row(*row, *(self._shown(places.get(column)) for column in columns))
        hidden = f" ({len(rows) - len(kept)} more rows)" if len(rows) > len(kept) else ""
        return Group(table, Text(self.line() + hidden, style="bold"), Text(self.note, style="dim"))

    def _shown(self, cell: "Cell | None") -> Text:
        if cell is None:
            return Text("")
        if cell in self.scores:
            return Text(f"{self.scores[cell]:.3f}", style="green")
        return Text(f"{self.running[cell]:.0%}", style="cyan") if cell in self.running else Text("·", style="dim")

    def _urgency(self, cells: "Sequence[Cell]") -> tuple[bool, bool]:
        return self.running.keys().isdisjoint(cells), self.scores.keys() >= {*cells}


def _heading(size: int, unlabelled: int) -> str:
    """n=3+2; cells of tables have no size, their accuracy is shown."""
    return f"n={size}" + (f"+{unlabelled}" if unlabelled else "") if size else "accuracy"


def duration(seconds: float) -> str:
    """40 s, 7 min, 3.2 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
