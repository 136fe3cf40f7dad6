"""Levels and actions that were not seen in training: refused, or counted as other."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sbil
from sbil.demonstrations import Schema, check, read, read_observations
from sbil.errors import UserError

WARD = pl.DataFrame(
    {
        "stay": [1, 1, 2, 2],
        "hour": [0, 1, 0, 1],
        "unit": ["ER", "ICU", "ER", "ICU"],
        "ward": ["b", "a", "a", "b"],
        "treat": ["none", "fluid", "none", "none"],
    }
)
LATER = WARD.with_columns(
    unit=pl.Series(["ER", "OR", "OR", "ICU"]),
    ward=pl.Series(["c", "a", "b", "d"]),
    treat=pl.Series(["drug", "none", "none", "other"]),
)
ROLES = {"episode": "stay", "time": "hour", "action": "treat", "one_hot": ["unit"], "categories": ["ward"]}
ROWS = [[1, 0, 2], [0, 0, 0], [0, 0, 1], [0, 1, 2]]


def seen(demonstrations):
    return [row for trajectory in demonstrations.trajectories for row in trajectory.observations.tolist()]


def taken(demonstrations):
    return [demonstrations.action_names[a] for trajectory in demonstrations.trajectories for a in trajectory.actions]


def test_by_hand():
    known = read(WARD, **ROLES, unseen="other")
    plain = read(WARD, **ROLES)
    assert known.action_names == ("fluid", "none", "other")
    assert known.observation_names == plain.observation_names
    assert seen(known) == seen(plain)
    assert "unseen_values" not in known.provenance
    later = read(LATER, schema=known.schema)
    assert seen(later) == ROWS
    assert taken(later) == ["other", "none", "none", "other"]
    assert later.provenance["unseen_values"] == {"unit": 2, "ward": 2, "treat": 1}
    assert later.schema == known.schema
    states = read_observations(LATER, known.schema)
    assert states.observations.tolist() == ROWS
    assert states.unseen == {"unit": 2, "ward": 2}


def test_any_policy_can_be_asked_to_count_levels_as_other():
    schema = replace(read(WARD, **ROLES).schema, unseen="other")
    assert read_observations(LATER.drop("treat"), schema).observations.tolist() == ROWS
    assert read(WARD, schema=schema).action_names == ("fluid", "none")
    assert read(LATER, schema=schema).action_names == ("fluid", "none", "other")


def test_unseen_previous_actions():
    later = LATER.with_columns(treat=pl.Series(["drug", "none", "none", "none"]))
    known = read(WARD, **ROLES, unseen="other", previous_action=True)
    named = ("no previous action", *(f"previous action: {name}" for name in ("fluid", "none", "other")))
    assert known.observation_names[3:] == named
    states = read_observations(later, known.schema)
    assert states.observations[:, 3:].tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert states.unseen["treat"] == 1
    without = replace(read(WARD, **ROLES, previous_action=True).schema, unseen="other")
    assert read_observations(later, without).observations[1, 3:].tolist() == [0, 0, 0]


def test_a_schema_may_list_the_actions_of_interest():
    listed = {**ROLES, "actions": ["none"], "columns": [], "unseen": "other"}
    found = read(
        WARD, schema={name: listed[name] for name in listed if name not in ("one_hot", "categories")}, one_hot=["unit"]
    )
    assert taken(found) == ["none", "other", "none", "none"]


def test_unseen_and_missing_are_two_things():
    gap = WARD.with_columns(unit=pl.Series(["ER", None, "ER", "ICU"]))
    known = read(gap, **ROLES, missing="indicator", unseen="other")
    assert known.observation_names[:3] == ("unit=ER", "unit=ICU", "unit missing")
    later = LATER.with_columns(unit=pl.Series(["OR", None, "?", "ICU"]))
    assert read_observations(later, known.schema).observations[:, :3].tolist() == [
        *([0, 0, 0], [0, 0, 1]),
        *([0, 0, 1], [0, 1, 0]),
    ]
    carried = replace(known.schema, missing="last")
    later = LATER.with_columns(unit=pl.Series(["OR", None, "ER", None]))
    assert read_observations(later, carried).observations[:, :3].tolist() == [
        [0, 0, 0],
        [0, 0, 0],
        [1, 0, 0],
        [1, 0, 0],
    ]


def test_what_is_refused():
    schema = read(WARD, **ROLES).schema
    assert "unseen" not in schema.as_json()
    other = replace(schema, unseen="other")
    assert Schema.from_json(other.as_json()) == other
    with pytest.raises(UserError, match=r"row 2, column 'unit': the level 'OR' is not in the schema.*--unseen other"):
        read(LATER, schema=schema)
    with pytest.raises(UserError, match=r"the level 'OR' is not in the schema"):
        read(LATER, schema=other, unseen="refuse")
    with pytest.raises(UserError, match="unknown rule for unseen values 'others'; did you mean 'other'"):
        read(WARD, **ROLES, unseen="others")
    with pytest.raises(UserError, match="unknown rule for unseen values"):
        Schema.from_json({"action": "a", "columns": [], "unseen": 3})


def test_check_lists_them_as_notes():
    known = read(WARD, **ROLES).schema
    stops = [problem for problem in check(LATER, schema=known).problems if problem.rule == "unknown name"]
    assert {(problem.column, problem.severity) for problem in stops} == {
        (c, "stops") for c in ("unit", "ward", "treat")
    }
    found = check(LATER, schema=known, unseen="other")
    notes = [problem for problem in found.problems if problem.rule == "unknown name"]
    assert {(problem.column, problem.severity, problem.remedy) for problem in notes} == {
        (column, "note", "it counts as other") for column in ("unit", "ward", "treat")
    }
    assert "--unseen other" in found.command


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("xyz")), min_size=1, max_size=8))
@settings(max_examples=25, deadline=None)
def test_known_rows_are_as_before(rows):
    """What the schema lists gets the same numbers as without the rule; everything else is counted."""
    frame = pl.DataFrame(rows, schema=["name", "act"], orient="row")
    known = read(
        pl.DataFrame({"name": ["a", "b", "c"], "act": ["x", "y", "x"]}), action="act", one_hot=["name"], unseen="other"
    )
    found = read(frame, schema=known.schema)
    expected = [[name == level for level in "abc"] for name, _ in rows]
    np.testing.assert_array_equal(seen(found), expected)
    assert taken(found) == [action if action in "xy" else "other" for _, action in rows]
    counts = {"name": sum(name in "de" for name, _ in rows), "act": sum(action == "z" for _, action in rows)}
    assert found.provenance.get("unseen_values", {}) == {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("algorithm", ["bc", "logistic", "trees"])
def test_training_and_scoring_with_an_action_that_nobody_took(algorithm):
    rng = np.random.default_rng(0)
    pulse = rng.normal(80, 10, 120)
    frame = pl.DataFrame({"pulse": pulse, "treat": np.where(pulse > 80, "fluid", "none")})
    policy = sbil.fit(
        algorithm, frame, columns={"action": "treat", "unseen": "other"}, updates=50 if algorithm == "bc" else None
    )
    assert policy.action_names == ("fluid", "none", "other")
    assert policy.probabilities(np.array([[80.0]]))[0, 2] < 0.3
    later = frame.with_columns(treat=pl.when(pl.col("pulse") > 95).then(pl.lit("drug")).otherwise("treat"))
    result = sbil.evaluate(policy, later)
    assert result.data.provenance["unseen_values"] == {"treat": int((pulse > 95).sum())}
    assert np.isfinite(result.agreement.log_loss)
    without = sbil.fit("bc", frame, columns={"action": "treat"}, updates=5)
    with pytest.raises(UserError, match="some decisions have an action that the policy does not know"):
        sbil.evaluate(without, later, columns={"unseen": "other"})
