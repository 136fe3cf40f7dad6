"""sbil reproduce: a grid of experiments, continued by a second call."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbil.experiments import Cell, Method, Result
    from sbil.training import Report


EXAMPLES = (
    "sbil reproduce --env CartPole-v1 --thin 20 --algorithms bc,bc:decay,edm:paper,edm:released --out grid/",
    "sbil reproduce --env CartPole-v1 --thin 20 --demonstrators ppo:sampled,dqn:greedy --algorithms bc,rcal --out g/",
    "sbil reproduce --env CartPole-v1 --thin 20 --algorithms bc,bc+weight_decay=0/0.1/1/3 --out chosen/",
    "sbil reproduce --env Acrobot-v1 --sizes 1,3 --draws 2 --seeds 1 --updates 1000 --out try/",
)


@dataclass(frozen=True)
class Command:
    """Train and score every method on every size, and print the table; what is finished is not run again.

    A method is an algorithm, with a preset after a colon and settings after plus signs: edm, edm:released,
    bc+weight_decay=3. Among values separated by slashes, bc+weight_decay=0/0.1/1, every run chooses by
    cross-validation on its own demonstrations.
    """

    env: str
    """The environment: CartPole-v1 or Acrobot-v1."""
    out: Path
    """The folder of results."""
    algorithms: str = "bc,edm"
    """Methods, separated by commas."""
    sizes: str = "1,3,7,10,15"
    """Numbers of demonstrated trajectories, separated by commas."""
    demonstrators: str = "ppo:sampled"
    """Who is imitated, and how they act, separated by commas: ppo:sampled, ppo:greedy, dqn:greedy."""
    thin: int = 1
    """Keep every k-th step of each trajectory."""
    draws: int = 10
    """Draws of demonstrations."""
    seeds: int = 5
    """Initialisations for each draw."""
    updates: int | None = None
    """Updates of each run (default: what each method's preset asks for; `sbil algorithms` says)."""
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
            demonstrator=demonstrator,
            mode=mode,
            thin=command.thin,
            method=method,
            size=size,
            draws=command.draws,
            initialisations=command.seeds,
            updates=updates_for(method, command.updates),
            episodes=command.episodes,
        )
        for demonstrator, mode in demonstrators(command.demonstrators)
        for method in map(Method.parse, command.algorithms.split(","))
        for size in sizes(command.sizes)
    ]
    results = run_cells(list(dict.fromkeys(cells)), command.out)
    names = []
    for demonstrator, mode in demonstrators(command.demonstrators):
        here = [result for result in results if (result.cell.demonstrator, result.cell.mode) == (demonstrator, mode)]
        names.append(f"{command.env}-{demonstrator}-{mode}-thin{command.thin}")
        files.write_text(command.out / f"{names[-1]}.md", tables.markdown(here))
        files.write_text(command.out / f"{names[-1]}.csv", tables.csv_text(tables.run_rows(here)))
        figures.write(figures.against_size(here), command.out / f"{names[-1]}.png")
    if command.json:
        print(tables.json_text({"cells": tables.rows(results), "differences": tables.differences(results)}))
        return
    console.print()
    print_results(results)
    for name in names:
        print(f"wrote {command.out / name}.md, .csv (one line a run) and .png")
    print("the files of the cells hold every episode")


def updates_for(method: "Method", asked: int | None) -> int:
    """The updates of a method's cells."""
    from sbil import algorithms

    candidates = algorithms.candidates(method.algorithm, method.preset, method.settings)
    return algorithms.updates_for(method.algorithm, method.preset, candidates.values(), asked)


def demonstrators(text: str) -> list[tuple[str, str]]:
    """ "ppo:sampled,dqn:greedy" as pairs."""
    from sbil.errors import UserError

    pairs = [tuple(part.strip().split(":")) for part in text.split(",")]
    if not all(len(pair) == 2 for pair in pairs) or len(set(pairs)) < len(pairs):
        raise UserError(f"--demonstrators must be different pairs like ppo:sampled,dqn:greedy. Got '{text}'.")
    return [(name, mode) for name, mode in pairs]


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
    finished: list[Result] = []
    with bar(len(cells), "all cells") as advance:

        def watch(group: "Sequence[Cell]", share: float, report: "Report") -> None:
            text = f"{group[0].method} n={group[0].size}: {metrics_text(report)}"
            advance(len(finished) + share * len(group), text)

        for result, fresh in run_grid(cells, Store(out), watch):
            finished.append(result)
            advance(len(finished), "")
            diverged = [run for run, at in zip(result.cell.runs, result.diverged_at, strict=True) if at >= 0]
            took = f"{sum(result.seconds.values()):.1f} s" if fresh else "kept from before"
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
        print_differences(here)


def print_differences(results: "Sequence[Result]") -> None:
    """The paired differences from BC, one line a cell."""
    from sbil.reports import tables

    for row in tables.differences(results):
        interval = f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
        print(f"{row['method']} - bc at n={row['size']}: {interval}, {tables.verdict(row)}")
