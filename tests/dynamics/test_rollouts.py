"""Policies that act in a model that was made by hand, and the distances between sets of states."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import cdist

from sbil.dynamics.model import MEMBERS, Model
from sbil.dynamics.rollouts import Reference, energy_distance, imagine, nearest
from sbil.networks import MLP, Dense

KEY = jax.random.key(0)
END = 3.5  # an episode ends when it acts at a number beyond this


def walk():
    """A model of one number, which grows by the number of the action (0 or 1)."""
    linear = jnp.zeros((5, 1)).at[2].set(1.0)  # features: state, two actions, their products
    network = Dense(jnp.zeros((3, 2)).at[0, 1].set(1.0), jnp.array([0.0, -END]))
    members = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (MEMBERS, *leaf.shape)), MLP((network,), "elu"))
    zero, one = jnp.zeros(1), jnp.ones(1)
    continuous, ungrouped = jnp.zeros((1, 0)), jnp.zeros((0, 0), int)
    return Model(zero, one, one, linear, members, one, jnp.float32(1), zero, 10 * one, continuous, ungrouped)


def act(logits, starts, horizon=6, greedy=True, key=KEY, model=None):
    reference = Reference(jnp.array([[0.0], [1.0], [99.0]]), jnp.array([True, True, False]))
    return imagine(key, model or walk(), logits, jnp.asarray(starts), reference, horizon, greedy)


def forward(states):
    return jnp.broadcast_to(jnp.array([0.0, 1.0]), (*states.shape[:-1], 2))


def test_an_episode_that_ended_stays_where_it_was():
    found = act(forward, [[0.0], [3.0]])
    np.testing.assert_array_equal(found.state[:, 0, :, 0], [[1, 4], [2, 5], [3, 5], [4, 5], [5, 5], [5, 5]])
    np.testing.assert_array_equal(found.ended[:, 0], [[0, 0], [0, 1], [0, 1], [0, 1], [1, 1], [1, 1]])
    np.testing.assert_allclose(found.distance[:, 0, 0], [0, 1, 2, 3, 4, 4], atol=1e-5)  # from 1; padding is far away
    assert (found.state == found.state[:, :1]).all()


def test_where_no_episode_ended_none_ends():
    found = act(forward, [[3.0]], model=walk()._replace(ends=jnp.float32(0)))
    assert not found.ended.any()
    np.testing.assert_array_equal(found.state[:, 0, 0, 0], np.arange(4, 10))


def test_greedy_takes_the_most_probable_action_and_sampling_does_not_always():
    starts = np.zeros((50, 1))
    assert (act(forward, starts, 3).action == 1).all()
    sampled = act(forward, starts, 3, greedy=False)
    np.testing.assert_allclose(sampled.action.mean(), 1 / (1 + np.exp(-1)), atol=0.08)
    assert (sampled.state[0, ..., 0] == sampled.action[0]).all()


def test_the_same_key_samples_the_same():
    starts = np.zeros((50, 1))
    first, again, other = (act(forward, starts, 3, False, key) for key in (KEY, KEY, jax.random.key(1)))
    np.testing.assert_array_equal(first.action, again.action)
    assert (first.action != other.action).any()


@settings(max_examples=8)
@given(st.integers(1, 5), st.integers(1, 12), st.integers(1, 6), st.integers(0, 99))
def test_the_nearest_state_is_that_of_a_search(inputs, references, states, seed):
    random = np.random.default_rng(seed)
    reference, states = random.normal(size=(references, inputs)), random.normal(size=(states, inputs))
    mask = random.uniform(size=references) < 0.7
    mask[0] = True
    found = nearest(Reference(jnp.asarray(reference, jnp.float32), jnp.asarray(mask)), jnp.asarray(states, jnp.float32))
    np.testing.assert_allclose(found, cdist(states, reference[mask]).min(axis=1), atol=2e-3)


@settings(max_examples=8)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 99))
def test_energy_distance_is_the_square_of_scipys(n, m, seed):
    random = np.random.default_rng(seed)
    states, others = random.normal(size=(n, 1)), random.normal(1, 2, size=(m, 1))
    weight, mask = random.uniform(0.1, 1, n), random.uniform(size=m) < 0.7
    mask[0] = True
    found = energy_distance(
        *(jnp.asarray(values, jnp.float32) for values in (states, weight, others)), jnp.asarray(mask)
    )
    expected = stats.energy_distance(states[:, 0], others[mask, 0], weight) ** 2
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_equal_sets_have_no_energy_distance():
    states = jnp.asarray(np.random.default_rng(0).normal(size=(9, 3)), jnp.float32)
    np.testing.assert_allclose(energy_distance(states, jnp.ones(9), states, jnp.ones(9, bool)), 0, atol=1e-6)
