"""Running cells: train many runs at once, then let every policy play."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from sbil import algorithms, devices, environments, files
from sbil.dataset import Dataset, Spec
from sbil.evaluation import Policies, call, play
from sbil.experiments.cell import SIZES, Cell
from sbil.experiments.data import data_of, mismatch, unseen
from sbil.experiments.result import Result
from sbil.experiments.store import Store
from sbil.keys import named
from sbil.provenance import commit, versions
from sbil.selection import alike, select, share_of_work
from sbil.training import Report, room_for, train_many

POINTS = 20  # of each curve of diagnostics that is kept

Watch = Callable[[Sequence[Cell], float, Report], None]  # (cells, share of their work that is done, latest report)


def run_grid(
    cells: Sequence[Cell],
    store: Store,
    watch: Watch | None = None,
    together: int | None = None,
    execute: "Execute | None" = None,
) -> Iterator[tuple[Result, bool]]:
    """The result of every cell, and whether it was run now: what the store holds is given, and not written again.

    On a CPU small cells of one program are trained together also where some of them are stored already (see below).

    together: the most runs in one program, but for a cell that has more (default: 20 on a CPU, where that is fastest,
        1,000 on a GPU, which has room).
    execute: where groups of cells are run (default: in this process).
    """
    files.sweep(store.folder)
    given = set()
    for cell in cells:
        if stored := store.load(cell):
            given.add(cell)
            yield stored, False
    # XLA rounds by the number of runs in a program. Small programs are therefore made up as if nothing were done
    # yet, so that a grid that was killed ends with the same bits; large ones of what is missing.
    small = jax.default_backend() == "cpu"
    work = groups(
        cells if small else [cell for cell in cells if cell not in given], together or (20 if small else 1000)
    )
    work = [group for group in work if not given.issuperset(group)]
    if work:
        files.probe(store.folder)
    for results in (execute or here)(work, store, watch):
        for result in (result for result in results if result.cell not in given):
            if fresh := not store.holds(result.cell):
                store.save(result)
            given.add(result.cell)
            yield result, fresh


Execute = Callable[[Sequence[list[Cell]], Store, "Watch | None"], Iterator[list[Result]]]


def here(work: Sequence[list[Cell]], store: Store, watch: Watch | None) -> Iterator[list[Result]]:
    """Run groups in this process, one after the other, each on all of its devices.

    Another process may fill the same store: what it has finished meanwhile is taken from there. Compiled programs
    go when the next group needs others, so that memory does not grow with the number of methods.
    """
    before = None
    for group in work:
        if before not in (None, program := _program(group[0])):
            jax.clear_caches()
        before = program
        yield store.load_all(group) or run_cells(group, watch)


def groups(cells: Sequence[Cell], most: int) -> list[list[Cell]]:
    """Cells that one program can train at once: same task, same algorithm, settings that differ in floats only."""
    found: dict[Any, list[list[Cell]]] = {}
    for cell in cells:
        mates = found.setdefault(_program(cell), [[]])
        if mates[-1] and sum(len(mate.runs) for mate in mates[-1]) + len(cell.runs) > most:
            mates.append([])
        mates[-1].append(cell)
    return [group for mates in found.values() for group in mates]


def _program(cell: Cell) -> tuple[Any, ...]:
    """What cells that one program can train have in common."""
    task = cell.environment, cell.seed, cell.unlabelled > 0 or cell.every_state, max(cell.size, *SIZES)
    candidates = list(cell.candidates.values())
    settings = cell.method if len(candidates) > 1 else jax.tree.structure(candidates)
    return *task, cell.updates, cell.episodes, cell.method.algorithm, settings


def run_cells(cells: Sequence[Cell], watch: Watch | None = None) -> list[Result]:
    """Train and score all runs of a group of cells; the environment is first touched when training is over."""
    one = cells[0]
    runs = [(cell, draw, i) for cell in cells for draw, i in cell.runs]
    announce(cells, watch)
    spec, dataset = data_of(runs)
    algorithms.require(one.method.algorithm, dataset)
    # Names leave out the algorithm, its settings and the size: runs are paired across all of them.
    names = [(cell.environment, draw, i, *([cell.seed] if cell.seed else ())) for cell, draw, i in runs]
    keys = jnp.stack([named(*name) for name in names])
    starts = jnp.stack([named("evaluate", *name) for name in names])
    selecting = time.perf_counter()
    chosen, share = choose(cells, spec, dataset, keys, watch)
    settings = {cell: list(cell.candidates.values()) for cell in cells}
    configs = [settings[cell][number] for (cell, _, _), number in zip(runs, chosen, strict=True)]
    seconds = {"selection": time.perf_counter() - selecting, "training": 0.0, "evaluation": 0.0}
    entry = algorithms.get(one.method.algorithm)
    returns, diverged_at = np.zeros((len(runs), one.episodes)), np.zeros(len(runs), int)
    curves: dict[str, np.ndarray] = {}
    held_out = unseen(runs, dataset)
    matched: dict[str, np.ndarray] = {}
    points = np.array([], int)
    done = 0
    room = room_for(entry.make, spec, configs[0], dataset)
    parts = [part for kind in alike(configs) for part in evenly_split(kind, room)]
    largest = max(map(len, parts)) if len(runs) > room else len(runs)
    note = f"{len(runs)} runs in groups of at most {room}, which memory holds" if len(runs) > room else ""
    for members in parts:

        def report(latest: Report, done: int = done, count: int = len(members)) -> None:
            if watch:
                part = (done + count * latest.update / latest.updates) / len(runs)
                watch(cells, share + (1 - share) * part, latest._replace(note=note))

        config = jax.tree.map(lambda *values: np.array(values, np.float32), *(configs[member] for member in members))
        own = dataset.runs(members)
        trained = train_many(entry.make, spec, config, own, keys[members], one.updates, report, chunk=entry.chunk)
        started = time.perf_counter()
        policies = Policies(call, trained.states.network)
        returns[members] = play(environments.get(one.environment), policies, starts[members], one.episodes)
        diverged_at[members] = trained.diverged_at
        for name, values in mismatch(trained.states.network, held_out, members, dataset.pool).items():
            matched.setdefault(name, np.full(len(runs), np.nan))[members] = values
        shown = evenly(len(trained.updates), POINTS)
        points = trained.updates[shown]
        for name, values in trained.metrics.items():
            curves.setdefault(name, np.full((len(runs), len(points)), np.nan))[members] = values[shown].T
        seconds["training"] += trained.seconds
        seconds["evaluation"] += time.perf_counter() - started
        done += len(members)
        del trained, policies  # before the next group asks for memory
    made_by = {**versions(), "commit": commit(), **devices.describe(largest)}
    texts = [json.dumps(algorithms.settings_of(config), sort_keys=True) for config in configs]
    candidates = {cell: list(cell.candidates) for cell in cells}
    choices = [candidates[cell][number] for (cell, _, _), number in zip(runs, chosen, strict=True)]
    ends = np.cumsum([len(cell.runs) for cell in cells])
    slices = [slice(end - len(cell.runs), end) for cell, end in zip(cells, ends, strict=True)]
    return [
        Result(
            cell,
            returns[part],
            environments.scale(cell.environment, cell.demonstrator, cell.mode),
            diverged_at[part],
            {name: values[part] for name, values in curves.items()},
            points,
            tuple(texts[part]),
            tuple(choices[part]) if len(cell.candidates) > 1 else (),
            {name: value * len(cell.runs) / len(runs) for name, value in seconds.items()},
            made_by,
            cell.fingerprint,
            {name: values[part] for name, values in matched.items()},
        )
        for cell, part in zip(cells, slices, strict=True)
    ]


def evenly_split(members: np.ndarray, most: int) -> list[np.ndarray]:
    """The members in as few groups as allowed, of nearly one size."""
    return np.array_split(members, -(-len(members) // most))


def evenly(count: int, most: int) -> np.ndarray:
    """At most so many of the numbers below `count`, evenly apart, the last one among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def announce(cells: Sequence[Cell], watch: Watch | None) -> None:
    """Say that a group of cells is under way."""
    if watch:
        watch(cells, 0.0, Report(0, cells[0].updates, {}, np.zeros(sum(len(cell.runs) for cell in cells), bool)))


def choose(
    cells: Sequence[Cell], spec: Spec, dataset: Dataset, keys: PRNGKeyArray, watch: Watch | None
) -> tuple[np.ndarray, float]:
    """(the candidate that each run chose on its own demonstrations, the share of all work that this was)."""
    one, candidates = cells[0], list(cells[0].candidates.values())
    if len(candidates) == 1:
        return np.zeros(len(keys), int), 0.0
    share = share_of_work(len(candidates))

    def report(done: float, latest: Report) -> None:
        if watch:
            watch(cells, share * done, latest)

    found = select(one.method.algorithm, spec, candidates, dataset, keys, one.updates, watch=report)
    return found.chosen, share
