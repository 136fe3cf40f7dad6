"""LunarLander in worker processes against a plain loop over gymnasium, seed for seed; and its dynamics, pinned."""

import warnings

import gymnasium
import jax
import numpy as np
import pytest

from sbil import environments
from sbil.demonstrators.collect import collect
from sbil.environments.lunar_lander import ENVIRONMENT as LUNAR_LANDER
from sbil.networks import policy_network
from sbil.policy import Policy
from sbil.training import stack

with warnings.catch_warnings():  # its bindings warn as they are imported, and crash where warnings are errors
    warnings.simplefilter("ignore")
    import Box2D  # noqa: F401

NETWORK = jax.jit(lambda network, observation: network(observation))


def in_python(env, act, seed):
    """(return, observations, actions, terminated) of one episode."""
    observation, _ = env.reset(seed=seed)
    total, observations, actions = 0.0, [observation], []
    while True:
        action = act(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        total += reward
        observations.append(observation)
        actions.append(action)
        if terminated or truncated:
            return total, np.array(observations), np.array(actions), terminated


def rule(observation):
    """Lands: steers towards the pad, brakes near the ground."""
    x, y, x_speed, y_speed, angle, spin, left, right = observation.tolist()
    turn = (max(-0.4, min(0.4, 0.5 * x + x_speed)) - angle) * 0.5 - spin
    lift = (0.55 * abs(x) - y) * 0.5 - y_speed * 0.5
    if left or right:
        turn, lift = 0.0, -y_speed * 0.5
    if lift > abs(turn) and lift > 0.05:
        return 2
    return 3 if turn < -0.05 else 1 if turn > 0.05 else 0


def test_spec_matches_gymnasium():
    env = gymnasium.make("LunarLander-v3")
    assert environments.get("LunarLander-v3") is LUNAR_LANDER
    assert LUNAR_LANDER.spec == (env.observation_space.shape, env.action_space.n)
    assert LUNAR_LANDER.time_limit == env.spec.max_episode_steps
    assert len(LUNAR_LANDER.observation_names) == 8
    assert len(LUNAR_LANDER.action_names) == 4


def test_play_equals_a_plain_loop():
    networks = [policy_network(jax.random.key(i), LUNAR_LANDER.spec) for i in range(3)]
    seeds = np.array([[0, 1, 2**31 - 1], [5, 6, 7], [0, 0, 3]])
    played = LUNAR_LANDER.play(stack(networks), seeds, greedy=True, record=True)
    env = gymnasium.make("LunarLander-v3")
    for number, network in enumerate(networks):
        for episode, seed in enumerate(seeds[number].tolist()):

            def act(observation, network=network):
                return int(NETWORK(network, observation).argmax())

            total, observations, actions, terminated = in_python(env, act, seed)
            recorded = played.episodes[number][episode]
            assert played.returns[number, episode] == total
            np.testing.assert_array_equal(recorded.observations, observations)
            np.testing.assert_array_equal(recorded.actions, actions)
            assert recorded.terminal == terminated
    assert played.returns[2, 0] == played.returns[2, 1]


def test_time_limit_cuts_as_gymnasiums_does():
    """The same lander, registered with a limit that no episode outlives."""
    name = "ShortLander-v0"
    if name not in gymnasium.registry:
        gymnasium.register(name, "gymnasium.envs.box2d.lunar_lander:LunarLander", max_episode_steps=30)
    network = policy_network(jax.random.key(4), LUNAR_LANDER.spec)
    played = environments.get(name).play(stack([network]), np.array([[8, 9]]), greedy=True, record=True)
    for seed, total, recorded in zip((8, 9), played.returns[0], played.episodes[0], strict=True):
        act = lambda observation: int(NETWORK(network, observation).argmax())  # noqa: E731
        expected, observations, _, _ = in_python(gymnasium.make(name), act, seed)
        assert total == expected
        np.testing.assert_array_equal(recorded.observations, observations)
        assert len(recorded.actions) == 30
        assert not recorded.terminal


def test_collect_records_whole_episodes():
    network = policy_network(jax.random.key(1), LUNAR_LANDER.spec)
    policy = Policy(network, LUNAR_LANDER.observation_names, LUNAR_LANDER.action_names)
    recorded, _ = collect(LUNAR_LANDER, policy, 3, 0, greedy=False, provenance={})
    assert len(recorded.trajectories) == 3
    for trajectory in recorded.trajectories:
        assert len(trajectory.observations) == len(trajectory.actions) + 1 > 40


@pytest.mark.parametrize(
    ("seed", "landing", "steps", "blind"),
    [
        (0, 297.35305860799826, 152, 31.219360346402738),
        (1, 260.9438325461483, 205, -230.37823018854513),
        (2, 254.62466577894168, 200, -93.30289475284312),
        (3, 244.50072602948288, 199, -62.01746700161246),
    ],
)
def test_dynamics_are_those_the_results_were_measured_with(seed, landing, steps, blind):
    """By a rule that lands, and by five actions in turn; a change of the engine shows here."""
    env = gymnasium.make("LunarLander-v3")
    total, _, actions, _ = in_python(env, rule, seed)
    assert total == pytest.approx(landing, abs=1e-3)
    assert len(actions) == steps
    turns = iter((0, 2, 1, 3, 2) * 200)
    assert in_python(env, lambda _: next(turns), seed)[0] == pytest.approx(blind, abs=1e-3)
