"""Behavioural cloning: supervised learning of the decisions.

    L = -mean log pi(a|s),   pi = softmax f(s)

Needs pairs. In the paper BC is EDM without its second term: the same network, optimiser and budget. With
`weight_decay` it is the control of Li et al. (2022), "Rethinking ValueDICE".
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, adam, config, cross_entropy, setting
from sbil.dataset import Dataset, Spec, Transitions
from sbil.networks import Acting, Network, policy_network


@config
class BCConfig:
    """Settings of behavioural cloning."""

    learning_rate: float = setting(1e-3, "step of Adam", open_low=True)
    weight_decay: float = setting(0.0, "decoupled weight decay (AdamW coefficient)")
    batch: int = setting(64, "pairs per update", "N", low=1)
    hidden: tuple[int, ...] = setting((64, 64), "hidden layers of the network")


class BCState(NamedTuple):
    """The network and its optimiser."""

    network: Network
    optimiser: optax.OptState


Loss = Callable[[Network, Transitions], tuple[Array, Metrics]]


def policy_loss(network: Acting, batch: Transitions) -> Float[Array, ""]:
    """L_pi = -mean w log pi(a|s), with w = 1 unless decisions have weights."""
    losses = cross_entropy(network(batch.observation), batch.action)
    return losses.mean() if batch.weight is None else (batch.weight * losses).mean()


def supervised(spec: Spec, config: BCConfig, loss: Loss) -> Algorithm:
    """Learn the paper's network by Adam's steps down a loss of minibatches, as three pure functions."""
    optimiser = adam(config)

    def init(key: PRNGKeyArray, dataset: Dataset) -> BCState:
        network = policy_network(jax.random.fold_in(key, 0), spec, config.hidden)
        return BCState(network, optimiser.init(network))

    def update(key: PRNGKeyArray, state: BCState, dataset: Dataset) -> tuple[BCState, Metrics]:
        # In every algorithm, number 0 of the key draws network and minibatch: runs are paired.
        batch = dataset.batch(jax.random.fold_in(key, 0), config.batch)
        gradient, metrics = jax.grad(loss, has_aux=True)(state.network, batch)
        step, optimiser_state = optimiser.update(gradient, state.optimiser, state.network)
        return BCState(optax.apply_updates(state.network, step), optimiser_state), metrics

    return Algorithm(init, update, batch=config.batch)


def bc(spec: Spec, config: BCConfig) -> Algorithm:
    """Behavioural cloning as three pure functions."""

    def loss(network: Network, batch: Transitions) -> tuple[Array, Metrics]:
        l_pi = policy_loss(network, batch)
        return l_pi, {"policy_loss": l_pi}

    return supervised(spec, config, loss)


ENTRY = Entry(
    make=bc,
    presets={"default": BCConfig(), "decay": BCConfig(weight_decay=1.0)},
    needs="pairs",
    reference="Pomerleau (1991)",
    weighs=True,
    titles={"default": "BC", "decay": "BC, weight decay 1"},
)
