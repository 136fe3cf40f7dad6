"""Samples from exp(-E): Langevin chains, and the persistent buffer they start from and return to."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

State = Float[Array, "chains *observation"]
Energy = Callable[[State], Float[Array, " chains"]]
Number = float | Array
Uniform = Callable[[PRNGKeyArray, int], State]


def uniform(low: Array, high: Array) -> Uniform:
    """Draws from the box [low, high], coordinate by coordinate."""

    def draw(key: PRNGKeyArray, count: int) -> State:
        return jax.random.uniform(key, (count, *low.shape), minval=low, maxval=high)

    return draw


def chain(key: PRNGKeyArray, energy: Energy, states: State, length: int, step_size: Number, noise: Number) -> State:
    """Run every chain for `length` steps of s <- s - step_size * dE/ds + noise * N(0, I).

    The stationary law is near exp(-E / T) with temperature T = noise^2 / (2 * step_size).
    """
    gradient = jax.grad(lambda states: energy(states).sum())

    def step(states: State, key: PRNGKeyArray) -> tuple[State, None]:
        jolt = jax.random.normal(key, states.shape)
        return states - step_size * gradient(states) + noise * jolt, None

    states, _ = jax.lax.scan(step, states, jax.random.split(key, length))
    return states


def slots(key: PRNGKeyArray, size: int, count: int) -> Int[Array, " count"]:
    """`count` different slots of a buffer of `size`, each equally likely: one from each of `count` strata.

    Different slots make the write-back well defined; strata avoid sorting the whole buffer at every update.
    """
    rotation_key, place_key = jax.random.split(key)
    width = size // count
    places = jnp.arange(count) * width + jax.random.randint(place_key, (count,), 0, width)
    return (places + jax.random.randint(rotation_key, (), 0, size)) % size


def sample(
    key: PRNGKeyArray,
    energy: Energy,
    buffer: Float[Array, "size *observation"],
    fresh: Uniform,
    *,
    count: int,
    length: int,
    step_size: Number,
    noise: Number,
    restart: Number,
) -> tuple[State, Float[Array, "size *observation"]]:
    """(samples, buffer): continue `count` chains of the buffer, each restarted afresh with probability `restart`.

    The samples are constants: no gradient flows through them to the energy's parameters.
    """
    slot_key, restart_key, fresh_key, chain_key = jax.random.split(key, 4)
    chosen = slots(slot_key, len(buffer), count)
    renewed = jax.random.uniform(restart_key, (count,) + (1,) * (buffer.ndim - 1)) < restart
    states = jnp.where(renewed, fresh(fresh_key, count), buffer[chosen])
    states = jax.lax.stop_gradient(chain(chain_key, energy, states, length, step_size, noise))
    return states, buffer.at[chosen].set(states, unique_indices=True)
