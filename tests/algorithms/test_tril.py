"""Transition-regularised imitation: its two losses by hand, their gradients, and what it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from sbil.algorithms.bc import policy_loss
from sbil.algorithms.tril import Heads, TRILConfig, prediction_loss, tril
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.networks import MLP, Dense, Scaling
from sbil.training import train_one

DEMONSTRATIONS = probes.demonstrations()  # some of its steps have no successor
SPEC = spec_of(DEMONSTRATIONS)
DATASET, KEY = make_dataset(DEMONSTRATIONS), jax.random.key(1)


def heads_by_hand():
    """phi(s) = tanh(2 s); logits (phi, 0); the next state is predicted as phi + 3 a."""
    policy = MLP((Dense(jnp.array([[2.0]]), jnp.zeros(1)), Dense(jnp.array([[1.0, 0.0]]), jnp.zeros(2))), "tanh")
    return Heads(policy, MLP((Dense(jnp.array([[1.0], [0.0], [3.0]]), jnp.zeros(1)),), "tanh"), 1)


def test_prediction_loss_worked_by_hand():
    """Standardised by mean 1 and scale 2. The third step has no successor, and the value in its place is not read."""
    state, following, action = np.array([0.5, -1.0, 0.25]), np.array([1.5, 2.0, np.nan]), np.array([0, 1, 1])
    has_next = np.array([True, True, False])
    batch = probes.triples(1 + 2 * state[:, None], action, 1 + 2 * following[:, None], has_next, np.zeros(3, bool))
    scaling = Scaling(jnp.array([1.0]), jnp.array([2.0]))
    error = following - np.tanh(2 * state) - 3 * action
    np.testing.assert_allclose(
        prediction_loss(heads_by_hand(), scaling, batch, 2), (error[0] ** 2 + error[1] ** 2) / 2, rtol=1e-6
    )
    none = batch._replace(has_next=jnp.zeros(3, bool))
    assert prediction_loss(heads_by_hand(), scaling, none, 2) == 0


def test_prediction_loss_is_a_mean_over_the_numbers_of_a_state():
    """Errors of 1 and 3 in two columns: the mean square is 5."""
    heads = Heads(probes.table(np.zeros((2, 2))), MLP((Dense(jnp.zeros((4, 2)), jnp.zeros(2)),), "tanh"), 0)
    batch = probes.transitions(np.zeros((1, 2)), np.array([0]))
    batch = batch._replace(next_observation=jnp.array([[1.0, 3.0]]), has_next=jnp.array([True]))
    np.testing.assert_allclose(prediction_loss(heads, Scaling(jnp.zeros(2), jnp.ones(2)), batch, 2), 5, rtol=1e-6)


@jax.jit
def first_step(dynamics, key, dataset):
    """(State before, state after, the minibatch, metrics) of the first update."""
    algorithm = tril(SPEC, TRILConfig(trunk=(8, 4), head=(6,), batch=16, dynamics=dynamics))
    state = algorithm.init(key, dataset)
    return state, *algorithm.update(key, state, dataset), dataset.batch(jax.random.fold_in(key, 0), 16)


@jax.jit
def gradients(state, batch):
    """The gradients of the two losses, taken separately."""

    def l_pi(heads):
        return policy_loss(heads.policy, batch._replace(observation=state.scaling(batch.observation)))

    def l_next(heads):
        return prediction_loss(heads, state.scaling, batch, SPEC.actions)

    return jax.value_and_grad(l_pi)(state.heads), jax.value_and_grad(l_next)(state.heads)


@pytest.mark.parametrize("dynamics", [0.0, 1.4])
def test_the_gradient_is_that_of_both_losses(dynamics):
    """Adam's first moment is a tenth of its first gradient; without dynamics that is the gradient of BC alone."""
    before, after, metrics, batch = first_step(dynamics, KEY, DATASET)
    (l_pi, g_pi), (l_next, g_next) = gradients(before, batch)
    assert 0 < batch.has_next.sum() < 16
    np.testing.assert_allclose(metrics["policy_loss"], l_pi, rtol=1e-5)
    np.testing.assert_allclose(metrics["prediction_loss"], l_next, rtol=1e-5)
    moment = after.optimiser[0].mu
    expected = jax.tree.map(lambda one, other: 0.1 * (one + dynamics * other), g_pi, g_next)
    jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=1e-7), moment, expected)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(g_pi.policy))
    assert all(np.any(leaf) for leaf in jax.tree.leaves(g_next.policy.layers[:2]))  # the trunk learns from both,
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(g_next.policy.layers[2:]))  # each head from its own
    assert all(np.any(leaf) == (dynamics > 0) for leaf in jax.tree.leaves(moment.dynamics))


