"""Energy-based distribution matching: identities on a finite grid, and its steps taken apart."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import probes
from sbil.algorithms.bc import BCConfig, bc, policy_loss
from sbil.algorithms.edm import EDMConfig, edm, state_loss
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.networks import energy
from sbil.training import train_one

STATES, ACTIONS = 7, 3
GRID = np.eye(STATES)
SMALL = probes.small(EDMConfig)


def problem():
    """Random logits on the grid, and demonstrations of which every probability is known."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(STATES, ACTIONS))
    frequency, policy = rng.dirichlet(np.full(STATES, 5.0)), rng.dirichlet(np.full(ACTIONS, 5.0), STATES)
    return jnp.asarray(logits), jnp.asarray(frequency), jnp.asarray(policy)


def log_rho(logits):
    """log rho(s) on the whole grid, normalised exactly."""
    return jax.nn.log_softmax(-energy(probes.table(logits)(GRID)))


def expected_state_loss(logits, frequency, rho):
    """The mean of `state_loss` over one state from the demonstrations and one from rho."""
    network = probes.table(logits)
    each = jax.vmap(jax.vmap(lambda s, t: state_loss(network, s[None], t[None]), (None, 0)), (0, None))(GRID, GRID)
    return frequency @ each @ rho


def expected_policy_loss(logits, frequency, policy):
    network = probes.table(logits)
    pair = lambda s, a: policy_loss(network, probes.transitions(s[None], a[None]))  # noqa: E731
    each = jax.vmap(jax.vmap(pair, (None, 0)), (0, None))(jnp.asarray(GRID), jnp.arange(ACTIONS))
    return (frequency[:, None] * policy * each).sum()


def surrogate(logits, frequency, policy):
    rho = jax.lax.stop_gradient(jnp.exp(log_rho(logits)))
    return expected_state_loss(logits, frequency, rho) + expected_policy_loss(logits, frequency, policy)


def test_losses_worked_by_hand():
    """Logits log 1, log 2 | log 3, log 4: energies -log 3 and -log 7, hence rho = 0.3 and 0.7."""
    logits = np.log([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_allclose(energy(jnp.asarray(logits)), [-np.log(3), -np.log(7)], rtol=1e-6)
    seen, sampled = np.eye(2, dtype=np.float32)[[0, 0, 1]], np.eye(2, dtype=np.float32)[[1]]
    expected = -(np.log(3) + np.log(3) + np.log(7)) / 3 + np.log(7)
    np.testing.assert_allclose(state_loss(probes.table(logits), seen, sampled), expected, rtol=1e-6)


def test_gradient_of_the_state_loss_is_that_of_minus_log_rho():
    """E1, with the samples held constant. Differentiating their law too gives another gradient."""

    @jax.jit
    def gradients(logits, frequency):
        likelihood = jax.grad(lambda f: -frequency @ log_rho(f))(logits)
        held = jax.grad(lambda f: expected_state_loss(f, frequency, jnp.exp(log_rho(logits))))(logits)
        through = jax.grad(lambda f: expected_state_loss(f, frequency, jnp.exp(log_rho(f))))(logits)
        return likelihood, held, through

    with jax.enable_x64(True):
        logits, frequency, _ = problem()
        likelihood, held, through = gradients(logits, frequency)
    np.testing.assert_allclose(held, likelihood, atol=1e-14)
    assert np.abs(likelihood - through).max() > 1e-2


def test_gradient_of_the_whole_is_that_of_the_joint_likelihood():
    """E1: -mean f(s)[a] + log sum_{s, a} exp f."""

    @jax.jit
    def gradients(logits, frequency, policy):
        joint = lambda f: -(frequency[:, None] * policy * f).sum() + jax.nn.logsumexp(f)  # noqa: E731
        return jax.grad(joint)(logits), jax.grad(surrogate)(logits, frequency, policy)

    with jax.enable_x64(True):
        joint, ours = gradients(*problem())
    np.testing.assert_allclose(ours, joint, atol=1e-14)
    assert np.abs(joint).max() > 1e-2


def test_tabular_optimum_is_the_empirical_law():
    """E2: descent on the surrogate ends where policy and state frequencies are those of the demonstrations."""

    @jax.jit
    def descend(frequency, policy):
        step = lambda f, _: (f - 2 * jax.grad(surrogate)(f, frequency, policy), None)  # noqa: E731
        logits, _ = jax.lax.scan(step, jnp.zeros((STATES, ACTIONS)), length=3_000)
        return jax.nn.softmax(logits), jnp.exp(log_rho(logits))

    with jax.enable_x64(True):
        _, frequency, policy = problem()
        found, rho = descend(frequency, policy)
    np.testing.assert_allclose(found, policy, atol=1e-6)
    np.testing.assert_allclose(rho, frequency, atol=1e-6)


def test_negatives_that_are_the_positives_cancel():
    """E4: loss and gradient are exactly 0."""
    states = jnp.asarray(np.random.default_rng(0).normal(size=(8, 3)), jnp.float32)
    loss, gradient = jax.jit(jax.value_and_grad(state_loss))(probes.network(3, 8, 2), states, states)
    assert loss == 0
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))


