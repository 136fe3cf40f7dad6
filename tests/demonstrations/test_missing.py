"""Numbers that say where a value is missing: by hand, on random tables, and again from later tables."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sbil
from sbil.demonstrations import Column, Schema, check, read, read_observations
from sbil.demonstrations.reading import read_with_notes
from sbil.errors import UserError
from sbil.policy.frames import rows_of

WARD = pl.DataFrame(
    {
        "stay": [1, 1, 2, 2, 2],
        "hour": [0, 1, 0, 1, 2],
        "pulse": [60, None, 80, 82, None],
        "age": [50, 50, 70, 70, 70],
        "unit": ["ICU", "ER", None, "ER", "ICU"],
        "treat": ["fluid", "none", "none", "cut", "cut"],
    }
)
ROLES = {"episode": "stay", "time": "hour", "action": "treat"}
SEEN = {**ROLES, "observations": ("pulse", "age"), "one_hot": ("unit",), "missing": "indicator"}
NAMES = ("pulse", "pulse missing", "age", "unit=ER", "unit=ICU", "unit missing")
NUMBERS = [
    [60, 0, 50, 0, 1, 0],
    [74, 1, 50, 1, 0, 0],
    [80, 0, 70, 0, 0, 1],
    [82, 0, 70, 1, 0, 0],
    [74, 1, 70, 0, 1, 0],
]


def seen(demonstrations):
    return [row for trajectory in demonstrations.trajectories for row in trajectory.observations.tolist()]


def refused(source, **columns):
    with pytest.raises(UserError) as error:
        read(source, **columns)
    return str(error.value)


def test_indicators_by_hand():
    found, notes = read_with_notes(WARD, **SEEN)
    assert found.observation_names == NAMES
    assert seen(found) == NUMBERS
    assert found.schema.codes == [0, 2, 0, 2, 2, 2]
    assert found.schema.one_hot == [[3, 4, 5]]
    assert [column.indicator for column in found.schema.columns] == [True, False, True]
    assert found.provenance["filled_values"] == {"pulse": 2, "unit": 1}
    assert "newly_missing" not in found.provenance
    assert np.argwhere(np.concatenate(notes.filled)).tolist() == [[1, 0], [2, 3], [2, 4], [4, 0]]


def test_indicators_of_the_rows_before():
    found = read(WARD, **SEEN, history=1, previous_action=True)
    assert found.observation_names[: 2 * len(NAMES)] == (*NAMES, *(f"{name}, 1 row before" for name in NAMES))
    assert [row[:12] for row in seen(found)] == [
        row + before for row, before in zip(NUMBERS, [NUMBERS[i] for i in (0, 0, 2, 2, 3)], strict=True)
    ]
    assert found.schema.one_hot == [[3, 4, 5], [9, 10, 11], [12, 13, 14, 15]]


def test_other_rules_add_nothing():
    for rule in ("mean", "last", "drop"):
        made = read(WARD[:, [0, 1, 2, 3, 5]], **ROLES, missing=rule).schema
        assert made.observation_names == ("pulse", "age")
        assert all("indicator" not in column for column in made.as_json()["columns"])
    full = read(WARD.drop("unit").fill_null(1), **ROLES, missing="indicator")
    assert full.observation_names == ("pulse", "age")
    assert [column.indicator for column in full.schema.columns] == [False, False]


def test_the_schema_is_kept():
    schema = read(WARD, **SEEN).schema
    assert Schema.from_json(schema.as_json()) == schema
    assert read(WARD, schema=schema).schema == schema
    assert seen(read(WARD[:1], schema=schema)) == NUMBERS[:1]
    with pytest.raises(UserError, match="the entry 'indicator' of column 'x' must be True or False"):
        Schema.from_json({"action": "a", "columns": [{"name": "x", "indicator": 1}]})
    with pytest.raises(UserError, match="column 'x' is a category and has no indicator; make it one-hot"):
        Schema.from_json({"action": "a", "columns": [{"name": "x", "kind": "category", "indicator": True}]})


def test_later_gaps_elsewhere_are_filled_and_counted():
    schema = read(WARD, **SEEN).schema
    later = WARD.with_columns(age=pl.Series([50, None, None, 70, 70])).drop("treat", "stay", "hour")
    found = read_observations(later, schema)
    expected = np.array(NUMBERS, np.float32)
    expected[1:3, 2] = 62
    np.testing.assert_array_equal(found.observations, expected)
    assert found.filled == {"pulse": 2, "age": 2, "unit": 1}
    assert found.new == {"age": 2}
    again = read(WARD.with_columns(age=pl.Series([50, None, None, 70, 70])), schema=schema)
    assert again.provenance["newly_missing"] == {"age": 2}
    np.testing.assert_array_equal(seen(again), expected)


def test_later_tables_may_have_no_value_at_all():
    schema = read(WARD, **SEEN).schema
    nothing = pl.DataFrame({"pulse": [None], "age": [50], "unit": [None]})
    assert read_observations(nothing, schema).observations.tolist() == [[74, 1, 50, 0, 0, 1]]


def test_another_rule_keeps_the_indicators():
    schema = read(WARD, **SEEN).schema
    later = WARD.with_columns(unit=pl.lit("ER"))
    carried = read_observations(later, replace(schema, missing="last")).observations
    assert carried[:, :2].tolist() == [[60, 0], [60, 1], [80, 0], [82, 0], [82, 1]]
    dropped = read_observations(later, replace(schema, missing="drop")).observations
    assert dropped[:, :2].tolist() == [[60, 0], [80, 0], [82, 0]]


def test_frames_for_act_have_either_form():
    known = read(WARD, **SEEN)
    names, schema = known.observation_names, known.schema
    np.testing.assert_array_equal(rows_of(WARD.drop("treat"), names, schema), NUMBERS)
    np.testing.assert_array_equal(rows_of(pl.DataFrame(NUMBERS, schema=NAMES, orient="row"), names, schema), NUMBERS)


def test_what_is_refused():
    ward = WARD.drop("unit")
    line = refused(WARD, **ROLES, observations=("pulse",), categories=("unit",), missing="indicator")
    assert "row 3, column 'unit': missing value" in line
    assert "a category has no mean: write a level of its own" in line
    assert "column 'age': has no value in any row" in refused(
        ward.with_columns(age=pl.lit(None, pl.Float64)), **ROLES, missing="indicator", observations=("age",)
    )
    clash = ward.rename({"age": "pulse missing"})
    assert "two columns become a number called 'pulse missing'" in refused(clash, **ROLES, missing="indicator")
    assert "unknown rule for missing values 'indicators'" in refused(ward, **ROLES, missing="indicators")
    line = refused(ward.with_columns(treat=pl.Series(["a", None, "b", "b", "a"])), **ROLES, missing="indicator")
    assert "row 2, column 'treat': missing value" in line
    assert "choose mean, last, indicator or drop" in refused(ward, **ROLES)


def test_check_says_what_is_added():
    found = check(WARD, **SEEN)
    assert found.added == ("pulse missing", "unit missing")
    assert not found.blocked
    assert "--missing indicator" in found.command
    remedies = {problem.column: problem.remedy for problem in found.problems if problem.rule == "missing value"}
    assert remedies["pulse"] == "filled with the mean of the column, and one more number says so"
    assert remedies["unit"] == "no level is 1 there, and one more number says so"
    assert check(WARD.drop("unit"), **ROLES, missing="mean").added == ()


def test_time_since_the_last_value_by_hand():
    ward = WARD.with_columns(hour=pl.Series([0.0, 3.0, 0.0, 1.5, 5.0]), pulse=pl.Series([60, None, None, 82, None]))
    found, notes = read_with_notes(ward, **SEEN | {"missing": "last", "one_hot": ()}, since_last=True)
    assert found.observation_names == ("pulse", "time since pulse", "no pulse yet", "age")
    assert seen(found) == [[60, 0, 0, 50], [60, 3, 0, 50], [71, 0, 1, 70], [82, 0, 0, 70], [82, 3.5, 0, 70]]
    assert found.schema.codes == [0, 0, 2, 0]
    assert [column.since for column in found.schema.columns] == [True, False]
    assert np.argwhere(np.concatenate(notes.filled)).tolist() == [[1, 0], [2, 0], [4, 0]]
    both = read(ward, **SEEN, since_last=True, history=1)
    row = ("pulse", "pulse missing", "time since pulse", "no pulse yet", "age", "unit=ER", "unit=ICU", "unit missing")
    assert both.observation_names[:10] == (*row, "time since unit", "no unit yet")
    assert both.schema.one_hot == [[5, 6, 7], [15, 16, 17]]
    assert [found_[8:10] for found_ in seen(both)] == [[0, 0], [0, 0], [0, 1], [0, 0], [0, 0]]
    assert read(WARD, **ROLES, drop=["pulse"], missing="last", since_last=True).observation_names == ("age",)


@pytest.mark.parametrize(
    ("times", "passed"),
    [
        (["2026-01-01 22:00", "2026-01-02 00:30"], 2.5),
        (["31.12.2025", "02.01.2026"], 48),
        ([-(2**63), 2**63 - 1], 2.0**64),
        ([-1e300, 1e300], np.finfo(np.float32).max),
        (pl.Series([90, 150]).cast(pl.Duration("ms")), 60 / 3.6e6),
        (pl.Series([0, 9 * 3_600_000_000_000]).cast(pl.Time), 9),
        (None, 1),
    ],
)
def test_the_unit_of_the_time(times, passed):
    frame = pl.DataFrame({"e": [1, 1], "x": [5.0, None], "act": ["a", "b"]})
    frame = frame if times is None else frame.with_columns(t=pl.Series(times))
    found = read(frame, episode="e", time=None if times is None else "t", action="act", missing="mean", since_last=True)
    np.testing.assert_allclose(seen(found)[1], [5, passed, 0], rtol=1e-6)


def test_later_tables_are_read_alike():
    schema = read(WARD, **SEEN, since_last=True).schema
    assert Schema.from_json(schema.as_json()) == schema
    assert read(WARD, schema=schema).schema == schema
    shuffled = [3, 0, 4, 2, 1]
    states = read_observations(WARD[shuffled].drop("treat"), schema).observations
    np.testing.assert_array_equal(states, np.array(seen(read(WARD, schema=schema)))[shuffled])
    assert read_observations(WARD[[0, 3]], schema).observations[:, 2:4].tolist() == [[0, 0], [0, 0]]
    dropped = read_observations(WARD[:2], replace(schema, missing="drop")).observations
    assert dropped[:, 2:4].tolist() == [[0, 0]]
    for column, message in (("stay", "no column 'stay' (episode)"), ("hour", "no column 'hour' (time)")):
        with pytest.raises(UserError) as error:
            read_observations(WARD.drop(column), schema)
        assert message in str(error.value)
    with pytest.raises(UserError, match="the same time as in"):
        read_observations(WARD.with_columns(hour=pl.lit(0)), schema)


def test_what_needs_gaps_and_episodes():
    assert "since_last must be True or False. Got 1" in refused(WARD, **SEEN, since_last=1)
    alone = {"action": "treat", "observations": ("pulse",), "missing": "mean", "since_last": True}
    assert "since_last needs episodes; name their column (--episode)" in refused(WARD, **alone)
    for rule in ("drop", None):
        line = refused(WARD, **SEEN | {"missing": rule}, since_last=True)
        assert "since_last needs rows in which a value is missing; choose mean, last or indicator" in line
    clash = WARD.rename({"age": "time since pulse"}).drop("unit")
    assert "two columns become a number called 'time since pulse'" in refused(
        clash, **ROLES, missing="mean", since_last=True
    )
    with pytest.raises(UserError, match="the entry 'since' of column 'x' must be True or False"):
        Schema.from_json({"action": "a", "columns": [{"name": "x", "since": "yes"}]})
    found = check(WARD, **SEEN, since_last=True)
    assert found.added == (
        *("pulse missing", "time since pulse", "no pulse yet", "unit missing", "time since unit", "no unit yet"),
    )
    assert "--since-last" in found.command
    assert "since_last needs rows" in check(WARD, **ROLES, since_last=True).problems[0].message


@given(st.lists(st.lists(st.sampled_from([None, 1.0]), min_size=1, max_size=6), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_times_never_come_from_another_episode(episodes):
    rows = [(e, 10 * t, value, "a") for e, values in enumerate(episodes) for t, value in enumerate(values)]
    frame = pl.DataFrame(rows, schema=["e", "t", "x", "act"], orient="row", strict=False)
    if not 0 < frame["x"].null_count() < len(frame):
        return
    found = read(
        frame.with_columns(pl.col("x").cast(pl.Float64)),
        episode="e",
        time="t",
        action="act",
        missing="mean",
        since_last=True,
    )
    for values, trajectory in zip(episodes, found.trajectories, strict=True):
        for t, row in enumerate(trajectory.observations.tolist()):
            before = [s for s in range(t + 1) if values[s] is not None]
            assert row[1:] == [10 * (t - (before[-1] if before else 0)), not before]


NUMBER = st.one_of(st.none(), st.integers(-9, 9))


@given(st.lists(st.tuples(NUMBER, st.sampled_from([None, "x", "y"]), st.sampled_from("ab")), min_size=1, max_size=8))
@settings(max_examples=25, deadline=None)
def test_indicators_are_the_gaps(rows):
    """A number's indicator is 1 where the table has none; of a name's numbers exactly one is 1."""
    frame = pl.DataFrame(rows, schema={"x": pl.Float64, "name": pl.String, "act": pl.String}, orient="row")
    if frame["x"].is_null().all() or frame["name"].is_null().all():
        return
    found = read(frame, action="act", one_hot=["name"], missing="indicator")
    numbers = dict(zip(found.observation_names, np.array(seen(found)).T, strict=True))
    gone = frame["x"].is_null().to_numpy()
    np.testing.assert_array_equal(numbers.get("x missing", np.zeros(len(frame))), gone)
    np.testing.assert_allclose(numbers["x"], frame["x"].fill_null(frame["x"].mean()).to_numpy(), rtol=1e-6)
    assert (sum(column for name, column in numbers.items() if name.startswith("name")) == 1).all()
    np.testing.assert_array_equal(read_observations(frame, found.schema).observations, seen(found))


def test_npz_keeps_indicators(tmp_path):
    known = read(WARD, **SEEN)
    sbil.save(known, tmp_path / "demos.npz")
    again = read(tmp_path / "demos.npz")
    assert (again.schema, again.observation_names) == (known.schema, known.observation_names)
    assert Column("x", indicator=None).as_json() == Column("x").as_json()
