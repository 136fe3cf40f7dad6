"""Behavioural cloning with regularisers: each setting is a control that may explain what a later method gains.

    L = mean of l(pi(s), q) - entropy * H(pi(s)) + jacobian * |df/du|^2,   pi = softmax f(s) / temperature
    l = (1 - brier) * -sum_a q(a) log pi(a|s) + brier * |pi - q|^2,   q = onehot(a)

Needs pairs of numbers. u is the standardised state. Labels may be smoothed over neighbours (`smoothing`), decisions may
be mixed (`mixup`), states may be disturbed (`noise`), hidden units may be left out (`dropout`), layers may have bounded
norms (`spectral`), and the policy may be a mean of its iterates (`average`). A setting at its default is left out, and
without all of them this is behavioural cloning bit for bit. The network that acts has neither noise nor dropout;
temperature and bounds are in its weights.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, adam, config, cross_entropy, is_on, setting
from sbil.algorithms.bc import BCConfig
from sbil.algorithms.table_network import with_dropout
from sbil.dataset import Dataset, Spec, features_of
from sbil.networks import MLP, cooled, mlp, scaling
from sbil.spectral import Vectors, bounded, iterate, start_vectors

MOST = 4096  # labels of a run that smoothing looks at; of more, as many are drawn
BLOCK = 256  # states whose neighbours are weighed together


@config
class BCRegularisedConfig(BCConfig):
    """Settings of behavioural cloning with regularisers."""

    temperature: float = setting(
        1.0, "what the network's outputs are divided by; below 1: large logits", "tau", open_low=True, switch=True
    )
    brier: float = setting(0.0, "share of the squared loss; the rest is the log-loss", high=1, switch=True)
    smoothing: float = setting(0.0, "share of the label that neighbouring states give", high=1, switch=True)
    bandwidth: float = setting(1.0, "variance of smoothing's kernel, as a multiple of Scott's", open_low=True)
    mixup: float = setting(0.0, "alpha of Beta(alpha, alpha), by which two decisions are mixed", "alpha", switch=True)
    noise: float = setting(0.0, "noise on states, in standard deviations of each column", "sigma", switch=True)
    dropout: float = setting(0.0, "probability with which a hidden unit is left out", high=0.99, switch=True)
    spectral: float = setting(0.0, "largest spectral norm of a layer; 0: no bound", "c", switch=True)
    entropy: float = setting(0.0, "weight of the policy's entropy, which is made larger", "lambda", switch=True)
    jacobian: float = setting(0.0, "weight of the squared slopes of the logits in standardised states", switch=True)
    average: float = setting(
        0.0, "decay of the mean of the iterates; 1 counts them alike, 0 keeps the last", "beta", high=1, switch=True
    )


class BCRegularisedState(NamedTuple):
    """The network that acts, the one that learns, its optimiser, and what the regularisers need."""

    network: MLP
    learner: MLP
    optimiser: optax.OptState
    vectors: Vectors  # of the spectral norms
    scale: Float[Array, " inputs"]  # of the run's states
    labels: Float[Array, "capacity actions"] | None  # smoothed, of the run's steps
    updates: Int[Array, ""]


class Examples(NamedTuple):
    """A minibatch of states, each with a probability for every action."""

    states: Float[Array, "batch inputs"]
    labels: Float[Array, "batch actions"]


def scott(size: Array | int, inputs: int) -> Float[Array, ""]:
    """Return the variance n^(-2 / (d + 4)) of Scott's rule, for standardised states."""
    return jnp.asarray(size, jnp.float32) ** (-2 / (inputs + 4))


