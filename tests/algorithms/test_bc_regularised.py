"""The regularisers of behavioural cloning: each against numbers worked out by hand, and without them it is BC."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from sbil.algorithms import ALGORITHMS
from sbil.algorithms.base import cross_entropy, is_on
from sbil.algorithms.bc import BCConfig, bc
from sbil.algorithms.bc_regularised import (
    MOST,
    BCRegularisedConfig,
    Examples,
    bc_regularised,
    brier_loss,
    entropies,
    mixed,
    scott,
    share_of_first,
    smoothed,
    smoothed_labels,
    weight_of_latest,
)
from sbil.algorithms.table_network import with_dropout
from sbil.dataset import make_dataset, spec_of
from sbil.networks import MLP, Dense, cooled
from sbil.training import train_many

DATA = probes.demonstrations()
SPEC, DATASET = spec_of(DATA), make_dataset(DATA, [np.arange(3), np.arange(2)])
KEYS = jax.random.split(jax.random.key(0), 2)
SMALL = {"hidden": (8,), "batch": 16}
SWITCHES = [name for name, field in BCRegularisedConfig.__dataclass_fields__.items() if field.metadata["switch"]]
NEUTRAL = {name: BCRegularisedConfig.__dataclass_fields__[name].default for name in SWITCHES}


def trained(make, config, updates=50):
    return train_many(make, SPEC, config, DATASET, KEYS, updates, chunk=1).states  # one program, however many updates


def leaves(network):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(network)]


@pytest.fixture(scope="module")
def cloned():
    return trained(bc, BCConfig(**SMALL)).network


def test_without_regularisers_it_is_bc_bit_for_bit(cloned):
    states = trained(bc_regularised, BCRegularisedConfig(**SMALL))
    for network in (states.network, states.learner):
        for one, other in zip(leaves(network), leaves(cloned), strict=True):
            np.testing.assert_array_equal(one, other)


def test_traced_neutral_values_are_bc(cloned):
    """Where a sweep holds the neutral value, everything is computed and changes nothing but the rounding."""
    neutral = {name: np.full(2, value, np.float32) for name, value in NEUTRAL.items()}
    config = BCRegularisedConfig(**SMALL, **neutral)
    assert all(is_on(config, name) for name in SWITCHES)
    for one, other in zip(leaves(trained(bc_regularised, config).network), leaves(cloned), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_switch_that_is_off_is_no_leaf():
    off, one = BCRegularisedConfig(), BCRegularisedConfig(noise=0.1)
    assert len(jax.tree.leaves(off)) + 1 == len(jax.tree.leaves(one))
    assert jax.tree.structure(one) == jax.tree.structure(BCRegularisedConfig(noise=np.float32(0.3)))
    assert jax.tree.map(lambda leaf: 2 * leaf, one).noise == 0.2
    assert not is_on(off, "noise")
    assert is_on(off, "learning_rate")


def test_every_preset_but_the_first_has_one_switch():
    presets = dict(ALGORITHMS["bc_regularised"].presets)
    plain = presets.pop("default")
    assert not any(is_on(plain, name) for name in SWITCHES)
    on = [next(name for name in SWITCHES if is_on(config, name)) for config in presets.values()]
    assert sorted(on) == sorted(SWITCHES)
    assert all(sum(is_on(config, name) for name in SWITCHES) == 1 for config in presets.values())


def test_smoothed_labels_worked_by_hand():
    """u = 0, 1, 3 with the labels 0, 1, 1: with a wide kernel everyone has the frequencies."""
    states, labels = jnp.array([[0.0], [1.0], [3.0]]), jax.nn.one_hot(jnp.array([0, 1, 1]), 2)
    found = smoothed(states, states, labels, 0.5)
    np.testing.assert_allclose(found[:, 0], [0.730993, 0.265388, 0.000121], atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(smoothed(states, states, labels, 1e9)[:, 0], 1 / 3, atol=1e-6)
    np.testing.assert_allclose(smoothed(states, states, labels, 1e-30), labels, atol=1e-6)


def test_states_far_from_all_anchors_have_a_label():
    far = smoothed(jnp.array([[1e4]]), jnp.array([[0.0], [1.0]]), jnp.eye(2), 0.5)
    np.testing.assert_allclose(far, [[0.0, 1.0]], atol=1e-6)


@pytest.mark.parametrize(("size", "inputs", "expected"), [(499, 4, 0.2116), (553, 6, 0.2828), (299, 8, 0.3867)])
def test_scotts_variance(size, inputs, expected):
    np.testing.assert_allclose(scott(size, inputs), expected, atol=5e-5)


def test_labels_of_more_steps_than_fit_come_from_a_sample():
    """Padding beyond `MOST` changes who is looked at, and hardly what they say."""
    one = jax.tree.map(lambda leaf: leaf[0], DATASET.labelled)
    wide = one._replace(indices=jnp.pad(one.indices, (0, MOST), mode="edge"))
    label = jax.jit(lambda rows: smoothed_labels(jax.random.key(0), DATASET._replace(labelled=rows), 3, 1.0))
    size = int(one.size)
    np.testing.assert_allclose(label(wide)[:size], label(one)[:size], atol=0.05)


@pytest.mark.parametrize(
    ("p", "slope"), [(0.01, -0.039204), (0.1, -0.324), (1 / 3, -0.592593), (0.5, -0.5), (0.9, -0.036)]
)
def test_brier_loss_of_two_actions(p, slope):
    """L = 2 (1 - p)^2 and dL/dmargin = -4 p (1 - p)^2."""

    def loss(margin):
        return brier_loss(jnp.stack([margin, jnp.zeros(())])[None], jnp.array([[1.0, 0.0]]))[0]

    value, found = jax.value_and_grad(loss)(jnp.log(p / (1 - p)))
    np.testing.assert_allclose([value, found], [2 * (1 - p) ** 2, slope], atol=1e-6)


def test_brier_loss_of_three_actions():
    loss = lambda logits: brier_loss(logits[None], jnp.array([[0.0, 1.0, 0.0]]))[0]  # noqa: E731
    value, gradient = jax.value_and_grad(loss)(jnp.array([1.0, 0.0, -1.0]))
    np.testing.assert_allclose(value, 1.021086, atol=1e-6)
    np.testing.assert_allclose(gradient, [0.531430, -0.499778, -0.031652], atol=1e-6)


@pytest.mark.parametrize(
    ("temperature", "value", "slope"),
    [(1, 0.798139, -0.549834), (0.1, 0.212693, -0.880797), (0.01, 0.2, -1), (0.001, 0.2, -1)],
)
def test_large_logits_tend_to_the_perceptron(temperature, value, slope):
    """Outputs .1 and .3, label 0: tau * NLL tends to the largest output less that of the label."""

    def loss(outputs):
        network = cooled(MLP((Dense(jnp.zeros((1, 2)), outputs),), "elu"), temperature)
        return temperature * cross_entropy(network(jnp.zeros((1, 1))), jnp.array([0]))[0]

    found, gradient = jax.value_and_grad(loss)(jnp.array([0.1, 0.3]))
    np.testing.assert_allclose(found, value, atol=1e-6)
    np.testing.assert_allclose(gradient, [slope, -slope], atol=1e-6)


def test_mixed_decisions_worked_by_hand():
    """Logits .5, -.5 with 7 parts of label 0 and 3 of label 1: .7 CE(0) + .3 CE(1) = .613262."""
    batch = Examples(jnp.array([[1.0], [3.0]]), jnp.eye(2))
    found = mixed(batch, jnp.array([1, 0]), 0.7)
    np.testing.assert_allclose(found.states[:, 0], [1.6, 2.4], rtol=1e-6)
    loss = -(found.labels[0] * jax.nn.log_softmax(jnp.array([0.5, -0.5]))).sum()
    np.testing.assert_allclose(loss, 0.613262, atol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, mixed(batch, jnp.array([1, 0]), 1.0), batch)


def test_shares_follow_their_law():
    """Mean 1/2 and variance 1 / (4 (2 alpha + 1)); no mixing without alpha."""
    keys = jax.random.split(jax.random.key(0), 4000)
    draws = np.asarray(jax.jit(jax.vmap(share_of_first, in_axes=(0, None)))(keys, 0.4))
    np.testing.assert_allclose(draws.mean(), 0.5, atol=3 * 0.373 / 4000**0.5)
    np.testing.assert_allclose(draws.var(), 1 / (4 * 1.8), atol=0.01)
    assert share_of_first(keys[0], 0.0) == 1


@pytest.mark.parametrize(("sigma", "expected", "second_order"), [(0.1, 0.004975, 0.005), (0.3, 0.043181, 0.045)])
def test_noise_raises_the_loss_of_a_slope(sigma, expected, second_order):
    """Logits (0, 2 s) at s = 0, by quadrature over the noise."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    logits = jnp.stack([jnp.zeros(40), 2 * sigma * jnp.asarray(nodes)], axis=1)
    losses = np.asarray(cross_entropy(logits, jnp.zeros(40, int)), np.float64)
    rise = weights @ losses / weights.sum() - np.log(2)
    np.testing.assert_allclose(rise, expected, atol=2e-6)
    np.testing.assert_allclose(rise, second_order, rtol=0.05)


