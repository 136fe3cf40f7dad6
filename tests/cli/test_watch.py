"""Films of policies: what is in them, how long they last, and what is refused."""

import dataclasses
import json

import pytest
from PIL import Image

from probes import durations, refusal
from sbil import demonstrators
from sbil.cli import main


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A policy that claims to have learned from dqn."""
    path = tmp_path_factory.mktemp("watch") / "imitator"
    source = {"environment": "CartPole-v1", "demonstrator": "dqn", "mode": "greedy"}
    learned = {"algorithm": "edm", "data": {"provenance": source}}
    dataclasses.replace(demonstrators.get("CartPole-v1-ppo"), provenance=learned).save(path)
    return path


# What works


def test_beside_the_demonstrator_it_learned_from(policy, tmp_path, capsys):
    out = tmp_path / "policy.gif"
    main(["watch", str(policy), "--env", "CartPole-v1", "--out", str(out), "--seconds", "4", "--json"])
    answer = json.loads(capsys.readouterr().out)
    content = out.read_bytes()
    assert content.startswith(b"GIF89a")
    assert answer["bytes"] == len(content) < 1e6
    assert [(player["name"], player["return"]) for player in answer["players"]] == [
        ("dqn demonstrator", 500),
        ("edm policy imitator", 500),
    ]
    assert answer["speed"] > 2
    assert sum(durations(content)) == pytest.approx(1000 * answer["seconds"])
    assert answer["seconds"] <= 4
    assert [path.name for path in tmp_path.iterdir()] == ["policy.gif"]


def test_words_for_people_and_a_policy_alone(policy, tmp_path, capsys):
    out = tmp_path / "policy.gif"
    words = ["watch", str(policy), "--env", "CartPole-v1", "--out", str(out), "--seconds", "1"]
    main([*words, "--alone", "--sampled", "--seed", "7"])
    text = capsys.readouterr().out
    assert f"wrote {out}: " in text
    assert "kB; CartPole-v1 from seed 7, " in text
    assert "times real speed, 1 step of" in text
    assert "edm policy imitator, sampled: return " in text
    assert "demonstrator" not in text
    with Image.open(out) as alone:
        width = alone.width
    main([*words, "--against", "dqn", "--sampled", "--overwrite"])
    assert "dqn demonstrator, greedy" in capsys.readouterr().out  # a DQN is always greedy
    with Image.open(out) as both:
        assert both.width > 1.9 * width


def test_without_a_record_ppo_is_shown(tmp_path, capsys):
    demonstrators.get("Acrobot-v1-ppo").save(tmp_path / "unknown")
    words = ["--env", "Acrobot-v1", "--out", str(tmp_path / "a.gif"), "--seconds", "1", "--json"]
    main(["watch", str(tmp_path / "unknown"), *words])
    players = json.loads(capsys.readouterr().out)["players"]
    assert players[0]["name"] == "ppo demonstrator"
    assert players[0]["return"] == players[1]["return"] < -50  # the same policy from the same start


def test_help_has_examples_that_parse(capsys):
    from sbil.cli import parse, watch

    with pytest.raises(SystemExit) as leaving:
        main(["watch", "--help"])
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    for example in watch.EXAMPLES:
        assert example in text
        parse(watch.Command, "sbil", example.split()[2:], ())


# What is refused, in one line


def test_refusals(policy, tmp_path, capsys):
    out = tmp_path / "policy.gif"

    def refused(*words, env="CartPole-v1", folder=policy, out=out) -> str:
        return refusal(capsys, "watch", folder, "--env", env, "--out", out, *words)

    assert "no such policy folder" in refused(folder=tmp_path / "none")
    assert "this is not a policy folder" in refused(folder=tmp_path)
    assert "sees 4 numbers and has 2 actions; Acrobot-v1 shows 6 numbers and takes 3" in refused(env="Acrobot-v1")
    assert "did you mean 'CartPole-v1'" in refused(env="CartPole-v2")
    assert "something.gif" in refused(out=tmp_path / "policy.mp4")
    assert "is a folder" in refused(out=tmp_path)
    assert "no such folder" in refused(out=tmp_path / "deeper" / "policy.gif")
    assert "demonstrator of CartPole-v1 'pppo'; did you mean 'ppo'" in refused("--against", "pppo")
    assert "one of them" in refused("--against", "ppo", "--alone")
    assert "from 1 to 60 seconds; got 0.5" in refused("--seconds", "0.5")
    assert "got nan" in refused("--seconds", "nan")
    assert "got -1" in refused("--seed", "-1")
    assert not list(tmp_path.iterdir())
    out.write_text("mine")
    assert "--overwrite" in refused()
    assert out.read_text() == "mine"