def run(make, config, demonstrations, updates=5):
    """(networks after a few updates from one key, metrics)."""
    spec = spec_of(demonstrations)

    @jax.jit
    def program(key, dataset):
        return train_one(make(spec, config), updates, key, dataset)

    state, metrics = program(jax.random.key(7), make_dataset(demonstrations))
    return state.network, metrics


def assert_same_network(one, other):
    for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def bc_network():
    return run(bc, BCConfig(hidden=(8,), batch=8), probes.demonstrations())[0]


def test_weight_zero_is_behavioural_cloning(bc_network):
    """E4: from the same key, with chains running."""
    network, metrics = run(edm, dataclasses.replace(SMALL, weight=0.0), probes.demonstrations())
    assert_same_network(network, bc_network)
    assert np.abs(metrics["energy_gap"]).max() > 1e-3


def test_step_with_negatives_equal_to_positives_is_a_step_of_behavioural_cloning():
    """E4: with one pair the box is a point, so that chains that restart and stand still are the demonstrated state."""
    one = probes.demonstrations(lengths=(1,))
    still = dataclasses.replace(SMALL, restart=1.0, chain_length=0, weight=3.0)
    network, metrics = run(edm, still, one)
    expected, _ = run(bc, BCConfig(hidden=(8,), batch=8), one)
    assert (metrics["energy_gap"] == 0).all()
    assert_same_network(network, expected)


def test_shift_of_all_logits_of_a_state():
    """E5: c(s) added to the logits at s leaves the policy loss and moves the state loss by mean c(s~) - mean c(s)."""
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        logits, shift = rng.normal(size=(STATES, ACTIONS)), rng.normal(size=STATES)
        seen, sampled = rng.integers(0, STATES, 5), rng.integers(0, STATES, 9)
        batch = probes.transitions(GRID[seen], rng.integers(0, ACTIONS, 5))
        before, after = probes.table(logits), probes.table(logits + shift[:, None])
        np.testing.assert_allclose(policy_loss(after, batch), policy_loss(before, batch), atol=1e-14)
        moved = state_loss(after, GRID[seen], GRID[sampled]) - state_loss(before, GRID[seen], GRID[sampled])
    np.testing.assert_allclose(moved, shift[sampled].mean() - shift[seen].mean(), atol=1e-14)


# A buffer as large as the batch: every chain is used in every update, so the new buffer is the samples.
WHOLE = dataclasses.replace(SMALL, batch=8, buffer_size=8, learning_rate=0.01)
BUFFER = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def taken_apart():
    """One update of EDM from a given buffer, and what it was made of."""
    demonstrations = probes.demonstrations()
    spec, dataset, key = spec_of(demonstrations), make_dataset(demonstrations), jax.random.key(11)

    @jax.jit
    def program(config, buffer):
        algorithm = edm(spec, config)
        before = algorithm.init(key, dataset)._replace(buffer=buffer)

        def update(network):
            after, metrics = algorithm.update(key, before._replace(network=network), dataset)
            return metrics["energy_gap"], (after, metrics)

        through, (after, metrics) = jax.grad(update, has_aux=True)(before.network)
        batch = dataset.batch(jax.random.fold_in(key, 0), config.batch)
        return before, after, metrics, batch, through

    return lambda buffer=BUFFER, **changes: program(dataclasses.replace(WHOLE, **changes), buffer)


