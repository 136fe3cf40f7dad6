"""Measures of imagined rollouts over many horizons: what the measure and the rule of the horizon were chosen from."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from sbil import devices
from sbil.choosing import Judges
from sbil.dynamics.measures import CAP
from sbil.dynamics.rollouts import Reference, imagine

HORIZONS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
AT_ONCE = 64  # policies


def measures_by_horizon(judges: Judges, keys: PRNGKeyArray, networks: Any, runs: np.ndarray) -> dict[str, Any]:
    """Return [policies, HORIZONS] of each measure: means over the first steps of imagined rollouts.

    near, drift: the distance to the nearest demonstrated state, from demonstrated states and from first states.
    squared, root: the same from demonstrated states, of the distance's square and root.
    far, left: the share of steps farther away than CAP / 2; the same from first states, once away always away.
    last: the distance after the last step, from demonstrated states.
    ended: the share of imagined episodes that ended, from first states.
    """
    policies = networks, np.asarray(runs), keys[runs]
    found = _measured(policies, judges.models, judges.views)
    return {name: np.asarray(values) for name, values in found.items()}


@jax.jit
def _measured(policies: Any, models: Any, views: Any) -> dict[str, Array]:
    horizons = jnp.array(HORIZONS)

    def means(values: Array) -> Array:
        """[steps, ...] -> [HORIZONS]"""
        return (jnp.cumsum(values.reshape(len(values), -1).mean(axis=1)) / (1 + jnp.arange(len(values))))[horizons - 1]

    def one(policy: tuple[Any, Array, Array]) -> dict[str, Array]:
        network, run, key = policy
        model, view = jax.tree.map(lambda leaf: leaf[run], (models, views))
        reference = Reference(model.standardised(view.reference), view.mask)
        act = partial(imagine, logits=network, reference=reference, horizon=HORIZONS[-1])
        anywhere, episodes = (act(key, model, starts=starts) for starts in (view.starts, view.firsts))
        distance = jnp.minimum(anywhere.distance, CAP)
        left = jnp.cumsum(episodes.distance > CAP / 2, axis=0) > 0
        return {
            "near": means(distance),
            "squared": means(distance**2),
            "root": means(jnp.sqrt(distance)),
            "far": means((distance > CAP / 2).astype(jnp.float32)),
            "last": distance.mean(axis=(1, 2))[horizons - 1],
            "drift": means(jnp.minimum(episodes.distance, CAP)),
            "left": means(left.astype(jnp.float32)),
            "ended": episodes.ended.mean(axis=(1, 2))[horizons - 1],
        }

    return devices.in_batches(one, policies, AT_ONCE)
