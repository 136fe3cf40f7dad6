"""sbil reproduce: a grid of experiments -> results that a second call continues."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sbil.errors import UserError, unknown

if TYPE_CHECKING:
    from sbil.experiments import Cell, Experiment, Result
    from sbil.experiments.run import Execute


EXAMPLES = (
    "sbil reproduce --quick --out quick/",
    "sbil reproduce --out results/",
    "sbil reproduce --protocol paper --env CartPole-v1 --algorithms bc,rcal,edm,edm:paper --out printed/",
    "sbil reproduce --env CartPole-v1 --demonstrators ppo:sampled,dqn:greedy --algorithms bc,rcal --out grid/",
    "sbil reproduce --env CartPole-v1 --algorithms bc,bc+weight_decay=0/0.1/1/3 --sizes 1,3 --out chosen/",
    "sbil reproduce --env PhysioNet-2012 --source set-a.tar.gz set-b.tar.gz --out results/",
    "sbil reproduce --env ICU-Sepsis --updates 2000 --out results/",
    "sbil reproduce --executor ray --address auto --out results/",
)


SEPSIS = "ICU-Sepsis"
DATASETS = ("MIMIC-III-2a", "MIMIC-III-4a", "PhysioNet-2012", "PhysioNet-2012-with-previous", SEPSIS)  # clinical data


@dataclass(frozen=True)
class Command:
    """Rebuild the paper's tables and figures, all or in part; what is finished is not run again.

    Without options about cells: every environment, method and size of the protocol, 10 draws of demonstrations x 5
    initialisations a cell, 300 episodes a run. Each option below narrows or changes that.

    A method is an algorithm, with a preset after a colon and settings after plus signs: edm, edm:released,
    bc+weight_decay=3. Among values separated by slashes, bc+weight_decay=0/0.1/1, every run chooses by
    cross-validation on its own demonstrations.
    """

    out: Path
    """The folder of results: a Parquet file a cell, and the report."""
    protocol: Literal["released", "paper"] = "released"
    """As the authors' code runs it (CartPole thinned by 20, PPO demonstrators) or as the paper's text says."""
    quick: bool = False
    """Fewer runs and sizes, without DSFN and ValueDICE; CartPole and Acrobot unless --env names others: minutes."""
    env: str | None = None
    """Environments, separated by commas: CartPole-v1, Acrobot-v1, LunarLander-v3, BeamRiderNoFrameskip-v4; or clinical
    data: MIMIC-III-2a, MIMIC-III-4a, PhysioNet-2012, PhysioNet-2012-with-previous, all with --source, and ICU-Sepsis
    (docs/clinical.md)."""
    source: tuple[Path, ...] = ()
    """Where clinical data lie: the folder of MIMIC-III's files, or the archives of PhysioNet 2012."""
    accept_incomplete: bool = False
    """Go on where a table of MIMIC-III has not the official number of rows; the result is marked."""
    algorithms: str | None = None
    """Methods, separated by commas."""
    sizes: str | None = None
    """Numbers of demonstrated trajectories, separated by commas; of ICU-Sepsis one, the episodes recorded."""
    demonstrators: str | None = None
    """Who is imitated, and how they act, separated by commas: ppo:sampled, ppo:greedy, dqn:greedy."""
    thin: int | None = None
    """Keep every k-th step of each trajectory."""
    unlabelled: str | None = None
    """Numbers of further trajectories of which only the states are shown, separated by commas."""
    draws: int | None = None
    """Draws of demonstrations; of clinical data, random splits by patient (dsfn@2 among the methods: the first 2)."""
    seeds: int | None = None
    """Initialisations for each draw."""
    updates: int | None = None
    """Updates of each run (default: what each method's preset asks for; `sbil algorithms` says)."""
    episodes: int | None = None
    """Live episodes of each finished policy."""
    executor: Literal["local", "ray"] = "local"
    """Where cells are run: in this process on all its devices, or on a Ray cluster."""
    address: str | None = None
    """The Ray cluster to send cells to (auto: the one that runs here); without, Ray is started for this call."""
    json: bool = False
    """Print the table as JSON."""


