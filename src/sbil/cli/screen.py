"""A call of `sbil.reproduce` on the screen: what is read, a live table of the cells, and a line per finished cell."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from rich.live import Live

from sbil.api.reproduce import Watcher
from sbil.cli.clinical import reading
from sbil.cli.progress import Board, console, say
from sbil.clinical.datasets import Progress
from sbil.experiments import Cell, Result
from sbil.training import Report


@dataclass
class Screen(Watcher):
    """Shows how a call goes on."""

    out: Path
    json: bool = False  # whether standard output is for JSON alone
    board: Board = field(default_factory=lambda: Board([]))

    @contextmanager
    def reading(self) -> Iterator[Progress]:
        with reading() as progress:
            yield progress

    def left_out(self, account: str, folder: Path) -> None:
        if not self.json:
            print(account, f"{folder} holds rows of patients: do not pass it on.", sep="\n")

    @contextmanager
    def running(self, cells: Sequence[Cell]) -> Iterator[None]:
        self.board = Board(cells)
        shown = Live(self.board, console=console, refresh_per_second=2, transient=True)
        try:
            with shown if console.is_terminal else nullcontext():
                yield
        except KeyboardInterrupt:
            say(f"stopped: {len(self.board.scores)} of {len(cells)} cells are finished and kept in {self.out}.")
            raise

    def advance(self, group: Sequence[Cell], share: float, report: Report) -> None:
        self.board.advance(group, share, report)

    def finish(self, result: Result, fresh: bool) -> None:
        self.board.finish(result, fresh)
        took = f"{sum(result.seconds.values()):.1f} s" if fresh else "kept from before"
        say(f"{len(self.board.scores)}/{len(self.board.cells)} {result.cell}: {took}")
        if result.diverged:
            say(f"  {diverged_text(result)}", "yellow")


def diverged_text(result: Result) -> str:
    """Which runs diverged."""
    runs = [run for run, at in zip(result.cell.runs, result.diverged_at, strict=True) if at >= 0]
    named = ", ".join(f"draw {draw} seed {seed}" for draw, seed in runs[:5])
    more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""
    return f"{len(runs)} of {len(result.cell.runs)} runs diverged: {named}{more}"