def test_dropout_keeps_the_mean():
    """The hidden units of a network with a linear output, over many masks, to 3 standard errors."""
    network, states = probes.network(3, 6, 2), jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), jnp.float32)
    network = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), network)
    keys = jax.random.split(jax.random.key(1), 3000)
    found = np.asarray(jax.jit(jax.vmap(lambda key: with_dropout(network, key, states, 0.3)))(keys))
    error = found.std(axis=0) / len(keys) ** 0.5
    assert (np.abs(found.mean(axis=0) - network(states)) < 3.5 * error).all()
    assert (error > 0.0005).all()
    np.testing.assert_array_equal(with_dropout(network, keys[0], states, 0.0), network(states))


def test_dropout_drops_the_right_share():
    """A hidden unit that is always 1 and an output that reads it: 0 with probability .3, else 1 / .7."""
    network = MLP((Dense(jnp.zeros((1, 1)), jnp.ones(1)), Dense(jnp.ones((1, 1)), jnp.zeros(1))), "relu")
    found = np.asarray(with_dropout(network, jax.random.key(0), jnp.zeros((5000, 1)), 0.3))
    np.testing.assert_allclose((found == 0).mean(), 0.3, atol=0.02)
    np.testing.assert_allclose(found[found > 0], 1 / 0.7, rtol=1e-6)


