"""Weights of decisions: read from a column, kept through splits and files, balanced by action."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sbil
from sbil.demonstrations import Demonstrations, Schema, Trajectory, check, read, read_observations
from sbil.demonstrations.fingerprint import fingerprint
from sbil.errors import UserError

WARD = pl.DataFrame(
    {
        "stay": [1, 1, 2, 2],
        "hour": [1, 0, 0, 1],
        "pulse": [61, 60, 80, 82],
        "quality": [3.0, 1.0, 0.0, 4.0],
        "treat": ["none", "fluid", "none", "none"],
    }
)
ROLES = {"episode": "stay", "time": "hour", "action": "treat"}


def refused(source, **columns):
    with pytest.raises(UserError) as error:
        read(source, **columns)
    return str(error.value)


def test_weights_by_hand():
    found = read(WARD, **ROLES, weights="quality")
    assert found.observation_names == ("pulse",)
    assert [trajectory.weights.tolist() for trajectory in found.trajectories] == [[1, 3], [0, 4]]
    assert found.weights.tolist() == [0.5, 1.5, 0, 2]
    assert found.select([1]).weights.tolist() == [0, 2]
    assert read(WARD, **ROLES).weights is None
    schema = found.schema
    assert Schema.from_json(schema.as_json()) == schema
    assert read_observations(WARD.drop("quality", "treat"), schema).observations.tolist() == [[61], [60], [80], [82]]


def test_balance_by_hand():
    both = read(WARD, **ROLES, weights="quality", balance=True)
    np.testing.assert_allclose(both.weights, [2, 2 * 3 / 7, 0, 2 * 4 / 7])  # fluid 1 of 8; none 3, 0 and 4 of 7
    alone = read(WARD, **ROLES, observations=["pulse"], balance=True)
    np.testing.assert_allclose(alone.weights, [2, 2 / 3, 2 / 3, 2 / 3])
    assert Schema.from_json(alone.schema.as_json()) == alone.schema
    assert "balance" not in read(WARD, **ROLES).schema.as_json()
    assert read(WARD, schema=alone.schema, balance=False).weights is None


def test_weights_and_balance_change_the_fingerprint():
    columns = {**ROLES, "observations": ["pulse"]}
    found = [read(WARD, **columns, **more) for more in ({}, {"weights": "quality"}, {"balance": True})]
    found.append(read(WARD.with_columns(quality=1.0), **columns, weights="quality"))
    assert len({fingerprint(one) for one in found}) == 4


def test_npz_keeps_weights(tmp_path):
    known = read(WARD, **ROLES, weights="quality", balance=True)
    sbil.save(known, tmp_path / "demos.npz")
    again = read(tmp_path / "demos.npz")
    np.testing.assert_array_equal(again.weights, known.weights)
    assert fingerprint(again) == fingerprint(known)
    sbil.save(read(WARD, **ROLES), tmp_path / "plain.npz")
    with np.load(tmp_path / "plain.npz") as plain:
        assert "weights" not in plain.files
    with np.load(tmp_path / "demos.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "short.npz", **arrays | {"weights": np.ones(3, np.float32)})
    with pytest.raises(UserError, match="array 'weights' has shape"):
        read(tmp_path / "short.npz")
    np.savez(tmp_path / "negative.npz", **arrays | {"weights": -np.ones(4, np.float32)})
    with pytest.raises(UserError, match="weights must be finite numbers from 0"):
        read(tmp_path / "negative.npz")


@pytest.mark.parametrize(
    ("quality", "message"),
    [
        ([1, -1, 1, 1], "row 2, column 'quality': a weight is a number from 0; correct the cell"),
        (["1", "2", "many", "1"], "row 3, column 'quality': a weight is a number from 0"),
        ([1.0, 1e39, 1.0, 1.0], "row 2, column 'quality': the number is infinite or too large"),
        ([1, None, 1, 1], "row 2, column 'quality': missing value"),
        ([0, 0, 0, 0], "column 'quality': no weight is above 0; name another column"),
    ],
)
def test_weights_that_are_none(quality, message):
    table = WARD.with_columns(quality=pl.Series(quality))
    assert message in refused(table, **ROLES, weights="quality")
    assert any(problem.column == "quality" for problem in check(table, **ROLES, weights="quality").problems)


def test_bad_options():
    assert "no column 'qualty' (weights); did you mean 'quality'?" in refused(WARD, **ROLES, weights="qualty")
    assert "column 'treat' has two roles" in refused(WARD, **ROLES, weights="treat")
    line = refused(WARD, **ROLES, weights="quality", observations=["pulse", "quality"])
    assert "column 'quality' is the action, the end or the weight and cannot be observed" in line
    assert "balance must be True or False. Got 1" in refused(WARD, **ROLES, balance=1)
    with pytest.raises(UserError, match="balance must be True or False"):
        Schema.from_json({"action": "a", "columns": ["x"], "balance": "yes"})
    found = check(WARD, **ROLES, weights="quality", balance=True)
    assert "--weights quality" in found.command
    assert "--balance" in found.command


def test_trajectories_with_wrong_weights():
    rows, actions = np.zeros((2, 1), np.float32), np.zeros(2, int)
    plain, weighed = Trajectory(rows, actions), Trajectory(rows, actions, weights=np.ones(2))
    with pytest.raises(UserError, match="some trajectories have weights and others do not"):
        Demonstrations((plain, weighed), ("a",))
    with pytest.raises(UserError, match="trajectory 0: weights must hold one number per action"):
        Demonstrations((replace(weighed, weights=np.ones(3)),), ("a",))
    with pytest.raises(UserError, match="trajectory 0: weights must be finite numbers from 0"):
        Demonstrations((replace(weighed, weights=np.array([1, np.nan])),), ("a",))
    nothing = Demonstrations((replace(weighed, weights=np.zeros(2)), weighed), ("a",)).select([0])
    with pytest.raises(UserError, match="the weights of these trajectories are all 0"):
        _ = nothing.weights


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9)), min_size=1, max_size=9))
@settings(max_examples=25, deadline=None)
def test_balanced_actions_have_equal_weight(rows):
    frame = pl.DataFrame(rows, schema=["act", "w"], orient="row").with_columns(x=1.0)
    found = read(frame, action="act", weights="w", balance=True)
    weights = dict.fromkeys(found.action_names, 0.0)
    for (action, _), weight in zip(rows, found.weights, strict=True):
        weights[action] += weight
    np.testing.assert_allclose([*weights.values()], len(rows) / len(weights))
