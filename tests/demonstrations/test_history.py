"""What a row observes of the rows before it: by hand, on random tables, and again from later tables."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sbil
from sbil.dataset import make_dataset
from sbil.demonstrations import Column, Schema, check, history, read, read_observations
from sbil.demonstrations.reading import read_with_notes
from sbil.dynamics.triples import triples_of
from sbil.errors import UserError

WARD = pl.DataFrame(
    {
        "stay": [1, 1, 2, 2, 2],
        "hour": [1, 0, 0, 1, 2],
        "pulse": [61, 60, 80, 82, 84],
        "unit": ["ICU", "ER", "ER", "ER", "ICU"],
        "treat": ["fluid", "none", "none", "cut", "cut"],
    }
)
ROLES = {"episode": "stay", "time": "hour", "action": "treat", "observations": ("pulse",)}
BOTH = {"previous_action": True, "history": 2}


def seen(demonstrations):
    return [trajectory.observations.tolist() for trajectory in demonstrations.trajectories]


def refused(source, **columns):
    with pytest.raises(UserError) as error:
        read(source, **columns)
    return str(error.value)


def test_the_previous_action_by_hand():
    found = read(WARD, **ROLES, previous_action=True)
    assert found.observation_names == (
        *("pulse", "no previous action"),
        *("previous action: cut", "previous action: fluid", "previous action: none"),
    )
    assert seen(found) == [
        [[60, 1, 0, 0, 0], [61, 0, 0, 0, 1]],
        [[80, 1, 0, 0, 0], [82, 0, 0, 0, 1], [84, 0, 1, 0, 0]],
    ]
    assert found.schema.one_hot == [[1, 2, 3, 4]]
    assert found.schema.codes == [0, 2, 2, 2, 2]


def test_rows_before_by_hand():
    found = read(WARD, **ROLES, history=2, one_hot=("unit",), units={"pulse": "1/min"})
    row = ("pulse [1/min]", "unit=ER", "unit=ICU")
    before = [f"{name}, {when}" for when in ("1 row before", "2 rows before") for name in row]
    assert found.observation_names == (*row, *before)
    er, icu = [1, 0], [0, 1]
    assert seen(found) == [
        [[60, *er, 60, *er, 60, *er], [61, *icu, 60, *er, 60, *er]],
        [[80, *er, 80, *er, 80, *er], [82, *er, 80, *er, 80, *er], [84, *icu, 82, *er, 80, *er]],
    ]
    assert found.schema.one_hot == [[1, 2], [4, 5], [7, 8]]
    assert found.schema.codes == [0, 2, 2] * 3


def test_both_with_gaps_that_are_filled():
    gap = WARD.with_columns(pulse=pl.Series([61, 60, 80, None, 84]))
    found, notes = read_with_notes(gap, **ROLES, **BOTH, missing="last")
    first, second = seen(found)
    assert first == [[60, 60, 60, 1, 0, 0, 0], [61, 60, 60, 0, 0, 0, 1]]
    assert second == [[80, 80, 80, 1, 0, 0, 0], [80, 80, 80, 0, 0, 0, 1], [84, 80, 80, 0, 1, 0, 0]]
    assert notes.filled[1][:, :3].tolist() == [[False] * 3, [True, False, False], [False, True, False]]
    assert not notes.filled[1][:, 3:].any()


def test_dropped_rows_do_not_count():
    gap = WARD.with_columns(pulse=pl.Series([61, 60, 80, None, 84]))
    found = read(gap, **ROLES, **BOTH, missing="drop")
    assert seen(found)[1] == [[80, 80, 80, 1, 0, 0, 0], [84, 80, 80, 0, 0, 0, 1]]
    assert read_observations(gap, found.schema).observations.tolist() == [*seen(found)[0][::-1], *seen(found)[1]]


def test_without_the_options_nothing_changes():
    plain = read(WARD, **ROLES)
    assert plain.observation_names == ("pulse",)
    assert not {"previous_action", "history"} & plain.schema.as_json().keys()
    for given_ in ({}, {"previous_action": None, "history": None}, {"previous_action": False, "history": 0}):
        assert read(WARD, **ROLES, **given_).schema == plain.schema
    both = read(WARD, **ROLES, **BOTH).schema
    assert Schema.from_json(both.as_json()) == both
    assert read(WARD, schema=both).schema == both
    assert read(WARD, schema=both, previous_action=False, history=np.int64(1)).schema == replace(
        both, previous_action=False, history=1
    )


@st.composite
def frames(draw):
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    rows = [(stay, hour) for stay, length in enumerate(lengths) for hour in range(length)]
    places = draw(st.permutations(range(len(rows))))
    actions = draw(st.lists(st.sampled_from(["none", "some", "7"]), min_size=len(rows), max_size=len(rows)))
    frame = pl.DataFrame(rows, schema=["stay", "hour"], orient="row").with_columns(
        treat=pl.Series(actions), pulse=pl.Series(range(100, 100 + len(rows))).cast(pl.Float64)
    )
    return frame, frame[places]


@given(frames(), st.integers(0, 6), st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_no_row_observes_another_episode(drawn, rows_before, block):
    """Every number is found again by looking the row before up in the table."""
    frame, shuffled = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "BLOCK", block)
        found = read(shuffled, **ROLES, previous_action=True, history=rows_before)
        again = read_observations(shuffled, found.schema)
    at = {(stay, hour): (pulse, action) for stay, hour, action, pulse in frame.iter_rows()}
    names = found.action_names

    def expected(stay, hour):
        pulses = [at[stay, max(hour - back, 0)][0] for back in range(rows_before + 1)]
        previous = at[stay, hour - 1][1] if hour else None
        return [*pulses, previous is None, *(previous == name for name in names)]

    for name, trajectory in zip(found.ids, found.trajectories, strict=True):
        told = [expected(int(name), hour) for hour in range(len(trajectory))]
        np.testing.assert_array_equal(trajectory.observations, told)
    in_file = [expected(stay, hour) for stay, hour in shuffled.select("stay", "hour").iter_rows()]
    np.testing.assert_array_equal(again.observations, in_file)


def test_the_next_state_holds_the_action_of_the_row():
    """The model of what follows a decision learns from such pairs."""
    found = read(WARD, **ROLES, **BOTH)
    triples = triples_of(make_dataset(found, [np.arange(2)]), one_hot=found.schema.one_hot)
    known = np.asarray(triples.has_next[0])
    state, after = np.asarray(triples.state[0])[known], np.asarray(triples.after[0])[known]
    np.testing.assert_array_equal(after[:, 4:], np.eye(3)[np.asarray(triples.action[0])[known]])
    assert not after[:, 3].any()
    np.testing.assert_array_equal(after[:, 1:3], state[:, :2])
    assert np.asarray(triples.groups[0]).tolist() == [[3, 4, 5, 6]]


def test_a_later_table_needs_the_actions_of_earlier_rows_only():
    known = read(WARD, **ROLES, **BOTH)
    states = read_observations(WARD, known.schema).observations
    later = WARD.with_columns(treat=pl.Series([None, "none", "none", "cut", ""]))
    np.testing.assert_array_equal(read_observations(later, known.schema).observations, states)
    first = WARD[1:3].with_columns(treat=pl.lit(None))
    np.testing.assert_array_equal(read_observations(first, known.schema).observations, states[1:3])
    lags = replace(known.schema, previous_action=False)
    np.testing.assert_array_equal(read_observations(WARD.drop("treat"), lags).observations, states[:, :3])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            WARD.drop("treat"),
            "no column 'treat' (action), and the policy observes the previous action; add the actions",
        ),
        (WARD.drop("stay"), "no column 'stay' (episode)"),
        (WARD.drop("hour"), "no column 'hour' (time)"),
        (
            WARD.with_columns(treat=pl.Series(["fluid", "none", "none", None, "cut"])),
            "row 4, column 'treat': missing action, and the policy observes it in the next row of the episode; fill it",
        ),
        (
            WARD.with_columns(treat=pl.Series(["fluid", "none", "none", "odd", "cut"])),
            "row 4, column 'treat': the action 'odd' is not in the schema",
        ),
        (WARD.with_columns(hour=pl.Series([1, 1, 0, 1, 2])), "row 2, column 'hour': the same time as in"),
        (WARD.with_columns(hour=pl.Series([1, None, 0, 1, 2])), "row 2, column 'hour': missing value"),
    ],
)
def test_a_later_table_that_lacks_something(table, message):
    schema = read(WARD, **ROLES, **BOTH).schema
    with pytest.raises(UserError) as error:
        read_observations(table, schema)
    assert message in str(error.value)


def test_bad_options():
    assert "previous_action must be True or False. Got 1" in refused(WARD, **ROLES, previous_action=1)
    for wrong in (-1, 2.5, "2", True):
        assert "history must be a whole number from 0" in refused(WARD, **ROLES, history=wrong)
    assert "from 0 to 100. Got 101" in refused(WARD, **ROLES, history=101)
    alone = {"action": "treat", "observations": ("pulse",)}
    assert "previous_action needs episodes; name their column" in refused(WARD, **alone, previous_action=True)
    assert "history needs episodes; name their column" in refused(WARD, **alone, history=1)
    clash = WARD.rename({"pulse": "previous action: cut"})
    columns = ROLES | {"observations": ("previous action: cut",)}
    assert "two columns become a number called 'previous action: cut'" in refused(clash, **columns, **BOTH)
    with pytest.raises(UserError, match="previous_action must be"):
        Schema.from_json({"action": "a", "episode": "e", "columns": ["x"], "previous_action": "yes"})
    with pytest.raises(UserError, match="history needs episodes"):
        Schema("a", (Column("x"),), history=1)


def test_only_tables_have_rows_before(tmp_path):
    sbil.save(read(WARD, **ROLES), tmp_path / "demos.npz")
    assert "columns can be given for a table" in refused(tmp_path / "demos.npz", previous_action=True)
    both = read(WARD, **ROLES, **BOTH)
    sbil.save(both, tmp_path / "both.npz")
    again = read(tmp_path / "both.npz")
    assert (again.schema, again.observation_names) == (both.schema, both.observation_names)


def test_check_says_what_is_added():
    roles = {role: name for role, name in ROLES.items() if role != "observations"}
    found = check(WARD, **roles, **BOTH)
    assert found.added == read(WARD, **roles, **BOTH).observation_names[1:]
    assert "--previous-action" in found.command
    assert "--history 2" in found.command
    plain = check(WARD, **roles)
    assert plain.added == ()
    assert "--history" not in plain.command
    assert "--previous-action" not in plain.command
    alone = check(WARD.drop("stay"), action="treat", history=1)
    assert any("history needs episodes" in problem.message for problem in alone.problems)


def test_check_names_levels_and_what_contradicts():
    found = check(WARD, **ROLES, history=1, one_hot=("unit",))
    assert found.added == ("pulse, 1 row before", "unit=ER, 1 row before", "unit=ICU, 1 row before")
    clash = WARD.rename({"pulse": "previous action: cut"})
    found = check(clash, **(ROLES | {"observations": ("previous action: cut",)}), previous_action=True)
    assert found.blocked
    assert "two columns become a number called 'previous action: cut'" in found.problems[0].message
