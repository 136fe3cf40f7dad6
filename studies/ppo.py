"""Proximal policy optimisation (Schulman et al. 2017), which trains two of the demonstrators.

    L = -mean min(r A, clip(r, 1 - clip, 1 + clip) A) + value * L_value - entropy * H,   r = pi(a|s) / pi_old(a|s)

A are generalised advantages (Schulman et al. 2016), normalised in every minibatch.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sbil.algorithms.base import config, setting
from sbil.dataset import Spec, stacked
from sbil.networks import Dense, Network, make_network, orthogonal_dense


@config
class PPOConfig:
    """Settings of PPO."""

    decisions: int = setting(3_000_000, "number of decisions", low=1)
    games: int = setting(64, "games played at the same time", low=2)
    steps: int = setting(256, "decisions per game between two rounds of learning", low=1)
    batch: int = setting(256, "decisions per gradient step", low=1)
    epochs: int = setting(4, "passes over the decisions of a round", low=1)
    learning_rate: float = setting(1e-3, "step of Adam at the beginning; it falls linearly to zero")
    discount: float = setting(0.999, "discount", "gamma", high=1)
    trace: float = setting(0.98, "how far advantages look ahead", "lambda", high=1)
    clip: float = setting(0.2, "how far the ratio of probabilities may move", "epsilon")
    entropy: float = setting(0.01, "weight of the entropy bonus")
    value: float = setting(0.5, "weight of the value's loss")
    norm: float = setting(0.5, "largest norm of a gradient")
    hidden: tuple[int, ...] = setting((128, 128), "hidden layers; for images, convolutions replace the first", low=2)
    sharpness: float = setting(1.0, "the exported policy draws from PPO's probabilities to this power")
    seed: int = setting(0, "seed of network, games and draws")


class Rollout(NamedTuple):
    """The decisions of a round; leading axes are steps and games."""

    seen: Array  # images are uint8 [steps, games, stack, height, width]
    action: Array
    log_probability: Array
    value: Array
    reward: Array
    ended: Array


def begin(key: PRNGKeyArray, spec: Spec, settings: PPOConfig) -> Network:
    """Return one network for policy and value: one logit per action, and the value last."""
    outer, last = jax.random.split(key)

    def layer(key: PRNGKeyArray, inputs: int, outputs: int) -> Dense:
        drawn = orthogonal_dense(key, inputs, outputs)
        return Dense(2**0.5 * drawn.weight, drawn.bias)

    activation = "tanh" if len(spec.observation_shape) == 1 else "relu"
    network = make_network(outer, spec, settings.hidden, spec.actions + 1, activation, layer=layer)
    gains = jnp.append(jnp.full(spec.actions, 0.01), 1.0)
    output = gains * orthogonal_dense(last, settings.hidden[-1], spec.actions + 1).weight
    return eqx.tree_at(lambda network: network.output.weight, network, output)


def look(network: Network, seen: Array) -> tuple[Float[Array, "n actions"], Float[Array, " n"]]:
    """Return (log-probabilities, values) for rows of numbers, or for images [n, stack, height, width]."""
    out = network(stacked(seen) if seen.ndim == 4 else seen)
    return jax.nn.log_softmax(out[:, :-1]), out[:, -1]


@jax.jit
def act(network: Network, key: PRNGKeyArray, seen: Array) -> tuple[Array, Array, Array]:
    """Return drawn actions, their log-probabilities, and the values."""
    logs, value = look(network, seen)
    action = jax.random.categorical(key, logs)
    return action, jnp.take_along_axis(logs, action[:, None], axis=1)[:, 0], value


def advantages(rollout: Rollout, after: Float[Array, " games"], settings: PPOConfig) -> Float[Array, "steps games"]:
    """Return generalised advantages (Schulman et al. 2016). Nothing is carried over an end."""

    def back(carry: tuple[Array, Array], step: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        advantage, following = carry
        reward, value, ended = step
        goes_on = settings.discount * (1 - ended)
        advantage = reward + goes_on * following - value + goes_on * settings.trace * advantage
        return (advantage, value), advantage

    steps = rollout.reward, rollout.value, rollout.ended
    return jax.lax.scan(back, (jnp.zeros_like(after), after), steps, reverse=True)[1]


@partial(jax.jit, static_argnames=("settings", "optimiser"), donate_argnums=(0, 1))
def learn(
    network: Network,
    optimiser_state: optax.OptState,
    key: PRNGKeyArray,
    rollouts: tuple[Rollout, ...],
    after: tuple[Array, ...],
    settings: PPOConfig,
    optimiser: optax.GradientTransformationExtraArgs,
) -> tuple[Network, optax.OptState, dict[str, Array]]:
    """Make a few passes over the decisions of a round."""
    gained = [advantages(rollout, value, settings) for rollout, value in zip(rollouts, after, strict=True)]
    flat = lambda arrays: jnp.concatenate([a.reshape(-1, *a.shape[2:]) for a in arrays])  # noqa: E731
    seen, action, old, value, *_ = (flat(column) for column in zip(*rollouts, strict=True))
    advantage = flat(gained)
    goal = advantage + value

    def loss(network: Network, rows: Array) -> tuple[Array, dict[str, Array]]:
        logs, found = look(network, seen[rows])
        ratio = jnp.exp(jnp.take_along_axis(logs, action[rows, None], axis=1)[:, 0] - old[rows])
        mine = advantage[rows]
        mine = (mine - mine.mean()) / (mine.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
        policy = -jnp.minimum(ratio * mine, clipped * mine).mean()
        critic = jnp.square(found - goal[rows]).mean() / 2
        entropy = -(jnp.exp(logs) * logs).sum(axis=1).mean()
        return policy + settings.value * critic - settings.entropy * entropy, {
            "entropy": entropy,
            "value_loss": critic,
            "moved": jnp.abs(ratio - 1).mean(),
        }

    def step(carry: Any, rows: Array) -> Any:
        network, optimiser_state = carry
        gradient, metrics = jax.grad(loss, has_aux=True)(network, rows)
        change, optimiser_state = optimiser.update(gradient, optimiser_state, network)
        return (optax.apply_updates(network, change), optimiser_state), metrics

    orders = [jax.random.permutation(jax.random.fold_in(key, e), len(action)) for e in range(settings.epochs)]
    batches: Int[Array, "steps batch"] = jnp.concatenate(orders).reshape(-1, settings.batch)
    (network, optimiser_state), metrics = jax.lax.scan(step, (network, optimiser_state), batches)
    return network, optimiser_state, {name: values.mean() for name, values in metrics.items()}


def acting(network: Network, sharpness: float) -> Network:
    """Return the network without its value output."""
    last = network.output
    kept = sharpness * last.weight[:, :-1], sharpness * last.bias[:-1]
    return eqx.tree_at(lambda network: (network.output.weight, network.output.bias), network, kept)
