"""Training: `train_one` is one run as a pure function; `train_many` is R runs at once, watched while they go.

A run's random numbers depend only on its key and the number of the update, so chunks and interruptions change nothing.
The number of runs in a program can change the last bits, because XLA may round differently for another shape.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray

from sbil import devices
from sbil.algorithms.base import Algorithm, Metrics
from sbil.checkpoint import Checkpoint
from sbil.dataset import Dataset, Rows, Spec, features_of
from sbil.errors import UserError, whole

CHUNK = 500  # updates between two reports to the host
LARGEST_WEIGHT = 1e6  # a run with a larger weight counts as diverged
LEAST_BATCH = 64  # rows: the least that memory is planned for

Make = Callable[[Spec, Any], Algorithm]
History = list[dict[str, np.ndarray]]  # the metrics of each chunk, [R]


def train_one(algorithm: Algorithm, updates: int, key: PRNGKeyArray, dataset: Dataset) -> tuple[Any, Metrics]:
    """Train one run; return (final state, metrics of every update). Pure: jit, vmap or differentiate it."""
    state = algorithm.init(jax.random.fold_in(key, 0), dataset)
    return advance(algorithm, key, state, dataset, jnp.arange(updates))


def advance(
    algorithm: Algorithm, key: PRNGKeyArray, state: Any, dataset: Dataset, updates: Array
) -> tuple[Any, Metrics]:
    """Carry a state through the updates with the given numbers."""

    def step(state: Any, update: Array) -> tuple[Any, Metrics]:
        # Number 0 of the run's key belongs to init.
        return algorithm.update(jax.random.fold_in(key, update + 1), state, dataset)

    return jax.lax.scan(step, state, updates)


class Report(NamedTuple):
    """A report after a chunk of updates; arrays have one entry per run."""

    update: int
    updates: int
    metrics: dict[str, np.ndarray]  # means over the chunk
    diverged: np.ndarray
    note: str = ""  # words for the user

    @property
    def words(self) -> str:
        """Mean losses of the runs that have not diverged, and how many have."""
        sound = ~self.diverged
        if not sound.any():
            return "all runs diverged"
        shown = {"policy_loss": "loss", "energy_gap": "energy gap", "agreement": "agreement", "margin": "margin"}
        means = {word: np.mean(self.metrics[name][sound]) for name, word in shown.items() if name in self.metrics}
        parts = [f"{word} {mean:.3f}" for word, mean in means.items()]
        return ", ".join(parts) + (f", {int(self.diverged.sum())} diverged" if self.diverged.any() else "")


class Trained(NamedTuple):
    """R finished runs."""

    states: Any  # of the algorithm, stacked along a leading axis of R
    metrics: dict[str, np.ndarray]  # [chunks, R], means over each chunk
    updates: np.ndarray  # [chunks], the number of updates done at the end of each chunk
    diverged_at: np.ndarray  # [R], the update by which the run was found diverged, or -1
    seconds: float

    @property
    def diverged(self) -> np.ndarray:
        """[R], whether the run diverged."""
        return self.diverged_at >= 0

    def only(self, run: int) -> Trained:
        """Return one of the runs alone, R = 1."""
        own = slice(run, run + 1)
        metrics = {name: values[:, own] for name, values in self.metrics.items()}
        states = jax.tree.map(lambda leaf: leaf[own], self.states)
        return self._replace(states=states, metrics=metrics, diverged_at=self.diverged_at[own])


def room_for(make: Make, spec: Spec, config: Any, dataset: Dataset) -> int:
    """Estimate how many runs the devices hold at once, at least 1. Unlimited for data that are not images.

    A run needs three times its state, and the memory in which its networks work on a batch.
    """
    if not dataset.pool.images:
        return sys.maxsize

    def init(labelled: Rows, unlabelled: Rows) -> Any:
        return make(spec, config).init(jax.random.key(0), Dataset(dataset.pool, labelled, unlabelled))

    rows = jax.eval_shape(lambda *tree: pick(tree, 0), dataset.labelled, dataset.unlabelled)
    state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(init, *rows)))
    work = 50 * 4 * max(LEAST_BATCH, make(spec, config).batch) * features_of(spec)
    pool = sum(leaf.nbytes for leaf in jax.tree.leaves(dataset.pool))
    if jax.default_backend() == "cpu":  # devices that share one memory, a pool each
        return max(1, int((devices.memory() - devices.count() * pool) / (3 * state + work)))
    return devices.count() * max(1, int((devices.memory() - pool) / (3 * state + work)))


def train_many(
    make: Make,
    spec: Spec,
    config: Any,
    dataset: Dataset,
    keys: PRNGKeyArray,
    updates: int = 10_000,
    watch: Callable[[Report], None] | None = None,
    checkpoint: Checkpoint | None = None,
    chunk: int | None = None,
) -> Trained:
    """Train R runs in one compiled program, spread over all local devices.

    config: float fields may be arrays [R], one value per run: a sweep is the same program.
    dataset: as from `make_dataset` with R draws; the pool is shared.
    keys: [R], one per run.
    watch: called after every chunk of updates, for progress bars and metric files.
    checkpoint: a file to which the state is written from time to time, and from which interrupted training goes on.
    chunk: updates between two reports to the host (default 500).
    """
    runs, chunk = len(keys), chunk or CHUNK
    _check_runs(updates, runs, len(dataset.labelled.size))
    started = time.perf_counter()
    rows = (per_run(config, runs), keys, dataset.labelled, dataset.unlabelled)
    args = devices.spread(rows, runs)
    pool = devices.share(dataset.pool, runs)
    mesh = devices.over_runs(runs)
    limits, on_host = make(spec, config).limits, make(spec, config).on_host
    states = _on_host(make, spec, rows, dataset.pool) if on_host else _init_program(make, spec, mesh)(*args, pool)
    done, states, history, diverged_at = _resumed(checkpoint, states, runs)
    with checkpoint.written_if_interrupted() if checkpoint else nullcontext():
        while done < updates:
            length = min(chunk, updates - done)
            states, means = _chunk_program(make, spec, mesh, length)(*args, pool, states, jnp.int32(done))
            done += length
            history.append({name: np.asarray(values)[:runs] for name, values in means.items()})
            diverged_at[(diverged_at < 0) & has_diverged(history[-1], limits)] = done
            if checkpoint:
                _keep(checkpoint, done, updates, states, history, diverged_at)
            if watch:
                watch(Report(done, updates, history[-1], diverged_at >= 0))
    states = devices.gather(states, runs)
    if not on_host:  # Metrics are taken before a step, so only the weights show what the last step did.
        diverged_at[(diverged_at < 0) & ~sound_weights(states.network)] = done
    return Trained(
        states,
        {name: np.stack([metrics[name] for metrics in history]) for name in history[0]},
        np.minimum(chunk * np.arange(1, len(history) + 1), updates),
        diverged_at,
        time.perf_counter() - started,
    )


def _check_runs(updates: int, runs: int, draws: int) -> None:
    whole("updates", updates, 1)
    if draws != runs:
        raise UserError(f"{runs} keys for {draws} draws; give one key per draw.")


def _keep(
    checkpoint: Checkpoint, done: int, updates: int, states: Any, history: History, diverged_at: np.ndarray
) -> None:
    """Hold the state for an interruption, and write it if it is time to. Of finished work only what is kept is held."""
    if done < updates or checkpoint.keep:
        checkpoint.hold(done, states, partial(_notes, [*history], diverged_at.copy()))
        if done == updates or checkpoint.due():
            checkpoint.write()


def _notes(history: History, diverged_at: np.ndarray) -> dict[str, Any]:
    """What a checkpoint keeps beside the states, as values that JSON can hold."""
    plain = [{name: values.tolist() for name, values in metrics.items()} for metrics in history]
    return {"history": plain, "diverged_at": diverged_at.tolist()}


def _resumed(checkpoint: Checkpoint | None, states: Any, runs: int) -> tuple[int, Any, History, np.ndarray]:
    """(updates done, states, metrics of each chunk, diverged_at) of the checkpoint; without one, of the beginning."""
    saved = checkpoint.load(states) if checkpoint else None
    if saved is None:
        return 0, states, [], np.full(runs, -1)
    states = devices.spread(saved.tree, len(jax.tree.leaves(saved.tree)[0]))
    kept = saved.notes["history"]
    history = [{name: np.array(values, np.float32) for name, values in metrics.items()} for metrics in kept]
    return saved.done, states, history, np.array(saved.notes["diverged_at"])


def has_diverged(metrics: dict[str, np.ndarray], limits: Mapping[str, float]) -> np.ndarray:
    """[R], whether a run has metrics that are not finite, or larger than the algorithm's limits."""
    bad = ~np.isfinite(np.stack(list(metrics.values()))).all(axis=0)
    for name in limits.keys() & metrics.keys():
        bad |= np.abs(metrics[name]) > limits[name]
    return bad


