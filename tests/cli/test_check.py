"""The look at a table from the command line, and what training keeps for later tables with gaps."""

import io
import json
from contextlib import redirect_stdout

import numpy as np
import pytest
from stays import changed, write_table

import fuzz
from probes import refusal
from sbil.cli import main
from sbil.demonstrations import reader_process
from sbil.policy import Policy

NAMES = ("stay", "hour", "patient", "pulse", "age", "treat", "end")
ROLES = ("--episode", "stay", "--time", "hour", "--action", "treat", "--terminal", "end")


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    """Read in this process, which saves time."""
    monkeypatch.setattr(reader_process, "elsewhere", fuzz.in_process)


def rows(gap=True):
    """24 stays of four hours, two per patient; a pulse above 80 is treated. One age is missing."""
    rng = np.random.default_rng(3)
    for stay in range(24):
        for hour in range(4):
            pulse = round(rng.normal(80, 15), 1)
            age = "" if gap and (stay, hour) == (5, 1) else 40 + stay
            yield [stay, hour, stay // 2, pulse, age, "fluid" if pulse > 80 else "none", int(hour == 3)]


def written(path, lines, names=NAMES):
    return write_table(path, lines, names)


def run(*words):
    main([str(word) for word in words])


def answered(capsys, *words):
    """What a command prints as JSON."""
    capsys.readouterr()
    run(*words, "--json")
    return json.loads(capsys.readouterr().out)


def test_check_leaves_out_what_is_excluded(tmp_path, capsys):
    table = written(tmp_path / "stays.csv", rows())
    (tmp_path / "my list.csv").write_text("stay\n3\n4\n")
    found = answered(capsys, "check", table, *ROLES, "--exclude", tmp_path / "my list.csv")
    assert (found["rows"], found["episodes"]["count"]) == (88, 22)
    assert found["command"].endswith(f"--exclude '{tmp_path / 'my list.csv'}'")
    words = ("check", table, *ROLES, "--exclude")
    line = refusal(capsys, *words, tmp_path / "nofile.txt")
    assert "nofile.txt: there is no such file" in line
    assert "Errno" not in line
    (tmp_path / "stranger.csv").write_text("3\n77\n")
    assert "not in the data, for example '77'" in refusal(capsys, *words, tmp_path / "stranger.csv")


def test_check_in_a_pipe_cuts_nothing(tmp_path, capsys):
    name = "the_pulse_that_was_charted_" * 6
    data = written(tmp_path / "wide.csv", rows(), [name if word == "pulse" else word for word in NAMES])
    run("check", data, *ROLES, "--missing", "mean")
    text = capsys.readouterr().out
    assert f" {name} " in text
    assert f"next: sbil train edm --data {data}" in text
    assert "filled with the mean of the column" in text
    stops = changed(data, tmp_path / "stops.csv", "age", "old")
    for words in ((), ("--json",)):
        with pytest.raises(SystemExit) as leaving:
            run("check", stops, *ROLES, *words)
        assert leaving.value.code == 1
    assert "correct what stops first, then: sbil train edm" in capsys.readouterr().out


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table without gaps and with a reward, the policy that was trained on it, and what was printed."""
    folder, printed = tmp_path_factory.mktemp("trained"), io.StringIO()
    lines = [[*row, i % 5] for i, row in enumerate(rows(gap=False))]
    data = written(folder / "rewards.csv", lines, (*NAMES, "reward"))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(reader_process, "elsewhere", fuzz.in_process)
        run("train", "bc", "--data", data, *ROLES, "--updates", "2", "--out", folder / "policy")
    return data, folder / "policy", printed.getvalue()


def test_gaps_after_training_without_any(trained, tmp_path, capsys):
    """`evaluate` and `predict` fill gaps with the means of the training data."""
    whole, policy, _ = trained
    gaps = changed(whole, tmp_path / "gaps.csv", "pulse", "NA")
    fills = [column.fill for column in Policy.load(policy).schema.columns]
    assert fills == pytest.approx([5.5, np.mean([row[3] for row in rows()]), 51.5])
    assert "choose mean, last, indicator or drop" in refusal(capsys, "evaluate", policy, "--data", gaps)
    assert answered(capsys, "evaluate", policy, "--data", gaps, "--missing", "mean")["steps"] == 96
    words = ("predict", policy, "--data", gaps, "--out", tmp_path / "gaps decided.csv", "--missing", "mean")
    assert answered(capsys, *words)["rows"] == 96


def test_columns_that_became_known_later_are_said(trained, capsys):
    """`check` says why these columns are left out, and so do the lines after training."""
    data, _, printed = trained
    run("check", data, *ROLES)
    text = capsys.readouterr().out
    assert (
        "note: column 'reward': looks like a reward: left out; name it in observations (--observations) to use it"
        in text
    )
    assert "observed: patient, pulse, age; left out: reward (looks like a reward)" in printed
