"""Reward-regularised classification: BC whose logits imply a sparse reward.

    L = -mean log pi(a|s) + coefficient * mean |R(s,a,s')|,                pi = softmax f(s)
    R(s,a,s') = f(s)[a] - discount * (1 - terminal) * log sum_a' exp f(s')[a']

Needs triples. Read as soft optimal values, logits imply the reward R by the inverse Bellman equation. The idea is from
Piot, Geist and Pietquin (2014), "Boosted and Reward-regularized Classification for Apprenticeship Learning"; the form
is the EDM paper's. With the squared norm it is the offline chi-squared objective of IQ-Learn (Garg et al. 2021, preset
`iq_learn`; the algorithm `iq_learn` also learns Q as its authors do). With the Huber norm it is the objective of AVRIL
(Chan and van der Schaar 2021, `avril`) with a fully flexible reward encoder, except that AVRIL's next value is
f(s')[a'] without discount.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from sbil.algorithms.base import Algorithm, Entry, Metrics, config, setting
from sbil.algorithms.bc import BCConfig, policy_loss, supervised
from sbil.dataset import Spec, Transitions
from sbil.networks import Network


@config
class RCALConfig(BCConfig):
    """Settings of reward-regularised classification."""

    batch: int = setting(64, "triples per update", "N", low=1)
    coefficient: float = setting(0.01, "weight of the norm of the implied reward; 0 is behavioural cloning", "lambda")
    discount: float = setting(0.99, "discount", "gamma", high=1)
    norm: Literal["l1", "squared", "huber"] = setting("l1", "norm of the implied reward")


NORMS = {"l1": jnp.abs, "squared": jnp.square, "huber": optax.huber_loss}


def implied_reward(network: Network, batch: Transitions, discount: float | Array) -> Float[Array, " batch"]:
    """R(s,a,s') = f(s)[a] - discount * (1 - terminal) * log sum_a' exp f(s')[a']."""
    # The gradient goes through both networks: there is no target.
    logits, next_logits = network(batch.observation), network(batch.next_observation)
    value = jnp.take_along_axis(logits, batch.action[:, None], axis=1)[:, 0]
    return value - discount * jnp.where(batch.terminal, 0.0, jax.nn.logsumexp(next_logits, axis=-1))


def reward_loss(network: Network, batch: Transitions, config: RCALConfig) -> Float[Array, ""]:
    """Return the mean norm of the implied reward over the steps with a known successor."""
    reward = implied_reward(network, batch, config.discount)
    return NORMS[config.norm](reward).sum(where=batch.known) / jnp.maximum(batch.known.sum(), 1)


def rcal(spec: Spec, config: RCALConfig) -> Algorithm:
    """Reward-regularised classification as three pure functions."""

    def loss(network: Network, batch: Transitions) -> tuple[Array, Metrics]:
        l_pi, l_reward = policy_loss(network, batch), reward_loss(network, batch, config)
        return l_pi + config.coefficient * l_reward, {"policy_loss": l_pi, "reward_norm": l_reward}

    return supervised(spec, config, loss)


PRESETS = {
    "default": RCALConfig(),
    # tau / (4 alpha) with the temperature 0.01 and alpha 0.5 of IQ-Learn's code.
    "iq_learn": RCALConfig(norm="squared", coefficient=0.005),
}
ENTRY = Entry(
    make=rcal,
    presets=PRESETS,
    needs="triples",
    reference="Piot, Geist and Pietquin (2014)",
    titles={"default": "RCAL", "iq_learn": "RCAL, squared (IQ-Learn)"},
)