def test_steps_without_a_successor_count_for_the_policy_only():
    """Another action at such a step changes the policy loss and not the prediction; at another step, both."""
    before, _, _, batch = first_step(1.0, KEY, DATASET)
    (l_pi, _), (l_next, _) = gradients(before, batch)
    for step in (int(np.flatnonzero(~batch.has_next)[0]), int(np.flatnonzero(batch.has_next)[0])):
        other = batch._replace(action=batch.action.at[step].set((batch.action[step] + 1) % 3))
        (other_pi, _), (other_next, _) = gradients(before, other)
        assert other_pi != l_pi
        assert (other_next != l_next) == batch.has_next[step]


def test_features_lie_between_minus_one_and_one():
    state, *_ = first_step(1.0, KEY, DATASET)
    standard = state.scaling(DATASET.pool.observations)
    features = state.heads.features(standard)
    assert features.shape[-1] == 4
    assert np.abs(features).max() < 1
    assert np.ptp(features) > 0.5
    first, second, *_ = state.heads.policy.layers
    by_hand = np.tanh(np.tanh(standard @ first.weight + first.bias) @ second.weight + second.bias)
    np.testing.assert_allclose(features, by_hand, atol=1e-6)


@pytest.fixture(scope="module")
def learnt():
    """Decisions by the side of a line, far from zero and on another scale, whose successors are linear in (s, a)."""
    (pairs,) = probes.separable().trajectories
    matrix, push = np.array([[0.8, 0.3], [-0.4, 0.7]]), np.array([[-0.3, 0.0], [0.3, 0.1]])
    following = pairs.observations @ matrix.T + push[pairs.actions]
    states, following = (np.float32(50 + each * [10, 0.2]) for each in (pairs.observations, following))
    triples = zip(states, following, pairs.actions, strict=True)
    demonstrations = Demonstrations(
        tuple(Trajectory(np.stack([s, t]), a[None]) for s, t, a in triples), ("left", "right")
    )
    algorithm = tril(spec_of(demonstrations), TRILConfig(trunk=(16, 8), head=(16,), batch=32, learning_rate=0.01))
    run = jax.jit(lambda key, data: train_one(algorithm, 800, key, data))
    dataset = make_dataset(demonstrations)
    return algorithm, *run(KEY, dataset), states, following, pairs.actions


def test_separable_set_is_learnt(learnt):
    algorithm, state, _, states, _, actions = learnt
    assert (algorithm.logits(state, states).argmax(axis=-1) == actions).mean() >= 0.95


def test_linear_dynamics_are_learnt(learnt):
    """The prediction is of the standardised successor. A constant prediction would leave its whole variance."""
    _, state, metrics, states, following, _ = learnt
    variance = np.var((following - states.mean(axis=0)) / states.std(axis=0), axis=0).mean()
    assert variance > 0.5
    assert metrics["prediction_loss"][-20:].mean() < 0.02 * variance
    np.testing.assert_allclose(state.scaling.mean, states.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(state.scaling.scale, states.std(axis=0) + 0.001, rtol=1e-4)


def test_the_network_takes_observations_as_they_are(learnt):
    algorithm, state, _, states, _, _ = learnt
    expected = state.heads.policy(state.scaling(jnp.asarray(states)))
    np.testing.assert_allclose(state.network(jnp.asarray(states)), expected, atol=1e-3)
    np.testing.assert_array_equal(algorithm.logits(state, states), state.network(jnp.asarray(states)))
