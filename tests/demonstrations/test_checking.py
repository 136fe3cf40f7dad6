"""The look at a table before training: its facts, what is wrong with it, and the command that follows."""

import csv
import json
import shlex

import numpy as np
import polars as pl
import pytest
from tables import ROLES, in_process

from sbil.demonstrations import Column, EpisodeFacts, Schema, check, counting, read, reader_process, save


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setattr(reader_process, "elsewhere", in_process)


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
        **{
            "episode": "stay_id",
            "time": "hour",
            "action": "treatment",
            "terminal": "done",
            "truncated": None,
            "weights": None,
            "group": None,
        }
    }
    assert set(found.guessed) == {"episode", "time", "action", "terminal"}
    assert found.episodes == EpisodeFacts(count=10, shortest=4, median=4.0, longest=4, single=0)
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


def test_dropped_columns_are_neither_guessed_nor_judged():
    table = stays(reward=range(40), label=["a", "b"] * 20)
    found = check(table, drop=["treatment", "reward"])
    assert found.roles["action"] == "label"
    assert {column.name: column.role for column in found.columns}["reward"] == "dropped"
    assert not [problem for problem in found.problems if problem.column in ("reward", "treatment")]
    assert "--drop treatment reward" in found.command
    assert [problem for problem in check(table).problems if problem.column == "reward"]


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
    "missing": (
        {"pulse": with_(PULSE, [3, 7], None)},
        "stops",
        "'pulse': missing value (2 cells, first in the data frame, row 4)",
    ),
    "text": (
        {"pulse": with_(map(str, PULSE), [4], "x")},
        "stops",
        "'pulse': not a number (1 cell, first in the data frame, row 5)",
    ),
    "infinite": (
        {"pulse": with_(PULSE, [4, 5], float("inf"))},
        "stops",
        "'pulse': the number is infinite or too large for float32 (2 cells",
    ),
    "empty": ({"pulse": [None] * 40}, "stops", "'pulse': has no value in any row"),
    "sentinel -9": (
        {"pulse": with_(PULSE, [1], -9.0)},
        "harms",
        "'pulse': a number such as -9 or 999, far from all others (1 cell)",
    ),
    "sentinel 999": (
        {"pulse": with_(PULSE, [1, 2], 999.0)},
        "harms",
        "'pulse': a number such as -9 or 999, far from all others (2 cells)",
    ),
    "constant": ({"pulse": [1.0] * 40}, "note", "'pulse': the same value"),
    "text left out": ({"ward": ["a"] * 40}, "note", "'ward': text: left out"),
    "rare action": ({"treatment": with_(TREAT, [0], "cut")}, "harms", "'treatment': taken fewer than 10 times: 'cut'"),
    "one action": ({"treatment": ["none"] * 40}, "harms", "'treatment': only one action"),
    "missing action": (
        {"treatment": with_(TREAT, [5], None)},
        "stops",
        "'treatment': missing value (1 cell, first in the data frame, row 6)",
    ),
    "no action": ({"treatment": None}, "stops", "the table: no column looks like the action"),
    "fraction": ({"treatment": None, "action": [0.5, 1.5] * 20}, "stops", "the table: no column looks like the action"),
    "twice": (
        {"hour": with_(np.arange(40) % 4, [1], 0), "done": None},
        "stops",
        "'hour': the same time as in the data frame, row 1, in one episode (1 row, first in the data frame, row 2)",
    ),
    "after the end": (
        {"done": [True] + [False] * 39},
        "stops",
        "'done': the episode ends here and more of its rows follow (1 row,",
    ),
    "unsorted": (
        {"hour": 3 - np.arange(40) % 4, "done": None},
        "note",
        "'hour': rows are not in the order of their times (30 rows)",
    ),
    "apart": ({"stay_id": np.arange(40) % 10, "hour": np.arange(40), "done": None}, "note", "'stay_id': the rows"),
    "one step": ({"stay_id": [*range(39), 38], "done": None}, "harms", "'stay_id': 38 of 39 episodes have one row"),
    "no episode": ({"stay_id": None}, "harms", "the table: no column looks like the episode"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults(case):
    changes, severity, words = FAULTS[case]
    found = check(stays(**changes))
    assert any(words in line for line in said(found, severity)), said(found)
    order = ["stops", "harms", "note"]
    ranks = [order.index(problem.severity) for problem in found.problems]
    assert ranks == sorted(ranks)
    assert all(problem.remedy for problem in found.problems)


def test_given_faulty_action():
    found = check(stays(treatment=[0.5, 1.5] * 20), action="treatment")
    assert any("'treatment': the action is a number with a fraction" in line for line in said(found, "stops"))


def test_small_counts_are_not_shown():
    found = check(stays(treatment=with_(TREAT, [0, 2, 4], "cut")))
    assert found.actions == {"cut": "< 10", "fluid": 20, "none": 17}
    assert "cut" not in found.columns[3].levels


def test_a_torn_group():
    found = check(stays(patient=np.arange(40) % 3))
    assert found.roles["group"] == "patient"
    assert any("'patient': the group changes within an episode" in line for line in said(found, "stops"))


def test_many_values_are_not_counted():
    rows = 4_000
    found = check(stays(rows, patient_no=np.arange(rows), group=None), **{"episode": "stay_id"})
    column = next(column for column in found.columns if column.name == "patient_no")
    assert column.distinct is None
    assert "column 'patient_no': looks like an identifier" in said(found, "harms")


# ---- the decimal sign

LABS = "stay;hour;icd;crea;pulse;treat\n" + "".join(
    f"{i // 4};{i % 4};{250 + i % 3}.0{i % 2};1,{i % 9};{60 + i},5;{'ab'[i % 2]}\n" for i in range(40)
)
STAYS = {"episode": "stay", "time": "hour", "action": "treat"}


@pytest.mark.parametrize("delimiter", [";", ","])
def test_one_column_of_codes_does_not_turn_the_decimal_sign(tmp_path, delimiter):
    """Laboratory values are numbers; the codes stop both check and read until somebody says what they are."""
    path = tmp_path / "labs.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(line.split(";") for line in LABS.splitlines())
    found = check(path, **STAYS)
    assert found.description.endswith("decimal comma")
    assert (found.columns[4].role, found.columns[4].mean) == ("observation", 80)
    stops = [problem for problem in found.problems if problem.severity == "stops"]
    assert [problem.where for problem in stops] == ["column 'icd'"]
    assert stops[0].what.startswith("a number in another notation")
    assert (stops[0].count, stops[0].row, stops[0].file) == (40, 2, str(path))
    assert "40 cells, first in labs.csv, line 2" in stops[0].what
    assert "--categories" in stops[0].remedy
    assert found.blocked
    with pytest.raises(
        ValueError, match="line 2, column 'icd': a number in another notation; the file is read with a decimal comma"
    ):
        read(path, **STAYS)
    assert not check(path, **STAYS, categories=["icd"]).blocked
    taken = read(path, **STAYS, categories=["icd"])
    assert taken.observation_names == ("icd", "crea", "pulse")
    assert taken.trajectories[0].observations[:, 2].tolist() == [60.5, 61.5, 62.5, 63.5]


def test_the_files_of_a_folder_have_their_own_decimal_signs(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    lines = LABS.replace(";250.0", ";250,0").replace(";251.0", ";251,0").replace(";252.0", ";252,0").splitlines()
    (folder / "1.csv").write_text("\n".join(lines[:21]).replace(",", ".").replace(";", ",") + "\n")
    (folder / "2.csv").write_text("\n".join([lines[0], *lines[21:]]) + "\n")
    found = check(folder, **STAYS)
    assert found.description.startswith("2 files, the first comma-separated")
    assert not said(found, "stops")
    pulse = next(column for column in found.columns if column.name == "pulse")
    assert (pulse.role, pulse.type, pulse.mean) == ("observation", "number", 80)
    assert read(folder, **STAYS).flat().observation[:, 2].tolist() == [60.5 + i for i in range(40)]
    text = (folder / "2.csv").read_text()
    (folder / "2.csv").write_text(text.replace("80,5", "80.5"))
    assert any(
        "'pulse': a number in another" in line and "(1 cell, first in 2.csv, line 2)" in line
        for line in said(check(folder, **STAYS))
    )
    with pytest.raises(
        ValueError,
        match=r"2\.csv, line 2, column 'pulse': a number in another notation; the file is read with a decimal comma",
    ):
        read(folder, **STAYS)


def test_check_and_read_take_the_same_columns_for_numbers(tmp_path):
    """The first batch decides. Text in a later batch stops both; neither leaves the column out."""
    folder = tmp_path / "parts"
    folder.mkdir()
    head = "stay,hour,pulse,note,treat\n"
    (folder / "1.csv").write_text(head + "".join(f"1,{i},{60 + i}.5,,{'ab'[i % 2]}\n" for i in range(10)))
    (folder / "2.csv").write_text(head + "".join(f"2,{i},{60 + i}.5,slept well,{'ab'[i % 2]}\n" for i in range(30)))
    assert "column 'note': not a number (30 cells, first in 2.csv, line 2)" in said(check(folder, **STAYS), "stops")
    with pytest.raises(ValueError, match=r"2\.csv, line 2, column 'note': not a number"):
        read(folder, **STAYS)


# ---- what is a name


def test_none_is_an_action_and_a_level(tmp_path):
    for actions, type_ in ((["none", "1", "2", "3"] * 10, "text"), (["none"] * 40, "text")):
        found = check(stays(treatment=actions, mode=["none", "NA"] * 20), one_hot=["mode"])
        treatment, mode = (next(c for c in found.columns if c.name == name) for name in ("treatment", "mode"))
        assert (treatment.missing, treatment.type, sum(found.actions.values())) == (0, type_, 40)
        assert mode.missing == 20
        assert [line for line in said(found, "stops")] == [
            "column 'mode': missing value (20 cells, first in the data frame, row 2)"
        ]
        roles = {role: name for role, name in found.roles.items() if name}
        assert read(stays(treatment=actions), **roles).action_names == tuple(sorted(set(actions)))


def test_a_level_that_a_schema_lists_is_not_missing():
    frame = stays(mode=["none", "NA"] * 20)
    schema = Schema("treatment", (Column("mode", "one-hot", ("NA", "none")),), episode="stay_id", time="hour")
    found = check(frame, schema=schema)
    assert next(column for column in found.columns if column.name == "mode").missing == 0
    assert not said(found, "stops")
    assert len(read(frame, schema=schema)) == 10


# ---- excluded episodes


def test_excluded_episodes_are_not_looked_at(tmp_path):
    frame = stays(pulse=with_(map(str, PULSE), [4, 5], "broken"))
    roles = {"episode": "stay_id", "time": "hour", "action": "treatment"}
    assert said(check(frame, **roles), "stops")
    found = check(frame, **roles, exclude=["stay_id", "1", "3"])  # the first is a heading
    assert not said(found, "stops")
    assert (found.rows, found.episodes.count) == (32, 8)
    assert read(frame, **roles, exclude=["1", "3"]).ids == ("0", "2", "4", "5", "6", "7", "8", "9")
    (tmp_path / "flagged.csv").write_text("stay_id\n1\n3\n")
    assert len(read(frame, **roles, exclude=tmp_path / "flagged.csv")) == 8
    assert check(frame, **roles, exclude=tmp_path / "flagged.csv").command.endswith("flagged.csv")
    for look in (check, read):
        with pytest.raises(ValueError, match="1 of the episodes to exclude are not in the data, for example '77'"):
            look(frame, **roles, exclude=["1", "77"])
        with pytest.raises(ValueError, match="none is left"):
            look(frame, **roles, exclude=[str(i) for i in range(10)])
        with pytest.raises(ValueError, match="excluded by name"):
            look(frame.drop("stay_id", "hour"), action="treatment", exclude=["1"])


# ---- what is valid but harmful


def wards(**changes):
    """123 stays of 62 patients, four hours each."""
    stay, rng = np.repeat(np.arange(123), 4), np.random.default_rng(0)
    columns = {
        "stay": stay,
        "hour": np.tile(np.arange(4), 123),
        "pulse": rng.normal(80, 10, 492),
        "age": rng.integers(18, 90, 123)[stay],
        "weight": rng.normal(80, 10, 123)[stay],
        "treat": rng.choice(["a", "b"], 492),
        **changes,
    }
    return pl.DataFrame(columns)


STAY = np.repeat(np.arange(123), 4)
NAMELESS = {
    "one an episode": ({"hadm": 5_000 + 7 * STAY}, {}, ["hadm"]),
    "one a patient, by its name": ({"mrn": 300 + STAY // 2}, {}, ["mrn"]),
    "one a patient": ({"code": 300 + STAY // 2, "patient": STAY // 2}, {"group": "patient"}, ["code"]),
    "text": ({"code": [f"p{i}" for i in STAY]}, {"one_hot": ["code"]}, ["code"]),
    "a few wards": ({"ward_id": STAY % 5}, {}, []),
    "changing": ({"code": np.arange(492)}, {}, []),
}


@pytest.mark.parametrize("case", NAMELESS)
def test_identifiers(case):
    """An age (shared by some) and a weight (with fractions) are no identifiers."""
    columns, roles, names = NAMELESS[case]
    found = check(wards(**columns), **STAYS, **roles)
    assert [problem.column for problem in found.problems if problem.rule == "identifier"] == names


def test_rows_that_are_copies():
    frame = wards().select("pulse", "age", "treat")
    assert not any("same as an earlier" in line for line in said(check(frame, action="treat")))
    twice = pl.concat([frame, frame[:30], frame[:1]])
    line = "the table: rows are the same as an earlier row in every column (31 rows, first in the data frame, row 493)"
    assert line in said(check(twice, action="treat"), "harms")
    within = wards().drop("hour")
    found = check(pl.concat([within, within[:1]]), episode="stay", action="treat")
    assert (
        "the table: rows are the same as an earlier row in every column (1 row, first in the data frame, row 493)"
        in said(found, "note")
    )


def test_copies_among_too_many_rows_are_not_counted(monkeypatch):
    monkeypatch.setattr(counting, "MOST_ROWS", 100)
    found = check(wards().select("pulse", "treat"), action="treat")
    assert "the table: too many rows to look for copies among them" in said(found, "note")


@pytest.mark.parametrize(
    ("values", "coarse"),
    [
        (1e9 + np.arange(492) % 3, 1),
        (1e9 + 1e6 * np.arange(492), 0),
        (np.float64(np.finfo("f4").max) / np.r_[1:493], 0),
    ],
)
def test_what_float32_cannot_tell_apart(values, coarse):
    found = check(wards(pulse=values), **STAYS)
    words = "column 'pulse': varies by less than float32 can tell at its size"
    assert said(found, "harms").count(words) == coarse
    assert len(np.unique(values.astype(np.float32))) == (1 if coarse else 492)


# ---- what follows


def test_the_command_comes_after_what_it_cannot_mend():
    gap = {"pulse": with_(PULSE, [3], None)}
    assert not check(stays(**gap)).blocked  # the command says --missing mean
    assert check(stays(**gap, treatment=with_(TREAT, [3], None))).blocked
    dropped = check(stays(**gap, treatment=with_(TREAT, [3], None)), missing="drop")
    assert not dropped.blocked
    assert dropped.as_json()["blocked"] is False
    assert [p.remedy for p in dropped.problems if "missing" in p.what] == ["such rows are left out"] * 2
    carried = next(p for p in check(stays(**gap), missing="last").problems if "missing" in p.what)
    assert (carried.severity, carried.remedy.split(",")[0]) == ("note", "filled with the last value of the episode")


def test_what_check_says_stops_read_and_what_it_commands_reads():
    """The suggested command fixes what it can: it fills missing values."""
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
    assert (found.rows, found.episodes.count, found.actions) == (40, 10, {"fluid": 20, "none": 20})


def test_a_file_that_is_no_table_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2,3\n")
    with pytest.raises(ValueError, match="line 2 has 3 cells"):
        check(tmp_path / "a.csv")


def offered(command):
    """The options of a command as arguments of `read`."""
    words, roles = shlex.split(command)[5:-2], {}
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            roles[name] = [] if name in ("observations", "categories", "one_hot") else None
        elif isinstance(roles[name], list):
            roles[name].append(word)
        else:
            roles[name] = word
    return roles


@pytest.mark.parametrize("rule", [None, "mean", "last", "drop"])
@pytest.mark.parametrize("case", FAULTS)
def test_the_command_runs_unless_something_is_to_be_mended_first(case, rule):
    frame = stays(**FAULTS[case][0], mode=with_(TREAT, [7, 11], None) if case == "missing" else TREAT)
    found = check(frame, missing=rule, one_hot=["mode"])
    if found.blocked:
        with pytest.raises(ValueError, match=r"."):
            read(frame, **offered(found.command))
    else:
        assert len(read(frame, **offered(found.command))) > 0


def test_the_end_of_an_episode_in_words_is_no_category():
    table = pl.DataFrame({"pulse": PULSE, "treatment": TREAT, "done": ["False"] * 40, "truncated": [0] * 40})
    (problem,) = (p for p in check(table, action="treatment", truncated="truncated").problems if p.column == "done")
    assert problem.message == "looks like the end of an episode: left out"
    assert problem.remedy.startswith("give it as terminal or truncated (--terminal, --truncated)")


@pytest.mark.parametrize(("name", "guessed"), [("last", 1), ("is_last_row", 1), ("last_dose", 0)])
def test_the_word_last_means_an_end_only_alone(name, guessed):
    frame = stays().rename({"done": name})
    assert check(frame).roles["terminal"] == (name if guessed else None)