def run(command: Command) -> None:
    """Run what is missing, then print the tables and write the report beside the results."""
    from sbil import files
    from sbil.cli.progress import console
    from sbil.experiments.experiment import cells_of
    from sbil.experiments.store import read_all
    from sbil.reports import clinical, exports, labels, page, tables
    from sbil.reports.rows import cell_rows

    names = [name.strip() for name in command.env.split(",")] if command.env else []
    others = ",".join(name for name in names if name not in DATASETS)
    if others:
        experiments(replace(command, env=others))  # what cannot be run is named before anything is
    elif names:
        only_environments(command)
    clinical_names = [name for name in names if name in DATASETS]
    if command.source and len({name.split("-")[0] for name in clinical_names if name != SEPSIS}) > 1:
        raise UserError(
            "--source is of MIMIC-III or of PhysioNet 2012, not of both; run one after the other, with the same --out."
        )
    for name in clinical_names:
        methods_for(command, name)  # what cannot be run is named before any of them is
    matched = [match_decisions(command, name) for name in clinical_names]
    if matched and command.json:
        print(json.dumps(matched[0] if len(matched) == 1 else matched))
    if names and not others:
        tables_there, played = clinical.found([command.out]), any(command.out.glob("*.parquet"))
        everything = read_all([command.out], episodes=False) if played else []
        text = page.build(everything, None, tables_there) if played else clinical.build(tables_there)
        files.write_text(command.out / "report.html", text)
        if not command.json:
            print(f"wrote {command.out / clinical.FOLDER}/ and {command.out}/report.html (open it)")
        return
    command = replace(command, env=others or None)
    cells = cells_of(experiments(command))
    if any(command.out.glob("*.parquet")):
        read_all([command.out], episodes=False)  # what the report could not read is named before the work, not after
    results = run_cells(cells, command.out, executor(command))
    everything = read_all([command.out], episodes=False)  # what earlier calls left there too
    apart = labels.told_apart(everything)
    facts = cell_rows(apart)
    files.write_text(command.out / "report.html", page.build(everything, facts, clinical.found([command.out])))
    exports.write(apart, facts, command.out / "report")
    if command.json:
        print(tables.json_text({"cells": cell_rows(results)}))
        return
    console.print()
    print_results(results)
    print(f"wrote {command.out}/report.html (open it) and {command.out}/report/ with every table and figure")
    print("the Parquet files hold every run and every episode")


def match_decisions(command: Command, name: str) -> dict[str, Any]:
    """The table of a clinical dataset: every method on held-out patients; what is finished is not run again."""
    from sbil.cli.clinical import reading
    from sbil.cli.progress import bar, console
    from sbil.clinical import comparison, datasets, table
    from sbil.reports import clinical
    from sbil.reports.names import name_of

    methods, order = methods_for(command, name)
    folder = command.out / clinical.FOLDER
    with reading() as progress:
        data = datasets.opened(
            name,
            folder / "data",
            () if name == datasets.SEPSIS else command.source,
            accept_incomplete=command.accept_incomplete,
            progress=progress,
            **recorded(command),
        )
    if data.account and not command.json:
        print(data.account, f"{folder / 'data'} holds rows of patients: do not pass it on.", sep="\n")
    begun: dict[str, float] = {}
    done = 0

    def watch(method: str, share: float) -> None:
        nonlocal done
        advance(order.index(method) + share, method)
        if share < 1:
            begun.setdefault(method, time.monotonic())
            return
        done += 1
        took = f"{time.monotonic() - begun[method]:.1f} s" if method in begun else "kept from before"
        console.print(f"{done}/{len(methods)} {name} {method}: {took}", highlight=False)

    try:
        with bar(len(methods), name) as advance:
            found = comparison.run(
                *(data.title, data.demonstrations, folder, methods),
                splits=splits_for(command),
                updates=command.updates,
                standardise=data.standardise,
                process=data.process,
                notes=data.notes,
                watch=watch,
            )
    except KeyboardInterrupt:
        console.print(f"stopped: {done} of {len(methods)} methods are finished and kept in {folder}.", highlight=False)
        raise
    table.write(found, folder, name_of, clinical.printed(data.title))
    if not command.json:
        print(table.markdown(found, name_of, clinical.printed(data.title)))
    return table.as_json(found)


