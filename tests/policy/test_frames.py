"""Data frames that are given to a policy: columns are found by name, or one line names those that are missing."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import probes
from sbil.demonstrations import Column, Schema
from sbil.errors import UserError
from sbil.policy import Policy

SCHEMA = Schema(
    "drug",
    (
        Column("pulse", unit="1/min", fill=70.0),
        Column("ward", "category", ("low", "high")),
        Column("sex", "one-hot", ("f", "m")),
    ),
    ("none", "some"),
    missing="mean",
)
POLICY = Policy(probes.network(4, 5, 2), SCHEMA.observation_names, SCHEMA.actions, schema=SCHEMA)
PLAIN = Policy(probes.network(2, 5, 3, seed=3), ("a", "b"), ("x", "y", "z"))
ROWS = np.array([[80, 0, 1, 0], [61.5, 1, 0, 1], [70, 1, 1, 0]], np.float32)
COLUMNS = {
    "sex": ["f", "m", "f"],
    "pulse": [80.0, 61.5, None],
    "note": ["x", "y", None],
    "ward": ["low", "high", "high"],
}
NUMBERS = {"b": [1.0, -2.0], "c": [7, 8], "a": [0.5, 3.0]}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_columns_are_found_by_name(frame):
    np.testing.assert_array_equal(POLICY.seen(frame(COLUMNS)), ROWS)
    for method in ("act", "probabilities", "logits", "energy"):
        np.testing.assert_array_equal(getattr(POLICY, method)(frame(COLUMNS)), getattr(POLICY, method)(ROWS))
    np.testing.assert_array_equal(PLAIN.logits(frame(NUMBERS)), PLAIN.logits(np.array([[0.5, 1], [3, -2]])))


@given(st.permutations(SCHEMA.observation_names))
@settings(max_examples=10, deadline=None)
def test_one_column_per_number_in_any_order(order):
    frame = pl.DataFrame(ROWS, schema=list(SCHEMA.observation_names)).select(order)
    np.testing.assert_array_equal(POLICY.seen(frame), ROWS)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_missing_columns_are_named(frame):
    short = frame({name: COLUMNS[name] for name in ("ward", "note")})
    with pytest.raises(UserError, match=r"lacks columns that the policy sees: 'pulse', 'sex'; .*in any order"):
        POLICY.act(short)
    with pytest.raises(UserError, match="'a', 'b'"):
        PLAIN.probabilities(frame({"c": [1.0]}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ward": ["low", "middle", "high"]}, "'middle' is not in the schema"),
        ({"pulse": [80.0, float("inf"), 1.0]}, "row 2, column 'pulse'"),
        ({"pulse": ["80", "fast", "70"]}, "row 2, column 'pulse'"),
        ({"pulse": [[1], [2], [3]]}, "column 'pulse'"),
    ],
)
def test_bad_cells_are_refused(change, words):
    with pytest.raises(UserError, match=words):
        POLICY.act(pl.DataFrame({**COLUMNS, **change}, strict=False))


def test_missing_values_follow_the_rule_of_training():
    strict = replace(POLICY, schema=replace(SCHEMA, missing="refuse"))
    with pytest.raises(UserError, match="row 3, column 'pulse': missing value"):
        strict.act(pl.DataFrame(COLUMNS))
    dropping = replace(POLICY, schema=replace(SCHEMA, missing="drop"))
    with pytest.raises(UserError, match="1 row with a missing value would be dropped"):
        dropping.act(pl.DataFrame(COLUMNS))
    with pytest.raises(UserError, match="missing value"):
        PLAIN.act(pl.DataFrame({"a": [None, 1.0], "b": [1.0, 2.0]}))


def test_two_columns_of_one_name_are_refused():
    twice = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a", "b", "a"])
    with pytest.raises(UserError, match="two columns are called 'a'"):
        PLAIN.act(twice)


def test_actions_by_name():
    numbers = POLICY.act(ROWS)
    assert POLICY.act(ROWS, names=True).tolist() == [SCHEMA.actions[number] for number in numbers]
    assert POLICY.act(ROWS[0], names=True) == SCHEMA.actions[numbers[0]]
    assert POLICY.act(pd.DataFrame(COLUMNS), names=True).tolist() == POLICY.act(ROWS, names=True).tolist()
    with pytest.raises(UserError, match="names must be True or False"):
        POLICY.act(ROWS, names="yes")
