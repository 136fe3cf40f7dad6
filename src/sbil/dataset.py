"""Demonstrations as arrays on the device: one pool shared by all runs, and the rows each run may use.

The pool holds every recorded observation once, and images as bytes. Networks see flat rows of float32 with pixels in
[-1, 1], which are made from the pool on use. A run's *draw* is a list of row numbers, padded to a fixed length; its
true size is a traced number. So one compiled program serves 1 trajectory and 15.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.demonstrations import Demonstrations, thinned
from sbil.errors import UserError

ALIGNMENT = 64  # bytes
BLOCK = 1 << 16  # rows looked at together


class Spec(NamedTuple):
    """The shape of a task: what a policy sees and what it may do."""

    observation_shape: tuple[int, ...]
    actions: int


def features_of(spec: Spec) -> int:
    """The count of numbers in an observation."""
    if len(spec.observation_shape) not in (1, 3):
        raise UserError(
            f"observations must be rows of numbers, or images of height x width x channels. Got shape "
            f"{spec.observation_shape}."
        )
    return math.prod(spec.observation_shape)


def as_inputs(images: Array) -> Float[Array, "*batch inputs"]:
    """Convert images [..., height, width, channels] of bytes to what networks see: flat, in [-1, 1]."""
    return images.reshape(*images.shape[:-3], -1).astype(jnp.float32) / 127.5 - 1


def stacked(frames: Array) -> Float[Array, "*batch inputs"]:
    """Convert frames [..., stack, height, width] of bytes to what networks see."""
    return as_inputs(jnp.moveaxis(frames, -3, -1))


class Standardisation(NamedTuple):
    """The standardisation of observations: (observation - mean) / scale."""

    mean: np.ndarray
    scale: np.ndarray

    def apply(self, observations: np.ndarray) -> np.ndarray:
        """Return observations as networks see them."""
        return (observations - self.mean) / self.scale


def standardisation_of(demonstrations: Demonstrations, thin: int = 1, thin_offset: int = 0) -> Standardisation:
    """Return mean and standard deviation of the states at which decisions were taken; constant columns get scale 1."""
    total, squares, count = np.zeros(1), np.zeros(1), 0
    first = demonstrations.trajectories[0].observations[0].astype(np.float64)  # near the mean, for less cancellation
    for trajectory in demonstrations.trajectories:
        kept = trajectory.observations[thinned(len(trajectory), thin, thin_offset)] - first
        total, squares, count = total + kept.sum(axis=0), squares + (kept**2).sum(axis=0), count + len(kept)
    mean = total / max(count, 1)
    spread = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, 0))
    scale = np.where(spread > 1e-6 * np.maximum(np.abs(mean + first), 1e-6), spread, 1.0)
    return Standardisation((mean + first).astype(np.float32), scale.astype(np.float32))


class Transitions(NamedTuple):
    """A minibatch of decisions, from `Dataset.batch`. `Dataset.states` and `moments` give more of a run's states."""

    observation: Float[Array, "batch inputs"]
    action: Int[Array, " batch"]
    next_observation: Float[Array, "batch inputs"]  # means nothing where has_next is False
    has_next: Bool[Array, " batch"]  # the next state was recorded
    terminal: Bool[Array, " batch"]  # the process ended; a time limit is not an end
    time: Int[Array, " batch"]  # the number of the step in its trajectory
    next_action: Int[Array, " batch"]  # the decision at the next state; means nothing where has_next_action is False
    has_next_action: Bool[Array, " batch"]  # the run may use the next decision of the trajectory; `Dataset.followed`
    weight: Float[Array, " batch"] | None = None  # how much each decision counts; None: all the same

    @property
    def known(self) -> Bool[Array, " batch"]:
        """Whether it is known what came next: a recorded state, or the end."""
        return self.has_next | self.terminal


