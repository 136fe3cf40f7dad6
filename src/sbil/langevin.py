"""Samples from exp(-E): Langevin chains, and the persistent buffer that they start from and return to."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

State = Float[Array, "chains *observation"]
Energy = Callable[[State], Float[Array, " chains"]]
Number = float | Array


class Box(NamedTuple):
    """The lowest and the highest value of each coordinate of a chain."""

    low: Float[Array, "*observation"]
    high: Float[Array, "*observation"]


def chain(
    key: PRNGKeyArray,
    energy: Energy,
    states: State,
    length: int,
    step_size: Number,
    noise: Number,
    within: Box | None = None,
) -> State:
    """Run every chain for `length` steps of s <- s - step_size * dE/ds + noise * N(0, I).

    The stationary law is near exp(-E / T) with temperature T = noise^2 / (2 * step_size). Both may be one number
    per coordinate, if T is the same for all. A step that would leave `within` ends at its border.
    """
    gradient = jax.grad(lambda states: energy(states).sum())

    def step(states: State, key: PRNGKeyArray) -> tuple[State, None]:
        jolt = jax.random.normal(key, states.shape)
        states = states - step_size * gradient(states) + noise * jolt
        return (states if within is None else jnp.clip(states, *within)), None

    states, _ = jax.lax.scan(step, states, jax.random.split(key, length))
    return states


def adjusted_chain(
    key: PRNGKeyArray,
    energy: Energy,
    states: State,
    length: int,
    step_size: Number,
    noise: Number,
    within: Box | None = None,
) -> State:
    """Run the same steps with Metropolis-Hastings accept or reject, so the stationary law is exactly exp(-E / T).

    Roberts and Tweedie (1996). A step that would leave `within` is rejected.
    """
    both = jax.vmap(jax.value_and_grad(lambda state: energy(state[None])[0]))
    temperature = jnp.broadcast_to(noise**2 / (2 * step_size), states.shape[1:]).ravel()[0]

    def log_law(there: State, here: State, gradient: State) -> Array:
        return -(((there - here + step_size * gradient) / noise) ** 2).sum(axis=range(1, here.ndim)) / 2

    def step(carry: tuple[State, Array, State], key: PRNGKeyArray) -> tuple[tuple[State, Array, State], None]:
        here, height, gradient = carry
        jolt, whether = jax.random.split(key)
        there = here - step_size * gradient + noise * jax.random.normal(jolt, here.shape)
        new_height, new_gradient = both(there)
        chance = (height - new_height) / temperature
        chance += log_law(here, there, new_gradient) - log_law(there, here, gradient)
        go = jnp.log(jax.random.uniform(whether, chance.shape)) < chance
        if within is not None:
            go &= ((there >= within.low) & (there <= within.high)).all(axis=range(1, there.ndim))
        moved = go.reshape(-1, *(1 for _ in here.shape[1:]))
        place, slope = jnp.where(moved, there, here), jnp.where(moved, new_gradient, gradient)
        return (place, jnp.where(go, new_height, height), slope), None

    (states, _, _), _ = jax.lax.scan(step, (states, *both(states)), jax.random.split(key, length))
    return states


def uniform(draws: Float[Array, "chains *observation"], low: Array, high: Array) -> State:
    """Move draws from (0, 1) into the box [low, high], coordinate by coordinate."""
    return low + (high - low) * draws


def slots(draws: Float[Array, " chains"], size: int) -> Int[Array, " chains"]:
    """Draw a different slot of a buffer of `size` for each chain: chain n draws from its own size // chains slots.

    Different slots make the write-back well defined. All slots of a stratum are equally likely.
    """
    width = size // len(draws)
    return jnp.arange(len(draws)) * width + jnp.minimum(jnp.floor(draws * width).astype(int), width - 1)


def resume(
    draws: Float[Array, "chains 2"], buffer: Float[Array, "size *observation"], fresh: State, restart: Number
) -> tuple[Int[Array, " chains"], State]:
    """Return (slots, states) of the chains to continue: the buffer's, or fresh ones with probability `restart`."""
    chosen = slots(draws[:, 0], len(buffer))
    renewed = (draws[:, 1] < restart).reshape(len(draws), *(1 for _ in fresh.shape[1:]))
    return chosen, jnp.where(renewed, fresh, buffer[chosen].astype(fresh.dtype))


def put_back(buffer: Float[Array, "size *observation"], chosen: Int[Array, " chains"], states: State) -> Array:
    """Return the buffer with the states of its continued chains."""
    return buffer.at[chosen].set(states.astype(buffer.dtype), unique_indices=True)