def smoothed(
    states: Float[Array, "rows inputs"],
    among: Float[Array, "anchors inputs"],
    labels: Float[Array, "anchors actions"],
    variance: Array | float,
) -> Float[Array, "rows actions"]:
    """Return the mean of the anchors' labels around each state, weighed by exp(-|u - u'|^2 / (2 variance)).

    Anchors whose labels are zero do not count.
    """

    def block(states: Array) -> Array:
        squares = jnp.square(states[:, None] - among).sum(axis=-1)
        nearest = squares.min(axis=1, keepdims=True, where=labels.sum(axis=1) > 0, initial=jnp.inf)
        found = jnp.exp(-jnp.maximum(squares - nearest, 0.0) / (2 * variance)) @ labels
        return found / found.sum(axis=1, keepdims=True)

    rows = len(states)
    blocks = -(-rows // BLOCK)
    padded = jnp.pad(states, ((0, blocks * BLOCK - rows), (0, 0)), mode="edge")
    return jax.lax.map(block, padded.reshape(blocks, BLOCK, -1)).reshape(blocks * BLOCK, -1)[:rows]


def smoothed_labels(key: PRNGKeyArray, dataset: Dataset, actions: int, bandwidth: float | Array) -> Array:
    """Return the smoothed labels of a run's steps [capacity, actions]; a row of padding means nothing."""
    rows, scale = dataset.labelled, scaling(dataset)
    capacity, fits = rows.indices.shape[-1], rows.indices.shape[-1] <= MOST
    steps, counted = (rows.indices, rows.mask) if fits else (rows.sample(key, MOST), jnp.ones(MOST, bool))
    among = jnp.where(counted[:, None], scale(dataset.pool.before(steps)), 0.0)
    labels = jnp.where(counted[:, None], jax.nn.one_hot(dataset.pool.action[steps], actions), 0.0)
    states = jnp.where(rows.mask[:, None], scale(dataset.pool.before(rows.indices)), 0.0)
    found = smoothed(states, among, labels, bandwidth * scott(rows.size, dataset.pool.inputs))
    return found.reshape(capacity, actions)


def share_of_first(key: PRNGKeyArray, alpha: float | Array) -> Float[Array, ""]:
    """Draw from Beta(alpha, alpha); 1 if alpha is 0."""
    mixes = jnp.asarray(alpha) > 0
    positive = jnp.where(mixes, alpha, 1.0)
    return jnp.where(mixes, jax.random.beta(key, positive, positive), 1.0)


def mixed(examples: Examples, partner: Int[Array, " batch"], share: Float[Array, ""] | float) -> Examples:
    """Mix every example with its partner: the share `share` of its own, the rest of the other."""
    return jax.tree.map(lambda own: share * own + (1 - share) * own[partner], examples)


def brier_loss(logits: Float[Array, "batch actions"], labels: Float[Array, "batch actions"]) -> Float[Array, " batch"]:
    """|pi - q|^2, summed over the actions."""
    return jnp.square(jax.nn.softmax(logits) - labels).sum(axis=-1)


def entropies(logits: Float[Array, "batch actions"]) -> Float[Array, " batch"]:
    """H(pi) = -sum_a pi(a) log pi(a)."""
    return -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(axis=-1)


def weight_of_latest(updates: Array, decay: float | Array) -> Float[Array, ""]:
    """Return the weight of the latest of so many iterates in their mean with this decay; the first one begins it."""
    alike = jnp.asarray(decay) >= 1
    below = jnp.where(alike, 0.0, decay)
    return jnp.where(alike, 1 / updates, (1 - below) / (1 - below**updates))


def bc_regularised(spec: Spec, config: BCRegularisedConfig) -> Algorithm:
    """Behavioural cloning with regularisers as three pure functions."""
    optimiser = adam(config)
    on = {name for name in config.__dataclass_fields__ if is_on(config, name)}

    def normed(network: MLP, vectors: Vectors) -> MLP:
        if "spectral" not in on:
            return network
        return bounded(network, vectors, jnp.where(jnp.asarray(config.spectral) > 0, config.spectral, jnp.inf))

    def acting(learner: MLP, vectors: Vectors) -> MLP:
        network = normed(learner, vectors)
        return cooled(network, config.temperature) if "temperature" in on else network

    def init(key: PRNGKeyArray, dataset: Dataset) -> BCRegularisedState:
        learner = mlp(jax.random.fold_in(key, 0), (features_of(spec), *config.hidden, spec.actions))
        vectors, labels = start_vectors(learner), None
        if "smoothing" in on:
            labels = smoothed_labels(jax.random.fold_in(key, 1), dataset, spec.actions, config.bandwidth)
        network, scale = acting(learner, vectors), scaling(dataset).scale
        return BCRegularisedState(network, learner, optimiser.init(learner), vectors, scale, labels, jnp.int32(0))

    def examples(key: PRNGKeyArray, state: BCRegularisedState, dataset: Dataset) -> tuple[Examples, Array]:
        """Return a minibatch as it is learned from, and the decisions in it."""
        places = dataset.labelled.places(jax.random.fold_in(key, 0), config.batch)
        batch = dataset.pool.transitions(dataset.labelled.indices[places])
        labels = jax.nn.one_hot(batch.action, spec.actions)
        if state.labels is not None:
            labels = (1 - config.smoothing) * labels + config.smoothing * state.labels[places]
        found = Examples(batch.observation, labels)
        if "mixup" in on:
            partner = jax.random.permutation(jax.random.fold_in(key, 1), config.batch)
            found = mixed(found, partner, share_of_first(jax.random.fold_in(key, 2), config.mixup))
        if "noise" in on:
            jolt = state.scale * jax.random.normal(jax.random.fold_in(key, 3), found.states.shape)
            found = found._replace(states=found.states + config.noise * jolt)
        return found, batch.action

    def answers(key: PRNGKeyArray, network: MLP, states: Array) -> Array:
        """The logits while learning."""
        outputs = with_dropout(network, key, states, config.dropout) if "dropout" in on else network(states)
        return outputs / config.temperature if "temperature" in on else outputs

    def slopes(key: PRNGKeyArray, logits: Array, pulled_back: Callable[[Array], Any], scale: Array) -> Array:
        """The squared slopes of the logits: those of a random direction, whose mean is their sum (Hutchinson)."""
        (found,) = pulled_back(jax.random.normal(key, logits.shape))
        return jnp.square(found * scale).sum(axis=-1).mean()

    def loss(
        learner: MLP, key: PRNGKeyArray, state: BCRegularisedState, batch: Examples, action: Array
    ) -> tuple[Array, Metrics]:
        network, (drop, look) = normed(learner, state.vectors), (jax.random.fold_in(key, number) for number in (4, 5))
        if "jacobian" in on:
            logits, pulled_back = jax.vjp(lambda states: answers(drop, network, states), batch.states)
        else:
            logits = answers(drop, network, batch.states)
        soft = "mixup" in on or state.labels is not None
        total = l_pi = (
            optax.softmax_cross_entropy(logits, batch.labels) if soft else cross_entropy(logits, action)
        ).mean()
        if "brier" in on:
            total = (1 - config.brier) * l_pi + config.brier * brier_loss(logits, batch.labels).mean()
        if "entropy" in on:
            total -= config.entropy * entropies(logits).mean()
        if "jacobian" in on:
            total += config.jacobian * slopes(look, logits, pulled_back, state.scale)
        return total, {"policy_loss": l_pi}

    def update(key: PRNGKeyArray, state: BCRegularisedState, dataset: Dataset) -> tuple[BCRegularisedState, Metrics]:
        batch, action = examples(key, state, dataset)
        gradient, metrics = jax.grad(loss, has_aux=True)(state.learner, key, state, batch, action)
        step, optimiser_state = optimiser.update(gradient, state.optimiser, state.learner)
        learner = optax.apply_updates(state.learner, step)
        vectors = iterate(learner, state.vectors) if "spectral" in on else state.vectors
        network, updates = acting(learner, vectors), state.updates + 1
        if "average" in on:
            weight = weight_of_latest(updates, config.average)
            mean = lambda before, latest: weight * latest + (1 - weight) * before  # noqa: E731
            network = jax.tree.map(mean, state.network, network)
        kept = state._replace(vectors=vectors, updates=updates)
        return kept._replace(network=network, learner=learner, optimiser=optimiser_state), metrics

    return Algorithm(init, update, batch=config.batch)


PRESETS = {
    "default": BCRegularisedConfig(),
    "smoothed": BCRegularisedConfig(smoothing=1.0),
    "brier": BCRegularisedConfig(brier=1.0),
    "large_logits": BCRegularisedConfig(temperature=0.01),
    "mixup": BCRegularisedConfig(mixup=0.4),
    "noise": BCRegularisedConfig(noise=0.1),
    "dropout": BCRegularisedConfig(dropout=0.1),
    "spectral": BCRegularisedConfig(spectral=2.0),
    "average": BCRegularisedConfig(average=0.999),
    "entropy": BCRegularisedConfig(entropy=0.01),
    "jacobian": BCRegularisedConfig(jacobian=0.01),
}
TITLES = {
    "default": "BC, nothing added",
    "smoothed": "BC, smoothed labels",
    "brier": "BC, Brier loss",
    "large_logits": "BC, logits times 100",
    "mixup": "BC, mixup",
    "noise": "BC, noise on states",
    "dropout": "BC, dropout",
    "spectral": "BC, spectral norms at most 2",
    "average": "BC, averaged weights",
    "entropy": "BC, entropy bonus",
    "jacobian": "BC, Jacobian penalty",
}
ENTRY = Entry(
    make=bc_regularised, presets=PRESETS, needs="numeric pairs", reference="controls of later methods", titles=TITLES
)
