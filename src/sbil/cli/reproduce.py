"""sbil reproduce: a grid of experiments -> results that a second call continues."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sbil.cli.options import must_not_be_given
from sbil.errors import UserError, unknown

if TYPE_CHECKING:
    from sbil.api.reproduce import Compared, Reproduced
    from sbil.clinical.datasets import Known
    from sbil.experiments import Experiment, Result
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


@dataclass(frozen=True)
class Command:
    """Rebuild the paper's tables and figures, all or in part; what is finished is not run again.

    Without options about cells: every environment, method and size of the protocol, 10 draws of demonstrations x 5
    initialisations per cell, 300 episodes per run. Each option below narrows or changes that.

    A method is an algorithm, with a preset after a colon and settings after plus signs: edm, edm:released,
    bc+weight_decay=3. Among values separated by slashes, bc+weight_decay=0/0.1/1, every run chooses by
    cross-validation on its own demonstrations.
    """

    out: Path
    """The folder of results: a Parquet file per cell, and the report."""
    protocol: Literal["released", "paper"] = "released"
    """As the authors' code runs it (CartPole thinned by 20, PPO demonstrators) or as the paper's text says."""
    quick: bool = False
    """Fewer runs and sizes, without DSFN and ValueDICE; CartPole and Acrobot unless --env names others: minutes."""
    env: str | None = None
    """Environments, separated by commas: CartPole-v1, Acrobot-v1, LunarLander-v3, BeamRiderNoFrameskip-v4; or clinical
    data: MIMIC-III-2a, MIMIC-III-4a, PhysioNet-2012, PhysioNet-2012-with-previous, all with --source, and ICU-Sepsis
    (docs/clinical.md)."""
    source: tuple[Path, ...] = ()
    """The clinical data: the folder of MIMIC-III's files, or the archives of PhysioNet 2012."""
    accept_incomplete: bool = False
    """Continue if a table of MIMIC-III does not have the official number of rows; the result is marked."""
    algorithms: str | None = None
    """Methods, separated by commas."""
    sizes: str | None = None
    """Numbers of demonstrated trajectories, separated by commas; for ICU-Sepsis one number, the episodes recorded."""
    demonstrators: str | None = None
    """Who is imitated, and how they act, separated by commas: ppo:sampled, ppo:greedy, dqn:greedy."""
    thin: int | None = None
    """Keep every k-th step of each trajectory."""
    unlabelled: str | None = None
    """Numbers of further trajectories that give only their states, separated by commas."""
    draws: int | None = None
    """Draws of demonstrations; for clinical data, random splits by patient (dsfn@2 among the methods: the first 2)."""
    seeds: int | None = None
    """Initialisations for each draw."""
    updates: int | None = None
    """Updates of each run (default: what each method's preset asks for; `sbil algorithms` says)."""
    episodes: int | None = None
    """Live episodes of each finished policy."""
    executor: Literal["local", "ray"] = "local"
    """Run cells in this process on all its devices (local), or on a Ray cluster."""
    address: str | None = None
    """The Ray cluster to send cells to (auto: the one that runs here); without, Ray is started for this call."""
    json: bool = False
    """Print the table as JSON."""


def run(command: Command) -> None:
    """Run what is missing, then print the tables and write the report beside the results."""
    from sbil.api.reproduce import reproduce
    from sbil.cli.screen import Screen

    # What cannot be run is named before the work and not after it.
    played = [] if environments_of(command) == [] else experiments(command)
    matched = datasets_of(command)
    watcher = Screen(command.out, command.json)
    show(command, reproduce(command.out, played, matched, execute=executor(command), watcher=watcher))


def datasets_of(command: Command) -> "list[Compared]":
    """The clinical datasets that were named, and what is compared on each."""
    from sbil.api.reproduce import Compared
    from sbil.clinical import datasets
    from sbil.clinical.datasets import Asked
    from sbil.experiments import TableTask

    known = [datasets.get(name) for name in split(command.env or "") if name in datasets.known()]
    _require_options_of_datasets(command, known)
    methods = split(command.algorithms) if command.algorithms else None
    splits = 10 if command.draws is None else command.draws
    found = []
    for one in known:
        asked = Asked(command.out / TableTask.private, command.source, command.accept_incomplete)
        if not one.source:
            asked = Asked(asked.folder, trajectories=recorded(command), episodes=command.episodes)
        found.append(Compared(one, asked, one.wanted(methods, splits, command.updates)))
    return found


def _require_options_of_datasets(command: Command, known: "Sequence[Known]") -> None:
    """Refuse options that mean nothing for the clinical datasets that were named."""
    needy = [one for one in known if one.source]
    if environments_of(command) == []:
        names = ["protocol", "quick", "demonstrators", "thin", "unlabelled", "seeds"]
        names += ["sizes", "episodes"] * (needy == known)
        must_not_be_given(command, names, f"is about environments that are played, not about {command.env}")
    if command.source and known and not needy:
        raise UserError(f"{command.env} comes with its package and needs no --source; leave it out.")
    kinds = dict.fromkeys(one.source for one in needy)
    if command.source and len(kinds) > 1:
        both = " or of ".join(kinds)
        raise UserError(f"--source is of {both}, not of both; run one after the other, with the same --out.")


