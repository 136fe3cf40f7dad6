"""The rules for tables: `check` lists what `read` refuses, in the same words; ends of episodes; columns left out."""

import io

import numpy as np
import polars as pl
import pytest
from tables import GOOD, ROLES, in_process
from test_malformed import BYTES, LISTED, MEANING, TYPES, frame

from sbil.demonstrations import Demonstrations, check, read, read_observations, reader_process, save
from sbil.errors import UserError


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setattr(reader_process, "elsewhere", in_process)


def refusal(call):
    """The line that a call refuses with, or nothing."""
    try:
        call()
    except UserError as error:
        return str(error)
    return ""


def assert_check_lists_what_read_refuses(source, arguments):
    """With the roles that `check` found. Both may refuse the whole table with the same line."""
    if whole := refusal(lambda: check(source, **arguments)):
        assert refusal(lambda: read(source, **arguments)) == whole
        return
    found = check(source, **arguments)
    roles = {role: name for role, name in found.roles.items() if name}
    line = refusal(lambda: read(source, **{**arguments, **roles}))
    stops = [problem for problem in found.problems if problem.severity == "stops"]
    assert bool(stops) == bool(line), (line, stops)
    assert not line or any(problem.message in line for problem in stops), (line, stops)
    assert all(problem.rule and problem.remedy for problem in found.problems)


@pytest.mark.parametrize("case", BYTES)
def test_tables_that_are_no_tables(tmp_path, case):
    content, _ = BYTES[case]
    path = tmp_path / "stays.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_check_lists_what_read_refuses(path, ROLES)


@pytest.mark.parametrize("case", MEANING)
def test_tables_that_mean_nothing(tmp_path, case):
    content, arguments, _ = MEANING[case]
    path = tmp_path / "stays.csv"
    path.write_text(content)
    assert_check_lists_what_read_refuses(path, {**ROLES, **arguments})


@pytest.mark.parametrize("case", TYPES)
def test_types_that_are_no_cells(case):
    changes, arguments, _ = TYPES[case]
    assert_check_lists_what_read_refuses(frame(**changes), {**ROLES, **arguments})


def test_all_the_problems_of_a_table_are_listed_at_once(tmp_path):
    """`read` names the first problem with its row; `check` names all with their counts."""
    path = tmp_path / "stays.csv"
    path.write_text(GOOD.replace("60", "x").replace("82", "1e39").replace("61", '"1,061"') + "2,1,83,f,cut\n")
    stops = [problem for problem in check(path, **ROLES).problems if problem.severity == "stops"]
    assert [(problem.rule, problem.column, problem.row, problem.count) for problem in stops] == [
        ("not a number", "pulse", 2, 1),
        ("other notation", "pulse", 3, 1),
        ("too large", "pulse", 5, 1),
        ("same time", "hour", 6, 1),
    ]
    with pytest.raises(UserError, match=r"stays\.csv, line 2, column 'pulse': not a number; correct the cell"):
        read(path, **ROLES)
    listed = check(path, **ROLES).as_json()["problems"]
    assert listed[0]["where"] == "column 'pulse'"
    assert {"rule", "severity", "where", "what", "fix", "column", "file", "row", "count"} == {*listed[0]}


def test_missing_values_are_counted_by_column():
    gaps = frame(pulse=[None, 61.0, None], treat=["a", None, "b"])
    with pytest.raises(UserError, match=r"row 1, column 'pulse': missing value, 3 in all \('pulse' 2, 'treat' 1\);"):
        read(gaps, **ROLES)


# ---- the ends of episodes


def ends(**columns):
    """Two episodes of two rows, with flags."""
    return pl.DataFrame({"e": [1, 1, 2, 2], "t": [0, 1, 0, 1], "x": [1.0, 2, 3, 4], "a": ["u", "v"] * 2, **columns})


ENDS = {"episode": "e", "time": "t", "action": "a"}


def test_truncated_is_a_role(tmp_path):
    table = ends(done=[0, 1, 0, 0], cut=[0, 0, 0, 1])
    found = read(table, **ENDS, terminal="done", truncated="cut")
    assert [(t.terminal, t.truncated) for t in found.trajectories] == [(True, False), (False, True)]
    assert found.schema.truncated == "cut"
    again = read(table, schema=found.schema)
    assert [(t.terminal, t.truncated) for t in again.trajectories] == [(True, False), (False, True)]
    assert "truncated" not in read(table, **ENDS).schema.as_json()  # as schemas were before sbil knew the role
    save(found, tmp_path / "ends.npz")
    kept = read(tmp_path / "ends.npz")
    assert [t.truncated for t in kept.trajectories] == [False, True]
    assert kept.schema == found.schema
    assert len(read_observations(table, found.schema).observations) == 4


