"""Behavioural cloning against what it must do on problems with known answers."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import probes
from sbil.algorithms.bc import BCConfig, bc, policy_loss
from sbil.dataset import make_dataset, spec_of
from sbil.training import train_one


def test_loss_worked_by_hand():
    """Logits log 1, log 2 give 1/3 and 2/3; log 3, log 1 give 3/4 and 1/4."""
    network = probes.table(np.log([[1.0, 2.0], [3.0, 1.0]]))
    batch = probes.transitions(np.eye(2)[[0, 1, 1]], np.array([1, 0, 1]))
    expected = -(np.log(2 / 3) + np.log(3 / 4) + np.log(1 / 4)) / 3
    np.testing.assert_allclose(policy_loss(network, batch), expected, rtol=1e-6)


def test_optimum_is_the_empirical_conditional_frequency():
    problem = probes.finite()
    with jax.enable_x64(True):
        batch = probes.transitions(problem.observation, problem.action)
        loss = jax.jit(jax.value_and_grad(lambda logits: policy_loss(probes.table(logits), batch)))

        def of(flat):
            value, gradient = loss(jnp.asarray(flat.reshape(problem.policy.shape)))
            return float(value), np.asarray(gradient).ravel()

        found = minimize(of, np.zeros(problem.policy.size), jac=True, method="BFGS", options={"gtol": 1e-9})
        policy = jax.nn.softmax(jnp.asarray(found.x.reshape(problem.policy.shape)))
    np.testing.assert_allclose(policy, problem.policy, atol=1e-6)


def test_training_on_one_hot_states_finds_the_frequencies():
    """The whole algorithm, minibatches and Adam included; the tolerance is the noise of its last minibatches."""
    problem = probes.finite()
    demonstrations = problem.demonstrations
    algorithm = bc(spec_of(demonstrations), BCConfig(hidden=(), batch=512, learning_rate=0.03))
    state, _ = jax.jit(lambda key, data: train_one(algorithm, 400, key, data))(
        jax.random.key(0), make_dataset(demonstrations)
    )
    policy = jax.nn.softmax(algorithm.logits(state, jnp.eye(len(problem.frequency))))
    np.testing.assert_allclose(policy, problem.policy, atol=0.04)


def test_gradient_is_policy_minus_one_hot_sent_back():
    rng = np.random.default_rng(1)

    def both(network, batch):
        logits, send_back = jax.vjp(lambda network: network(batch.observation), network)
        excess = (jax.nn.softmax(logits) - jax.nn.one_hot(batch.action, 4)) / len(batch.action)
        return jax.grad(policy_loss)(network, batch), send_back(excess)[0]

    with jax.enable_x64(True):
        batch = probes.transitions(rng.normal(size=(9, 3)), rng.integers(0, 4, 9))
        gradient, expected = jax.jit(both)(probes.network(3, 5, 4), batch)
    for ours, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-14)
        assert np.abs(theirs).max() > 1e-3


def test_separable_set_is_learnt_without_a_mistake():
    demonstrations = probes.separable()
    algorithm = bc(spec_of(demonstrations), BCConfig(hidden=(8,), batch=32, learning_rate=0.02))
    dataset = make_dataset(demonstrations)
    state, metrics = jax.jit(lambda key, data: train_one(algorithm, 300, key, data))(jax.random.key(0), dataset)
    (trajectory,) = demonstrations.trajectories
    chosen = algorithm.logits(state, jnp.asarray(trajectory.observations)).argmax(-1)
    np.testing.assert_array_equal(chosen, trajectory.actions)
    assert set(trajectory.actions) == {0, 1}
    assert metrics["policy_loss"][-1] < 0.1 < 0.5 < metrics["policy_loss"][0]


def test_weight_decay_is_decoupled():
    """A step with decay d is the step without, less learning_rate * d * parameters."""
    demonstrations = probes.demonstrations()
    spec = spec_of(demonstrations)

    @jax.jit
    def step(decay, key, dataset):
        algorithm = bc(spec, BCConfig(hidden=(8,), batch=8, learning_rate=0.01, weight_decay=decay))
        state = algorithm.init(key, dataset)
        return state.network, algorithm.update(key, state, dataset)[0].network

    key, dataset = jax.random.key(3), make_dataset(demonstrations)
    before, plain = step(0.0, key, dataset)
    _, decayed = step(2.0, key, dataset)
    for start, one, other in zip(*map(jax.tree.leaves, (before, plain, decayed)), strict=True):
        np.testing.assert_allclose(one - other, 0.01 * 2.0 * start, atol=1e-7)
