"""The environments in JAX against gymnasium's, step by step and over whole episodes."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbil import environments

NAMES = ["CartPole-v1", "Acrobot-v1"]


def random_states(name: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """States over the whole range, beyond the ends of episodes and across the wrapping of angles."""
    scale = {"CartPole-v1": (2.6, 3.0, 0.24, 3.5), "Acrobot-v1": (np.pi, np.pi, 4 * np.pi, 9 * np.pi)}[name]
    return rng.uniform(-1, 1, (count, 4)) * scale


def state_of(env: gymnasium.Env) -> np.ndarray:
    return np.asarray(env.unwrapped.state, np.float64)


@pytest.mark.parametrize("name", NAMES)
def test_thousands_of_random_transitions(name):
    ours = environments.get(name)
    env = gymnasium.make(name).unwrapped
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    states = random_states(name, 5000, rng)
    actions = rng.integers(0, ours.spec.actions, len(states))
    expected = []
    for state, action in zip(states, actions, strict=True):
        env.state = state.copy()
        env.steps_beyond_terminated = None
        observation, reward, terminal, _, _ = env.step(int(action))
        expected.append((state_of(env), observation, reward, terminal))
    with jax.enable_x64(True):
        stepped, rewards, terminals = jax.vmap(ours.step)(jnp.asarray(states), jnp.asarray(actions))
        observed = jax.vmap(ours.observe)(stepped)
    next_states, observations, next_rewards, ends = map(np.array, zip(*expected, strict=True))
    np.testing.assert_allclose(stepped, next_states, rtol=0, atol=1e-10)
    np.testing.assert_allclose(observed, observations, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(rewards, next_rewards)
    np.testing.assert_array_equal(terminals, ends)
    assert 0.05 < ends.mean() < 0.95  # both outcomes were met


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_stays_close(name):
    ours = environments.get(name)
    rng = np.random.default_rng(1)
    states = random_states(name, 5000, rng)
    actions = jnp.asarray(rng.integers(0, ours.spec.actions, len(states)), jnp.int32)
    single = jax.vmap(ours.observe)(jax.vmap(ours.step)(jnp.asarray(states, jnp.float32), actions)[0])
    with jax.enable_x64(True):
        double = jax.vmap(ours.observe)(jax.vmap(ours.step)(jnp.asarray(states), jnp.asarray(actions))[0])
    np.testing.assert_allclose(single, double, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_whole_episodes(name):
    """Along whole episodes both go on, end and run out of time at the same steps.

    Each step starts from gymnasium's own state: an inverted pendulum doubles a rounding error every 0.2 s, so
    two correct copies that run freely differ after some hundred steps.
    """
    ours = environments.get(name)
    env = gymnasium.make(name)
    step = jax.jit(ours.step)
    ends = []
    for seed in range(20):
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        with jax.enable_x64(True):
            time = 0
            while True:
                state = jnp.asarray(state_of(env))
                action = controller(name, np.asarray(state), rng, bad=seed % 2 == 1)
                _, reward, terminated, truncated, _ = env.step(action)
                state, our_reward, our_terminal = step(state, jnp.asarray(action))
                time += 1
                np.testing.assert_allclose(state, state_of(env), rtol=0, atol=1e-10)
                assert (float(our_reward), bool(our_terminal)) == (reward, terminated)
                assert truncated == (time >= ours.time_limit)
                if terminated or truncated:
                    break
        ends.append((terminated, truncated))
    assert (True, False) in ends, "no episode ended by termination"
    assert (False, True) in ends, "no episode ended by the time limit"


def controller(name: str, state: np.ndarray, rng: np.random.Generator, bad: bool) -> int:
    """Balances the pole (unless bad); pumps the arm (unless bad)."""
    if bad:
        return int(rng.integers(0, 2))
    if name == "CartPole-v1":
        return int(state @ np.array([0.05, 0.3, 5.0, 1.0]) > 0)
    return 2 if state[3] > 0 else 0


@pytest.mark.parametrize("name", NAMES)
def test_reset_covers_the_same_box(name):
    ours = environments.get(name)
    env = gymnasium.make(name)
    theirs = []
    for seed in range(500):
        env.reset(seed=seed)
        theirs.append(state_of(env))
    mine = np.asarray(jax.vmap(ours.reset)(jax.random.split(jax.random.key(0), 500)))
    bound = np.abs(theirs).max()
    assert np.abs(mine).max() == pytest.approx(bound, rel=0.02)
    np.testing.assert_allclose(mine.mean(0), 0, atol=0.15 * bound)
    np.testing.assert_allclose(mine.std(0), np.std(theirs, axis=0), rtol=0.1)


def test_spec_matches_gymnasium():
    for name in NAMES:
        ours, env = environments.get(name), gymnasium.make(name)
        assert ours.spec.observation_shape == env.observation_space.shape
        assert ours.spec.actions == env.action_space.n
        assert ours.time_limit == env.spec.max_episode_steps
        assert len(ours.observation_names) == ours.spec.observation_shape[0]
        assert len(ours.action_names) == ours.spec.actions