class Pool(NamedTuple):
    """Every recorded observation, trajectory by trajectory, and the decisions taken at them."""

    observations: Array  # [visited, numbers], float32; or images [visited, height, width (, channels)], uint8
    row: Int[Array, " steps"]  # where in `observations` a step starts; its successor is the next row
    action: Int[Array, " steps"]
    has_next: Bool[Array, " steps"]
    terminal: Bool[Array, " steps"]
    time: Int[Array, " steps"]
    trajectory: Int[Array, " steps"]
    frames: Int[Array, "visited stack"] | None = None  # where frames are stacked, which rows make an observation
    group: Int[Array, " steps"] | None = None  # where trajectories have groups
    weight: Float[Array, " steps"] | None = None  # how much each decision counts, 1 on average; None: all the same

    @property
    def unit(self) -> Int[Array, " steps"]:
        """What a split keeps together: the group of each step, or its trajectory."""
        return self.trajectory if self.group is None else self.group

    @property
    def known(self) -> Bool[Array, " steps"]:
        """Where it is known what came next: a recorded state, or the end."""
        return self.has_next | self.terminal

    @property
    def images(self) -> bool:
        return self.observations.dtype == jnp.uint8

    @property
    def inputs(self) -> int:
        """The count of numbers that networks see."""
        return math.prod(self.observations.shape[1:]) * (1 if self.frames is None else self.frames.shape[1])

    def look(self, rows: Int[Array, "*batch"]) -> Float[Array, "*batch inputs"]:
        """Return the observations at `rows`, as networks see them."""
        if not self.images:
            return self.observations[rows]
        if self.frames is None:
            return as_inputs(self.observations[rows])
        return stacked(self.observations[self.frames[rows]])

    def before(self, steps: Int[Array, "*batch"]) -> Float[Array, "*batch inputs"]:
        """Return the observations at which the decisions of `steps` were taken."""
        return self.look(self.row[steps])

    def after(self, steps: Int[Array, "*batch"]) -> Float[Array, "*batch inputs"]:
        """Return the observations that followed; the same observation if the next one is not known."""
        return self.look(self.row[steps] + self.has_next[steps].astype(self.row.dtype))

    def transitions(self, steps: Int[Array, " batch"], followed: Bool[Array, " batch"] | bool = False) -> Transitions:
        """Return the decisions at `steps`. followed: at which of them the run may also use the next decision."""
        followed = jnp.broadcast_to(followed, steps.shape)
        return Transitions(
            observation=self.before(steps),
            action=self.action[steps],
            next_observation=self.after(steps),
            has_next=self.has_next[steps],
            terminal=self.terminal[steps],
            time=self.time[steps],
            next_action=self.action[steps + followed.astype(steps.dtype)],
            has_next_action=followed,
            weight=None if self.weight is None else self.weight[steps],
        )


class Rows(NamedTuple):
    """A set of rows: the first `size` of `indices`; the rest is padding and is never read."""

    indices: Int[Array, "*runs capacity"]
    size: Int[Array, "*runs"]

    def sample(self, key: PRNGKeyArray, count: int) -> Int[Array, " count"]:
        """Draw `count` of the rows, uniformly, with replacement."""
        return self.indices[self.places(key, count)]

    def places(self, key: PRNGKeyArray, count: int) -> Int[Array, " count"]:
        """Draw where in `indices` `count` of the rows stand, uniformly, with replacement."""
        return jax.random.randint(key, (count,), 0, jnp.maximum(self.size, 1))

    @property
    def mask(self) -> Bool[Array, " capacity"]:
        """Whether each of `indices` is a row and not padding."""
        return jnp.arange(self.indices.shape[-1]) < self.size

    def where(self, keep: Bool[Array, " capacity"]) -> "Rows":
        """Return the rows at which `keep` holds, in order. This sorts: use it in `init`, not in every update."""
        keep = keep & self.mask
        kept = jnp.where(keep, self.indices, 0)[jnp.argsort(~keep, stable=True)]
        return Rows(kept, keep.sum(dtype=self.size.dtype))


