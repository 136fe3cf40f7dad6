"""Running cells: train many runs at once, then let every policy play."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbil import algorithms, devices, environments
from sbil.dataset import capacity_for, make_dataset, spec_of
from sbil.evaluation import Policies, call, evaluate
from sbil.experiments.cell import SIZES, Cell, Result, demonstrations_for
from sbil.experiments.store import Store
from sbil.keys import named
from sbil.training import Report, train_many

Watch = Callable[[Sequence[Cell], Report], None]


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
    """Cells that one program can train at once: same data, same algorithm, settings that differ in floats only."""
    found: dict[Any, list[list[Cell]]] = {}
    for cell in cells:
        shared = (cell.environment, cell.demonstrator, cell.mode, cell.thin, cell.updates, cell.episodes)
        kind = jax.tree.structure(config_of(cell)), cell.method.algorithm, *shared
        mates = found.setdefault(kind, [[]])
        if mates[-1] and sum(len(mate.runs) for mate in mates[-1]) + len(cell.runs) > most:
            mates.append([])
        mates[-1].append(cell)
    return [group for mates in found.values() for group in mates]


def config_of(cell: Cell) -> Any:
    """The settings of a cell's method."""
    return algorithms.configure(cell.method.algorithm, cell.method.preset, cell.method.settings)


def run_cells(cells: Sequence[Cell], watch: Watch | None = None) -> list[Result]:
    """Train and score all runs of a group of cells; the environment is first touched when training is over."""
    one = cells[0]
    demonstrations = demonstrations_for(one.environment, one.demonstrator, one.mode)
    runs = [(cell, draw, i) for cell in cells for draw, i in cell.runs]
    dataset = make_dataset(
        demonstrations,
        [demonstrations.draw(cell.size, seed=draw) for cell, draw, _ in runs],
        thin=one.thin,
        capacity=capacity_for(demonstrations, max(*SIZES, *(cell.size for cell in cells)), one.thin),
    )
    configs = jax.tree.map(lambda *values: np.array(values, np.float32), *(config_of(cell) for cell, _, _ in runs))
    # Names leave out the algorithm, its settings and the size: runs are paired across all of them.
    keys = jnp.stack([named(cell.environment, draw, i) for cell, draw, i in runs])
    starts = jnp.stack([named("evaluate", cell.environment, draw, i) for cell, draw, i in runs])
    make = algorithms.get(one.method.algorithm).make
    reports = (lambda report: watch(cells, report)) if watch else None
    trained = train_many(make, spec_of(demonstrations), configs, dataset, keys, one.updates, reports)
    started = time.perf_counter()
    policies = Policies(call, trained.states.network)
    returns = evaluate(environments.get(one.environment), policies, starts, one.episodes)
    seconds = {"training": trained.seconds, "evaluation": time.perf_counter() - started}
    last = {name: values[-1] for name, values in trained.metrics.items()}
    device = devices.describe(len(runs))
    ends = np.cumsum([len(cell.runs) for cell in cells])
    return [
        Result(
            cell,
            returns[end - len(cell.runs) : end],
            trained.diverged_at[end - len(cell.runs) : end],
            {name: values[end - len(cell.runs) : end] for name, values in last.items()},
            {name: value * len(cell.runs) / len(runs) for name, value in seconds.items()},
            device,
        )
        for cell, end in zip(cells, ends, strict=True)
    ]
