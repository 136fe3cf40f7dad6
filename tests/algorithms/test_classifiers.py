"""Logistic regression and trees: the probabilities are scikit-learn's, whatever the actions in the data."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sbil
from sbil import algorithms
from sbil.algorithms import classifiers
from sbil.algorithms.classifiers import _at_most, _folds
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError

NAMES = ("logistic", "trees")


def decisions(actions=3, taken=None, rows=400, seed=0):
    """Episodes of 8 decisions among `actions`, of which the first `taken` are taken; columns of unlike scales."""
    rng = np.random.default_rng(seed)
    states = (rng.normal(size=(rows, 5)) * [1, 30, 1000, 1, 1] + [0, 5, 20_000, 0, 0]).astype(np.float32)
    states[:, 3] = states[:, 3] > 0
    states[:, 4] = 7
    score = states[:, 0] * states[:, 1] / 30 + states[:, 2] / 1000 + rng.normal(size=rows)
    taken = actions if taken is None else taken
    chosen = np.searchsorted(np.quantile(score, np.arange(1, taken) / taken), score).astype(np.int32)
    episodes = tuple(Trajectory(states[i : i + 8], chosen[i : i + 8]) for i in range(0, rows, 8))
    return Demonstrations(episodes, tuple("abcd"[:actions]), tuple("vwxyz"))


def flat(data):
    steps = data.flat()
    return steps.observation, steps.action


def reference(name, data, **settings):
    """scikit-learn, trained on the same rows."""
    states, taken = flat(data)
    if name == "logistic":
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, tol=1e-6, **settings))
        return model.fit(states.astype(np.float64), taken)
    usual = {"learning_rate": 0.05, "max_iter": 20, "max_leaf_nodes": 15, "l2_regularization": 1.0}
    model = HistGradientBoostingClassifier(**usual, early_stopping=False, random_state=0, **settings)
    return model.fit(states, taken)


def learned(name, data, **settings):
    return sbil.fit(name, data, **({"folds": 1, "trees": 20} if name == "trees" else {}), **settings)


@pytest.mark.parametrize("actions", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_the_probabilities_are_those_of_scikit_learn(name, actions):
    data, others = decisions(actions), flat(decisions(actions, seed=1))[0]
    model = reference(name, data)
    found = learned(name, data).probabilities(np.concatenate([flat(data)[0], others]))
    expected = np.concatenate([model.predict_proba(flat(data)[0]), model.predict_proba(others)])
    # The states here are not standardised: the largest are 20,000, and float32 keeps seven digits of a weighted sum.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 if name == "trees" else 1e-5)


@pytest.mark.parametrize("actions", [2, 4])
def test_standardised_tables_agree_to_a_millionth(actions):
    data = decisions(actions)
    found = learned("logistic", data, standardise=True).probabilities(flat(data)[0])
    np.testing.assert_allclose(found, reference("logistic", data).predict_proba(flat(data)[0]), rtol=0, atol=1e-6)


def test_a_stronger_penalty_is_that_of_scikit_learn():
    data = decisions(2)
    found = learned("logistic", data, l2=100.0).probabilities(flat(data)[0])
    expected = reference("logistic", data, C=0.01).predict_proba(flat(data)[0])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("taken", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_an_action_that_was_never_taken_is_improbable_and_possible(name, taken):
    data = decisions(4, taken)
    found = learned(name, data).probabilities(flat(data)[0])
    never = found[:, taken:]
    assert (never > 0).all()
    assert (never < 5 / 404).all()
    np.testing.assert_allclose(np.log(never).mean(), np.log(1 / 404), atol=0.05)
    if taken > 1:
        expected = reference(name, data).predict_proba(flat(data)[0])
        known = found[:, :taken] / found[:, :taken].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(known, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_an_action_taken_once_is_learned_from(name):
    """Cross-validation of the number of trees meets a fold without it."""
    data = decisions(3, 2)
    first = data.trajectories[0]
    rare = Trajectory(first.observations, np.array([2, *first.actions[1:]], np.int32))
    data = Demonstrations((rare, *data.trajectories[1:]), data.action_names, data.observation_names)
    policy = sbil.fit(name, data, **({"trees": 10} if name == "trees" else {}))
    assert np.isfinite(policy.logits(flat(data)[0])).all()
    assert policy.probabilities(flat(data)[0])[:, 2].mean() < 0.05


def noise(count):
    """Episodes in which states and decisions have nothing to do with each other."""
    rng = np.random.default_rng(0)
    episodes = tuple(
        Trajectory(rng.normal(size=(8, 2)).astype(np.float32), rng.integers(0, 2, 8).astype(np.int32))
        for _ in range(count)
    )
    return Demonstrations(episodes, ("a", "b"), ("x", "y"))


def kept(data, **settings):
    """How many trees are kept of 30."""
    nodes = sbil.fit("trees", data, trees=30, **settings).network.nodes
    return int((np.asarray(nodes.child)[:, 0, 0] > 0).sum())


def test_fewer_trees_are_kept_where_nothing_is_to_be_learned():
    assert kept(noise(40)) < 10
    assert kept(noise(40), folds=1) == 30


def test_folds_hold_whole_groups():
    """Every episode has a twin. If twins are parted, trees that learn noise by heart seem good."""
    episodes = noise(40).trajectories
    twins = Demonstrations((*episodes, *episodes), ("a", "b"), ("x", "y"))
    assert kept(twins) > 20
    assert kept(replace(twins, groups=np.tile(np.arange(40), 2))) < 10


def test_folds_hold_whole_trajectories_or_stretches_of_the_only_one():
    assert _folds(np.array([4, 4, 7, 7, 7, 9]), 2).tolist() == [0, 0, 1, 1, 1, 0]
    assert _folds(np.array([3, 3, 3, 3, 3]), 3).tolist() == [0, 0, 1, 1, 2]
    assert _folds(np.array([3]), 3).tolist() == [0]


@pytest.mark.parametrize("threshold", [0.1, -0.1, 1 / 3, 1e-40, 16777217.0, 0.5])
def test_float32_numbers_pass_the_rounded_threshold_as_they_pass_the_exact_one(threshold):
    found = _at_most(threshold)
    near = np.float32(threshold)
    around = [near, *(np.nextafter(near, np.float32(way)) for way in (-np.inf, np.inf))]
    assert [x <= found for x in around] == [float(x) <= threshold for x in around]


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_changes_nothing(name):
    data = decisions()
    one, other = (learned(name, data, seed=seed).network for seed in (0, 5))
    assert all((a == b).all() for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_very_large_states_do_no_harm(name):
    data = decisions()
    huge = np.full_like(data.trajectories[0].observations, 3e38)
    data = Demonstrations(
        (Trajectory(huge, data.trajectories[0].actions), *data.trajectories[1:]), data.action_names, tuple("vwxyz")
    )
    policy = learned(name, data)
    assert np.isfinite(policy.logits(flat(decisions())[0])).all()


@pytest.mark.parametrize("name", NAMES)
def test_images_are_refused_in_one_line(name):
    films = Demonstrations(
        tuple(Trajectory(np.zeros((3, 36, 36, 1), np.uint8), np.array([0, 1, 0], np.int32)) for _ in range(2)),
        ("a", "b"),
    )
    with pytest.raises(UserError, match=f"^{name} needs numeric pairs: .*images"):
        sbil.fit(name, films)


@pytest.mark.parametrize("name", NAMES)
def test_without_scikit_learn_one_line_says_what_to_install(name, monkeypatch):
    monkeypatch.setattr(algorithms, "find_spec", lambda package: None)
    with pytest.raises(UserError, match=re.escape("install it with: pip install 'sbil[sklearn]'")):
        sbil.fit(name, decisions())


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_is_trained_again_byte_for_byte(name, tmp_path):
    data = decisions()
    learned(name, data).save(tmp_path / "policy")
    assert sbil.verify(tmp_path / "policy", data).same


@pytest.fixture
def unknown_version(monkeypatch):
    """A version of scikit-learn whose trees keep their numbers elsewhere."""
    classifiers._must_be_readable.cache_clear()
    monkeypatch.setattr(classifiers, "PRIVATE", ("_baseline_prediction", "_elsewhere"))
    yield
    classifiers._must_be_readable.cache_clear()


def test_trees_that_cannot_be_read_are_refused_before_training(unknown_version, monkeypatch):
    monkeypatch.setattr(classifiers, "fit_trees", None)  # it is not reached
    words = r"trees cannot read what scikit-learn [\d.]+ trained \(_elsewhere is missing\)"
    with pytest.raises(UserError, match=words):
        learned("trees", decisions())
