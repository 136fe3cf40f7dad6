"""Networks: scalings that are folded into them, orthogonal weights, features."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from sbil.dataset import make_dataset
from sbil.networks import MLP, Dense, Scaling, cooled, mlp, orthogonal_dense, scaling

DEMONSTRATIONS = probes.demonstrations()


def test_a_constant_column_stays_finite():
    dataset = make_dataset(DEMONSTRATIONS)
    constant = dataset.pool.observations.at[:, 1].set(4.0)
    scaled = scaling(dataset._replace(pool=dataset.pool._replace(observations=constant)))
    np.testing.assert_allclose(scaled.mean[1], 4, rtol=1e-6)
    assert scaled.scale[1] == 1  # only centred: divided by something small, it would swamp the other columns
    np.testing.assert_allclose(scaled(constant)[:, 1], 0, atol=1e-2)


def scale_of(rng, *shape):
    return Scaling(jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.uniform(0.5, 2, shape)))


def test_scaling_folded_into_a_network():
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        scale, network, states = scale_of(rng, 3), probes.network(3, 5, 2), jnp.asarray(rng.normal(size=(7, 3)))
        np.testing.assert_allclose(scale.folded_into(network)(states), network(scale(states)), atol=1e-12)
        np.testing.assert_allclose(scale(states), (states - scale.mean) / scale.scale, atol=1e-12)
        assert np.abs(network(states) - network(scale(states))).max() > 0.1


def test_a_cooled_network_gives_outputs_over_the_temperature():
    network, states = probes.network(3, 4, 2), np.random.default_rng(2).normal(size=(7, 3))
    np.testing.assert_allclose(cooled(network, 0.5)(states), 2 * network(states), rtol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, cooled(network, jnp.float32(1)), network)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), network)
    outputs = jax.vmap(lambda one: one(states))(cooled(stacked, jnp.array([0.5, 4.0])))
    np.testing.assert_allclose(outputs, np.stack([2 * network(states), network(states) / 4]), rtol=1e-5, atol=1e-7)


def test_inputs_beyond_the_observation_are_zero():
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        scale, network, states = scale_of(rng, 3), probes.network(5, 4, 2), jnp.asarray(rng.normal(size=(7, 3)))
        expected = network(jnp.hstack([scale(states), jnp.zeros((7, 2))]))
        np.testing.assert_allclose(scale.folded_into(network)(states), expected, atol=1e-12)


def test_scalings_of_stacked_runs():
    rng = np.random.default_rng(2)
    with jax.enable_x64(True):
        scales, states = scale_of(rng, 4, 3), jnp.asarray(rng.normal(size=(7, 3)))
        networks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(probes.network(5, 4, 2, seed=i) for i in range(4)))
        folded = scales.folded_into(networks)
        for run in range(4):
            one, scale, network = jax.tree.map(lambda leaf, run=run: leaf[run], (folded, scales, networks))
            expected = network(jnp.hstack([scale(states), jnp.zeros((7, 2))]))
            np.testing.assert_allclose(one(states), expected, atol=1e-12)
            np.testing.assert_allclose(scale.folded_into(network)(states), expected, atol=1e-12)


def test_orthogonal_weights_and_no_biases():
    """A layer that narrows has orthonormal columns; one that widens, orthonormal rows."""
    network = mlp(jax.random.key(0), (9, 5, 7, 7, 2), "relu", orthogonal_dense)
    assert [layer.weight.shape for layer in network.layers] == [(9, 5), (5, 7), (7, 7), (7, 2)]
    for layer in network.layers:
        inputs, outputs = layer.weight.shape
        tall = layer.weight if inputs >= outputs else layer.weight.T
        np.testing.assert_allclose(tall.T @ tall, np.eye(min(inputs, outputs)), atol=1e-5)
        np.testing.assert_array_equal(layer.bias, np.zeros(outputs))
    other = mlp(jax.random.key(1), (9, 5, 7, 7, 2), "relu", orthogonal_dense)
    pairs = zip(network.layers, other.layers, strict=True)
    assert all(np.abs(one.weight - another.weight).max() > 0.1 for one, another in pairs)


def test_features_worked_by_hand():
    """tanh(2 x), then tanh(tanh(2 x) - 1), then 3 times that plus 5 with no activation."""
    layers = [Dense(jnp.full((1, 1), w), jnp.full(1, b)) for w, b in ((2.0, 0.0), (1.0, -1.0), (3.0, 5.0))]
    network, x = MLP(tuple(layers), "tanh"), jnp.array([[-1.0], [0.3]])
    first = np.tanh(2 * x)
    second = np.tanh(first - 1)
    for depth, expected in enumerate((x, first, second)):
        np.testing.assert_allclose(network.features(x, depth), expected, rtol=1e-6)
    np.testing.assert_allclose(network(x), 3 * second + 5, rtol=1e-6)


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh"])
def test_the_last_layer_on_the_last_features_is_the_network(activation):
    network = mlp(jax.random.key(0), (3, 5, 4, 2), activation)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 3)), jnp.float32)
    np.testing.assert_array_equal(network.layers[-1](network.features(x, 2)), network(x))
    assert network.features(x, 1).shape == (2, 6, 5)
