"""The look at a table before training: its facts, what is wrong with it, and the command that follows."""

import json

import numpy as np
import polars as pl
import pytest

from sbil.demonstrations import check, read, reading, save
from tables import ROLES, in_process


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setattr(reading, "_elsewhere", in_process)


def stays(rows=40, **changes):
    """A table without faults: 10 stays of 4 hours."""
    hour = np.arange(rows) % 4
    columns = {
        "stay_id": np.arange(rows) // 4,
        "hour": hour,
        "pulse": 60.0 + np.arange(rows),
        "treatment": np.where(np.arange(rows) % 2, "fluid", "none"),
        "done": hour == 3,
        **changes,
    }
    return pl.DataFrame({name: values for name, values in columns.items() if values is not None})


def said(found, severity=None):
    return [f"{p.where}: {p.what}" for p in found.problems if severity in (None, p.severity)]


def test_a_table_without_faults(tmp_path):
    stays().write_csv(tmp_path / "my stays.csv", separator=";")
    found = check(tmp_path / "my stays.csv")
    assert found.description == "semicolon-separated, utf-8, decimal point"
    assert found.rows == 40
    assert found.roles == {
        **{"episode": "stay_id", "time": "hour", "action": "treatment", "terminal": "done", "group": None}
    }
    assert set(found.guessed) == {"episode", "time", "action", "terminal"}
    assert found.episodes == {"count": 10, "shortest": 4, "median": 4.0, "longest": 4, "of one step": 0}
    assert found.actions == {"fluid": 20, "none": 20}
    assert not said(found, "stops")
    assert not said(found, "harms")
    pulse = found.columns[2]
    assert (pulse.role, pulse.type, pulse.min, pulse.mean, pulse.max, pulse.distinct) == (
        *("observation", "whole number", 60, 79.5, 99),
        40,
    )
    assert found.columns[3].levels == ("fluid", "none")
    assert found.command == (
        f"sbil train edm --data '{tmp_path}/my stays.csv' --episode stay_id --time hour --action treatment "
        "--terminal done --out policy/"
    )
    json.dumps(found.as_json(), allow_nan=False)


def test_the_command_that_follows_does_not_say_again_what_a_schema_says(tmp_path):
    data, schema = tmp_path / "stays.csv", tmp_path / "stays.json"
    stays(site=np.tile(["a", "b"], 20)).write_csv(data)
    roles = {"episode": "stay_id", "time": "hour", "action": "treatment", "one_hot": ["site"], "missing": "mean"}
    schema.write_text(json.dumps(read(data, **roles).schema.as_json()))
    follows = f"sbil train edm --data {data} --schema {schema}"
    assert check(data, schema=schema).command == f"{follows} --terminal done --out policy/"
    assert check(data, schema=schema, terminal="done", missing="last", observations=["pulse"]).command == (
        f"{follows} --terminal done --observations pulse --missing last --out policy/"
    )


def test_the_command_that_follows_for_what_is_no_table(tmp_path):
    save(read(stays(), **ROLES | {"episode": "stay_id", "action": "treatment"}), tmp_path / "stays.npz")
    found = check(tmp_path / "stays.npz")
    assert found.command == f"sbil train edm --data {tmp_path}/stays.npz --out policy/"


def with_(values, at, value):
    values = list(values)
    for place in at:
        values[place] = value
    return values