def sound_weights(network: Any) -> np.ndarray:
    """[R], whether all weights of a run are finite and of a sensible size."""
    largest = [jnp.abs(leaf).max(axis=range(1, leaf.ndim)) for leaf in jax.tree.leaves(network)]
    return np.asarray(jnp.stack(largest).max(axis=0) <= LARGEST_WEIGHT)  # false for NaN too


def per_run(config: Any, runs: int) -> Any:
    """Return the config with every float as an array [R]: a shared value is repeated."""

    def spread(value: Any) -> np.ndarray:
        array = np.asarray(value, np.float32)
        if array.shape not in ((), (runs,)):
            raise UserError(f"a setting has {array.shape} values for {runs} runs; give one, or one per run.")
        return np.broadcast_to(array, (runs,))

    return jax.tree.map(spread, config)


def pick(states: Any, run: int) -> Any:
    """Return the state of one run from the stacked states of many."""
    return jax.tree.map(lambda leaf: leaf[run], states)


def stack(trees: Sequence[Any]) -> Any:
    """Stack trees of one structure into one tree with a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _on_host(make: Make, spec: Spec, rows: tuple[Any, ...], pool: Any) -> Any:
    """Return the first states of runs that learn outside of JAX, one run after the other."""
    states = []
    for run in range(len(rows[1])):
        config, key, labelled, unlabelled = pick(rows, run)
        states.append(make(spec, config).init(jax.random.fold_in(key, 0), Dataset(pool, labelled, unlabelled)))
    return devices.spread(stack(states), len(states))


@lru_cache(maxsize=64)
def _init_program(make: Make, spec: Spec, mesh: Mesh) -> Any:
    def init(config: Any, key: Array, labelled: Any, unlabelled: Any, pool: Any) -> Any:
        return make(spec, config).init(jax.random.fold_in(key, 0), Dataset(pool, labelled, unlabelled))

    return _over_runs(init, mesh, runs=(True, True, True, True, False))


@lru_cache(maxsize=64)
def _chunk_program(make: Make, spec: Spec, mesh: Mesh, length: int) -> Any:
    def chunk(config: Any, key: Array, labelled: Any, unlabelled: Any, pool: Any, state: Any, first: Array) -> Any:
        algorithm, dataset = make(spec, config), Dataset(pool, labelled, unlabelled)
        state, metrics = advance(algorithm, key, state, dataset, first + jnp.arange(length))
        return state, {name: values.mean() for name, values in metrics.items()}

    return _over_runs(chunk, mesh, runs=(True, True, True, True, False, True, False), donate=5)


def _over_runs(function: Any, mesh: Mesh, runs: tuple[bool, ...], donate: int | None = None) -> Any:
    """Return jit(shard(vmap(function))): arguments marked in `runs` have the runs as first axis, others are shared."""
    mapped = jax.vmap(function, in_axes=tuple(0 if each else None for each in runs))
    specs = tuple(devices.RUNS if each else devices.SHARED for each in runs)
    sharded = jax.shard_map(mapped, mesh=mesh, in_specs=specs, out_specs=devices.RUNS, check_vma=False)
    return jax.jit(sharded, donate_argnums=() if donate is None else donate)
