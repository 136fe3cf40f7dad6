"""The blend of methods on tables: its weights, with answers worked out by hand, and the policy that is kept."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sbil
from sbil.blending import BLEND, LEAST, weights_of
from sbil.demonstrations import Column, Demonstrations, Schema, Trajectory
from sbil.mixtures import Blend
from sbil.policy.card import card
from sbil.policy.onnx import as_bytes
from sbil.trees import Trees

TABLES = (("logistic", "default", {}), ("trees", "default", {"trees": 30, "folds": 1, "leaf_rows": 5}))
NETWORK = ("table_network", "default", {"hidden": (8,), "batch": 32, "members": 2, "steps": 3})


@pytest.fixture(autouse=True, scope="module")
def _small():
    """Small methods, which are learned in a moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sbil.portfolio.TABLES", TABLES)
        yield


def table(taken_of, rows=400, seed=0, episode=4):
    """Episodes of decisions; `taken_of` gives the action for a state and a random number."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(rows, 3)).astype(np.float32)
    taken = np.array([taken_of(state, rng.uniform()) for state in states], np.int32)
    parts = (slice(start, start + episode) for start in range(0, rows, episode))
    schema = Schema("call", tuple(map(Column, "xyz")), ("no", "yes"))
    episodes = tuple(Trajectory(states[part], taken[part]) for part in parts)
    return Demonstrations(episodes, ("no", "yes"), ("x", "y", "z"), schema=schema)


def both(state, chance):
    """A line and a step: each of two methods misses something."""
    return chance < 1 / (1 + np.exp(1 - 2 * (state[0] + state[1]) - 2 * (abs(state[2]) < 0.7)))


@pytest.fixture(scope="module")
def blended():
    return sbil.fit("auto", table(both), pad=True)


def test_weights_of_two_methods_that_are_each_right_in_their_part():
    """Of 10 decisions, one method is sure of 6 and the other of 4: the weights are the shares."""
    chances = np.array([[1.0] * 6 + [0.0] * 4, [0.0] * 6 + [1.0] * 4])
    np.testing.assert_allclose(weights_of(chances, np.ones(10)), [0.6, 0.4], atol=1e-3)
    counts = np.repeat([1.0, 3.0], [6, 4])
    np.testing.assert_allclose(weights_of(chances, counts), [1 / 3, 2 / 3], atol=1e-3)


def test_a_method_that_is_better_everywhere_has_all_the_weight():
    np.testing.assert_allclose(
        weights_of(np.array([[0.3, 0.4], [0.6, 0.5], [0.2, 0.2]]), np.ones(2)), [0, 1, 0], atol=1e-6
    )


def test_a_method_with_little_weight_is_left_out():
    rng = np.random.default_rng(0)
    good = rng.uniform(0.4, 0.9, 500)
    few = np.where(np.arange(500) < 5, 0.99, 0.01)
    weights = weights_of(np.stack([good, few, good * 0.9]), np.ones(500))
    assert weights[1] == 0
    assert all(weight == 0 or weight >= LEAST for weight in weights)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 1000))
def test_a_blend_is_as_good_as_the_best_method_or_better(methods, decisions, seed):
    chances = np.random.default_rng(seed).uniform(0.01, 1, (methods, decisions))
    weights = weights_of(chances, np.ones(decisions))
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    # What has little weight is left out, which costs little.
    assert np.log(weights @ chances).mean() >= np.log(chances).mean(axis=1).max() - methods * LEAST


def test_a_method_that_diverged_has_no_weight():
    assert weights_of(np.array([[np.nan, 0.9], [0.5, 0.5]]), np.ones(2)).tolist() == [0, 1]
    assert weights_of(np.array([[0.9, 0.9], [0.5, 0.5]]), np.ones(2), [False, True]).tolist() == [0, 1]


def test_without_held_out_decisions_the_first_method_is_taken():
    assert weights_of(np.zeros((3, 0)), np.ones(0)).tolist() == [1, 0, 0]
    assert weights_of(np.full((2, 3), np.nan), np.ones(3)).tolist() == [1, 0]


def test_the_record_says_what_was_blended(blended):
    record = blended.provenance["selection"]
    assert record["criterion"] == BLEND
    assert isinstance(blended.network, Blend)
    assert sum(record["weights"].values()) == pytest.approx(1, abs=1e-3)
    losses = record["held_out_log_loss"]
    assert losses[BLEND] < min(loss for name, loss in losses.items() if name != BLEND)
    assert "a blend of methods by their held-out decisions" in record["words"]
    assert "A mixture of" in card(blended)
    assert blended.provenance["settings"]["algorithm"] == BLEND


def test_the_folder_and_the_onnx_file_hold_the_blend(blended, tmp_path):
    blended.save(tmp_path / "policy")
    states = table(both, seed=1).flat().observation
    loaded = sbil.Policy.load(tmp_path / "policy")
    np.testing.assert_array_equal(loaded.probabilities(states), blended.probabilities(states))
    session = onnxruntime.InferenceSession(as_bytes(blended))
    [found] = session.run(["probabilities"], {"observation": states})
    np.testing.assert_allclose(found, blended.probabilities(states), atol=1e-5)


def test_probabilities_are_the_weighted_means_of_those_of_the_methods(blended):
    states = table(both, seed=1).flat().observation
    weights = blended.network.weights
    seen = blended.standardisation.apply(states)
    parts = [
        np.exp(np.asarray(part(seen)) - np.logaddexp.reduce(part(seen), axis=1)[:, None])
        for part in blended.network.parts
    ]
    np.testing.assert_allclose(blended.probabilities(states), np.tensordot(weights, parts, 1), atol=1e-5)


def test_trees_alone_are_kept_as_trees(tmp_path):
    """A step of one column, which the others do not find."""
    data = table(lambda state, chance: abs(state[0]) < 0.7)
    report = sbil.train("auto", data, out=tmp_path / "policy", updates=3)
    assert report.selection["chosen"].startswith("trees")
    assert isinstance(sbil.Policy.load(tmp_path / "policy").network, Trees)
    assert sbil.verify(tmp_path / "policy", data).same


def test_without_scikit_learn_a_line_says_what_is_left_out(monkeypatch):
    monkeypatch.setattr("sbil.portfolio.TABLES", (*TABLES, NETWORK))
    monkeypatch.setattr("sbil.algorithms.find_spec", lambda package: None)
    record = sbil.fit("auto", table(both, rows=60), pad=True, updates=3).provenance["selection"]
    assert list(record["held_out_log_loss"]) == ["table_network+hidden=8+batch=32+members=2+steps=3", BLEND]
    assert "logistic and trees left out: not installed (pip install 'sbil[sklearn]')" in record["words"]


@pytest.mark.parametrize("rows", [1, 3])
def test_few_decisions_are_enough(rows):
    policy = sbil.fit("auto", table(both, rows=rows, episode=1), updates=2, pad=True)
    assert np.isfinite(policy.probabilities(np.zeros((1, 3)))).all()
    assert policy.provenance["selection"]["words"].startswith("chose ")


def test_groups_are_held_out_whole():
    """The action is that of the group, which a column names: only groups held out whole show that it says nothing."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(24), 10)
    call = rng.integers(0, 2, 24)[groups]
    states = np.stack([groups, rng.normal(size=240), rng.normal(size=240)], axis=1).astype(np.float32)
    episodes = tuple(Trajectory(s[None], np.array([a], np.int32)) for s, a in zip(states, call, strict=True))
    data = replace(table(both, rows=4), trajectories=episodes, ids=None)
    alone = sbil.fit("auto", data, pad=True).provenance["selection"]["held_out_log_loss"]
    grouped = sbil.fit("auto", replace(data, groups=groups), pad=True).provenance["selection"]["held_out_log_loss"]
    assert alone["trees+trees=30+folds=1+leaf_rows=5"] < 0.35
    assert grouped["trees+trees=30+folds=1+leaf_rows=5"] > 0.6
