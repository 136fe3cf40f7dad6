"""Live returns against loops in plain Python and against environments whose returns are known."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbil import environments
from sbil.dataset import Spec
from sbil.environments.base import JaxEnvironment
from sbil.errors import UserError
from sbil.evaluation import Policies, call, play

CARTPOLE = environments.get("CartPole-v1")
START = (0.01, -0.02, 0.03, -0.04)
KEY = jax.random.key(0)


def counter(limit=12, ends_at=1_000_000.0, noise=0.0):
    """The state counts the steps; the reward is the action; it ends by itself at `ends_at`."""
    return JaxEnvironment(
        name="counter",
        spec=Spec((1,), 2),
        time_limit=limit,
        observation_names=("count",),
        action_names=("nothing", "one"),
        reset=lambda key: noise * jax.random.uniform(key, (1,)),
        observe=lambda state: state,
        step=lambda state, action: (state + 1, action.astype(jnp.float32) + state[0] % 1, state[0] + 1 >= ends_at),
    )


NOISY = counter(noise=0.5)  # every episode starts elsewhere, and its return tells where


def constant(parameters, observations):
    """The same logits whatever is seen."""
    return jnp.broadcast_to(parameters, (len(observations), *parameters.shape))


def linear(parameters, observations):
    return observations @ parameters


def in_python(act, start):
    """The return of one episode of gymnasium's CartPole from a given state."""
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    env.unwrapped.state = np.array(start)
    observation, total = np.array(start), 0.0
    while True:
        observation, reward, terminated, truncated, _ = env.step(act(observation))
        total += reward
        if terminated or truncated:
            return total


def test_constant_pushes_equal_a_loop_in_python():
    """Two policies at once, one that always pushes left and one that always pushes right."""
    fixed = dataclasses.replace(CARTPOLE, reset=lambda key: jnp.array(START))
    returns = play(fixed, Policies(constant, jnp.array([[1.0, 0.0], [0.0, 1.0]])), KEY, episodes=3)
    expected = [in_python(lambda _: 0, START), in_python(lambda _: 1, START)]
    np.testing.assert_array_equal(returns, np.repeat(np.array(expected)[:, None], 3, axis=1))
    assert 5 < min(expected) < max(expected) < 20


def test_controller_that_balances_lasts_until_the_time_limit():
    gains = np.array([0.05, 0.3, 5.0, 1.0], np.float32)
    fixed = dataclasses.replace(CARTPOLE, reset=lambda key: jnp.array(START))
    policy = jnp.stack([jnp.zeros(4), jnp.asarray(gains)], axis=-1)
    returns = play(fixed, Policies(linear, policy[None]), KEY, episodes=2)
    assert returns.tolist() == [[500.0, 500.0]]
    assert in_python(lambda observation: int(observation @ gains > 0), START) == 500


@pytest.mark.parametrize("limit", [1, 12])
def test_time_limit_is_respected(limit):
    returns = play(counter(limit), Policies(constant, jnp.array([[0.0, 1.0]])), KEY, episodes=4)
    assert returns.tolist() == [[float(limit)] * 4]


def test_nothing_is_earned_after_the_end():
    """The step that ends an episode counts, later ones do not, though other episodes still run."""

    def reset(key):
        return jnp.where(jax.random.bernoulli(key), 7.0, 0.0)[None]

    mixed = dataclasses.replace(counter(limit=50, ends_at=10.0), reset=reset)
    returns = play(mixed, Policies(constant, jnp.array([[0.0, 1.0]])), KEY, episodes=40)
    assert set(returns.ravel().tolist()) == {3.0, 10.0}


def test_greedy_or_sampled():
    """Logits of 1/4 and 3/4: greedily always 1, else 3/4 of the time, drawn anew at every step and episode."""
    policies = Policies(constant, jnp.log(jnp.array([[0.25, 0.75]])))
    greedy = play(counter(40), policies, KEY, episodes=100)
    assert (greedy == 40).all()
    sampled = play(counter(40), policies, KEY, episodes=100, greedy=False)
    assert sampled.mean() / 40 == pytest.approx(0.75, abs=0.025)
    assert sampled.var() == pytest.approx(40 * 0.75 * 0.25, rel=0.5)


@pytest.mark.parametrize("greedy", [True, False])
def test_returns_do_not_depend_on_the_number_of_policies(greedy):
    parameters = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)), jnp.float32)
    whole = play(NOISY, Policies(constant, parameters), KEY, 5, greedy)
    assert whole.shape == (4, 5)
    assert len(np.unique(whole[0])) == 5
    for count in (1, 2, 3):
        part = play(NOISY, Policies(constant, parameters[:count]), KEY, 5, greedy)
        np.testing.assert_array_equal(part, whole[:count])
    again = play(NOISY, Policies(constant, parameters), KEY, 5, greedy)
    np.testing.assert_array_equal(again, whole)


def test_one_key_gives_all_policies_the_same_starts():
    same = play(NOISY, Policies(constant, jnp.zeros((3, 2))), KEY, 5)
    np.testing.assert_array_equal(same, np.repeat(same[:1], 3, axis=0))
    keys = jax.random.split(KEY, 3)
    own = play(NOISY, Policies(constant, jnp.zeros((3, 2))), keys, 5)
    assert len(np.unique(own)) == 15
    alone = play(NOISY, Policies(constant, jnp.zeros((1, 2))), keys[1], 5)
    np.testing.assert_array_equal(alone[0], own[1])


def test_networks_are_called():
    """A network is its own parameters: `call` gives its logits."""
    observations = jnp.ones((2, 3))
    np.testing.assert_array_equal(call(lambda x: 2 * x, observations), 2 * observations)


@pytest.mark.parametrize("episodes", [0, -1])
def test_no_episodes_are_refused(episodes):
    with pytest.raises(UserError, match="episodes"):
        play(counter(), Policies(constant, jnp.zeros((1, 2))), KEY, episodes)
