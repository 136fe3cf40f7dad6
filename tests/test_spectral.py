"""Spectral norms: power iteration by hand and against NumPy's SVD, and networks whose layers are bounded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from sbil.networks import KERNELS, MLP, ConvNet, Dense
from sbil.spectral import bounded, iterate, spectral_norms, start_vectors

STRETCHED = MLP((Dense(jnp.diag(jnp.array([3.0, 1.0])), jnp.array([0.5, -0.5])),), "elu")


def converged(network, steps=1000):
    return jax.lax.fori_loop(0, steps, lambda _, vectors: iterate(network, vectors), start_vectors(network))


def test_power_iteration_by_hand():
    vectors, found = start_vectors(STRETCHED), []
    np.testing.assert_allclose(vectors[0], [0.5**0.5] * 2)
    for _ in range(3):
        found.append(spectral_norms(STRETCHED, vectors)[0])
        vectors = iterate(STRETCHED, vectors)
    np.testing.assert_allclose(found, [2.863564, 2.998173, 2.999977], rtol=1e-6)


def test_a_layer_above_the_bound_is_scaled_to_it():
    layer = bounded(STRETCHED, converged(STRETCHED), 2.0).layers[0]
    np.testing.assert_allclose(layer.weight, np.diag([2, 2 / 3]), rtol=1e-5)
    np.testing.assert_array_equal(layer.bias, STRETCHED.layers[0].bias)


@pytest.mark.parametrize("bound", [3.5, 1e6])
def test_a_layer_below_the_bound_keeps_its_bits(bound):
    network = probes.network(3, 8, 2)
    same = bounded(network, converged(network), bound)
    jax.tree.map(np.testing.assert_array_equal, same, network)


def test_norms_are_those_of_the_svd_and_never_larger():
    network = probes.network(5, 7, 4, 3, seed=2)
    exact = [np.linalg.norm(layer.weight, 2) for layer in network.layers]
    np.testing.assert_allclose(spectral_norms(network, converged(network)), exact, rtol=1e-4)
    first = np.array(spectral_norms(network, start_vectors(network)))
    assert (first <= np.array(exact) * (1 + 1e-6)).all()


def test_convolutions_are_layers_too():
    sizes = (KERNELS[0].width ** 2, 6), (4, 5)
    first, last = (probes.network(*size, seed=seed).layers[0] for seed, size in enumerate(sizes))
    network = ConvNet((first,), MLP((last,), "relu"), (36, 36, 1))
    small = bounded(network, converged(network), 0.5)
    norms = [np.linalg.norm(layer.weight, 2) for layer in (small.convolutions[0], small.head.layers[0])]
    np.testing.assert_allclose(norms, [0.5, 0.5], rtol=1e-4)


def test_a_layer_of_zeros_stays_and_its_vector_waits():
    nothing = MLP((Dense(jnp.zeros((3, 2)), jnp.zeros(2)),), "elu")
    vectors = iterate(nothing, start_vectors(nothing))
    np.testing.assert_array_equal(vectors[0], start_vectors(nothing)[0])
    assert spectral_norms(nothing, vectors) == (0,)
    assert not bounded(nothing, vectors, 2.0).layers[0].weight.any()


def test_the_gradient_of_a_norm_takes_the_vectors_as_constants():
    """d norm / dW is the outer product of the two vectors; that of a layer at its bound has no part along W."""
    network = probes.network(4, 3, seed=1)
    vectors = converged(network)
    left, values, right = np.linalg.svd(network.layers[0].weight)
    slope = jax.grad(lambda n: spectral_norms(n, vectors)[0])(network).layers[0].weight
    np.testing.assert_allclose(slope, np.outer(left[:, 0], right[0]), atol=1e-4)
    direction = jnp.ones((4, 3))
    pushed = lambda n: jnp.vdot(direction, bounded(n, vectors, values[0] / 2).layers[0].weight)  # noqa: E731
    assert abs(jnp.vdot(jax.grad(pushed)(network).layers[0].weight, network.layers[0].weight)) < 1e-4


def test_norms_of_several_networks_side_by_side():
    networks = [probes.network(3, 5, 2, seed=seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *networks)
    together = jax.vmap(lambda network: spectral_norms(network, iterate(network, start_vectors(network))))(stacked)
    for run, network in enumerate(networks):
        alone = spectral_norms(network, iterate(network, start_vectors(network)))
        np.testing.assert_allclose([norms[run] for norms in together], alone, rtol=1e-6)
