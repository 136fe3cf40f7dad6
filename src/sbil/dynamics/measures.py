"""How a policy does in a learned model, as numbers: the smaller, the nearer it stays to what was demonstrated."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil import devices
from sbil.dataset import Dataset
from sbil.dynamics.model import Model, Trust
from sbil.dynamics.rollouts import Reference, Rollouts, energy_distance, imagine

STARTS = 64  # demonstrated states from which a policy starts
FIRSTS = 16  # first states of episodes, likewise
REFERENCES = 512  # demonstrated states that imagined ones are compared with
VISITED = 256  # imagined states whose distribution is compared
CAP = 4.0  # standard deviations: larger distances count as this
AT_ONCE, AT_ONCE_GPU = 8, 128  # policies
LOST = 0.5  # of the variance of states: when a model has lost this much, imagined rollouts stop
SHORTEST, LONGEST = 5, 100  # steps of imagined rollouts; with fewer the model is not trusted


class DrawView(NamedTuple):
    """What a draw shows beside its model. States are plain."""

    starts: Float[Array, "starts inputs"]  # demonstrated states, any
    firsts: Float[Array, "firsts inputs"]  # first states of episodes
    reference: Float[Array, "references inputs"]
    mask: Bool[Array, " references"]
    place: Int[Array, " references"]  # the steps of the pool that they belong to
    length: Float[Array, ""]  # steps of an episode, on average


class Measures(NamedTuple):
    """What a policy does in a model, per member and start. Distances are in standard deviations, at most CAP."""

    near: Float[Array, "members starts"]  # mean distance to the demonstrated states, from demonstrated states
    drift: Float[Array, "members firsts"]  # likewise, from first states of episodes
    left: Float[Array, "members firsts"]  # the share of steps after it first went far away, from first states
    ended: Float[Array, "members firsts"]  # the step of the end, as a share of the horizon; 1: it did not end
    energy: Float[Array, ""]  # the energy distance between the states visited from `firsts` and the demonstrated ones
    disagreement: Float[Array, ""]  # the distance of the members' states from their mean, from demonstrated states

    @property
    def distance(self) -> np.ndarray:
        """The number that policies are compared by, [policies]: the mean of `near` and `drift`."""
        return np.asarray(self.near.mean(axis=(-2, -1)) + self.drift.mean(axis=(-2, -1))) / 2


def horizons_of(trust: Trust) -> np.ndarray:
    """[R], how many steps policies act in the models: fewer than SHORTEST means that a model is not trusted.

    They act until the model has lost the share LOST of the median column. Beyond the steps that were recorded in a row
    errors are taken to add up evenly, so that the lost variance grows with the square of the steps.
    """
    lost = 1 - np.asarray(trust.after)
    return np.array([_horizon(own[np.isfinite(own)]) for own in lost])


def _horizon(lost: np.ndarray) -> int:
    """The steps before a model has lost too much; lost: [recorded steps], its share after 1, 2, ... steps."""
    if (too_much := lost > LOST).any():
        return min(int(too_much.argmax()), LONGEST)
    return int(min(len(lost) * (LOST / max(lost[-1], 1e-9)) ** 0.5, LONGEST)) if lost.size else 0


def views_of(dataset: Dataset) -> DrawView:
    """Return what each of R draws shows, stacked."""
    steps = [np.asarray(indices)[:size] for indices, size in zip(*dataset.labelled, strict=True)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(_view(dataset, own) for own in steps))


def _view(dataset: Dataset, steps: np.ndarray) -> DrawView:
    pool = dataset.pool
    observations, row, trajectory = (np.asarray(leaf) for leaf in (pool.observations, pool.row, pool.trajectory))
    states = observations[row[steps]]
    last = steps[np.asarray(pool.terminal & pool.has_next)[steps]]
    known, place = np.concatenate([states, observations[row[last] + 1]]), np.concatenate([steps, last])
    random = np.random.default_rng(0)
    some = random.permutation(len(known))[:REFERENCES]
    reference = np.zeros((REFERENCES, known.shape[1]), np.float32)
    reference[: len(some)] = known[some]
    own = np.unique(trajectory[steps])
    first = row[np.searchsorted(trajectory, own)]  # the pool is in the order of trajectories
    lengths = np.searchsorted(trajectory, own, side="right") - np.searchsorted(trajectory, own)
    return DrawView(
        starts=jnp.asarray(states[random.integers(0, len(states), STARTS)]),
        firsts=jnp.asarray(observations[first[np.arange(FIRSTS) % len(first)]]),
        reference=jnp.asarray(reference),
        mask=jnp.arange(REFERENCES) < len(some),
        place=jnp.asarray(np.resize(place[some], REFERENCES)),
        length=jnp.float32(lengths.mean()),
    )


def measure(
    key: PRNGKeyArray,
    model: Model,
    view: DrawView,
    logits: Callable[[Array], Array],
    horizon: Int[Array, ""],
    longest: int,
    greedy: bool = True,
) -> Measures:
    """Let one policy act in the model for `horizon` steps, which is at most `longest`. Pure: jit it, vmap it."""
    reference = Reference(model.standardised(view.reference), view.mask)
    keys = jax.random.split(key)
    anywhere = imagine(keys[0], model, logits, view.starts, reference, longest, greedy)
    episodes = imagine(keys[1], model, logits, view.firsts, reference, longest, greedy)
    return measures_of(anywhere, episodes, reference, horizon)


def measures_of(
    anywhere: Rollouts, episodes: Rollouts, reference: Reference, horizon: Int[Array, ""] | int
) -> Measures:
    """Measure the first `horizon` steps of rollouts from any demonstrated states and from first states of episodes."""
    counts = (jnp.arange(len(episodes.distance)) < horizon).astype(jnp.float32)

    def mean(values: Float[Array, "longest members starts"]) -> Float[Array, "members starts"]:
        return jnp.tensordot(counts, values, 1) / counts.sum()

    away = jnp.cumsum(episodes.distance > CAP / 2, axis=0) > 0
    spread = jnp.linalg.norm(anywhere.state - anywhere.state.mean(axis=1, keepdims=True), axis=-1)
    return Measures(
        near=mean(jnp.minimum(anywhere.distance, CAP)),
        drift=mean(jnp.minimum(episodes.distance, CAP)),
        left=mean(away.astype(jnp.float32)),
        ended=mean(~episodes.ended),
        energy=_visited(episodes, counts, reference),
        disagreement=mean(jnp.minimum(spread, CAP)).mean(),
    )


def _visited(rollouts: Rollouts, counts: Array, reference: Reference) -> Array:
    states = rollouts.state.reshape(-1, rollouts.state.shape[-1])
    weight = jnp.broadcast_to(counts[:, None, None], rollouts.distance.shape).reshape(-1)
    some = jnp.linspace(0, len(states) - 1, VISITED).astype(int)
    return energy_distance(states[some], weight[some], reference.state, reference.mask)


def measure_many(
    keys: PRNGKeyArray,
    models: Model,
    views: DrawView,
    networks: Any,
    draws: np.ndarray,
    horizons: np.ndarray,
    greedy: bool = True,
) -> Measures:
    """Measure P policies of one architecture, each in the model of its own draw.

    keys: [P]. models, views: [R]. networks: stacked, [P]. draws: [P], which of the R draws. horizons: [P].
    """
    count = len(draws)
    longest = 1 << int(np.max(horizons) - 1).bit_length()  # few programs
    args = devices.spread((keys, jax.device_get(networks), np.asarray(draws), np.asarray(horizons)), count)
    shared = devices.share((models, views), count)
    found = _program(longest, greedy, devices.over_runs(count))(*args, shared)
    return Measures(*(np.asarray(leaf)[:count] for leaf in found))  # type: ignore[arg-type]


@lru_cache(maxsize=16)
def _program(longest: int, greedy: bool, mesh: Mesh) -> Any:
    def each(keys: Array, networks: Any, draws: Array, horizons: Array, shared: tuple[Model, DrawView]) -> Measures:
        def one(own: tuple[Array, Any, Array, Array]) -> Measures:
            key, network, draw, horizon = own
            model, view = jax.tree.map(lambda leaf: leaf[draw], shared)
            return measure(key, model, view, network, horizon, longest, greedy)

        at_once = AT_ONCE if jax.default_backend() == "cpu" else AT_ONCE_GPU
        return devices.in_batches(one, (keys, networks, draws, horizons), at_once)

    specs = (devices.RUNS,) * 4 + (devices.SHARED,)
    return jax.jit(jax.shard_map(each, mesh=mesh, in_specs=specs, out_specs=devices.RUNS, check_vma=False))
