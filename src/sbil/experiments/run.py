"""Running cells: train many runs at once, then score every policy."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from sbil import algorithms, devices, files
from sbil.checkpoint import Checkpoint
from sbil.experiments.result import SECONDS, Result
from sbil.experiments.store import Store
from sbil.experiments.task import Cell, Prepared, Run, Scores
from sbil.provenance import commit, versions
from sbil.selection import Candidate, alike, select, share_of_work
from sbil.statistics import evenly
from sbil.training import Report, room_for, train_many

POINTS = 20  # of each curve of diagnostics that is kept
TOGETHER_CPU, TOGETHER_GPU = 20, 1000  # runs in one program: a CPU is fastest with few, a GPU has room

Watch = Callable[[Sequence[Cell], float, Report], None]  # (cells, share of their work that is done, latest report)
Execute = Callable[[Sequence[list[Cell]], Store, Watch | None], Iterator[list[Result]]]
CheckpointOf = Callable[[np.ndarray], Checkpoint]  # of the runs with these numbers in their group


def run_grid(
    cells: Sequence[Cell],
    store: Store,
    watch: Watch | None = None,
    together: int | None = None,
    execute: Execute | None = None,
) -> Iterator[tuple[Result, bool]]:
    """Yield the result of every cell, and whether it was run now. What the store holds is not run again.

    On a CPU, small cells of one program are trained together even if some of them are stored already (see `missing`).

    together: the most runs in one program, except for a cell that has more (default: 20 on a CPU, 1,000 on a GPU).
    execute: where groups of cells are run (default: in this process).
    """
    files.sweep(store.folder)
    given = set()
    for cell in cells:
        if stored := store.load(cell):
            given.add(cell)
            yield stored, False
    work = missing(cells, given, together)
    if work:
        require(work)
        files.probe(store.folder)
    for results in (execute or here)(work, store, watch):
        for result in (result for result in results if result.cell not in given):
            if fresh := not store.holds(result.cell):
                store.save(result)
            given.add(result.cell)
            yield result, fresh


def missing(cells: Sequence[Cell], given: set[Cell], together: int | None) -> list[list[Cell]]:
    """Return the groups of cells in which something is still to be run.

    XLA rounds by the number of runs in a program. Small programs are therefore made up as if nothing were done yet, so
    that a grid that was killed ends with the same bits. Large ones are made up of what is missing.
    """
    if jax.default_backend() == "cpu":
        found = groups(cells, together or TOGETHER_CPU)
        return [group for group in found if not given.issuperset(group)]
    return groups([cell for cell in cells if cell not in given], together or TOGETHER_GPU)


def require(work: Sequence[list[Cell]]) -> None:
    """Refuse what this machine or the data cannot do, before the first run and not after an hour."""
    cells = [cell for group in work for cell in group]
    for task in dict.fromkeys(cell.task for cell in cells):
        task.require(list(dict.fromkeys(cell.method for cell in cells if cell.task == task)))


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
        yield store.load_all(group) or run_cells(group, watch, partial(store.checkpoint, group))


def groups(cells: Sequence[Cell], most: int) -> list[list[Cell]]:
    """Group cells that one program can train at once: same data and algorithm, settings that differ in floats only."""
    found: dict[Any, list[list[Cell]]] = {}
    for cell in cells:
        mates = found.setdefault(_program(cell), [[]])
        if mates[-1] and sum(len(mate.runs) for mate in mates[-1]) + len(cell.runs) > most:
            mates.append([])
        mates[-1].append(cell)
    return [group for mates in found.values() for group in mates]


def _program(cell: Cell) -> tuple[Any, ...]:
    """Return what cells that one program can train have in common."""
    candidates = list(cell.candidates.values())
    settings = cell.method if len(candidates) > 1 else jax.tree.structure(candidates)
    return *cell.task.program(cell), cell.updates, cell.method.algorithm, settings


@dataclass
class Found:
    """What the runs of a group gave so far."""

    diverged_at: np.ndarray  # [runs]
    settings: Sequence[tuple[str, Any]] = ()  # [runs], (what is particular to them, the settings)
    scores: Scores = field(default_factory=dict)
    curves: dict[str, np.ndarray] = field(default_factory=dict)  # [runs, points]
    points: np.ndarray = field(default_factory=lambda: np.array([], int))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SECONDS, 0.0))

    def train(
        self,
        data: Prepared,
        cell: Cell,
        members: np.ndarray,
        tell: Callable[[Report], None],
        checkpoint: CheckpointOf | None,
    ) -> None:
        """Train and score the runs that one program holds. Their networks go before the next ones ask for memory."""
        entry = algorithms.get(cell.method.algorithm)
        own = (self.settings[member][1] for member in members)
        config = jax.tree.map(lambda *values: np.array(values, np.float32), *own)
        # A checkpoint of networks for images would be too large to write every few seconds.
        kept = checkpoint(members) if checkpoint and not data.dataset.pool.images else None
        runs = data.dataset.runs(members), data.keys[members]
        trained = train_many(entry.make, data.spec, config, *runs, cell.updates, tell, kept, entry.chunk)
        started = time.perf_counter()
        scores = data.score(trained.states.network, members, trained.diverged)
        self.seconds["training"] += trained.seconds
        self.seconds["evaluation"] += time.perf_counter() - started
        self.diverged_at[members] = trained.diverged_at
        shown = evenly(len(trained.updates), POINTS)
        self.points = trained.updates[shown]
        curves = {name: values[shown].T for name, values in trained.metrics.items()}
        for into, parts in ((self.scores, scores), (self.curves, curves)):
            for name, values in parts.items():
                into.setdefault(name, np.full((len(self.diverged_at), *values.shape[1:]), np.nan))[members] = values

    def results(self, cells: Sequence[Cell], **made_by: Any) -> list[Result]:
        """Deal out to the cells what their runs gave."""
        made_by = {**versions(), "commit": commit(), **made_by}
        settings = [json.dumps(algorithms.settings_of(config), sort_keys=True) for _, config in self.settings]
        runs, metrics = len(self.diverged_at), {**self.scores}
        returns = metrics.pop("returns", np.zeros((runs, 0)))
        results, end = [], 0
        for cell in cells:
            own = slice(end, end := end + len(cell.runs))
            results.append(
                Result(
                    cell,
                    returns[own],
                    cell.task.scale,
                    self.diverged_at[own],
                    {name: values[own] for name, values in self.curves.items()},
                    self.points,
                    tuple(settings[own]),
                    tuple(words for words, _ in self.settings[own]) if len(cell.candidates) > 1 else (),
                    {name: value * len(cell.runs) / runs for name, value in self.seconds.items()},
                    made_by,
                    cell.fingerprint,
                    {name: values[own] for name, values in metrics.items()},
                )
            )
        return results


def run_cells(
    cells: Sequence[Cell], watch: Watch | None = None, checkpoint: CheckpointOf | None = None
) -> list[Result]:
    """Train and score all runs of a group of cells; scoring begins when training is over."""

    def tell(share: float, latest: Report) -> None:
        if watch:
            watch(cells, share, latest)

    one = cells[0]
    announce(cells, watch)
    if baseline := one.task.baseline(one.method):
        return [run_baseline(cell, baseline, tell) for cell in cells]
    runs = [Run(cell, *run) for cell in cells for run in cell.runs]
    data, started = one.task.prepare(runs), time.perf_counter()
    algorithms.require(one.method.algorithm, data.dataset)
    choosing, settings = choose(runs, data, tell)
    found, done = Found(np.zeros(len(runs), int), settings), 0
    found.seconds["selection"] = time.perf_counter() - started
    room = room_for(algorithms.get(one.method.algorithm).make, data.spec, settings[0][1], data.dataset)
    note = f"{len(runs)} runs in groups of at most {room}, which memory holds" if len(runs) > room else ""
    parts = [part for kind in alike([config for _, config in settings]) for part in evenly_split(kind, room)]
    for members in parts:

        def report(latest: Report, done: int = done, count: int = len(members)) -> None:
            trained = (done + count * latest.update / latest.updates) / len(runs)
            tell(choosing + (1 - choosing) * trained, latest._replace(note=note))

        found.train(data, one, members, report, checkpoint)
        done += len(members)
    return found.results(cells, **devices.describe(max(map(len, parts)) if note else len(runs)))


def run_baseline(cell: Cell, baseline: Callable[[Run], Scores], tell: Callable[[float, Report], None]) -> Result:
    """Score a baseline on every run of a cell."""
    started = time.perf_counter()
    count, parts = len(cell.runs), []
    for done, run in enumerate(cell.runs, 1):
        parts.append(baseline(Run(cell, *run)))
        tell(done / count, Report(done, count, {}, np.zeros(count, bool)))
    scores = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    found = Found(np.full(count, -1), scores=scores)
    found.seconds["training"] = time.perf_counter() - started
    return found.results([cell])[0]


def evenly_split(members: np.ndarray, most: int) -> list[np.ndarray]:
    """The members in as few groups as allowed, of nearly one size."""
    return np.array_split(members, -(-len(members) // most))


def announce(cells: Sequence[Cell], watch: Watch | None) -> None:
    """Say that a group of cells is under way."""
    if watch:
        watch(cells, 0.0, Report(0, cells[0].updates, {}, np.zeros(sum(len(cell.runs) for cell in cells), bool)))


def choose(
    runs: Sequence[Run], data: Prepared, tell: Callable[[float, Report], None]
) -> tuple[float, list[tuple[str, Any]]]:
    """Choose the settings of every run, on its own demonstrations, among the candidates of its cell.

    Return the share of the work that choosing is, and (what is particular to its settings, the settings) of each run.
    """
    candidates = {run.cell: list(run.cell.candidates.items()) for run in runs}
    one = runs[0].cell
    numbers, share = np.zeros(len(runs), int), 0.0
    if len(one.candidates) > 1:
        share = share_of_work(len(one.candidates))
        ways = [Candidate(one.method.algorithm, config, one.updates) for config in one.candidates.values()]
        chosen = select(data.spec, ways, data.dataset, data.keys, watch=lambda done, last: tell(share * done, last))
        numbers = chosen.chosen
    return share, [candidates[run.cell][number] for run, number in zip(runs, numbers, strict=True)]