class Dataset(NamedTuple):
    """The data of one run: steps with their decisions, and states without decisions (semi-supervised)."""

    pool: Pool
    labelled: Rows  # of the pool's steps
    unlabelled: Rows  # of the pool's observations; may be an empty array

    def batch(self, key: PRNGKeyArray, count: int) -> Transitions:
        """Draw a minibatch of labelled steps."""
        places = self.labelled.places(key, count)
        return self.pool.transitions(self.labelled.indices[places], self.followed(places))

    def followed(self, places: Int[Array, "*batch"]) -> Bool[Array, "*batch"]:
        """Whether the step that follows in the trajectory is labelled too, for some places in `labelled.indices`.

        A draw lists the steps of a trajectory in their order, so the step that follows stands at the next place.
        """
        rows, after = self.labelled, places + 1
        step, other = rows.indices[places], rows.indices[jnp.minimum(after, rows.indices.shape[-1] - 1)]
        together = self.pool.trajectory[other] == self.pool.trajectory[step]
        return (other == step + 1) & together & (after < rows.size)

    def runs(self, members: np.ndarray) -> "Dataset":
        """Return the data of the given runs."""
        rows = self.labelled, self.unlabelled
        return Dataset(self.pool, *(Rows(r.indices[members], r.size[members]) for r in rows))

    @property
    def triples(self) -> Rows:
        """Return the labelled steps with a known successor. Use it in `init`, as `Rows.where`."""
        return self.labelled.where(self.pool.known[self.labelled.indices])

    @property
    def quadruples(self) -> Rows:
        """Return the labelled steps whose next step is labelled too. Use it in `init`, as `Rows.where`."""
        return self.labelled.where(self.followed(jnp.arange(self.labelled.indices.shape[-1])))

    def states(self, key: PRNGKeyArray, batch: Transitions) -> Float[Array, "batch inputs"]:
        """Draw a minibatch of states, uniform over labelled and unlabelled ones together.

        Each state of `batch` is exchanged for an unlabelled one with the probability that makes the whole
        uniform; without unlabelled states the result is the states of `batch` themselves.
        """
        if self.unlabelled.indices.shape[-1] == 0:
            return batch.observation
        which, rows = jax.random.split(key)
        labelled, unlabelled = self.labelled.size, self.unlabelled.size
        share = unlabelled / jnp.maximum(labelled + unlabelled, 1)
        others = self.pool.look(self.unlabelled.sample(rows, len(batch.action)))
        exchange = jax.random.uniform(which, batch.action.shape) < share
        return jnp.where(exchange[:, None], others, batch.observation)

    def bounds(self) -> tuple[Float[Array, " inputs"], Float[Array, " inputs"]]:
        """Return the smallest box with every state of this run, labelled and unlabelled; for images, all of [-1, 1]."""
        if self.pool.images:
            return -jnp.ones(self.pool.inputs), jnp.ones(self.pool.inputs)
        low, high = _bounds(self.pool.before, self.labelled)
        if self.unlabelled.indices.shape[-1] == 0:  # jaxlib 0.11.2 crashes where several devices read an empty array
            return low, high
        more = _bounds(self.pool.look, self.unlabelled)
        return jnp.minimum(low, more[0]), jnp.maximum(high, more[1])

    def moments(self) -> tuple[Float[Array, " inputs"], Float[Array, " inputs"]]:
        """Return mean and standard deviation of the labelled states of this run."""
        states = self.pool.observations[self.pool.row[self.labelled.indices]]
        keep = self.labelled.mask[:, None]
        return states.mean(axis=0, where=keep), states.std(axis=0, where=keep)


