"""Running cells: train many runs at once, then let every policy play."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from sbil import algorithms, devices, environments
from sbil.dataset import Dataset, Spec, capacity_for, make_dataset, spec_of
from sbil.demonstrations import Demonstrations
from sbil.evaluation import Policies, call, evaluate
from sbil.experiments.cell import SIZES, Cell, Result, demonstrations_for
from sbil.experiments.store import Store
from sbil.keys import named
from sbil.selection import alike, select, share_of_work
from sbil.training import Report, train_many

Watch = Callable[[Sequence[Cell], float, Report], None]  # (cells, share of their work that is done, latest report)


def run_grid(
    cells: Sequence[Cell], store: Store, watch: Watch | None = None, together: int | None = None
) -> Iterator[tuple[Result, bool]]:
    """The result of every cell, and whether it was run now: what the store holds is not run again.

    together: the most runs in one program (default: one cell on CPU, 1,000 runs on a GPU, which has room).
    """
    missing = []
    for cell in cells:
        stored = store.load(cell)
        if stored:
            yield stored, False
        else:
            missing.append(cell)
    for group in groups(missing, together or (1 if jax.default_backend() == "cpu" else 1000)):
        for result in run_cells(group, watch):
            store.save(result)
            yield result, True


def groups(cells: Sequence[Cell], most: int) -> list[list[Cell]]:
    """Cells that one program can train at once: same task, same algorithm, settings that differ in floats only."""
    found: dict[Any, list[list[Cell]]] = {}
    for cell in cells:
        shared = (cell.environment, cell.thin, cell.updates, cell.episodes, cell.method.algorithm)
        kind = (
            *shared,
            cell.method if len(cell.candidates) > 1 else jax.tree.structure(list(cell.candidates.values())),
        )
        mates = found.setdefault(kind, [[]])
        if mates[-1] and sum(len(mate.runs) for mate in mates[-1]) + len(cell.runs) > most:
            mates.append([])
        mates[-1].append(cell)
    return [group for mates in found.values() for group in mates]


def run_cells(cells: Sequence[Cell], watch: Watch | None = None) -> list[Result]:
    """Train and score all runs of a group of cells; the environment is first touched when training is over."""
    one = cells[0]
    runs = [(cell, draw, i) for cell in cells for draw, i in cell.runs]
    spec, dataset = data_of(runs)
    algorithms.require(one.method.algorithm, dataset)
    # Names leave out the algorithm, its settings and the size: runs are paired across all of them.
    keys = jnp.stack([named(cell.environment, draw, i) for cell, draw, i in runs])
    starts = jnp.stack([named("evaluate", cell.environment, draw, i) for cell, draw, i in runs])
    selecting = time.perf_counter()
    chosen, share = choose(cells, spec, dataset, keys, watch)
    settings = {cell: list(cell.candidates.values()) for cell in cells}
    configs = [settings[cell][number] for (cell, _, _), number in zip(runs, chosen, strict=True)]
    seconds = {"selection": time.perf_counter() - selecting, "training": 0.0, "evaluation": 0.0}
    entry = algorithms.get(one.method.algorithm)
    returns, diverged_at = np.zeros((len(runs), one.episodes)), np.zeros(len(runs), int)
    metrics: dict[str, np.ndarray] = {}
    done = 0
    for members in alike(configs):

        def report(latest: Report, done: int = done, count: int = len(members)) -> None:
            if watch:
                part = (done + count * latest.update / latest.updates) / len(runs)
                watch(cells, share + (1 - share) * part, latest)

        config = jax.tree.map(lambda *values: np.array(values, np.float32), *(configs[member] for member in members))
        own = dataset.runs(members)
        trained = train_many(entry.make, spec, config, own, keys[members], one.updates, report, chunk=entry.chunk)
        started = time.perf_counter()
        policies = Policies(call, trained.states.network)
        returns[members] = evaluate(environments.get(one.environment), policies, starts[members], one.episodes)
        diverged_at[members] = trained.diverged_at
        for name, values in trained.metrics.items():
            metrics.setdefault(name, np.full(len(runs), np.nan))[members] = values[-1]
        seconds["training"] += trained.seconds
        seconds["evaluation"] += time.perf_counter() - started
        done += len(members)
    device = devices.describe(len(runs))
    ends = np.cumsum([len(cell.runs) for cell in cells])
    parts = [slice(end - len(cell.runs), end) for cell, end in zip(cells, ends, strict=True)]
    return [
        Result(
            cell,
            returns[part],
            diverged_at[part],
            {name: values[part] for name, values in metrics.items()},
            {name: value * len(cell.runs) / len(runs) for name, value in seconds.items()},
            device,
            chosen[part] if len(cell.candidates) > 1 else None,
        )
        for cell, part in zip(cells, parts, strict=True)
    ]


def data_of(runs: Sequence[tuple[Cell, int, int]]) -> tuple[Spec, Dataset]:
    """What all runs learn from: the demonstrations of every demonstrator among them in one pool."""
    one = runs[0][0]
    sources = list(dict.fromkeys((cell.environment, cell.demonstrator, cell.mode) for cell, _, _ in runs))
    collected = {source: demonstrations_for(*source) for source in sources}
    first = dict(zip(sources, np.cumsum([0, *map(len, collected.values())]).tolist(), strict=False))
    together = Demonstrations(
        tuple(trajectory for demonstrations in collected.values() for trajectory in demonstrations.trajectories),
        collected[sources[0]].action_names,
    )
    draws = []
    for cell, draw, _ in runs:
        source = cell.environment, cell.demonstrator, cell.mode
        draws.append(first[source] + collected[source].draw(cell.size, seed=draw))
    largest = max(*SIZES, *(cell.size for cell, _, _ in runs))
    capacity = max(capacity_for(demonstrations, largest, one.thin) for demonstrations in collected.values())
    return spec_of(together), make_dataset(together, draws, thin=one.thin, capacity=capacity)


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
