"""BeamRider on the real emulator: what is played, recorded and stacked is what ale-py shows."""

from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbil import demonstrators, environments
from sbil.dataset import as_inputs, make_pool
from sbil.environments.host import atari
from sbil.networks import policy_network
from sbil.policy import Policy
from sbil.training import stack

TASK = environments.get(atari.BEAM_RIDER)
SEEDS = np.array([[3, 4, 5, 6, 7, 8, 9], [13, 14, 15, 16, 17, 18, 19]])


@pytest.fixture(autouse=True)
def short_games(monkeypatch):
    """Games of 25 decisions."""
    monkeypatch.setattr(atari, "FRAMES", 100)


@pytest.fixture(scope="module")
def networks():
    """The networks of the paper."""
    return stack([policy_network(jax.random.key(seed), TASK.spec) for seed in (0, 1)])


def replay(seed, actions):
    """What ale-py itself shows and pays for the same actions."""
    games = atari.vector(1, 1)
    image, _ = games.reset(seed=np.array([seed]))
    shown, paid = [image[0].copy()], 0.0
    for action in actions:
        image, reward, ended, cut, info = games.step(np.array([action], np.int32))
        last = info["final_obs"] if ended[0] or cut[0] else image
        shown.append(last[0].copy())
        paid += float(reward[0])
    return np.stack(shown), paid


def test_the_actions_are_those_of_the_emulator():
    import ale_py
    from ale_py import roms

    game = ale_py.ALEInterface()
    game.loadROM(roms.get_rom_path(atari.ROM))
    names = {"NOOP": "nothing", "FIRE": "fire", "UP": "up", "RIGHT": "right", "LEFT": "left", "UPRIGHT": "up right"}
    names |= {"UPLEFT": "up left", "RIGHTFIRE": "fire right", "LEFTFIRE": "fire left"}
    assert TASK.action_names == tuple(names[action.name] for action in game.getMinimalActionSet())


def test_what_is_played_is_what_the_emulator_shows(networks):
    """Games of two policies, replayed by themselves: frames, stacks, scores."""
    played = TASK.play(networks, SEEDS, greedy=False, record=True)
    assert [len(row) for row in played.episodes] == [7, 7]
    for run, game in ((0, 0), (0, 4), (0, 6), (1, 5)):
        episode = played.episodes[run][game]
        shown, paid = replay(SEEDS[run, game], episode.actions)
        assert paid == played.returns[run, game]
        np.testing.assert_array_equal(episode.observations, shown[:, -1])
        assert len(episode.actions) == atari.FRAMES // atari.SKIP
        assert not episode.terminal


def test_a_game_does_not_depend_on_the_company(networks):
    many = TASK.play(networks, SEEDS, greedy=False, record=True)
    one = TASK.play(jax.tree.map(lambda leaf: leaf[1:], networks), SEEDS[1:, 2:3], greedy=False, record=True)
    np.testing.assert_array_equal(one.episodes[0][0].actions, many.episodes[1][2].actions)
    assert one.returns[0, 0] == many.returns[1, 2]


@pytest.mark.parametrize("machines", [1, 3])
def test_more_games_than_machines(networks, monkeypatch, machines):
    """Machines that take game after game play the same games."""
    before = TASK.play(networks, SEEDS[:, :3], greedy=False, record=True)
    monkeypatch.setattr(atari, "MACHINES", machines)
    after = TASK.play(networks, SEEDS[:, :3], greedy=False, record=True)
    np.testing.assert_array_equal(before.returns, after.returns)
    for one, other in zip(chain(*before.episodes), chain(*after.episodes), strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.actions, other.actions)


def test_stacked_on_use_equals_what_the_policy_saw(networks):
    """From play through demonstrations to the device, and back: the observation is the emulator's own stack."""
    policy = Policy(jax.tree.map(lambda leaf: leaf[0], networks), (), TASK.action_names)
    collected, _ = demonstrators.collect(TASK, policy, 2, 0, greedy=False, provenance={})
    assert (collected.stack, collected.observation_shape) == (4, (84, 84, 4))
    pool = make_pool(collected)
    shown = []
    for number, trajectory in enumerate(collected.trajectories):
        from sbil.evaluation.live import seeds
        from sbil.keys import named

        seed = seeds(named("collect", TASK.name, 0)[None], 2)[0, number]
        shown.append(replay(seed, trajectory.actions)[0][:-1])
    expected = as_inputs(jnp.moveaxis(jnp.asarray(np.concatenate(shown)), 1, -1))
    np.testing.assert_array_equal(pool.look(pool.row), expected)


def test_the_demonstrator_ships():
    policy = demonstrators.get(f"{TASK.name}-ppo")
    assert policy.spec == TASK.spec
    weights = demonstrators.folder() / f"{TASK.name}-ppo" / "weights.safetensors"
    assert weights.stat().st_size < 8e6
