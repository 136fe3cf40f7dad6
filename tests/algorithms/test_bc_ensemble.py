"""Ensembles of behavioural cloning: networks that learn apart and decide together."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest

import probes
import sbil
from sbil.algorithms.bc import BCConfig, bc
from sbil.algorithms.bc_ensemble import BCEnsembleConfig, bc_ensemble
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.mixtures import Blend
from sbil.networks import MLP, Dense
from sbil.policy.onnx import as_bytes
from sbil.training import train_many

DATA = probes.demonstrations()
NAMED = Demonstrations(DATA.trajectories, DATA.action_names, ("x", "y", "z"))
SPEC, DATASET = spec_of(DATA), make_dataset(DATA, [np.arange(3), np.arange(2)])
KEYS = jax.random.split(jax.random.key(0), 2)
SMALL = {"hidden": (8,), "batch": 16}


def trained(make, config):
    return train_many(make, SPEC, config, DATASET, KEYS, 30).states.network


def always(*policy):
    """The network that gives these probabilities everywhere."""
    return MLP((Dense(jnp.zeros((1, len(policy))), jnp.log(jnp.array(policy))),), "elu")


def mean_of(*policies):
    count = len(policies)
    blend = Blend(tuple(always(*policy) for policy in policies), jnp.full(count, 1 / count))
    return np.exp(blend(jnp.zeros((1, 1)))[0])


def test_mean_of_probabilities_worked_by_hand():
    """Mean logits would give (.6, .4) in the first case, and prefer the first action in the second."""
    np.testing.assert_allclose(mean_of((0.9, 0.1), (0.2, 0.8)), [0.55, 0.45], rtol=1e-6)
    found = mean_of((0.999, 0.001), (0.2, 0.8), (0.2, 0.8))
    np.testing.assert_allclose(found, [0.466333, 0.533667], rtol=1e-5)
    logits = np.mean([np.log([0.999, 0.001]), np.log([0.2, 0.8]), np.log([0.2, 0.8])], axis=0)
    np.testing.assert_allclose(logits[0] - logits[1], 1.378, atol=5e-4)


def test_certain_networks_have_a_finite_mean():
    network = MLP((Dense(jnp.zeros((1, 2)), jnp.array([0.0, 1e4])),), "elu")
    found = Blend((network, network), jnp.full(2, 0.5))(jnp.zeros((1, 1)))
    np.testing.assert_allclose(found, [[-1e4, 0.0]])


def test_the_first_member_is_bc_and_the_others_are_not():
    """The first member draws what BC draws. The others have other weights, and so other minibatches."""
    cloned, ours = trained(bc, BCConfig(**SMALL)), trained(bc_ensemble, BCEnsembleConfig(**SMALL, members=3))
    for one, *parts in zip(*map(jax.tree.leaves, (cloned, *ours.parts)), strict=True):
        np.testing.assert_allclose(parts[0], one, atol=1e-6)
        assert np.abs(parts[1] - one).max() > 0.01
        assert np.abs(parts[2] - parts[1]).max() > 0.01


def test_one_member_is_bc_bit_for_bit():
    cloned, alone = trained(bc, BCConfig(**SMALL)), trained(bc_ensemble, BCEnsembleConfig(**SMALL, members=1))
    assert jax.tree.structure(cloned) == jax.tree.structure(alone)
    jax.tree.map(np.testing.assert_array_equal, cloned, alone)


def test_a_folder_and_an_onnx_file_bring_it_back(tmp_path):
    fitted = sbil.fit("bc_ensemble", NAMED, standardise=True, members=3, hidden=(6,), updates=20, learning_rate=0.1)
    fitted.save(tmp_path / "policy")
    states = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    expected = fitted.probabilities(states)
    np.testing.assert_array_equal(sbil.Policy.load(tmp_path / "policy").probabilities(states), expected)
    session = onnxruntime.InferenceSession(as_bytes(fitted))
    np.testing.assert_allclose(session.run(["probabilities"], {"observation": states})[0], expected, atol=1e-6)


@pytest.mark.parametrize("name", ["bc_ensemble", "bc_regularised"])
def test_images_are_refused_in_one_line(name):
    films = (Trajectory(np.zeros((3, 36, 36, 1), np.uint8), np.array([0, 1, 0], np.int32)) for _ in range(2))
    with pytest.raises(UserError, match=f"^{name} needs numeric pairs: .*images"):
        sbil.fit(name, Demonstrations(tuple(films), ("a", "b")))
