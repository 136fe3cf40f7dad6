"""Running cells: train all runs of a cell at once, then let every policy play."""

import time
from collections.abc import Callable, Iterator, Sequence

import jax.numpy as jnp

from sbil import algorithms, devices, environments
from sbil.dataset import capacity_for, make_dataset, spec_of
from sbil.evaluation import Policies, call, evaluate
from sbil.experiments.cell import SIZES, Cell, Result, demonstrations_for
from sbil.experiments.store import Store
from sbil.keys import named
from sbil.training import Report, train_many


def run_cell(cell: Cell, watch: Callable[[Report], None] | None = None) -> Result:
    """Train and score all runs of a cell; the environment is first touched when training is over."""
    demonstrations = demonstrations_for(cell.environment, cell.demonstrator, cell.mode)
    dataset = make_dataset(
        demonstrations,
        [demonstrations.draw(cell.size, seed=draw) for draw, _ in cell.runs],
        thin=cell.thin,
        capacity=capacity_for(demonstrations, max(*SIZES, cell.size), cell.thin),
    )
    keys = jnp.stack([named(cell.environment, draw, i) for draw, i in cell.runs])
    entry = algorithms.get(cell.method.algorithm)
    config = algorithms.configure(cell.method.algorithm, cell.method.preset, cell.method.settings)
    trained = train_many(entry.make, spec_of(demonstrations), config, dataset, keys, cell.updates, watch)
    started = time.perf_counter()
    starts = jnp.stack([named("evaluate", cell.environment, draw, i) for draw, i in cell.runs])
    environment = environments.get(cell.environment)
    returns = evaluate(environment, Policies(call, trained.states.network), starts, cell.episodes)
    seconds = {"training": trained.seconds, "evaluation": time.perf_counter() - started}
    last = {name: values[-1] for name, values in trained.metrics.items()}
    device = {**devices.describe(), "runs_per_program": len(cell.runs)}
    return Result(cell, returns, trained.diverged_at, last, seconds, device)


def run_grid(
    cells: Sequence[Cell], store: Store, watch: Callable[[Cell, Report], None] | None = None
) -> Iterator[tuple[Result, bool]]:
    """The result of every cell, and whether it was run now: what the store holds is not run again."""
    for cell in cells:
        stored = store.load(cell)
        if stored:
            yield stored, False
            continue
        result = run_cell(cell, (lambda report, cell=cell: watch(cell, report)) if watch else None)  # type: ignore[misc]
        store.save(result)
        yield result, True
