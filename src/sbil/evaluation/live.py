"""Live returns: R policies play E episodes each, all at once."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray

from sbil import devices
from sbil.environments.base import HostEnvironment, JaxEnvironment
from sbil.errors import whole
from sbil.networks import in_float32


class Policies(NamedTuple):
    """R networks of one architecture: stacked parameters, and the function that gives the logits of one of them."""

    logits: Callable[[Any, Array], Array]  # (parameters of one policy, observations [n, ...]) -> [n, actions]
    parameters: Any  # leading axis R


def call(network: Any, observations: Array) -> Array:
    """The logits of a network that is itself a function; every state's `network` is."""
    logits: Array = network(observations)
    return logits


def play(
    environment: JaxEnvironment | HostEnvironment,
    policies: Policies,
    key: PRNGKeyArray,
    episodes: int = 300,
    greedy: bool = True,
) -> Float[np.ndarray, "policies episodes"]:
    """The return of every episode of every policy.

    key: one key, so that all policies start from the same states; or [R] keys, one per policy.
    greedy: the most probable action; otherwise actions are drawn from the policy.
    """
    episodes = whole("episodes", episodes, 1)
    count = len(jax.tree.leaves(policies.parameters)[0])
    keys = key if key.ndim else jnp.broadcast_to(key, (count,))
    if isinstance(environment, HostEnvironment):
        return environment.play(policies.parameters, seeds(keys, episodes), greedy=greedy).returns
    parameters, keys = devices.spread((policies.parameters, keys), count)
    program = _program(environment, policies.logits, episodes, greedy, devices.over_runs(count))
    return np.asarray(program(parameters, keys))[:count]


def seeds(keys: PRNGKeyArray, episodes: int) -> np.ndarray:
    """Return [R, episodes], the seed of every episode on the host; more episodes do not change the first ones."""

    def seed(key: PRNGKeyArray, number: Array) -> Array:
        return jax.random.bits(jax.random.fold_in(key, number), dtype="uint32")

    every = jax.vmap(jax.vmap(seed, in_axes=(None, 0)), in_axes=(0, None))
    return np.asarray(every(keys, jnp.arange(episodes))) >> 1  # simulators take seeds below 2^31


Carry = tuple[Array, Any, Array, Array]  # time; of each episode its state, its return so far, and whether it goes on


@lru_cache(maxsize=64)
def _program(environment: JaxEnvironment, logits: Callable[..., Any], episodes: int, greedy: bool, mesh: Mesh) -> Any:
    def play(parameters: Any, key: PRNGKeyArray) -> Float[Array, " episodes"]:
        """Return the returns of one policy; stop as soon as its last episode has ended."""
        start_key, action_key = jax.random.split(key)
        states = jax.vmap(environment.reset)(jax.random.split(start_key, episodes))

        def step(carry: Carry) -> Carry:
            time, state, total, alive = carry
            with in_float32():
                scores = logits(parameters, jax.vmap(environment.observe)(state))
            action = choose(jax.random.fold_in(action_key, time), scores, greedy)
            state, reward, terminal = jax.vmap(environment.step)(state, action)
            return time + 1, state, total + jnp.where(alive, reward, 0.0), alive & ~terminal

        def unfinished(carry: Carry) -> Array:
            time, _, _, alive = carry
            return (time < environment.time_limit) & alive.any()

        start = jnp.int32(0), states, jnp.zeros(episodes), jnp.ones(episodes, bool)
        return jax.lax.while_loop(unfinished, step, start)[2]

    sharded = jax.shard_map(jax.vmap(play), mesh=mesh, in_specs=devices.RUNS, out_specs=devices.RUNS, check_vma=False)
    return jax.jit(sharded)


def choose(key: PRNGKeyArray, logits: Float[Array, "n actions"], greedy: bool) -> Array:
    """The most probable action, or one drawn from softmax(logits)."""
    return logits.argmax(axis=-1) if greedy else jax.random.categorical(key, logits)