def environments_of(command: Command) -> list[str] | None:
    """The environments that were named: all names that are no dataset. None if nothing was named."""
    from sbil.clinical import datasets

    return None if command.env is None else [name for name in split(command.env) if name not in datasets.known()]


def split(text: str) -> list[str]:
    """ "bc, edm" as names."""
    return [name.strip() for name in text.split(",")]


def recorded(command: Command) -> int | None:
    """How many episodes of a process are asked for, to learn from."""
    sizes = whole_numbers("--sizes", command.sizes) if command.sizes else ()
    if len(sizes) > 1 or any(size < 5 for size in sizes):
        raise UserError(f"--sizes of ICU-Sepsis must be one number from 5. Got '{command.sizes}'.")
    return next(iter(sizes), None)


def experiments(command: Command) -> "list[Experiment]":
    """The experiments of the protocol, narrowed and changed as asked."""
    from sbil.cli.progress import say
    from sbil.clinical import datasets
    from sbil.experiments import paper

    environments = environments_of(command)
    found = {experiment.environment for experiment in paper.protocol(command.protocol)}
    for name in environments or ():
        if name not in found:
            raise unknown("environment", name, [*found, *datasets.known()])
    images = command.executor != "local" or has_gpu()
    if environments is None and not (images or command.quick):
        left_out = ", ".join(paper.NEEDS_A_GPU)
        say(f"left out: {left_out}, which takes days without a GPU; --env runs it all the same.")
    return paper.experiments(command.protocol, command.quick, environments, images, **changes(command))


def changes(command: Command) -> dict[str, Any]:
    """The fields of experiments that were asked to be something else."""
    from sbil.experiments import Method

    asked = {
        "methods": None if command.algorithms is None else tuple(map(Method.parse, command.algorithms.split(","))),
        "sizes": None if command.sizes is None else whole_numbers("--sizes", command.sizes),
        "demonstrators": None if command.demonstrators is None else demonstrators(command.demonstrators),
        "thin": command.thin,
        "unlabelled": None if command.unlabelled is None else whole_numbers("--unlabelled", command.unlabelled),
        "draws": command.draws,
        "initialisations": command.seeds,
        "updates": command.updates,
        "episodes": command.episodes,
    }
    return {name: value for name, value in asked.items() if value is not None}


def has_gpu() -> bool:
    """Whether JAX has more than CPUs here."""
    import jax

    return bool(jax.default_backend() != "cpu")


def executor(command: Command) -> "Execute | None":
    """Return how the cells are run; None means in this process."""
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


def show(command: Command, found: "Reproduced") -> None:
    """Print what was asked for, in words or as JSON."""
    from sbil.cli.progress import say
    from sbil.experiments import TableTask
    from sbil.reports import clinical
    from sbil.reports.rows import cell_rows
    from sbil.reports.tables import json_text

    if command.json:
        plain = [table.as_json() for table in found.tables]
        if plain:
            print(json.dumps(plain[0] if len(plain) == 1 else plain))
        if found.played:
            print(json_text({"cells": cell_rows(found.played)}))
        return
    for table in found.tables:
        print(clinical.in_markdown(table))
    if not found.played:
        print(f"wrote {command.out / TableTask.place}/ and {command.out}/report.html (open it)")
        return
    say("")
    print_results(found.played)
    print(f"wrote {command.out}/report.html (open it) and {command.out}/report/ with every table and figure")
    print("the Parquet files hold every run and every episode")


def print_results(results: "Sequence[Result]") -> None:
    """The table with intervals, and the paired differences from BC."""
    from rich.console import Console

    from sbil.cli.tables import roomy
    from sbil.reports import tables
    from sbil.reports.cells import setting_of

    console = roomy(Console())
    for setting in dict.fromkeys(setting_of(result) for result in results if not result.cell.task.unlabelled):
        here = [result for result in results if setting_of(result) == setting and not result.cell.task.unlabelled]
        console.print(
            tables.terminal(here, f"{setting}: scaled return [95 % interval], {len(here[0].cell.runs)} runs per cell")
        )
        print_differences(here)
    for result in (result for result in results if result.cell.task.unlabelled):
        print(f"{result.cell}: {tables.with_interval(result)}")


def print_differences(results: "Sequence[Result]") -> None:
    """The paired differences from BC, one line per cell."""
    from sbil.reports.differences import differences, verdict

    for row in differences(results):
        interval = f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
        print(f"{row['method']} - bc at n={row['size']}: {interval}, {verdict(row)}")
