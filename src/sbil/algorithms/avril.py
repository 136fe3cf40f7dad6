"""AVRIL: BC whose logits imply rewards that a learned distribution of rewards finds likely.

    L = -mean log pi(a|s) + mean KL(q(.|s) || N(0, 1)) - weight * mean log q(R(s,a,s',a') | s),   pi = softmax Q(s)
    R(s,a,s',a') = Q(s,a) - discount * Q(s',a'),     q(.|s) normal, with mean and log deviation of a second network

Needs trajectories: a' is the demonstrated decision at s'. The last two means are over the steps whose next decision
belongs to the draw. If there is none, as after thinning, this is BC; so it is with weight 0. Chan and van der Schaar
(2021), "Scalable Bayesian Inverse Reinforcement Learning". As in the authors' code there is no discount by default, the
reward is one of the state alone, and the gradient goes through Q(s',a') too. The deviation has a least value, because
it would go to 0 where R lies in [-1, 1], and its square divides the gradient. With q free at every step, L is the loss
of `rcal` with the Huber norm and coefficient 1, with Q(s',a') for V(s').
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, adam, config, cross_entropy, setting
from sbil.algorithms.bc import BCConfig
from sbil.dataset import Dataset, Spec, Transitions
from sbil.networks import Network, policy_network


@config
class AVRILConfig(BCConfig):
    """Settings of AVRIL."""

    batch: int = setting(64, "steps per update", "N", low=1)
    weight: float = setting(1.0, "weight of the implied reward's log-density; 0 is behavioural cloning", "lambda")
    discount: float = setting(1.0, "discount", "gamma", high=1)
    floor: float = setting(-5.0, "least log deviation of a reward", low=-20, high=0)
    reward: Literal["state", "pair"] = setting("state", "what a reward depends on: the state, or state and action")


class AVRILState(NamedTuple):
    """Q, the encoder of rewards, and the optimiser of both."""

    network: Network
    encoder: Network
    optimiser: optax.OptState


class Reward(NamedTuple):
    """Normal distributions of rewards."""

    mean: Float[Array, " batch"]
    log_deviation: Float[Array, " batch"]

    def divergence(self) -> Float[Array, " batch"]:
        """Return KL(q || N(0, 1))."""
        return (jnp.exp(2 * self.log_deviation) + self.mean**2 - 1) / 2 - self.log_deviation

    def surprise(self, reward: Float[Array, " batch"]) -> Float[Array, " batch"]:
        """Return -log q(reward)."""
        distance = (reward - self.mean) * jnp.exp(-self.log_deviation)
        return distance**2 / 2 + self.log_deviation + jnp.log(2 * jnp.pi) / 2


def taken(values: Float[Array, "batch actions"], action: Array) -> Float[Array, " batch"]:
    """Return the value of the action that was taken."""
    return jnp.take_along_axis(values, action[:, None], axis=1)[:, 0]


def reward_of(encoder: Network, batch: Transitions, config: AVRILConfig) -> Reward:
    """Return q(.|s), or q(.|s,a), of the steps of a batch."""
    outputs = encoder(batch.observation)
    mean, log_deviation = jnp.split(outputs, 2, axis=-1)
    action = batch.action if config.reward == "pair" else jnp.zeros_like(batch.action)
    return Reward(taken(mean, action), jnp.maximum(taken(log_deviation, action), config.floor))


def avril_loss(networks: tuple[Network, Network], batch: Transitions, config: AVRILConfig) -> tuple[Array, Metrics]:
    """Return L and its three terms."""
    network, encoder = networks
    logits, reward = network(batch.observation), reward_of(encoder, batch, config)
    implied = taken(logits, batch.action) - config.discount * taken(network(batch.next_observation), batch.next_action)

    def mean(values: Array) -> Array:
        known = batch.has_next_action
        return values.sum(where=known) / jnp.maximum(known.sum(), 1)

    l_pi = cross_entropy(logits, batch.action).mean()
    divergence, surprise = mean(reward.divergence()), mean(reward.surprise(implied))
    metrics = {"policy_loss": l_pi, "divergence": divergence, "surprise": surprise}
    return l_pi + divergence + config.weight * surprise, metrics


def avril(spec: Spec, config: AVRILConfig) -> Algorithm:
    """AVRIL as three pure functions."""
    optimiser = adam(config)
    rewards = spec.actions if config.reward == "pair" else 1

    def init(key: PRNGKeyArray, dataset: Dataset) -> AVRILState:
        network = policy_network(jax.random.fold_in(key, 0), spec, config.hidden)
        encoder = policy_network(jax.random.fold_in(key, 1), spec._replace(actions=2 * rewards), config.hidden)
        return AVRILState(network, encoder, optimiser.init((network, encoder)))

    def update(key: PRNGKeyArray, state: AVRILState, dataset: Dataset) -> tuple[AVRILState, Metrics]:
        batch = dataset.batch(jax.random.fold_in(key, 0), config.batch)
        networks = state.network, state.encoder
        gradient, metrics = jax.grad(avril_loss, has_aux=True)(networks, batch, config)
        step, optimiser_state = optimiser.update(gradient, state.optimiser, networks)
        network, encoder = optax.apply_updates(networks, step)
        return AVRILState(network, encoder, optimiser_state), metrics

    return Algorithm(init, update, batch=config.batch)


ENTRY = Entry(
    make=avril,
    presets={"default": AVRILConfig(), "released": AVRILConfig(learning_rate=1e-4)},
    needs="trajectories",
    reference="Chan and van der Schaar (2021)",
    titles={"default": "AVRIL", "released": "AVRIL, released code"},
    updates={"default": 10_000, "released": 5_000},
)