@pytest.mark.parametrize(("weight", "square"), [(1.0, 0.0), (1.0, 1.0), (0.5, 2.0)])
def test_update_is_a_step_of_adam_on_the_loss(taken_apart, weight, square):
    """L_pi + weight * (L_rho + square * L_rho^2), with the samples as constants."""
    before, after, metrics, batch, _ = taken_apart(weight=weight, square=square)

    @jax.jit
    def expected(network, batch, sampled):
        def loss(network):
            gap = state_loss(network, batch.observation, sampled)
            return policy_loss(network, batch) + weight * (gap + square * gap**2)

        adam = optax.adam(0.01)
        step, _ = adam.update(jax.grad(loss)(network), adam.init(network), network)
        return optax.apply_updates(network, step), state_loss(network, batch.observation, sampled)

    network, gap = expected(before.network, batch, after.buffer)
    assert_same_network(after.network, network)
    np.testing.assert_allclose(metrics["energy_gap"], gap, atol=1e-6)
    assert abs(gap) > 1e-3
    np.testing.assert_allclose(metrics["chain_size"], np.abs(after.buffer).max(), rtol=1e-6)


def test_no_gradient_path_through_the_samples(taken_apart):
    """E7: the whole update differentiated gives the gradient with the samples held constant."""
    before, after, _, batch, through = taken_apart()
    held = jax.jit(jax.grad(state_loss))(before.network, batch.observation, after.buffer)
    for ours, theirs in zip(jax.tree.leaves(through), jax.tree.leaves(held), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(held)) > 1e-3


def test_restart_one_starts_all_chains_from_the_box(taken_apart):
    """E6: chains far away come back at once, each to somewhere else in the box of the states."""
    before, after, *_ = taken_apart(1e6 + BUFFER, restart=1.0, step_size=0.0, noise=0.0)
    assert ((after.buffer >= before.box.low) & (after.buffer <= before.box.high)).all()
    assert len(np.unique(after.buffer, axis=0)) == 8


def test_chains_that_neither_restart_nor_move_leave_the_buffer(taken_apart):
    """E6."""
    before, after, *_ = taken_apart(restart=0.0, step_size=0.0, noise=0.0)
    np.testing.assert_array_equal(after.buffer, before.buffer)


@pytest.mark.parametrize("start", ["box", "unit"])
def test_chains_start_in_the_box_asked_for(start):
    demonstrations = probes.demonstrations()
    config = dataclasses.replace(SMALL, start=start, buffer_size=500)
    state = jax.jit(edm(spec_of(demonstrations), config).init)(jax.random.key(0), make_dataset(demonstrations))
    states = demonstrations.flat().observation
    low, high = (states.min(0), states.max(0)) if start == "box" else (-np.ones(3), np.ones(3))
    np.testing.assert_allclose(state.box.low, low, rtol=1e-6)
    np.testing.assert_allclose(state.box.high, high, rtol=1e-6)
    assert state.buffer.shape == (500, 3)
    np.testing.assert_allclose(state.buffer.min(0), low, atol=0.05)
    np.testing.assert_allclose(state.buffer.max(0), high, atol=0.05)


def test_buffer_is_never_smaller_than_the_batch():
    demonstrations = probes.demonstrations()
    config = dataclasses.replace(SMALL, batch=8, buffer_size=2)
    algorithm = edm(spec_of(demonstrations), config)
    state = jax.eval_shape(algorithm.init, jax.random.key(0), make_dataset(demonstrations))
    assert state.buffer.shape == (8, 3)


def test_energy_becomes_low_where_the_states_are():
    """The whole algorithm on one feature: states near -1 and 1; the energy there ends below that at 0 and ±3."""
    rng = np.random.default_rng(0)
    states = np.sign(rng.normal(size=(200, 1))) + 0.1 * rng.normal(size=(200, 1))
    trajectory = Trajectory(states.astype(np.float32), (states[:, 0] > 0).astype(np.int32))
    config = EDMConfig(
        hidden=(16,),
        batch=64,
        buffer_size=256,
        chain_length=10,
        noise=0.1,
        step_size=0.1,
        learning_rate=3e-3,
        restart=0.2,
        start="unit",
    )
    network, _ = run(edm, config, Demonstrations((trajectory,), ("left", "right")), updates=400)
    at = lambda x: float(energy(network(jnp.array([[x]])))[0])  # noqa: E731
    assert max(at(-1.0), at(1.0)) < min(at(0.0), at(-3.0), at(3.0))


def test_strict_dtypes():
    """No array changes its dtype implicitly."""
    states = np.zeros((8, 3), np.float32)
    batch = probes.transitions(states, np.zeros(8, np.int32))
    with jax.numpy_dtype_promotion("strict"):
        for loss, args in [(state_loss, (states, states)), (policy_loss, (batch,))]:
            assert jax.eval_shape(loss, probes.network(3, 8, 2), *args).dtype == jnp.float32
