"""sbil view: the page it writes, the lines it prints, and what it refuses."""

import dataclasses
import json

import numpy as np
import pytest

from probes import demonstrations, network, refusal
from sbil import demonstrations as demos
from sbil.cli import main
from sbil.policy import Policy
from sbil.reports.episodes import PRIVACY, episodes_page


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "demos.npz"
    demos.save(demonstrations(), path)
    return path


@pytest.fixture
def policy(tmp_path):
    seen = demonstrations()
    Policy(network(3, 4, 3), seen.observation_names, seen.action_names).save(tmp_path / "policy")
    return tmp_path / "policy"


def test_the_page_is_written_and_said_to_hold_recorded_values(data, tmp_path, capsys):
    out = tmp_path / "new" / "view.html"
    main(["view", str(data), "--out", str(out)])
    said = capsys.readouterr().out
    assert out.read_text("utf-8") == episodes_page(demonstrations(), title="demos.npz")
    assert said.startswith(f"wrote {out}: 6 of 6 episodes, ")
    assert PRIVACY in said


def test_fewer_episodes_and_a_policy(data, policy, tmp_path, capsys):
    out = tmp_path / "view.html"
    main(["view", str(data), "--out", str(out), "--episodes", "3", "--policy", str(policy), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said == {"file": str(out), "bytes": out.stat().st_size, "episodes": 6, "shown": 3, "decisions": 39}
    loaded = Policy.load(policy)
    assert out.read_text("utf-8") == episodes_page(demonstrations(), title="demos.npz", limit=3, policy=loaded)


def test_where_a_policy_would_go(tmp_path, policy, capsys):
    out, path = tmp_path / "view.html", tmp_path / "short.npz"
    demos.save(demonstrations().select([0]), path)
    main(["view", str(path), "--out", str(out), "--imagine", "--policy", str(policy)])
    assert "Where the policy would go cannot be imagined: only" in out.read_text("utf-8")


def test_a_table(tmp_path, capsys):
    table = tmp_path / "stays.csv"
    lines = [f"{stay},{hour},{60 + stay + hour},{'on' if hour > 1 else 'off'}" for stay in (7, 8) for hour in range(4)]
    table.write_text("\n".join(["stay,hour,pulse,drug", *lines]) + "\n")
    out = tmp_path / "view.html"
    main(["view", str(table), "--out", str(out), "--episode", "stay", "--time", "hour", "--action", "drug"])
    assert "2 of 2 episodes" in capsys.readouterr().out
    assert "2 episodes, 8 decisions, 1 column, 2 actions" in out.read_text("utf-8")


def test_a_page_that_is_there_is_kept_unless_told_otherwise(data, tmp_path, capsys):
    out = tmp_path / "view.html"
    out.write_text("mine")
    assert "--overwrite" in refusal(capsys, "view", data, "--out", out)
    assert out.read_text() == "mine"
    main(["view", str(data), "--out", str(out), "--overwrite"])
    assert out.read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--out", "."], "is a folder"),
        (["--out", "view.txt"], "written as HTML"),
        (["--out", "view.html", "--episodes", "0"], "episodes must be a whole number from 1"),
        (["--out", "view.html", "--policy", "nowhere"], "no such policy folder"),
        (["--out", "view.html", "--policy", "other"], "bring the same columns in the same order"),
        (["--out", "view.html", "--imagine"], "give the policy too"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(data, policy, tmp_path, monkeypatch, capsys, words, says):
    other = dataclasses.replace(Policy.load(policy), observation_names=("a", "b", "c"))
    other.save(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    assert says in refusal(capsys, "view", data, *words)
    assert not (tmp_path / "view.html").exists()


def test_images_are_refused(tmp_path, capsys):
    frames = np.zeros((3, 4, 4), np.uint8)
    trajectory = demos.Trajectory(frames, np.zeros(3, np.int32))
    demos.save(demos.Demonstrations((trajectory,), ("a", "b"), stack=2), tmp_path / "frames.npz")
    assert "images" in refusal(capsys, "view", tmp_path / "frames.npz", "--out", tmp_path / "view.html")
