"""An ensemble of behavioural cloning: networks that learn beside each other and decide by the mean of their policies.

    pi = mean over k of softmax f_k(s),   L = -mean log softmax f_k(s)[a] for each network by itself

Needs pairs of numbers. All networks see the same draw. The first is the network that BC would learn, and the others
differ from it in their first weights and in their minibatches. With one member this is behavioural cloning.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, config, setting
from sbil.algorithms.bc import BCConfig, BCState, bc
from sbil.algorithms.table_network import pick
from sbil.dataset import Dataset, Spec
from sbil.mixtures import Blend


@config
class BCEnsembleConfig(BCConfig):
    """Settings of an ensemble of behavioural cloning."""

    members: int = setting(5, "networks", "k", low=1)


class BCEnsembleState(NamedTuple):
    """The networks as one policy, and as they learn: stacked, with their optimisers."""

    network: Blend
    members: BCState


def keys_of_members(key: PRNGKeyArray, count: int) -> PRNGKeyArray:
    """Return a key per member; the first is the key itself, which draws what BC would draw."""
    return jnp.stack([key, *(jax.random.fold_in(key, number) for number in range(1, count))])


def mean_policy(members: BCState, count: int) -> Blend:
    """Return the mean of the policies of the members."""
    return Blend(tuple(pick(members.network, number) for number in range(count)), jnp.full(count, 1 / count))


def bc_ensemble(spec: Spec, config: BCEnsembleConfig) -> Algorithm:
    """An ensemble of behavioural cloning as three pure functions."""
    one = bc(spec, config)
    if config.members == 1:
        return one

    def init(key: PRNGKeyArray, dataset: Dataset) -> BCEnsembleState:
        members = jax.vmap(one.init, in_axes=(0, None))(keys_of_members(key, config.members), dataset)
        return BCEnsembleState(mean_policy(members, config.members), members)

    def update(key: PRNGKeyArray, state: BCEnsembleState, dataset: Dataset) -> tuple[BCEnsembleState, Metrics]:
        keys = keys_of_members(key, config.members)
        members, metrics = jax.vmap(one.update, in_axes=(0, 0, None))(keys, state.members, dataset)
        return BCEnsembleState(mean_policy(members, config.members), members), jax.tree.map(jnp.mean, metrics)

    return Algorithm(init, update, batch=config.batch)


ENTRY = Entry(
    make=bc_ensemble,
    presets={"default": BCEnsembleConfig(), "ten": BCEnsembleConfig(members=10)},
    needs="numeric pairs",
    reference="Lakshminarayanan, Pritzel and Blundell (2017)",
    titles={"default": "BC, 5 networks", "ten": "BC, 10 networks"},
)
