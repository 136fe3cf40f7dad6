"""Films of policies: what is in them, how long they last, and what is refused."""

import builtins
import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from probes import durations
from sbil import demonstrators, watch
from sbil.dataset import Spec
from sbil.environments.base import Environment
from sbil.errors import UserError
from sbil.rendering import film

BEAM_RIDER = Environment("BeamRiderNoFrameskip-v4", Spec((84, 84, 4), 9), 60, (), ())
LANDER = Environment("LunarLander-v3", Spec((8,), 4), 1000, (), ())


@dataclasses.dataclass
class Stub:
    """Checks what it is shown. Takes one action always, or draws actions uniformly."""

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


def test_an_episode_depends_on_the_seed_alone():
    policy = demonstrators.get("CartPole-v1-ppo")
    task = Environment("CartPole-v1", Spec((4,), 2), 100, (), ())
    first, again, other = (film.play(task, film.Player("", policy, greedy=False), seed) for seed in (0, 0, 1))
    assert np.array_equal(first.actions, again.actions)
    assert not np.array_equal(first.actions, other.actions)


def test_films_of_atari_and_of_the_lander():
    """A filmed episode repeats every reward of the played one; the time limit of the task ends it."""
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


def test_a_policy_is_watched_beside_a_demonstrator():
    """The library function below `sbil watch`: typed, from a policy and the name of an environment."""
    policy = demonstrators.get("Acrobot-v1-ppo")
    made = watch(policy, "Acrobot-v1", name="mine", seconds=1.0)
    assert [player.name for player in made.players] == ["ppo demonstrator", "stable-baselines3 ppo policy mine"]
    assert (made.environment, made.seed) == ("Acrobot-v1", 0)
    assert made.episodes[0].total == made.episodes[1].total < -50  # the same policy from the same start
    assert made.content.startswith(b"GIF89a")
    with pytest.raises(UserError, match="alone shows none"):
        watch(policy, "Acrobot-v1", against="ppo", alone=True)


def test_an_environment_that_gymnasium_does_not_know_is_refused():
    with pytest.raises(UserError, match="ICU-Sepsis-v2 cannot be filmed"):
        film.make_film(
            Environment("ICU-Sepsis-v2", LANDER.spec, 10, (), ()), [film.Player("", Stub(LANDER.spec))], 0, 5.0
        )
