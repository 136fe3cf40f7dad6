"""Policies act in a learned model: the states they would visit, and how far these are from the demonstrated ones."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.dynamics.model import MEMBERS, Model, follow
from sbil.networks import in_float32

Logits = Callable[[Array], Array]  # plain observations [n, inputs] -> [n, actions]


class Rollouts(NamedTuple):
    """What a policy does in each member of a model. Standardised states; an episode that ended stays where it was."""

    state: Float[Array, "horizon members starts inputs"]  # after each action
    action: Int[Array, "horizon members starts"]
    ended: Bool[Array, "horizon members starts"]
    distance: Float[Array, "horizon members starts"]  # to the nearest demonstrated state


class Reference(NamedTuple):
    """Demonstrated states that imagined ones are compared with: standardised, and padded."""

    state: Float[Array, "references inputs"]
    mask: Bool[Array, " references"]


def imagine(
    key: PRNGKeyArray,
    model: Model,
    logits: Logits,
    starts: Float[Array, "starts inputs"],
    reference: Reference,
    horizon: int,
    greedy: bool = True,
) -> Rollouts:
    """Let one policy act from plain states `starts` in every member of the model. Pure: jit it, vmap it over policies.

    greedy: take the most probable action; otherwise draw from the policy.
    """
    begin = jnp.broadcast_to(model.standardised(starts), (MEMBERS, *starts.shape))

    def step(carry: tuple[Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array], Rollouts]:
        states, ended = carry
        with in_float32():
            outputs = logits(model.plain(states))
        action = outputs.argmax(axis=-1) if greedy else jax.random.categorical(key, outputs)
        after, ends = follow(model, states, jax.nn.one_hot(action, outputs.shape[-1]))
        states = jnp.where(ended[..., None], states, after)
        ended = ended | ends
        return (states, ended), Rollouts(states, action, ended, nearest(reference, states))

    none = jnp.zeros(begin.shape[:2], bool)
    _, rollouts = jax.lax.scan(step, (begin, none), jax.random.split(key, horizon))
    return rollouts


def nearest(reference: Reference, states: Float[Array, "*batch inputs"]) -> Float[Array, "*batch"]:
    """Return the distance of each state to the nearest demonstrated one."""
    squares = (states**2).sum(axis=-1)[..., None] + (reference.state**2).sum(axis=-1)
    squares = squares - 2 * jnp.matmul(states, reference.state.T, precision="float32")
    return jnp.sqrt(jnp.maximum(jnp.where(reference.mask, squares, jnp.inf).min(axis=-1), 0.0))


def energy_distance(
    states: Float[Array, "n inputs"], weight: Float[Array, " n"], others: Float[Array, "m inputs"], mask: Array
) -> Float[Array, ""]:
    """Return the energy distance of two weighted sets of states: 0 if they are equal."""
    weight, mask = weight / jnp.maximum(weight.sum(), 1e-9), mask / jnp.maximum(mask.sum(), 1)

    def between(a: Array, weights: Array, b: Array, masks: Array) -> Array:
        squares = ((a[:, None] - b[None]) ** 2).sum(axis=-1)
        return weights @ jnp.sqrt(jnp.maximum(squares, 1e-12)) @ masks

    within = between(states, weight, states, weight) + between(others, mask, others, mask)
    return 2 * between(states, weight, others, mask) - within
