"""Demonstrations as arrays on the device: one pool shared by all runs, and the rows each run may use.

The pool holds every recorded observation once. A run's *draw* is a list of row numbers, padded to a fixed
length, with its true size as a traced number: so one compiled program serves 1 trajectory and 15.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.demonstrations import Demonstrations, thinned
from sbil.errors import UserError


class Spec(NamedTuple):
    """The shape of a task: what a policy sees and what it may do."""

    observation_shape: tuple[int, ...]
    actions: int


class Transitions(NamedTuple):
    """A minibatch of decisions."""

    observation: Float[Array, "batch *observation"]
    action: Int[Array, " batch"]
    next_observation: Float[Array, "batch *observation"]  # meaningless where not has_next
    has_next: Bool[Array, " batch"]
    terminal: Bool[Array, " batch"]
    time: Int[Array, " batch"]

    @property
    def known(self) -> Bool[Array, " batch"]:
        """Where it is known what came next: a recorded state, or the end."""
        return self.has_next | self.terminal


class Pool(NamedTuple):
    """Every recorded observation, trajectory after trajectory, and the decisions taken at them."""

    observations: Float[Array, "visited *observation"]
    row: Int[Array, " steps"]  # where in `observations` a step starts; its successor is the next row
    action: Int[Array, " steps"]
    has_next: Bool[Array, " steps"]
    terminal: Bool[Array, " steps"]
    time: Int[Array, " steps"]
    trajectory: Int[Array, " steps"]

    @property
    def known(self) -> Bool[Array, " steps"]:
        """Where it is known what came next: a recorded state, or the end."""
        return self.has_next | self.terminal

    def transitions(self, steps: Int[Array, " batch"]) -> Transitions:
        """The decisions at `steps`."""
        row, has_next = self.row[steps], self.has_next[steps]
        return Transitions(
            observation=self.observations[row],
            action=self.action[steps],
            next_observation=self.observations[row + has_next.astype(row.dtype)],
            has_next=has_next,
            terminal=self.terminal[steps],
            time=self.time[steps],
        )


class Rows(NamedTuple):
    """A set of rows: the first `size` of `indices`; the rest is padding and is never read."""

    indices: Int[Array, "*runs capacity"]
    size: Int[Array, "*runs"]

    def sample(self, key: PRNGKeyArray, count: int) -> Int[Array, " count"]:
        """`count` of the rows, uniformly, with replacement."""
        return self.indices[jax.random.randint(key, (count,), 0, jnp.maximum(self.size, 1))]

    @property
    def mask(self) -> Bool[Array, " capacity"]:
        """Which of `indices` are rows and not padding."""
        return jnp.arange(self.indices.shape[-1]) < self.size

    def where(self, keep: Bool[Array, " capacity"]) -> "Rows":
        """Those of the rows at which `keep` holds, in their order. It sorts: for `init`, not for every update."""
        keep = keep & self.mask
        kept = jnp.where(keep, self.indices, 0)[jnp.argsort(~keep, stable=True)]
        return Rows(kept, keep.sum(dtype=self.size.dtype))


class Dataset(NamedTuple):
    """What one run learns from: steps with their decisions, and states without (semi-supervised)."""

    pool: Pool
    labelled: Rows  # of the pool's steps
    unlabelled: Rows  # of the pool's observations; none: an empty array

    def batch(self, key: PRNGKeyArray, count: int) -> Transitions:
        """A minibatch of labelled steps."""
        return self.pool.transitions(self.labelled.sample(key, count))

    def runs(self, members: np.ndarray) -> "Dataset":
        """What the given ones of many runs learn from."""
        rows = self.labelled, self.unlabelled
        return Dataset(self.pool, *(Rows(r.indices[members], r.size[members]) for r in rows))

    @property
    def triples(self) -> Rows:
        """The labelled steps of which it is known what came next. For `init`, as `Rows.where` is."""
        return self.labelled.where(self.pool.known[self.labelled.indices])

    def states(self, key: PRNGKeyArray, batch: Transitions) -> Float[Array, "batch *observation"]:
        """A minibatch of states, uniform over labelled and unlabelled ones together.

        Each state of `batch` is exchanged for an unlabelled one with the probability that makes the whole
        uniform; without unlabelled states the result is the states of `batch` themselves.
        """
        if self.unlabelled.indices.shape[-1] == 0:
            return batch.observation
        which, rows = jax.random.split(key)
        labelled, unlabelled = self.labelled.size, self.unlabelled.size
        share = unlabelled / jnp.maximum(labelled + unlabelled, 1)
        others = self.pool.observations[self.unlabelled.sample(rows, len(batch.action))]
        exchange = jax.random.uniform(which, batch.action.shape) < share
        shape = exchange.shape + (1,) * (others.ndim - 1)
        return jnp.where(exchange.reshape(shape), others, batch.observation)

    def bounds(self) -> tuple[Float[Array, "*observation"], Float[Array, "*observation"]]:
        """The smallest box that holds every state of this run, labelled and unlabelled."""
        low, high = _bounds(self.pool.observations[self.pool.row[self.labelled.indices]], self.labelled.mask)
        more = _bounds(self.pool.observations[self.unlabelled.indices], self.unlabelled.mask)
        return jnp.minimum(low, more[0]), jnp.maximum(high, more[1])

    def moments(self) -> tuple[Float[Array, "*observation"], Float[Array, "*observation"]]:
        """The mean and the standard deviation of the labelled states of this run."""
        states = self.pool.observations[self.pool.row[self.labelled.indices]]
        keep = self.labelled.mask.reshape(-1, *(1,) * (states.ndim - 1))
        return states.mean(axis=0, where=keep), states.std(axis=0, where=keep)


def _bounds(states: Float[Array, "rows *observation"], mask: Bool[Array, " rows"]) -> tuple[Array, Array]:
    keep = mask.reshape(mask.shape + (1,) * (states.ndim - 1))
    low = jnp.min(states, axis=0, where=keep, initial=jnp.inf)
    high = jnp.max(states, axis=0, where=keep, initial=-jnp.inf)
    return low, high


def spec_of(demonstrations: Demonstrations) -> Spec:
    """The shape of the task that demonstrations are of."""
    return Spec(tuple(demonstrations.observation_shape), len(demonstrations.action_names))


def make_pool(demonstrations: Demonstrations) -> Pool:
    """All trajectories as one pool of arrays."""
    steps = demonstrations.flat()
    visited = np.array([len(t.observations) for t in demonstrations.trajectories])
    first = np.cumsum(visited) - visited
    observations = np.concatenate([t.observations for t in demonstrations.trajectories])
    if np.issubdtype(observations.dtype, np.floating) or observations.ndim == 2:  # images stay as they are
        observations = observations.astype(np.float32)
    return Pool(
        observations=jnp.asarray(observations),
        row=jnp.asarray(first[steps.trajectory] + steps.time, jnp.int32),
        action=jnp.asarray(steps.action, jnp.int32),
        has_next=jnp.asarray(steps.has_next),
        terminal=jnp.asarray(steps.terminal),
        time=jnp.asarray(steps.time, jnp.int32),
        trajectory=jnp.asarray(steps.trajectory, jnp.int32),
    )


def make_dataset(
    demonstrations: Demonstrations,
    draws: list[np.ndarray] | None = None,
    *,
    thin: int = 1,
    thin_offset: int = 0,
    unlabelled: list[np.ndarray] | None = None,
    thin_unlabelled: int = 1,
    capacity: int | None = None,
) -> Dataset:
    """The dataset of R runs: the pool once, and the rows of each run stacked along a leading axis.

    draws: the trajectories of each run whose decisions it may use; without, one run with all of them and no
        leading axis.
    unlabelled: the trajectories of each run of which states, but no decision, may be used.
    thin_unlabelled: every how-manieth of those states is kept.
    capacity: the padded number of labelled rows (default: what the largest draw needs). Datasets of equal
        capacity share one compiled program.
    """
    if draws is None:
        if unlabelled is not None:
            raise UserError("unlabelled trajectories need draws beside them; give both, a list a run.")
        whole = make_dataset(
            demonstrations,
            [np.arange(len(demonstrations))],
            thin=thin,
            thin_offset=thin_offset,
            capacity=capacity,
        )
        return Dataset(whole.pool, *(Rows(r.indices[0], r.size[0]) for r in (whole.labelled, whole.unlabelled)))
    if not draws or (unlabelled is not None and len(unlabelled) != len(draws)):
        given = 0 if unlabelled is None else len(unlabelled)
        raise UserError(f"{len(draws)} draws and {given} lists of unlabelled trajectories; give one of each a run.")
    for draw in (*draws, *(unlabelled or ())):
        if len(draw) and not 0 <= np.min(draw) <= np.max(draw) < len(demonstrations):
            raise UserError(f"a draw names a trajectory that is not among the {len(demonstrations)} there are.")
    lengths = demonstrations.lengths
    visited = np.array([len(t.observations) for t in demonstrations.trajectories])
    kept = [thinned(length, thin, thin_offset) for length in lengths]
    steps = [first + keep for first, keep in zip(np.cumsum(lengths) - lengths, kept, strict=True)]
    states = [
        np.arange(end - count, end, thin_unlabelled) for end, count in zip(np.cumsum(visited), visited, strict=True)
    ]
    nothing: list[np.ndarray] = [np.array([], int)] * len(draws)
    labelled = _rows(steps, draws, capacity)
    if not labelled.size.min():
        raise UserError(f"a draw keeps no step at thin {thin}, offset {thin_offset}; its trajectories are shorter.")
    return Dataset(make_pool(demonstrations), labelled, _rows(states, unlabelled or nothing, None))


def capacity_for(demonstrations: Demonstrations, size: int, thin: int = 1, thin_offset: int = 0) -> int:
    """Rows that any draw of up to `size` trajectories fits into."""
    kept = [len(thinned(length, thin, thin_offset)) for length in demonstrations.lengths]
    return int(np.sort(kept)[::-1][:size].sum())


def _rows(parts: list[np.ndarray], draws: list[np.ndarray], capacity: int | None) -> Rows:
    return padded([np.concatenate([parts[int(i)] for i in draw] or [np.array([], int)]) for draw in draws], capacity)


def padded(chosen: list[np.ndarray], capacity: int | None = None) -> Rows:
    """Rows of several runs, stacked and padded to `capacity` (default: what the longest needs)."""
    sizes = np.array([len(rows) for rows in chosen])
    width = int(sizes.max()) if capacity is None else capacity
    if sizes.max() > width:
        raise UserError(f"a draw has {sizes.max()} rows and the capacity is {width}; give a larger capacity.")
    indices = np.zeros((len(chosen), width), np.int32)
    for row, rows in zip(indices, chosen, strict=True):
        row[: len(rows)] = rows
    return Rows(jnp.asarray(indices), jnp.asarray(sizes, jnp.int32))