def methods_for(command: Command, name: str) -> tuple[tuple[str, ...], list[str]]:
    """(what is compared on a clinical dataset, as it was asked for; the bare names of these methods)."""
    from sbil.clinical import comparison, datasets

    if command.source and name == datasets.SEPSIS and command.env == name:
        raise UserError("ICU-Sepsis comes with its package and needs no --source; leave it out.")
    given = command.algorithms.split(",") if command.algorithms else datasets.methods_of(name)
    methods = tuple(map(str.strip, given))
    requests = comparison.check(methods, splits_for(command), command.updates, datasets.references_of(name))
    names = [request.method for request in requests]
    datasets.must_fit(name, names)
    return methods, names


def splits_for(command: Command) -> int:
    """How many random splits are asked for."""
    return 10 if command.draws is None else command.draws


def only_environments(command: Command) -> None:
    """Refuse what clinical data have nothing to do with, and would leave out without a word."""
    plain = Command(command.out)
    names = ["protocol", "quick", "demonstrators", "thin", "unlabelled", "seeds", "executor", "address"]
    if SEPSIS not in str(command.env):
        names += ["sizes", "episodes"]
    for name in names:
        if getattr(command, name) != getattr(plain, name):
            raise UserError(f"--{name} is about environments that are played, not about {command.env}; leave it out.")


def recorded(command: Command) -> dict[str, int]:
    """How many episodes of ICU-Sepsis are asked for, to learn from and to play."""
    sizes = whole_numbers("--sizes", command.sizes) if command.sizes else ()
    if len(sizes) > 1 or any(size < 5 for size in sizes):
        raise UserError(f"--sizes of ICU-Sepsis must be one number from 5. Got '{command.sizes}'.")
    asked = {"trajectories": next(iter(sizes), None), "episodes": command.episodes}
    return {name: number for name, number in asked.items() if number is not None}


def experiments(command: Command) -> "list[Experiment]":
    """The experiments of the protocol, narrowed and changed as asked."""
    from sbil.cli.progress import console
    from sbil.experiments import Method
    from sbil.experiments.paper import MINUTES, NEEDS_A_GPU, protocol

    found = protocol(command.protocol, command.quick)
    if command.env is None and command.quick:
        found = tuple(experiment for experiment in found if experiment.environment in MINUTES)
    elif command.env is None and command.executor == "local" and not has_gpu():
        left_out = f"left out: {', '.join(NEEDS_A_GPU)}, which takes days without a GPU; --env runs it all the same."
        console.print(left_out, highlight=False)
        found = tuple(experiment for experiment in found if experiment.environment not in NEEDS_A_GPU)
    elif command.env is not None:
        known = {experiment.environment for experiment in found}
        asked = [name.strip() for name in command.env.split(",")]
        for name in asked:
            if name not in known:
                raise unknown("environment", name, [*sorted(known), *DATASETS])
        found = tuple(experiment for experiment in found if experiment.environment in asked)
    if command.unlabelled is None and (command.algorithms, command.sizes) != (None, None):
        found = tuple(experiment for experiment in found if experiment.unlabelled == (0,))
    elif command.unlabelled is not None:
        with_states = {experiment.environment for experiment in found if experiment.unlabelled != (0,)}
        found = tuple(e for e in found if e.unlabelled != (0,) or e.environment not in with_states)
    read: dict[str, tuple[Any, Callable[[str], Any]]] = {
        "methods": (command.algorithms, lambda text: tuple(map(Method.parse, text.split(",")))),
        "sizes": (command.sizes, partial(whole_numbers, "--sizes")),
        "demonstrators": (command.demonstrators, demonstrators),
        "thin": (command.thin, int),
        "unlabelled": (command.unlabelled, partial(whole_numbers, "--unlabelled")),
        "draws": (command.draws, int),
        "initialisations": (command.seeds, int),
        "updates": (command.updates, int),
        "episodes": (command.episodes, int),
    }
    changes = {name: meaning(given) for name, (given, meaning) in read.items() if given is not None}
    return [replace(experiment, **changes) for experiment in found]


