"""Samples from exp(-E): Langevin chains, and the persistent buffer they start from and return to."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

State = Float[Array, "chains *observation"]
Energy = Callable[[State], Float[Array, " chains"]]
Number = float | Array


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


def uniform(draws: Float[Array, "chains *observation"], low: Array, high: Array) -> State:
    """Draws from (0, 1) carried into the box [low, high], coordinate by coordinate."""
    return low + (high - low) * draws


def slots(draws: Float[Array, " chains"], size: int) -> Int[Array, " chains"]:
    """A different slot of a buffer of `size` for each chain: chain n draws one of its own size // chains slots.

    Different slots make the write-back well defined, and no slot of the strata is likelier than another.
    """
    width = size // len(draws)
    return jnp.arange(len(draws)) * width + jnp.minimum(jnp.floor(draws * width).astype(int), width - 1)


def sample(
    key: PRNGKeyArray,
    energy: Energy,
    buffer: Float[Array, "size *observation"],
    *,
    low: Float[Array, "*observation"],
    high: Float[Array, "*observation"],
    count: int,
    length: int,
    step_size: Number,
    noise: Number,
    restart: Number,
) -> tuple[State, Float[Array, "size *observation"]]:
    """(samples, buffer): continue `count` chains of the buffer, each begun afresh with probability `restart`.

    A fresh chain begins uniformly in the box [low, high]. The samples are constants: no gradient flows through
    them to the energy's parameters.
    """
    start_key, chain_key = jax.random.split(key)
    # One call of the generator, for each costs time to compile and to run: slot, restart, fresh state.
    draws = jax.random.uniform(start_key, (count, 2 + math.prod(low.shape)))
    chosen = slots(draws[:, 0], len(buffer))
    renewed = (draws[:, 1] < restart).reshape(count, *(1 for _ in low.shape))
    fresh = uniform(draws[:, 2:].reshape(count, *low.shape), low, high)
    states = jnp.where(renewed, fresh, buffer[chosen].astype(fresh.dtype))
    states = jax.lax.stop_gradient(chain(chain_key, energy, states, length, step_size, noise))
    return states, buffer.at[chosen].set(states.astype(buffer.dtype), unique_indices=True)
