"""What the runs of cells learn from, and the decisions held back by which they are judged without an environment."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sbil.algorithms.base import cross_entropy
from sbil.dataset import Dataset, Pool, Rows, Spec, capacity_for, make_dataset, padded, spec_of
from sbil.demonstrations import Demonstrations
from sbil.experiments.cell import SIZES, Cell, demonstrations_for

HELD_OUT = 50  # trajectories that a run has not seen, by which its decisions are judged

Run = tuple[Cell, int, int]  # of a cell, with a draw and an initialisation
Sources = dict[tuple[str, str, str, int], tuple[Demonstrations, int]]  # the demonstrations, and where they begin


def data_of(runs: Sequence[Run]) -> tuple[Spec, Dataset]:
    """What all runs learn from: the demonstrations of every demonstrator among them in one pool."""
    pool, sources = pooled(runs)
    drawn = [trajectories_of(sources, cell, draw) for cell, draw, _ in runs]
    draws = [some[: cell.size] for some, (cell, _, _) in zip(drawn, runs, strict=True)]
    states = [some if cell.every_state else some[cell.size :] for some, (cell, _, _) in zip(drawn, runs, strict=True)]
    largest = max(*SIZES, *(cell.size for cell, _, _ in runs))
    finest = min(cell.thin for cell, _, _ in runs)
    capacity = max(capacity_for(collected, largest, finest) for collected, _ in sources.values())
    kinds: dict[tuple[int, int], list[int]] = {}
    for place, (cell, _, _) in enumerate(runs):
        kinds.setdefault((cell.thin, 1 if cell.every_state else cell.thin), []).append(place)
    parts = [
        make_dataset(
            pool,
            [draws[place] for place in places],
            thin=thin,
            unlabelled=[states[place] for place in places],
            thin_unlabelled=thin_unlabelled,
            capacity=capacity,
        )
        for (thin, thin_unlabelled), places in kinds.items()
    ]
    return spec_of(pool), joined(parts, list(kinds.values()))


def joined(parts: Sequence[Dataset], places: Sequence[Sequence[int]]) -> Dataset:
    """Datasets of one pool as one, each run at the place that is named for it."""
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate(places))

    def together(rows: list[Rows]) -> Rows:
        width = max(some.indices.shape[1] for some in rows)
        wide = [jnp.pad(some.indices, ((0, 0), (0, width - some.indices.shape[1]))) for some in rows]
        return Rows(jnp.concatenate(wide)[order], jnp.concatenate([some.size for some in rows])[order])

    return Dataset(
        parts[0].pool, together([part.labelled for part in parts]), together([part.unlabelled for part in parts])
    )


def pooled(runs: Sequence[Run]) -> tuple[Demonstrations, Sources]:
    """The demonstrations of all demonstrators of the runs in one, and where in it those of each begin."""
    names = dict.fromkeys(source_of(cell) for cell, _, _ in runs)
    collected = [demonstrations_for(*name) for name in names]
    begin = np.cumsum([0, *map(len, collected[:-1])]).tolist()
    together = Demonstrations(
        tuple(trajectory for demonstrations in collected for trajectory in demonstrations.trajectories),
        collected[0].action_names,
        stack=collected[0].stack,
    )
    return together, dict(zip(names, zip(collected, begin, strict=True), strict=True))


def source_of(cell: Cell) -> tuple[str, str, str, int]:
    """Whose demonstrations a cell learns from."""
    return cell.environment, cell.demonstrator, cell.mode, cell.seed


def trajectories_of(sources: Sources, cell: Cell, draw: int, beyond: bool = False) -> np.ndarray:
    """The trajectories of the pool that a run looks at; or, beyond them, the last of its draw, at most `HELD_OUT`."""
    collected, begin = sources[source_of(cell)]
    order = collected.draw(len(collected), seed=draw + 1000 * cell.seed)
    seen = cell.size + cell.unlabelled
    return begin + (order[max(seen, len(order) - HELD_OUT) :] if beyond else order[:seen])


def unseen(runs: Sequence[Run], dataset: Dataset) -> Rows | None:
    """Every step of trajectories that each run has not seen, of some there may be none; of images nothing."""
    if dataset.pool.images:
        return None
    pool, sources = pooled(runs)
    steps = [np.arange(end - length, end) for end, length in zip(np.cumsum(pool.lengths), pool.lengths, strict=True)]
    found = {}
    for cell, draw in dict.fromkeys((cell, draw) for cell, draw, _ in runs):
        others = trajectories_of(sources, cell, draw, beyond=True)
        found[cell, draw] = np.concatenate([np.array([], int), *(steps[trajectory] for trajectory in others)])
    return padded([found[cell, draw] for cell, draw, _ in runs])


def mismatch(networks: Any, rows: Rows | None, members: np.ndarray, pool: Pool) -> dict[str, np.ndarray]:
    """How some of the runs do at unseen decisions, a decision: their log-loss, and how often they prefer another."""
    if rows is None:
        return {}
    own = Rows(rows.indices[members], rows.size[members])
    # From the host to one device: taking runs apart on several would be a collective for each of them.
    sums = _mismatch(jax.device_get(networks), own, pool)
    count = np.where(own.size, own.size, np.nan)  # none: not a number
    return {name: np.asarray(values, np.float64) / count for name, values in sums.items()}


@jax.jit
def _mismatch(networks: Any, rows: Rows, pool: Pool) -> dict[str, Array]:
    def of(run: tuple[Any, Rows]) -> dict[str, Array]:
        network, rows = run
        logits, action = network(pool.before(rows.indices)), pool.action[rows.indices]
        losses, wrong = cross_entropy(logits, action), logits.argmax(axis=-1) != action
        return {"log_loss": losses.sum(where=rows.mask), "error": wrong.sum(where=rows.mask)}

    return jax.lax.map(of, (networks, rows), batch_size=8)