def _bounds(look: Callable[[Array], Array], rows: Rows) -> tuple[Array, Array]:
    """Return the smallest box with the observations at `rows`. There may be many rows, so they are read in parts."""
    count = rows.indices.shape[-1]
    size = max(min(BLOCK, count), 1)
    blocks = -(-count // size)

    def block(box: tuple[Array, Array], part: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        states, mask = look(part[0]), part[1][:, None]
        low = jnp.min(states, axis=0, where=mask, initial=jnp.inf)
        high = jnp.max(states, axis=0, where=mask, initial=-jnp.inf)
        return (jnp.minimum(box[0], low), jnp.maximum(box[1], high)), None

    indices, mask = (jnp.pad(x, (0, blocks * size - count)).reshape(blocks, size) for x in (rows.indices, rows.mask))
    nothing = jnp.full(jax.eval_shape(look, rows.indices).shape[-1], jnp.inf)
    return jax.lax.scan(block, (nothing, -nothing), (indices, mask))[0]


def spec_of(demonstrations: Demonstrations) -> Spec:
    """Return the shape of the demonstrations' task. Observations that no network here can read are refused."""
    spec = Spec(tuple(demonstrations.observation_shape), len(demonstrations.action_names))
    if len(spec.observation_shape) == 2:
        raise UserError(
            f"frames of {spec.observation_shape} need to be stacked: give the demonstrations stack=1 or more."
        )
    features_of(spec)
    if len(spec.observation_shape) == 3 and demonstrations.trajectories[0].observations.dtype != np.uint8:
        raise UserError("images must be bytes (uint8, 0 to 255); convert them.")
    return spec


def make_pool(demonstrations: Demonstrations, standardisation: Standardisation | None = None) -> Pool:
    """Return all trajectories as one pool of arrays."""
    steps, weights = demonstrations.decisions(), demonstrations.weights
    visited = np.array([len(t.observations) for t in demonstrations.trajectories])
    first = np.cumsum(visited) - visited
    recorded = [t.observations for t in demonstrations.trajectories]
    frames = None
    if stack := demonstrations.stack:
        black = np.zeros((1, *recorded[0].shape[1:]), np.uint8)  # the last row: the frames before an episode begins
        wanted = np.arange(visited.sum())[:, None] + np.arange(1 - stack, 1)
        frames = jnp.asarray(np.where(wanted < np.repeat(first, visited)[:, None], visited.sum(), wanted), jnp.int32)
        recorded.append(black)
    group = None
    if demonstrations.groups is not None:
        group = np.unique(demonstrations.groups, return_inverse=True)[1][steps.trajectory]
    images = recorded[0].dtype == np.uint8 and recorded[0].ndim > 2  # which stay as they are
    observations = _joined(recorded, np.dtype(np.uint8 if images else np.float32))
    if standardisation is not None:
        observations -= standardisation.mean
        observations /= standardisation.scale
    return Pool(
        observations=jax.device_put(observations, may_alias=True),  # a table may fill most of the memory
        row=jnp.asarray(first[steps.trajectory] + steps.time, jnp.int32),
        action=jnp.asarray(steps.action, jnp.int32),
        has_next=jnp.asarray(steps.has_next),
        terminal=jnp.asarray(steps.terminal),
        time=jnp.asarray(steps.time, jnp.int32),
        trajectory=jnp.asarray(steps.trajectory, jnp.int32),
        frames=frames,
        group=None if group is None else jnp.asarray(group, jnp.int32),
        weight=None if weights is None else jnp.asarray(weights, jnp.float32),
    )


def _joined(parts: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Return one array of all parts, aligned so that JAX on a CPU can use it without a copy."""
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    joined = room[start : start + size].view(dtype).reshape(shape)
    return np.concatenate(parts, out=joined, casting="same_kind")


def make_dataset(
    demonstrations: Demonstrations,
    draws: list[np.ndarray] | None = None,
    *,
    thin: int | Sequence[int] = 1,
    thin_offset: int = 0,
    unlabelled: list[np.ndarray] | None = None,
    thin_unlabelled: int | Sequence[int] = 1,
    capacity: int | None = None,
    standardisation: Standardisation | None = None,
) -> Dataset:
    """Make the dataset of R runs: the pool once, and the rows of each run stacked along a leading axis.

    draws: for each run, the trajectories whose decisions it may use. Without them there is one run with all
        trajectories, and no leading axis.
    unlabelled: for each run, the trajectories whose states it may use, but no decision. A state whose decision is used
        is left out.
    thin, thin_unlabelled: keep every k-th decision, and every k-th unlabelled state; one k, or one per run.
    capacity: the padded number of labelled rows (default: what the largest draw needs). Datasets of equal
        capacity share one compiled program.
    standardisation: what is done to every state (default: nothing).
    """
    runs = [np.arange(len(demonstrations))] if draws is None else draws
    _check_draws(runs, unlabelled, len(demonstrations), alone=draws is None)
    lengths = demonstrations.lengths
    visited = np.array([len(t.observations) for t in demonstrations.trajectories])
    first, first_state = np.cumsum(lengths) - lengths, np.cumsum(visited) - visited

    def steps(trajectory: int, every: int) -> np.ndarray:
        return first[trajectory] + thinned(int(lengths[trajectory]), every, thin_offset)

    def states(trajectory: int, every: int) -> np.ndarray:
        return first_state[trajectory] + np.arange(0, visited[trajectory], every)

    pool = make_pool(demonstrations, standardisation)
    nothing: list[np.ndarray] = [np.array([], int)] * len(runs)
    decided, shown = _rows(steps, runs, thin), _rows(states, unlabelled or nothing, thin_unlabelled)
    row = np.asarray(pool.row)
    others = [some[~np.isin(some, row[own])] if len(some) else some for some, own in zip(shown, decided, strict=True)]
    labelled, rest = padded(decided, capacity), padded(others, max(map(len, shown)))
    if not labelled.size.min():
        many = demonstrations.words[1]
        every = np.broadcast_to(thin, len(runs))[labelled.size.argmin()]
        raise UserError(f"a draw keeps no step at thin {every}, offset {thin_offset}; its {many} are shorter.")
    if draws is None:
        labelled, rest = (Rows(rows.indices[0], rows.size[0]) for rows in (labelled, rest))
    return Dataset(pool, labelled, rest)


def _check_draws(draws: list[np.ndarray], unlabelled: list[np.ndarray] | None, count: int, alone: bool) -> None:
    """Refuse draws that do not fit the unlabelled trajectories or name a trajectory that does not exist."""
    if alone and unlabelled is not None:
        raise UserError("unlabelled trajectories need draws beside them; give one list of each per run.")
    given = 0 if unlabelled is None else len(unlabelled)
    if not draws or (unlabelled is not None and given != len(draws)):
        raise UserError(f"{len(draws)} draws and {given} lists of unlabelled trajectories; give one of each per run.")
    for draw in (*draws, *(unlabelled or ())):
        if len(draw) and not 0 <= np.min(draw) <= np.max(draw) < count:
            raise UserError(f"a draw names a trajectory that is not among the {count} there are.")


def capacity_for(demonstrations: Demonstrations, size: int, thin: int = 1, thin_offset: int = 0) -> int:
    """Return a number of rows that is enough for every draw of up to `size` trajectories."""
    kept = [len(thinned(length, thin, thin_offset)) for length in demonstrations.lengths]
    return int(np.sort(kept)[::-1][:size].sum())


def _rows(
    part: Callable[[int, int], np.ndarray], draws: list[np.ndarray], thin: int | Sequence[int]
) -> list[np.ndarray]:
    every = np.broadcast_to(thin, len(draws)).tolist()
    nothing = np.array([], int)
    return [np.concatenate([nothing, *(part(int(i), k) for i in draw)]) for draw, k in zip(draws, every, strict=True)]


def padded(chosen: list[np.ndarray], capacity: int | None = None) -> Rows:
    """Stack the rows of several runs, padded to `capacity` (default: what the longest needs)."""
    sizes = np.array([len(rows) for rows in chosen])
    width = int(sizes.max()) if capacity is None else capacity
    if sizes.max() > width:
        raise UserError(f"a draw has {sizes.max()} rows and the capacity is {width}; give a larger capacity.")
    indices = np.zeros((len(chosen), width), np.int32)
    for row, rows in zip(indices, chosen, strict=True):
        row[: len(rows)] = rows
    return Rows(jnp.asarray(indices), jnp.asarray(sizes, jnp.int32))
