"""sbil reproduce: a grid of experiments, continued by a second call."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sbil.experiments import Cell, Result
    from sbil.training import Report


EXAMPLES = (
    "sbil reproduce --env CartPole-v1 --thin 20 --algorithms bc,bc:decay,edm:paper,edm:released --out grid/",
    "sbil reproduce --env Acrobot-v1 --sizes 1,3 --draws 2 --seeds 1 --updates 1000 --out try/",
)


@dataclass(frozen=True)
class Command:
    """Train and score every method on every size, and print the table; what is finished is not run again.

    A method is an algorithm, with a preset after a colon and settings after plus signs:
    edm, edm:released, bc+weight_decay=3.
    """

    env: str
    """The environment: CartPole-v1 or Acrobot-v1."""
    out: Path
    """The folder of results."""
    algorithms: str = "bc,edm"
    """Methods, separated by commas."""
    sizes: str = "1,3,7,10,15"
    """Numbers of demonstrated trajectories, separated by commas."""
    demonstrator: str = "ppo"
    """Which demonstrator."""
    mode: Literal["sampled", "greedy"] = "sampled"
    """How the demonstrator acts."""
    thin: int = 1
    """Keep every k-th step of each trajectory."""
    draws: int = 10
    """Draws of demonstrations."""
    seeds: int = 5
    """Initialisations for each draw."""
    updates: int = 10_000
    """Gradient updates of each run."""
    episodes: int = 300
    """Live episodes of each finished policy."""
    json: bool = False
    """Print the table as JSON."""


def run(command: Command) -> None:
    """Run what is missing, then print the table and write it beside the results."""
    from sbil import files
    from sbil.cli.progress import console
    from sbil.experiments import Cell, Method
    from sbil.reports import figures, tables

    cells = [
        Cell(
            environment=command.env,
            demonstrator=command.demonstrator,
            mode=command.mode,
            thin=command.thin,
            method=method,
            size=size,
            draws=command.draws,
            initialisations=command.seeds,
            updates=command.updates,
            episodes=command.episodes,
        )
        for method in map(Method.parse, command.algorithms.split(","))
        for size in sizes(command.sizes)
    ]
    results = run_cells(cells, command.out)
    name = f"{command.env}-{command.demonstrator}-{command.mode}-thin{command.thin}"
    files.write_text(command.out / f"{name}.md", tables.markdown(results))
    files.write_text(command.out / f"{name}.csv", tables.csv_text(tables.run_rows(results)))
    figures.write(figures.against_size(results), command.out / f"{name}.png")
    if command.json:
        print(tables.json_text({"cells": tables.rows(results), "differences": tables.differences(results)}))
        return
    console.print()
    print_results(results)
    print(f"wrote {command.out / name}.md, .csv (one line a run) and .png; the files of the cells hold every episode")


def sizes(text: str) -> list[int]:
    """ "1,3,7" as numbers."""
    from sbil.errors import UserError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--sizes must be whole numbers separated by commas. Got '{text}'.") from None


def run_cells(cells: "Sequence[Cell]", out: Path) -> "list[Result]":
    """All cells with a bar of progress; diverged runs are named as they are found."""
    from sbil.cli.progress import bar, console, metrics_text
    from sbil.experiments.run import run_grid
    from sbil.experiments.store import Store

    for cell in cells:
        _ = cell.fingerprint  # a wrong name is found before the first run, not after an hour
    total = sum(cell.updates for cell in cells)
    finished: list[Result] = []
    with bar(total, "all cells") as advance:

        def watch(group: "Sequence[Cell]", report: "Report") -> None:
            done = sum(result.cell.updates for result in finished) + report.update * len(group)
            advance(done, f"{group[0].method} n={group[0].size}: {metrics_text(report)}")

        for result, fresh in run_grid(cells, Store(out), watch):
            finished.append(result)
            advance(sum(result.cell.updates for result in finished), "")
            diverged = [run for run, at in zip(result.cell.runs, result.diverged_at, strict=True) if at >= 0]
            took = f"{result.seconds['training'] + result.seconds['evaluation']:.1f} s" if fresh else "kept from before"
            console.print(f"{len(finished)}/{len(cells)} {result.cell}: {took}", highlight=False)
            if diverged:
                named = ", ".join(f"draw {draw} seed {seed}" for draw, seed in diverged[:5])
                more = f" and {len(diverged) - 5} more" if len(diverged) > 5 else ""
                console.print(
                    f"  {len(diverged)} of {len(result.cell.runs)} runs diverged: {named}{more}", style="yellow"
                )
    return [next(result for result in finished if result.cell == cell) for cell in cells]


def print_results(results: "Sequence[Result]") -> None:
    """The table with intervals, and the paired differences from BC."""
    from rich.console import Console

    from sbil.reports import tables

    console = Console()
    for setting in dict.fromkeys(map(tables.setting_of, results)):
        here = [result for result in results if tables.setting_of(result) == setting]
        console.print(
            tables.terminal(here, f"{setting}: scaled return [95 % interval], {len(here[0].cell.runs)} runs a cell")
        )
    for row in tables.differences(results):
        interval = f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
        print(f"{row['method']} - bc at n={row['size']}: {interval}, {tables.verdict(row)}")