PULSE = [float(60 + i) for i in range(40)]
TREAT = ["none", "fluid"] * 20
# name -> (columns changed, severity, words of the problem)
FAULTS = {
    "missing": ({"pulse": with_(PULSE, [3, 7], None)}, "stops", "'pulse': 2 missing (5.0%), first in row 4"),
    "text": ({"pulse": with_(map(str, PULSE), [4], "x")}, "stops", "'pulse': 1 cell is no number, first in row 5"),
    "infinite": ({"pulse": with_(PULSE, [4, 5], float("inf"))}, "stops", "'pulse': 2 cells are infinite"),
    "empty": ({"pulse": [None] * 40}, "stops", "'pulse': holds no value"),
    "sentinel -9": ({"pulse": with_(PULSE, [1], -9.0)}, "harms", "'pulse': 1 cell is a number such as -9"),
    "sentinel 999": ({"pulse": with_(PULSE, [1, 2], 999.0)}, "harms", "'pulse': 2 cells are a number such as"),
    "constant": ({"pulse": [1.0] * 40}, "note", "'pulse': the same value"),
    "text left out": ({"ward": ["a"] * 40}, "note", "'ward': text, left out"),
    "rare action": ({"treatment": with_(TREAT, [0], "cut")}, "harms", "'treatment': taken fewer than 10 times: 'cut'"),
    "one action": ({"treatment": ["none"] * 40}, "harms", "'treatment': only one action"),
    "missing action": (
        {"treatment": with_(TREAT, [5], None)},
        "stops",
        "'treatment': 1 missing (2.5%), first in row 6",
    ),
    "no action": ({"treatment": None}, "stops", "action: no column looks like"),
    "fraction": ({"treatment": None, "action": [0.5, 1.5] * 20}, "stops", "action: no column looks like"),
    "twice": ({"hour": with_(np.arange(40) % 4, [1], 0), "done": None}, "stops", "'hour': 1 times twice"),
    "after the end": ({"done": [True] + [False] * 39}, "stops", "'done': 1 rows follow the end"),
    "unsorted": ({"hour": 3 - np.arange(40) % 4, "done": None}, "note", "'hour': 30 rows are out of order"),
    "apart": ({"stay_id": np.arange(40) % 10, "hour": np.arange(40), "done": None}, "note", "'stay_id': the rows"),
    "one step": ({"stay_id": [*range(39), 38], "done": None}, "harms", "'stay_id': 38 of 39 episodes have one row"),
    "no episode": ({"stay_id": None}, "harms", "episode: no column"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults(case):
    changes, severity, words = FAULTS[case]
    found = check(stays(**changes))
    assert any(words in line for line in said(found, severity)), said(found)
    order = ["stops", "harms", "note"]
    ranks = [order.index(problem.severity) for problem in found.problems]
    assert ranks == sorted(ranks)
    assert all(problem.fix for problem in found.problems)


def test_given_faulty_action():
    found = check(stays(treatment=[0.5, 1.5] * 20), action="treatment")
    assert "column 'treatment': the actions have fractions" in said(found, "stops")


def test_small_counts_are_not_shown():
    found = check(stays(treatment=with_(TREAT, [0, 2, 4], "cut")))
    assert found.actions == {"cut": "< 10", "fluid": 20, "none": 17}
    assert "cut" not in found.columns[3].levels


def test_a_torn_group():
    found = check(stays(patient=np.arange(40) % 3))
    assert found.roles["group"] == "patient"
    assert "column 'patient': changes within episodes" in said(found, "stops")


def test_many_values_are_not_counted():
    rows = 4_000
    found = check(stays(rows, patient_no=np.arange(rows), group=None), **{"episode": "stay_id"})
    column = next(column for column in found.columns if column.name == "patient_no")
    assert column.distinct is None
    assert "column 'patient_no': looks like an identifier" in said(found, "harms")


def test_what_check_says_stops_read_and_what_it_commands_reads():
    """The command mends what it can: what is missing is filled."""
    frame = stays(pulse=with_(PULSE, [3], None), ward=["a", "b"] * 20)
    found = check(frame, one_hot=["ward"])
    assert "--one-hot ward --missing mean" in found.command
    with pytest.raises(ValueError, match="row 4, column 'pulse'"):
        read(frame, **{role: name for role, name in found.roles.items() if name}, one_hot=["ward"])
    roles = {role: name for role, name in found.roles.items() if name}
    assert len(read(frame, **roles, one_hot=["ward"], missing="mean")) == 10


def test_demonstrations_that_are_no_table(tmp_path):
    frame = stays().rename({"stay_id": "stay", "treatment": "treat"}).with_columns(pl.col("treat"))
    save(read(frame, **ROLES, observations=["pulse"]), tmp_path / "demos.npz")
    found = check(tmp_path / "demos.npz")
    assert (found.rows, found.episodes["count"], found.actions) == (40, 10, {"fluid": 20, "none": 20})


def test_a_file_that_is_no_table_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2,3\n")
    with pytest.raises(ValueError, match="line 2 has 3 cells"):
        check(tmp_path / "a.csv")
