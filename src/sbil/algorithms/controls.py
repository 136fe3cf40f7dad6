"""Controls that learn almost nothing: every method must beat them.

`majority` always prefers the most frequent action: in every state its logits are the logs of the actions' frequencies.
`random` is a freshly initialised network, the zero of the paper's scale.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, config, setting
from sbil.algorithms.bc import policy_loss
from sbil.dataset import Dataset, Spec
from sbil.networks import Acting, policy_network


@config
class MajorityConfig:
    """Settings of the majority action."""

    prior: float = setting(1.0, "imagined decisions per action, so that none has probability 0", open_low=True)


@config
class RandomConfig:
    """Settings of the random network."""

    hidden: tuple[int, ...] = setting((64, 64), "hidden layers of the network")


class ControlState(NamedTuple):
    """The network; nothing is optimised."""

    network: Acting


def majority(spec: Spec, config: MajorityConfig) -> Algorithm:
    """The majority action as three pure functions."""

    def init(key: PRNGKeyArray, dataset: Dataset) -> ControlState:
        taken = jax.nn.one_hot(dataset.pool.action[dataset.labelled.indices], spec.actions)
        counts = taken.sum(axis=0, where=dataset.labelled.mask[:, None]) + config.prior
        nothing = jax.tree.map(jnp.zeros_like, policy_network(key, spec, ()))
        return ControlState(eqx.tree_at(lambda network: network.output.bias, nothing, jnp.log(counts / counts.sum())))

    return Algorithm(init, unchanged)


def random(spec: Spec, config: RandomConfig) -> Algorithm:
    """A random network as three pure functions."""

    def init(key: PRNGKeyArray, dataset: Dataset) -> ControlState:
        return ControlState(policy_network(jax.random.fold_in(key, 0), spec, config.hidden))

    return Algorithm(init, unchanged)


def unchanged(key: PRNGKeyArray, state: ControlState, dataset: Dataset) -> tuple[ControlState, Metrics]:
    """Return the state as it is, and the loss of a minibatch."""
    batch = dataset.batch(jax.random.fold_in(key, 0), 64)
    return state, {"policy_loss": policy_loss(state.network, batch)}


CONTROLS = ((majority, MajorityConfig(), "majority action"), (random, RandomConfig(), "random network"))
ENTRIES = tuple(
    Entry(
        make, {"default": config}, "pairs", "control", {"default": title}, updates={"default": 1}, seeded=make is random
    )
    for make, config, title in CONTROLS
)
