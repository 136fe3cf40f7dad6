"""Policies made of others: their folder, their ONNX file, and what cannot be one."""

import hashlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
import safetensors.numpy

import probes
import sbil
from probes import refused
from sbil.demonstrations import Demonstrations
from sbil.mixtures import Blend, InPieces, Pieces
from sbil.policy import DESCRIPTION, WEIGHTS, Policy, Standardisation
from sbil.policy.architecture import described, in_words
from sbil.policy.card import card
from sbil.policy.folder import sealed
from sbil.policy.onnx import as_bytes

DATA = probes.demonstrations(lengths=(40, 50, 60, 30))
DATA = Demonstrations(DATA.trajectories, DATA.action_names, ("a", "b", "c"))
STATES = np.random.default_rng(1).normal(size=(300, 3)).astype(np.float32)
FAR = np.array([[1e30, -1e30, 3e38], [0, 1e6, -1e3]], np.float32)
SCALING = Standardisation(np.array([1, 2, 3], np.float32), np.array([4, 0.5, 1], np.float32))


def in_pieces(seed=0):
    centre, factor = jnp.array([0.5, -1, 0]), jnp.array([2.0, 0.3, 0])
    low, slope = jnp.array([[-1, 0.0], [0, 5], [1, 1]]), jnp.array([[1, 0.5], [0.2, 0], [1e5, 3]])
    return InPieces(Pieces(centre, factor, low, slope), probes.network(9, 8, 5, 3, seed=seed))


def mixture():
    trees = sbil.fit("trees", DATA, standardise=False, trees=9, folds=1).network
    return Blend((trees, probes.network(3, 3), in_pieces(1)), jnp.array([0.5, 0.2, 0.3]))


def policy_of(network):
    return Policy(network, ("a", "b", "c"), DATA.action_names, SCALING, {"algorithm": "auto"}, temperature=1.7)


@pytest.fixture(params=[in_pieces, mixture], ids=["pieces", "mixture"], scope="module")
def policy(request):
    return policy_of(request.param())


@pytest.fixture
def folder(policy, tmp_path):
    policy.save(tmp_path / "policy")
    return tmp_path / "policy"


def test_pieces_worked_by_hand():
    pieces = in_pieces().pieces
    squashed = [1 / np.sqrt(1 + 1 / 9), 0, 0]
    np.testing.assert_allclose(pieces(jnp.array([1.0, -1, 9])), [*squashed, 1, 0.5, 0, 0, 1, 1], rtol=1e-6)
    far = np.asarray(pieces(FAR))
    np.testing.assert_allclose(np.abs(far[0, :3]), [3, 3, 0], rtol=1e-5)
    np.testing.assert_array_equal(far[0, 3:], [1, 1, 0, 0, 1, 1])


def test_a_mixture_is_the_weighted_mean_of_probabilities():
    mixed = mixture()
    parts = [np.asarray(jax.nn.softmax(part(jnp.asarray(STATES)))) for part in mixed.parts]
    expected = 0.5 * parts[0] + 0.2 * parts[1] + 0.3 * parts[2]
    np.testing.assert_allclose(np.exp(mixed(jnp.asarray(STATES))), expected, atol=1e-6)


def test_the_folder_brings_the_same_policy_back(policy, folder):
    loaded = Policy.load(folder)
    np.testing.assert_array_equal(loaded.logits(STATES), policy.logits(STATES))
    assert (loaded.temperature, loaded.spec) == (1.7, policy.spec)


def test_the_plain_network_decides_alike(policy):
    found = np.asarray(jax.nn.softmax(policy.plain_network(jnp.asarray(STATES))))
    np.testing.assert_allclose(found, policy.probabilities(STATES), atol=1e-6)


def test_onnx_gives_what_the_policy_gives(policy):
    session = onnxruntime.InferenceSession(as_bytes(policy))
    states = np.concatenate([STATES, FAR[1:]])
    logits, probabilities, energy = session.run(["logits", "probabilities", "energy"], {"observation": states})
    np.testing.assert_allclose(logits, policy.logits(states), atol=1e-5)
    np.testing.assert_allclose(probabilities, policy.probabilities(states), atol=1e-6)
    np.testing.assert_allclose(energy, policy.energy(states), atol=1e-5)


def test_the_card_says_what_it_is(policy):
    kind = "A mixture of 3 methods that sees" if isinstance(policy.network, Blend) else "A network that sees"
    assert kind in card(policy)


def test_a_line_names_what_decides(policy):
    line = in_words(described(policy.network))
    own = "mlp 9-8-5-3, elu, columns in pieces"
    assert line == (f"mixture of trees 3-3, 9 rounds; mlp 3-3, elu; {own}" if "mixture" in line else own)


def test_unlikely_actions_keep_their_digits():
    """The log of a small share is not rounded to that of 0."""
    sure = probes.table(np.array([[0.0, -80.0], [0.0, -90.0]], np.float32))
    found = Blend((sure, sure), jnp.array([0.25, 0.75]))(jnp.eye(2))
    np.testing.assert_allclose(found[:, 1], [-80, -90], rtol=1e-6)


CHANGES = {
    "the list of parts": [
        {"parts": []},
        {"parts": "mlp"},
        {"parts": [{"kind": "conv"}]},
        {"parts": [{"kind": ["mlp"]}]},
        {"parts": [None]},
        {"parts": [{"kind": "mlp", "sizes": [4, 3], "activation": "elu"}]},
        {"parts": [{"kind": "mlp", "sizes": [9, 2], "activation": "elu"}]},
        {"parts": [{"kind": "mlp", "sizes": [3, 3], "activation": "sin"}]},
        {"parts": [{"kind": "mixture", "sizes": [3, 3], "parts": []}]},
    ],
    "the list of layer sizes": [{"sizes": [3, 8, 3]}, {"sizes": None}, {"sizes": [0, 3]}],
    "the count of ranges": [{"ranges": 3.0}, {"ranges": 0}],
    "the list of the network's entries": [{"activation": "elu"}],
}


@pytest.mark.parametrize(("what", "change"), [(what, one) for what, all_ in CHANGES.items() for one in all_])
def test_a_description_that_cannot_be_one_is_refused(folder, what, change):
    path = folder / DESCRIPTION
    description = json.loads(path.read_text())
    description["network"] |= change
    path.write_text(json.dumps(sealed(description)))
    line = refused(Policy.load, folder)
    assert what in line or "observation names" in line or "entries" in line


@pytest.mark.parametrize("weights", [[0.5, 0.2, 0.2], [1.2, -0.1, -0.1], [1.0, 0.0, 0.0]])
def test_weights_that_are_no_shares_are_refused(tmp_path, weights):
    policy = policy_of(mixture())
    policy.save(tmp_path / "policy")
    path = tmp_path / "policy" / WEIGHTS
    tensors = safetensors.numpy.load(path.read_bytes())
    content = safetensors.numpy.save(tensors | {"mixture.weights": np.array(weights, np.float32)})
    path.write_bytes(content)
    description = json.loads((tmp_path / "policy" / DESCRIPTION).read_text())
    description["weights_sha256"] = hashlib.sha256(content).hexdigest()
    (tmp_path / "policy" / DESCRIPTION).write_text(json.dumps(sealed(description)))
    assert "weights of the mixture" in refused(Policy.load, tmp_path / "policy")


def test_a_mixture_of_one_method_is_that_method():
    alone = probes.network(3, 4, 3)
    mixed, plain = policy_of(Blend((alone,), jnp.ones(1))), policy_of(alone)
    np.testing.assert_allclose(mixed.probabilities(STATES), plain.probabilities(STATES), atol=1e-6)
