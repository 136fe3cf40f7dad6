"""Ensembles: one network that gives the mean of several networks' logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from sbil.dataset import Spec
from sbil.ensembles import ensemble, widened
from sbil.errors import UserError
from sbil.networks import MLP, policy_network

STATES = np.random.default_rng(0).normal(size=(7, 3))


@pytest.mark.parametrize(
    ("widths", "activation"),
    [([(4,), (1,)], "elu"), ([(4, 5), (2, 3), (6, 1)], "relu"), ([(3, 2, 4), (3, 2, 4)], "tanh")],
)
def test_logits_are_the_mean_whatever_the_widths(widths, activation):
    with jax.enable_x64(True):
        networks = [probes.network(3, *hidden, 2, seed=seed) for seed, hidden in enumerate(widths)]
        networks = [MLP(network.layers, activation) for network in networks]
        expected = np.mean([network(STATES) for network in networks], axis=0)
        np.testing.assert_allclose(ensemble(networks)(STATES), expected, atol=1e-12)


def test_linear_networks_become_a_linear_network():
    with jax.enable_x64(True):
        networks = [probes.network(3, 2, seed=seed) for seed in range(3)]
        joined = ensemble(networks)
        np.testing.assert_allclose(joined(STATES), np.mean([n(STATES) for n in networks], axis=0), atol=1e-12)
        assert joined.depth == 1


def test_an_ensemble_of_one_is_its_network():
    network = probes.network(3, 4, 2)
    jax.tree.map(np.testing.assert_array_equal, ensemble([network]), network)


def test_a_wider_network_gives_the_same_logits():
    with jax.enable_x64(True):
        network = probes.network(3, 4, 5, 2)
        wider = widened(network, 6)
        assert [layer.weight.shape for layer in wider.layers] == [(3, 6), (6, 6), (6, 2)]
        np.testing.assert_allclose(wider(STATES), network(STATES), atol=1e-12)


@pytest.mark.parametrize(
    ("networks", "said"),
    [
        ([], "empty"),
        ([probes.network(3, 4, 2), probes.network(3, 4, 4, 2)], "count of layers. Got 2, 3"),
        ([probes.network(3, 4, 2), probes.network(4, 4, 2)], "count of inputs"),
        ([probes.network(3, 4, 2), probes.network(3, 4, 3)], "count of actions"),
        ([probes.network(3, 4, 2), MLP(probes.network(3, 4, 2).layers, "tanh")], "activation. Got elu, tanh"),
        ([MLP(probes.network(3, 4, 2).layers, "elu", probes.network(4, 1).output)], "output for the energy"),
        ([policy_network(jax.random.key(0), Spec((36, 36, 1), 2))], "Got ConvNet"),
    ],
)
def test_what_cannot_stand_beside_each_other_is_refused(networks, said):
    with pytest.raises(UserError, match=said) as raised:
        ensemble(networks)
    assert "\n" not in str(raised.value)


def test_networks_may_be_traced():
    networks = [probes.network(3, 4, 2, seed=seed) for seed in range(2)]
    joined = jax.jit(lambda *both: ensemble(both)(jnp.asarray(STATES)))(*networks)
    np.testing.assert_allclose(joined, np.mean([n(STATES) for n in networks], axis=0), atol=1e-5)