def has_gpu() -> bool:
    """Whether JAX has more than CPUs here."""
    import jax

    return bool(jax.default_backend() != "cpu")


def executor(command: Command) -> "Execute | None":
    """Where the cells are run; nothing: in this process."""
    if command.executor == "ray":
        from sbil.experiments.on_ray import on_ray

        return on_ray(command.address)
    if command.address:
        raise UserError("--address names a Ray cluster; add --executor ray.")
    return None


def demonstrators(text: str) -> tuple[tuple[str, str], ...]:
    """ "ppo:sampled,dqn:greedy" as pairs."""
    pairs = [tuple(part.strip().split(":")) for part in text.split(",")]
    if not all(len(pair) == 2 for pair in pairs) or len(set(pairs)) < len(pairs):
        raise UserError(f"--demonstrators must be different pairs like ppo:sampled,dqn:greedy. Got '{text}'.")
    return tuple((name, mode) for name, mode in pairs)


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """ "1,3,7" as numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"{option} must be whole numbers separated by commas. Got '{text}'.") from None


def run_cells(cells: "Sequence[Cell]", out: Path, execute: "Execute | None" = None) -> "list[Result]":
    """All cells, with a live table of what is done, running and left; diverged runs are named as they are found.

    What comes back has one mean return a run: the files keep every episode.
    """
    from sbil import environments
    from sbil.cli.progress import Board, console, live
    from sbil.experiments.run import run_grid
    from sbil.experiments.store import Store

    # A wrong name or a missing package is found before the first run, not after an hour.
    for cell in cells:
        _ = cell.fingerprint
    for name in {cell.environment for cell in cells}:
        environments.require(name)
    finished: dict[Cell, Result] = {}
    board = Board(cells)
    try:
        with live(board):
            for result, fresh in run_grid(cells, Store(out), board.advance, execute=execute):
                board.finish(result, fresh)
                finished[result.cell] = result.summary()
                took = f"{sum(result.seconds.values()):.1f} s" if fresh else "kept from before"
                console.print(f"{len(finished)}/{len(cells)} {result.cell}: {took}", highlight=False)
                if result.diverged:
                    console.print(f"  {diverged_text(result)}", style="yellow", highlight=False)
    except KeyboardInterrupt:
        console.print(f"stopped: {len(finished)} of {len(cells)} cells are finished and kept in {out}.")
        raise
    return [finished[cell] for cell in cells]


def diverged_text(result: "Result") -> str:
    """Which runs diverged."""
    runs = [run for run, at in zip(result.cell.runs, result.diverged_at, strict=True) if at >= 0]
    named = ", ".join(f"draw {draw} seed {seed}" for draw, seed in runs[:5])
    more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""
    return f"{len(runs)} of {len(result.cell.runs)} runs diverged: {named}{more}"


def print_results(results: "Sequence[Result]") -> None:
    """The table with intervals, and the paired differences from BC."""
    from rich.console import Console

    from sbil.reports import tables
    from sbil.reports.cells import setting_of

    console = Console()
    for setting in dict.fromkeys(setting_of(result) for result in results if not result.cell.unlabelled):
        here = [result for result in results if setting_of(result) == setting and not result.cell.unlabelled]
        console.print(
            tables.terminal(here, f"{setting}: scaled return [95 % interval], {len(here[0].cell.runs)} runs a cell")
        )
        print_differences(here)
    for result in (result for result in results if result.cell.unlabelled):
        print(f"{result.cell}: {tables.with_interval(result)}")


def print_differences(results: "Sequence[Result]") -> None:
    """The paired differences from BC, one line a cell."""
    from sbil.reports.differences import differences, verdict

    for row in differences(results):
        interval = f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
        print(f"{row['method']} - bc at n={row['size']}: {interval}, {verdict(row)}")
