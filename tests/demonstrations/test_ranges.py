"""Numbers that are cut into ranges: by hand, on random tables, and again from later tables."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sbil
from sbil.demonstrations import Schema, check, ranges, read, read_observations
from sbil.demonstrations.reading import read_with_notes
from sbil.errors import UserError
from sbil.policy.frames import rows_of

WARD = pl.DataFrame(
    {
        "stay": [1, 1, 2, 2, 2, 2],
        "pulse": [60.0, 70.0, 80.0, 90.0, 100.0, 110.0],
        "age": [50, 50, 70, 70, 70, 70],
        "treat": ["fluid", "none", "none", "cut", "cut", "none"],
    }
)
ROLES = {"episode": "stay", "action": "treat"}
NAMES = ("pulse [1/min] below 77", "pulse [1/min] 77 to 93", "pulse [1/min] from 93")


def seen(demonstrations):
    return [row for trajectory in demonstrations.trajectories for row in trajectory.observations.tolist()]


def refused(source, **columns):
    with pytest.raises(UserError) as error:
        read(source, **columns)
    return str(error.value)


def test_ranges_by_hand():
    found = read(WARD, **ROLES, bins={"pulse": 3}, units={"pulse": "1/min"})
    assert found.observation_names == (*NAMES, "age")
    low, middle, high = [1, 0, 0], [0, 1, 0], [0, 0, 1]
    assert seen(found) == [[*low, 50], [*low, 50], [*middle, 70], [*middle, 70], [*high, 70], [*high, 70]]
    assert found.schema.one_hot == [[0, 1, 2]]
    assert found.schema.codes == [2, 2, 2, 0]
    assert found.schema.columns[0].edges == (77, 93)
    before = read(WARD, **ROLES, bins={"pulse": 3}, observations=["pulse"], history=1)
    assert [row[3:] for row in seen(before)] == [low, low, middle, middle, middle, high]


def test_ranges_and_gaps():
    gap = WARD.with_columns(pulse=pl.Series([None, 70.0, None, 90.0, 100.0, 110.0]))
    found, notes = read_with_notes(gap, **ROLES, bins={"pulse": 2}, missing="indicator", since_last=True, drop=["age"])
    assert found.observation_names[2:] == ("pulse missing", "time since pulse", "no pulse yet")
    (cut,) = found.schema.columns[0].edges
    mean = [float(cut > 92.5), float(cut <= 92.5)]
    assert seen(found)[:3] == [[*mean, 1, 0, 1], [1, 0, 0, 0, 0], [*mean, 1, 0, 1]]
    assert np.argwhere(np.concatenate(notes.filled)).tolist() == [[0, 0], [0, 1], [2, 0], [2, 1]]
    carried = read(gap[1:], **ROLES, bins={"pulse": 2}, missing="last", drop=["age"])
    assert seen(carried)[0] == [1, 0]


def test_later_tables_are_cut_alike(tmp_path):
    known = read(WARD, **ROLES, bins={"pulse": 3}, units={"pulse": "1/min"})
    schema = known.schema
    assert Schema.from_json(schema.as_json()) == schema
    later = pl.DataFrame({"age": [1, 2], "pulse": [-1e9, 77]})
    assert read_observations(later, schema).observations.tolist() == [[1, 0, 0, 1], [0, 1, 0, 2]]
    assert read(WARD[:2], schema=schema).observation_names == known.observation_names
    np.testing.assert_array_equal(rows_of(WARD, known.observation_names, schema), seen(known))
    numbers = pl.DataFrame(seen(known), schema=known.observation_names, orient="row")
    np.testing.assert_array_equal(rows_of(numbers, known.observation_names, schema), seen(known))
    sbil.save(known, tmp_path / "demos.npz")
    assert read(tmp_path / "demos.npz").schema == schema
    assert read(WARD, schema=schema, bins={"pulse": 2}).schema.columns[0].edges == (85,)


def test_a_person_may_say_where_to_cut():
    schema = {**ROLES, "columns": [{"name": "pulse", "edges": [75, 200]}]}
    found = read(WARD, schema=schema)
    assert found.observation_names == ("pulse below 75", "pulse 75 to 200", "pulse from 200")
    assert seen(found)[1:3] == [[1, 0, 0], [0, 1, 0]]


def test_equal_numbers_stay():
    found = read(WARD.with_columns(pulse=5), **ROLES, bins={"pulse": 3})
    assert found.observation_names == ("pulse", "age")
    assert read(WARD, schema=found.schema).observation_names == ("pulse", "age")


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"bins": {"puls": 3}}, "no column 'puls' (observation); did you mean 'pulse'?"),
        ({"bins": {"pulse": 1}}, "bins of 'pulse' must be a whole number from 2. Got 1."),
        ({"bins": {"pulse": 2.5}}, "bins of 'pulse' must be a whole number from 2. Got 2.5."),
        ({"bins": {"pulse": 101}}, "bins of 'pulse' must be a whole number from 2 to 100. Got 101."),
        ({"bins": ["pulse"]}, "bins must be a dict, such as {\"age\": 5}. Got ['pulse']."),
        ({"bins": {"pulse": 3}, "observations": ["age"]}, "column 'pulse' is not observed, so it cannot be cut"),
        ({"bins": {"treat": 3}}, "column 'treat' is not observed, so it cannot be cut"),
        ({"bins": {"age": 3}, "one_hot": ["age"]}, "column 'age' is a category and cannot be cut into ranges"),
        ({"bins": {"pulse": 3}, "drop": ["pulse"]}, "column 'pulse' is not observed, so it cannot be cut"),
    ],
)
def test_what_cannot_be_cut(given_, message):
    assert message in refused(WARD, **(ROLES | given_))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"edges": [2, 1]}, "the edges of column 'x' must be a list of numbers, each larger than the one before"),
        ({"edges": [1, 1]}, "each larger than the one before"),
        ({"edges": ["a"]}, "the edges of column 'x' must be a list of numbers"),
        ({"edges": [1e39]}, "the edges of column 'x' must be a list of numbers"),
        ({"edges": 3}, "the edges of column 'x' of a schema must be a list"),
        ({"bins": "3"}, "bins of column 'x' must be a whole number from 2"),
        ({"bins": 1000}, "bins of column 'x' must be a whole number from 2 to 100"),
        ({"edges": [1], "kind": "one-hot"}, "column 'x' is a category and cannot be cut into ranges"),
    ],
)
def test_a_schema_with_wrong_ranges(entries, message):
    with pytest.raises(UserError) as error:
        Schema.from_json({"action": "a", "columns": [{"name": "x", **entries}]})
    assert message in str(error.value)


def test_check_keeps_them():
    found = check(WARD, **ROLES, bins={"pulse": 3, "age": 2})
    assert "--bins pulse=3 age=2" in found.command
    assert "cannot be cut" in check(WARD, **ROLES, bins={"treat": 3}).problems[0].message


@given(
    st.lists(st.floats(-1e6, 1e6, width=32) | st.integers(-3, 3).map(float), min_size=1, max_size=60),
    st.integers(2, 9),
)
@settings(max_examples=100, deadline=None)
def test_ranges_hold_every_number_once(numbers, count):
    """At most so many ranges, the first and the last of which hold a number; every number is in one."""
    array = np.array(numbers, np.float32)
    edges = ranges.cuts(array, count)
    assert len(edges) < count
    assert bool(edges) == (len({*array.tolist()}) > 1)
    assert list(edges) == sorted({*edges})
    place = np.searchsorted(np.array(edges, np.float32), array, side="right")
    assert {0, len(edges)} <= {*place.tolist()}


def test_many_numbers_are_shared_out_evenly():
    numbers = np.random.default_rng(0).lognormal(size=5000).astype(np.float32)
    edges = ranges.cuts(numbers, 5)
    held = np.bincount(np.searchsorted(np.array(edges), numbers, side="right"))
    assert len(held) == 5
    assert (np.abs(held - 1000) < 100).all()