@pytest.mark.parametrize(
    ("columns", "words"),
    {
        "both": ({"done": [0, 1, 0, 0], "cut": [0, 1, 0, 1]}, "row 2 'cut' truncated and terminal ('done') at once"),
        "early": ({"done": [0, 1, 0, 0], "cut": [0, 0, 1, 0]}, "row 3 'cut' only the last row"),
        "not a flag": ({"done": [0, 1, 0, 0], "cut": [0, 2, 0, 0]}, "row 2 'cut' 0 or 1"),
        "words": ({"done": [0, 1, 0, 0], "cut": ["no", "no", "x", "yes"]}, "row 3 'cut' 0 or 1"),
        "missing": ({"done": [0, 1, 0, 0], "cut": [0, None, 0, 1]}, "row 2 'cut' missing value"),
        "one column for both": ({"cut": [0, 1, 0, 1]}, "'cut' two roles"),
    }.values(),
)
def test_bad_ends(columns, words):
    roles = {**ENDS, "terminal": "done" if "done" in columns else "cut", "truncated": "cut"}
    line = refusal(lambda: read(ends(**columns), **roles))
    assert all(word in line for word in words.split()), line
    assert_check_lists_what_read_refuses(ends(**columns), roles)


def test_truncated_is_guessed_by_its_name():
    found = check(ends(truncated=[0, 0, 0, 1], done=[0, 1, 0, 1]))
    assert (found.roles["truncated"], found.roles["terminal"]) == ("truncated", None)  # here `done` means either end
    assert next(column for column in found.columns if column.name == "done").role == "left out"
    assert "--truncated truncated" in found.command
    found = check(ends(truncated=[0, 0, 0, 1], terminated=[0, 1, 0, 0]))
    assert (found.roles["truncated"], found.roles["terminal"]) == ("truncated", "terminated")
    assert check(ends(done=[0, 1, 0, 1])).roles["terminal"] == "done"


def test_what_a_person_observes_is_no_end_and_no_action():
    """A column that is given as an observation is not guessed to be the end, as an earlier version did."""
    table = ends(done=[0, 1, 0, 1])
    found = check(table, observations=["x", "done"])
    assert found.roles["terminal"] is None
    assert not found.blocked
    assert read(table, **ENDS, observations=["x", "done"]).observation_names == ("x", "done")


# ---- what became known after the decision


AFTER = {
    "reward": "a reward",
    "step_reward": "a reward",
    "return": "a return",
    "return_to_go": "a return",
    "next_x": "a next state",
    "nextPulse": "a next state",
    "terminated": "the end of an episode",
}


@pytest.mark.parametrize("name", AFTER)
def test_what_became_known_later_is_not_observed(name):
    """It is observed only if a person names it. Both read and check say so."""
    table = ends(**{name: [0.0, 1, 0, 1]})
    found = read(table, **ENDS)
    assert found.observation_names == ("x",)
    assert found.provenance["left_out_columns"] == [name]
    checked = check(table, **ENDS, terminal=None)
    column = next(column for column in checked.columns if column.name == name)
    if name != "terminated":  # which is guessed to be the end
        assert column.role == "left out"
        note = next(problem for problem in checked.problems if problem.column == name)
        assert note.message == f"looks like {AFTER[name]}: left out"
        assert note.remedy == "name it in observations (--observations) to use it"
    assert read(table, **ENDS, observations=["x", name]).observation_names == ("x", name)
    assert read(table, **ENDS, one_hot=[name]).observation_names == ("x", f"{name}=0", f"{name}=1")


@pytest.mark.parametrize("name", ["return_visits", "rewarded", "next", "nextdoor", "done_by", "time_of_reward_day"])
def test_other_names_are_observed(name):
    assert read(ends(**{name: [0.0, 1, 0, 1]}), **ENDS).observation_names == ("x", name)


# ---- what check takes


def test_check_takes_demonstrations():
    table = ends(reward=[0.0, 1, 0, 1])
    found = read(table, **ENDS, observations=["x", "reward"])
    checked = check(found)
    assert (checked.rows, checked.episodes.count, checked.source) == (4, 2, "the demonstrations")
    assert [c.name for c in checked.columns if c.role == "observation"] == ["x", "reward"]
    assert checked.command == "sbil train edm --data 'the demonstrations' --out policy/"
    assert isinstance(found, Demonstrations)


def test_check_takes_a_pandas_frame():
    pandas = pytest.importorskip("pandas")
    content = io.StringIO(GOOD)
    assert check(pandas.read_csv(content), **ROLES).rows == 4


def test_states_are_refused_by_the_same_rules(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("pulse,sex\n60,m\n,m\nx,m\n")
    assert "line 4, column 'pulse': not a number" in refusal(lambda: read_observations(path, LISTED))
    path.write_text("pulse,sex\n60,m\n,m\n61,f\n")
    assert "line 3, column 'pulse': missing value, 1 in all ('pulse' 1)" in refusal(
        lambda: read_observations(path, LISTED)
    )
    path.write_text("pulse,sex\n,m\n,f\n")
    assert "column 'pulse': has no value in any row" in refusal(lambda: read_observations(path, LISTED))
    assert np.isfinite(read_observations(frame(sex=["m"] * 3), LISTED).observations).all()
