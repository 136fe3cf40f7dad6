"""AVRIL: its loss by hand, the best distribution of rewards, and the data on which it is behavioural cloning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import probes
from sbil.algorithms import AVRILConfig, BCConfig, avril, bc, get
from sbil.algorithms.avril import Reward, avril_loss, reward_of
from sbil.dataset import make_dataset

SMALL = BCConfig(hidden=(8,), batch=8, learning_rate=0.01, weight_decay=0.1)
CONSTANT = np.log(2 * np.pi) / 2 - 0.5
loss_of = jax.jit(avril_loss)


def step(following=1, next_action=1, known=True):
    """Action 0 at state 0 of two."""
    eye, yes = np.eye(2), np.ones(1, bool)
    batch = probes.triples(eye[:1], np.array([0]), eye[[following]], yes, ~yes)
    return batch._replace(next_action=jnp.array([next_action]), has_next_action=jnp.array([known]))


def encoder(mean, deviation):
    """The encoder that gives every state the same distribution of rewards."""
    return probes.table(np.tile([mean, np.log(deviation)], (2, 1)))


def test_loss_worked_by_hand():
    """Q(s) = (1, 0), a = 0, Q(s',a') = 0, mean and deviation 0.5; the TD term has slope 2 in the implied reward."""
    q = probes.table(np.array([[1.0, 0.0], [9.0, 0.0]]))
    loss, metrics = loss_of((q, encoder(0.5, 0.5)), step(), AVRILConfig())
    terms = [loss, metrics["policy_loss"], metrics["divergence"], metrics["surprise"]]
    np.testing.assert_allclose(terms, [1.482200, 0.313262, 0.443147, 0.725791], atol=1e-6)
    reward = Reward(jnp.array(0.5), jnp.log(0.5))
    np.testing.assert_allclose(jax.grad(reward.surprise)(1.0), 2, rtol=1e-6)


def test_the_discount_and_the_weight():
    q = probes.table(np.array([[1.0, 0.0], [9.0, 0.4]]))
    loss, metrics = loss_of((q, encoder(0.5, 0.5)), step(), AVRILConfig(discount=0.5, weight=3.0))
    surprise = ((1 - 0.2 - 0.5) / 0.5) ** 2 / 2 + np.log(0.5) + np.log(2 * np.pi) / 2
    np.testing.assert_allclose(metrics["surprise"], surprise, rtol=1e-6)
    np.testing.assert_allclose(loss, metrics["policy_loss"] + metrics["divergence"] + 3 * surprise, rtol=1e-6)


def best_reward(implied):
    """(Mean, deviation, value without its constant) of the best distribution for these implied rewards."""

    @jax.jit
    def value(parts):
        reward = Reward(*jnp.asarray(parts))
        return (reward.divergence() + reward.surprise(jnp.asarray(implied))).mean()

    with jax.enable_x64(True):
        jac = jax.jit(jax.grad(value))
        found = minimize(value, [0.1, 0.0], jac=jac, bounds=[(None, None), (-12, None)], tol=1e-12)
    return found.x[0], np.exp(found.x[1]), found.fun - CONSTANT


@pytest.mark.parametrize(
    ("implied", "value", "variance"), [(0.2, 0.02, 0), (0.8, 0.32, 0), (1.5, 1, 0.5), (4, 3.5, 3), (-3, 2.5, 2)]
)
def test_a_free_distribution_makes_the_loss_of_huber(implied, value, variance):
    mean, deviation, found = best_reward([float(implied)])
    np.testing.assert_allclose(found, value, atol=1e-5)
    np.testing.assert_allclose(deviation**2, variance, atol=1e-3)
    np.testing.assert_allclose(mean, np.clip(implied, -1, 1), atol=1e-3)


def test_one_distribution_for_two_rewards():
    np.testing.assert_allclose(best_reward([0.0, 2.0]), [0.468990, 1.064069, 1.242218], atol=1e-5)


def test_weight_zero_is_behavioural_cloning_bit_for_bit():
    """The divergence moves the encoder only."""
    ours = probes.one_run(avril, AVRILConfig(**vars(SMALL), weight=0.0))
    probes.assert_same_bits(ours, probes.one_run(bc, SMALL))


def test_without_next_decisions_it_is_behavioural_cloning_bit_for_bit():
    """Every second step is kept; the next decisions are in the pool, but not in the draw."""
    dataset = make_dataset(probes.demonstrations(), thin=2)
    ours = probes.one_run(avril, AVRILConfig(**vars(SMALL)), dataset)
    probes.assert_same_bits(ours, probes.one_run(bc, SMALL, dataset))
    whole = probes.one_run(avril, AVRILConfig(**vars(SMALL)))
    assert np.abs(whole.layers[0].weight - probes.one_run(bc, SMALL).layers[0].weight).max() > 1e-3


def test_a_state_that_does_not_change_implies_no_reward():
    networks, same = (probes.network(2, 4, 2), encoder(0.3, 0.5)), step(following=0, next_action=0)

    def surprise(networks):
        return avril_loss(networks, same, AVRILConfig())[1]["surprise"]

    value, (slope, _) = jax.jit(jax.value_and_grad(surprise))(networks)
    np.testing.assert_allclose(value, 0.6**2 / 2 + np.log(0.5) + np.log(2 * np.pi) / 2, rtol=1e-5)
    assert all(np.abs(leaf).max() < 1e-6 for leaf in jax.tree.leaves(slope))


def test_a_step_without_a_next_decision_counts_for_the_policy_only():
    q = probes.table(np.array([[1.0, 0.0], [9.0, 0.0]]))
    known, unknown = step(), step(known=False)
    both = jax.tree.map(lambda one, other: jnp.concatenate([one, other]), known, unknown)
    loss, metrics = loss_of((q, encoder(0.5, 0.5)), both, AVRILConfig())
    np.testing.assert_allclose(loss, 1.482200, atol=1e-6)
    loss, metrics = loss_of((q, encoder(0.5, 0.5)), unknown, AVRILConfig())
    np.testing.assert_allclose(loss, metrics["policy_loss"])


def test_the_deviation_has_a_least_value():
    reward = reward_of(probes.table(np.array([[0.5, -40.0], [0.5, 0.3]])), step(), AVRILConfig(floor=-2.0))
    np.testing.assert_allclose(reward, [[0.5], [-2.0]])
    assert np.isfinite(reward.surprise(jnp.array([3.0]))).all()


def test_a_reward_may_depend_on_the_action():
    """Outputs are the means of all actions, then their log deviations."""
    both = probes.table(np.array([[1.0, 2.0, -0.1, -0.2], [0.0, 0.0, 0.0, 0.0]]))
    for action in (0, 1):
        batch = step()._replace(action=jnp.array([action]))
        reward = reward_of(both, batch, AVRILConfig(reward="pair"))
        np.testing.assert_allclose(reward, [[1.0 + action], [-0.1 * (1 + action)]], rtol=1e-6)


def test_released_settings():
    entry = get("avril")
    assert (entry.presets["released"].learning_rate, entry.budget("released")) == (1e-4, 5_000)
    assert entry.budget("default") == get("bc").budget("default")