def test_entropies_worked_by_hand():
    found = entropies(jnp.log(jnp.array([[0.5, 0.5], [0.9, 0.1]])))
    np.testing.assert_allclose(found, [np.log(2), 0.325083], atol=1e-6)


def test_averages_worked_by_hand():
    """The iterates 1, 2, 3 with decay .9, corrected for their beginning; counted alike; and the last alone."""
    for decay, expected in [(0.9, [1, 1.526316, 2.070111]), (1.0, [1, 1.5, 2]), (0.0, [1, 2, 3])]:
        mean, found = 7.0, []
        for number, iterate in enumerate([1.0, 2.0, 3.0], start=1):
            weight = weight_of_latest(jnp.int32(number), decay)
            mean = weight * iterate + (1 - weight) * mean
            found.append(mean)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_network_that_acts_is_the_mean_of_the_iterates(cloned):
    """With decay 1, after two updates, halfway between the first and the second."""
    one, two = (trained(bc, BCConfig(**SMALL), updates).network for updates in (1, 2))
    found = trained(bc_regularised, BCRegularisedConfig(**SMALL, average=1.0), 2)
    for mean, first, second in zip(leaves(found.network), leaves(one), leaves(two), strict=True):
        np.testing.assert_allclose(mean, (first + second) / 2, atol=1e-7)
    for learner, second in zip(leaves(found.learner), leaves(two), strict=True):
        np.testing.assert_allclose(learner, second, atol=1e-7)


def test_jacobian_penalty_of_a_linear_network_is_its_square():
    """f = W u: the penalty is |W|_F^2 in the mean over directions; a step of plain descent then shrinks W."""
    weight = jnp.array([[1.0, -2.0], [0.5, 3.0]])
    answers = lambda states: states @ weight  # noqa: E731
    logits, pulled_back = jax.vjp(answers, jnp.zeros((20000, 2)))
    (found,) = pulled_back(jax.random.normal(jax.random.key(0), logits.shape))
    np.testing.assert_allclose(jnp.square(found).sum(axis=-1).mean(), (weight**2).sum(), rtol=0.03)


def test_the_jacobian_penalty_flattens():
    """A heavy penalty on standardised slopes in the second run, none in the first."""
    config = BCRegularisedConfig(**SMALL, learning_rate=0.01, jacobian=np.array([0.0, 1.0], np.float32))
    networks, states = trained(bc_regularised, config, 100).network, DATASET.pool.observations[:20]
    slopes = jax.jit(jax.vmap(lambda network: jax.vmap(jax.jacrev(network))(states)))(networks)
    free, flat = np.abs(np.asarray(slopes)).mean(axis=(1, 2, 3))
    assert flat < free / 3


def test_bounds_and_temperature_are_in_the_saved_weights():
    """A bound of 1 in the first run, none in the second, whose outputs are those of the learner over .1."""
    bounds = np.array([1.0, 0.0], np.float32)
    config = BCRegularisedConfig(**SMALL, learning_rate=0.01, temperature=0.1, spectral=bounds)
    found = trained(bc_regularised, config, 100)
    norms = np.array([np.linalg.norm(layer.weight, 2, axis=(1, 2)) for layer in found.network.layers])
    norms[-1] *= 0.1
    assert norms[:, 0].max() < 1.02
    assert norms[:, 1].min() > 1.1
    for saved, learner in zip(leaves(found.network.output), leaves(found.learner.output), strict=True):
        np.testing.assert_allclose(saved[1], learner[1] / 0.1, rtol=1e-6)
