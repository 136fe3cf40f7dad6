"""What it is worth to keep the best checkpoint by live return. No other part of the study does this.

Some papers play a policy live while it trains, and keep or report its best. Here BC trains as everywhere, and plays a
few episodes at every checkpoint. The checkpoint with the largest mean return is kept, and played again from other
starts.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Array

from sbil import environments
from sbil.algorithms import BCConfig, bc
from sbil.dataset import Dataset, Rows
from sbil.evaluation import Policies, call, play
from sbil.training import advance
from studies.cells import Cells, played

UPDATES, CHECKPOINTS = 10_000, 20
EPISODES = 10  # at each checkpoint
LIVE = "live"  # the name of this part of the study
LAST, BEST = "bc, last checkpoint", "bc, best checkpoint by live return"


def best_checkpoints(cells: Cells) -> pl.DataFrame:
    """Return two rows per run of BC: its last checkpoint, and the one that was best live."""
    networks = cells.asked.networks
    runs, number = (axis.ravel() for axis in np.mgrid[: len(cells.units), :networks])
    keys = jax.vmap(jax.random.fold_in)(cells.keys("live")[runs], jnp.asarray(number))
    last, best, seen = _trained(cells, keys, runs)
    low, high = cells.collected[1]
    made = {"run": runs, "network": number, "diverged": np.zeros(len(runs), bool)}
    rows = [
        pl.DataFrame({**made, "method": [method] * len(runs), **more, **scored(cells, jax.device_get(policies), runs)})
        for method, policies, more in ((LAST, last, {}), (BEST, best, {"seen": (seen - low) / (high - low)}))
    ]
    return pl.concat(rows, how="diagonal")


def scored(cells: Cells, networks: Any, runs: np.ndarray) -> dict[str, np.ndarray]:
    """Return the mean return and score of each policy."""
    found = played(cells, networks, runs)
    return {name: found[name] for name in ("return", "score")}


def _trained(cells: Cells, keys: Array, runs: np.ndarray) -> tuple[Any, Any, np.ndarray]:
    """(the last networks, the best, the mean return of the best when it was kept)."""
    algorithm, dataset = bc(cells.spec, BCConfig()), cells.dataset.runs(runs)
    every = (cells.asked.updates or UPDATES) // CHECKPOINTS or 1

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, 0, None))
    def train(key: Array, state: Any, labelled: Rows, first: Array) -> Any:
        own = Dataset(dataset.pool, labelled, Rows(jnp.zeros(0, jnp.int32), jnp.int32(0)))
        return advance(algorithm, key, state, own, first + jnp.arange(every))[0]

    state = jax.vmap(lambda key, rows: algorithm.init(jax.random.fold_in(key, 0), rows))(keys, dataset.labelled)
    best, seen = state.network, np.full(len(runs), -np.inf)
    environment, starts = environments.get(cells.setting.environment), cells.keys("live starts")[runs]
    for checkpoint in range(CHECKPOINTS):
        state = train(keys, state, dataset.labelled, jnp.int32(checkpoint * every))
        again = jax.vmap(jax.random.fold_in, in_axes=(0, None))(starts, checkpoint)
        returns = play(environment, Policies(call, jax.device_get(state.network)), again, EPISODES).mean(axis=1)
        best = jax.tree.map(partial(_where, returns > seen), state.network, best)
        seen = np.maximum(seen, returns)
    return state.network, best, seen


def _where(better: np.ndarray, new: Array, old: Array) -> Array:
    return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)
