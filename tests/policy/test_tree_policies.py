"""Policies of trees: their folder, their ONNX file, and what cannot be trees."""

import json
from dataclasses import replace

import jax
import numpy as np
import onnxruntime
import pytest
import safetensors.numpy

import probes
import sbil
from probes import refused
from sbil import environments
from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.policy import DESCRIPTION, WEIGHTS, Policy
from sbil.policy.card import card
from sbil.policy.folder import sealed
from sbil.policy.onnx import as_bytes
from sbil.policy.policy import FEW_ROWS

DATA = probes.demonstrations(lengths=(40, 50, 60, 30))
DATA = Demonstrations(DATA.trajectories, DATA.action_names, ("a", "b", "c"))
STATES = np.random.default_rng(1).normal(size=(300, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def policy():
    return replace(sbil.fit("trees", DATA, standardise=True, trees=9, folds=1), temperature=1.7)


@pytest.fixture
def folder(policy, tmp_path):
    policy.save(tmp_path / "policy")
    return tmp_path / "policy"


def test_the_folder_brings_the_same_policy_back(policy, folder):
    loaded = Policy.load(folder)
    np.testing.assert_array_equal(loaded.logits(STATES), policy.logits(STATES))
    np.testing.assert_array_equal(loaded.percentile(STATES), policy.percentile(STATES))
    assert (loaded.temperature, loaded.spec) == (1.7, policy.spec)
    assert all(path.suffix in (".json", ".safetensors") for path in folder.iterdir())


def test_few_rows_and_many_give_the_same_bits(policy):
    many = np.tile(STATES, (FEW_ROWS // len(STATES) + 1, 1))
    np.testing.assert_array_equal(policy.logits(many)[: len(STATES)], policy.logits(STATES))


def test_the_card_says_what_it_is(policy):
    assert "A sum of decision trees that sees 3 numbers and gives each of 3 actions a probability." in card(policy)


def test_the_plain_network_decides_alike(policy):
    """Standardisation and temperature are inside of it."""
    found = np.asarray(jax.nn.softmax(policy.plain_network(STATES)))
    np.testing.assert_allclose(found, policy.probabilities(STATES), atol=1e-6)
    np.testing.assert_array_equal(found.argmax(axis=1), policy.act(STATES))


@pytest.mark.parametrize("name", ["trees", "logistic"])
@pytest.mark.parametrize("actions", [1, 2, 3])
def test_onnx_gives_what_the_policy_gives(name, actions):
    data = probes.demonstrations(actions=actions, lengths=(40, 50, 60))
    data = Demonstrations(data.trajectories, data.action_names, ("a", "b", "c"))
    fewer = {"trees": 20, "folds": 1} if name == "trees" else {}
    policy = replace(sbil.fit(name, data, standardise=True, **fewer), temperature=0.6)
    session = onnxruntime.InferenceSession(as_bytes(policy))
    states = np.concatenate([STATES, data.flat().observation])
    logits, probabilities, energy = session.run(["logits", "probabilities", "energy"], {"observation": states})
    np.testing.assert_allclose(logits, policy.logits(states), atol=1e-6)
    np.testing.assert_allclose(probabilities, policy.probabilities(states), atol=1e-6)
    np.testing.assert_allclose(energy, policy.energy(states), atol=1e-5)


def test_trees_without_any_question_have_an_onnx_file():
    """One action only: every tree is a leaf of value 0."""
    data = probes.demonstrations(actions=1)
    policy = sbil.fit("trees", Demonstrations(data.trajectories, ("a", "b"), ("a", "b", "c")))
    session = onnxruntime.InferenceSession(as_bytes(policy))
    np.testing.assert_allclose(session.run(None, {"observation": STATES})[0], policy.logits(STATES), atol=1e-6)


def rewritten(folder, tensors=None, **network):
    """The folder with other tensors or other entries of the network, and the right hashes."""
    import hashlib

    description = json.loads((folder / DESCRIPTION).read_text())
    if tensors:
        (folder / WEIGHTS).write_bytes(safetensors.numpy.save(tensors))
        description["weights_sha256"] = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    for name, value in network.items():
        description["network"][name] = value
    (folder / DESCRIPTION).write_text(json.dumps(sealed(description)))
    return folder


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("child", 10**6),
        ("child", -1),
        ("feature", 3),
        ("feature", -1),
        ("threshold", np.nan),
        ("value", np.inf),
    ],
)
def test_trees_that_lead_nowhere_are_refused(folder, part, value):
    tensors = safetensors.numpy.load((folder / WEIGHTS).read_bytes())
    tensors[f"trees.{part}"][0, 0, 0] = value
    refused(Policy.load, rewritten(folder, tensors))


def test_a_way_back_to_the_root_is_refused(folder):
    """It would have no end."""
    tensors = safetensors.numpy.load((folder / WEIGHTS).read_bytes())
    tensors["trees.child"][0, 0, 1:3] = 0
    assert "do not lead from their roots to leaves" in refused(Policy.load, rewritten(folder, tensors))


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 0},
        {"rounds": "9"},
        {"nodes": 10**9},
        {"trees": 4},
        {"sizes": [3]},
        {"sizes": [3, 4]},
        {"sizes": [3, 5, 3]},
        {"kind": "mlp"},
        {"activation": "elu"},
        {"level": True},
    ],
)
def test_descriptions_that_do_not_fit_are_refused(folder, change):
    refused(Policy.load, rewritten(folder, **change))


def test_floats_where_whole_numbers_belong_are_refused(folder):
    tensors = safetensors.numpy.load((folder / WEIGHTS).read_bytes())
    tensors["trees.child"] = tensors["trees.child"].astype(np.float32)
    assert "refused" in refused(Policy.load, rewritten(folder, tensors))


def test_they_play_where_the_environment_is_a_pure_function():
    environment = environments.get("CartPole-v1")
    rng = np.random.default_rng(0)
    states = rng.normal(size=(400, 4)).astype(np.float32)
    taken = (states[:, 2] + states[:, 3] > 0).astype(np.int32)
    episode = probes.Trajectory(states, taken)
    data = Demonstrations((episode,), environment.action_names, environment.observation_names)
    policy = sbil.fit("trees", data, trees=20, folds=1)
    assert sbil.evaluate(policy, environment, episodes=5).mean > 60


def test_trees_do_not_play_in_worker_processes():
    environment = environments.get("LunarLander-v3")
    states = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    episode = probes.Trajectory(states, np.arange(40, dtype=np.int32) % 4)
    data = Demonstrations((episode,), environment.action_names, environment.observation_names)
    with pytest.raises(UserError, match="only fully connected networks play in LunarLander-v3"):
        sbil.evaluate(sbil.fit("trees", data, trees=2, folds=1), environment, episodes=1)
