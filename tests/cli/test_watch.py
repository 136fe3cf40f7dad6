"""Films of policies: what is in them, how long they last, and what is refused."""

import builtins
import dataclasses
import io
import json

import numpy as np
import pytest
from PIL import Image

from probes import refusal
from sbil import demonstrators
from sbil.cli import main
from sbil.dataset import Spec
from sbil.environments.base import Environment
from sbil.errors import UserError
from sbil.rendering import film

BEAM_RIDER = Environment("BeamRiderNoFrameskip-v4", Spec((84, 84, 4), 9), 60, (), ())
LANDER = Environment("LunarLander-v3", Spec((8,), 4), 1000, (), ())


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A policy that claims to have learned from dqn."""
    path = tmp_path_factory.mktemp("watch") / "imitator"
    source = {"environment": "CartPole-v1", "demonstrator": "dqn", "mode": "greedy"}
    learned = {"algorithm": "edm", "data": {"provenance": source}}
    dataclasses.replace(demonstrators.get("CartPole-v1-ppo"), provenance=learned).save(path)
    return path


@dataclasses.dataclass
class Stub:
    """Checks what it is shown; does one thing, or draws evenly."""

    spec: Spec
    action: int = 0

    def act(self, observations) -> np.ndarray:
        self.check(observations)
        return np.array(self.action)

    def probabilities(self, observations) -> np.ndarray:
        self.check(observations)
        return np.full(self.spec.actions, 1 / self.spec.actions, np.float32)

    def check(self, observation) -> None:
        assert observation.shape == self.spec.observation_shape
        assert observation.dtype == (np.uint8 if observation.ndim == 3 else np.float32)


def durations(content: bytes) -> list[int]:
    with Image.open(io.BytesIO(content)) as image:
        found = []
        for index in range(image.n_frames):
            image.seek(index)
            found.append(image.info["duration"])
    return found


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
    assert "dqn demonstrator, greedy" in capsys.readouterr().out  # it has no other way
    with Image.open(out) as both:
        assert both.width > 1.9 * width


def test_without_a_record_ppo_is_shown(tmp_path, capsys):
    demonstrators.get("Acrobot-v1-ppo").save(tmp_path / "unknown")
    words = ["--env", "Acrobot-v1", "--out", str(tmp_path / "a.gif"), "--seconds", "1", "--json"]
    main(["watch", str(tmp_path / "unknown"), *words])
    players = json.loads(capsys.readouterr().out)["players"]
    assert players[0]["name"] == "ppo demonstrator"
    assert players[0]["return"] == players[1]["return"] < -50  # the same policy from the same start


def test_an_episode_depends_on_the_seed_alone():
    policy = demonstrators.get("CartPole-v1-ppo")
    task = Environment("CartPole-v1", Spec((4,), 2), 100, (), ())
    first, again, other = (film.play(task, film.Player("", policy, greedy=False), seed) for seed in (0, 0, 1))
    assert np.array_equal(first.actions, again.actions)
    assert not np.array_equal(first.actions, other.actions)


def test_films_of_atari_and_of_the_lander():
    """They repeat, reward for reward, when filmed; the time limit of the task ends them."""
    for task in (BEAM_RIDER, LANDER):
        stub = Stub(task.spec)
        players = [film.Player("one", stub), film.Player("a name that is far too long for its panel", stub, False)]
        shares: list[float] = []
        made = film.make_film(task, players, 3, 2.0, lambda share, note, shares=shares: shares.append(share))
        assert shares == sorted(shares)
        assert shares[-1] < 1
        assert sum(durations(made.content)) == pytest.approx(1000 * made.cut.seconds, abs=1)
        assert made.cut.seconds <= 2
        with Image.open(io.BytesIO(made.content)) as image:
            assert image.width == 2 * 320 + 3 * film.MARGIN
        if task is BEAM_RIDER:
            assert [episode.steps for episode in made.episodes] == [60, 60]


def test_the_finished_one_holds_its_last_frame():
    episode = film.Episode(np.zeros(5, int), np.array([1.0, 1, 1, 1, -0.5]), 50.0)
    panel = film.Panel(film.Player("p", Stub(LANDER.spec)), episode, ["0", "2", "4", "end"])
    assert panel.at(1, 2) == ("2", "step 2, return 2")
    assert panel.at(3, 2) == panel.at(99, 2) == ("end", "done: return 3.5 in 5 steps")


@pytest.mark.parametrize("rate", [15.0, 50.0])
@pytest.mark.parametrize("steps", [1, 2, 49, 500, 27_000])
@pytest.mark.parametrize("seconds", [1.0, 7.3, 20.0, 60.0])
def test_a_film_fits_and_is_no_faster_than_need_be(seconds, steps, rate):
    cut = film.cut_to(seconds, steps, rate)
    assert cut.seconds <= seconds
    assert (cut.frames - 1) * cut.every >= steps
    assert cut.duration >= 1000 / film.FASTEST
    if steps / rate < 0.7 * seconds:
        assert cut.speed == pytest.approx(1, abs=0.06)
        assert "real speed" in str(cut)
        assert "times" not in str(cut)
    if cut.speed > 1.15:
        assert "times real speed" in str(cut)


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


def test_images_that_do_not_fit():
    from sbil.environments import must_fit

    with pytest.raises(UserError, match=r"shows images of 84 x 84 x 4 and takes 9"):
        must_fit(BEAM_RIDER, LANDER.spec)


@pytest.mark.parametrize(("package", "task"), [("gymnasium", LANDER), ("ale_py", BEAM_RIDER)])
def test_a_missing_package_names_the_extra(package, task, monkeypatch):
    real = builtins.__import__

    def absent(name, *rest, **options):
        if name == package:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UserError, match=r'pip install "sbil\[envs\]"'):
        film.make_film(task, [film.Player("", Stub(task.spec))], 0, 5.0)


def test_a_missing_package_of_the_simulator_too(monkeypatch):
    import gymnasium

    def absent(*rest, **options):
        raise gymnasium.error.DependencyNotInstalled('Box2D is not installed, run `pip install "gymnasium[box2d]"`')

    monkeypatch.setattr(gymnasium, "make", absent)
    with pytest.raises(UserError, match=r'LunarLander-v3 needs a package .* pip install "sbil\[envs\]"'):
        film.make_film(LANDER, [film.Player("", Stub(LANDER.spec))], 0, 5.0)
