"""Offline IQ-Learn: its loss by hand, what the penalty can do, and what the temperature does to Adam."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import minimize

import probes
from sbil.algorithms import BCConfig, IQLearnConfig, RCALConfig, bc, get, iq_learn, rcal
from sbil.algorithms.iq_learn import iq_loss
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.networks import cooled

SMALL = BCConfig(hidden=(8,), batch=8, learning_rate=0.01, weight_decay=0.1)
loss_of = jax.jit(iq_loss)


def steps(states, actions, following, terminal):
    """Steps between states of a table of Q; every successor is known."""
    eye = np.eye(max([*states, *following]) + 1)
    return probes.triples(eye[states], np.array(actions), eye[following], np.ones(len(actions), bool), terminal)


@pytest.mark.parametrize(
    ("terminal", "temperature", "total", "policy", "reward"),
    [
        (False, 1.0, 0.384013, 0.313262, 0.376168),
        (False, 0.5, 0.300194, 0.126928, 0.5 * 1.376168),
        (True, 1.0, 0.813262, 0.313262, 1),
        (True, 0.5, 0.563464, 0.126928, 1),
    ],
)
def test_loss_worked_by_hand(terminal, temperature, total, policy, reward):
    """Q(s) = (1, 0), a = 0, Q(s') = (0, 0), discount 0.9, alpha 0.5."""
    batch = steps([0], [0], [1], np.array([terminal]))
    config = IQLearnConfig(temperature=temperature, discount=0.9)
    loss, metrics = loss_of(probes.table(np.array([[1.0, 0.0], [0.0, 0.0]])), batch, config)
    np.testing.assert_allclose([loss, metrics["policy_loss"]], [total, policy], atol=2e-6)
    np.testing.assert_allclose(metrics["reward_norm"], reward**2, rtol=1e-5)


def test_a_small_temperature_makes_a_perceptron_loss():
    """Outputs (0.1, 0.3), the first is right: temperature * NLL tends to 0.3 - 0.1."""
    batch, q = steps([0], [0], [0], np.array([True])), probes.table(np.array([[0.1, 0.3]]))
    for temperature, expected in [(1, 0.798139), (0.1, 0.212693), (0.01, 0.2), (0.001, 0.2)]:
        loss, _ = loss_of(q, batch, IQLearnConfig(temperature=float(temperature), penalty=0.0))
        np.testing.assert_allclose(loss, expected, atol=1e-6)
    gradient = jax.jit(jax.grad(lambda q: iq_loss(q, batch, IQLearnConfig(penalty=0.0))[0]))(q)
    np.testing.assert_allclose(gradient.output.bias, [-1, 1], atol=1e-6)


def test_the_penalty_can_be_zero_for_any_policy():
    """Along a chain the levels of Q are free: level t is the sum over k of 0.9^k NLL_{t+k}."""
    margins, levels = np.array([1.0, 2.0, 3.0]), np.array([0.153591, 0.043729, 0.0])
    q = probes.table(np.stack([levels, levels - margins], axis=1))
    batch = steps([0, 1, 2], [0, 0, 0], [1, 2, 2], np.array([False, False, True]))
    _, metrics = loss_of(q, batch, IQLearnConfig(temperature=1.0, discount=0.9))
    np.testing.assert_allclose(metrics["policy_loss"], np.mean([0.313262, 0.126928, 0.048587]), atol=1e-6)
    assert metrics["reward_norm"] < 1e-10


def test_the_penalty_acts_where_one_state_shows_two_actions():
    """Action 0 loops and action 1 ends, with shares 0.8 and 0.2. Kappa is temperature * penalty."""
    batch = steps([0] * 5, [0] * 4 + [1], [0] * 5, np.arange(5) == 4)
    with jax.enable_x64(True):
        batch = jax.tree.map(jnp.asarray, batch)

        @jax.jit
        def slope(logits, penalty):
            config = IQLearnConfig(temperature=1.0, discount=0.9, penalty=penalty)
            return jax.value_and_grad(lambda logits: iq_loss(probes.table(logits[None]), batch, config)[0])(logits)

        for kappa, expected in [(0, 0.8), (0.005, 0.800133), (0.05, 0.801286), (0.5, 0.809505), (5, 0.827331)]:
            best = minimize(slope, np.zeros(2), args=(float(kappa),), jac=True, tol=1e-12).x
            np.testing.assert_allclose(1 / (1 + np.exp(best[1] - best[0])), expected, atol=2e-6)


def test_which_successors_count():
    """By hand, as for RCAL: an end has no next value, a time limit has, and what is not known drops out."""
    q = probes.table(np.log([[1.0, 3.0], [2.0, 2.0], [5.0, 11.0]]))
    eye = np.eye(3, dtype=np.float32)

    def reward(states, actions, **ending):
        demonstrations = Demonstrations((Trajectory(eye[states], np.array(actions), **ending),), ("a", "b"))
        batch = make_dataset(demonstrations).pool.transitions(jnp.arange(len(actions)))
        return loss_of(q, batch, IQLearnConfig(temperature=1.0, discount=0.5))[1]["reward_norm"]

    one, other = (np.log(3) - np.log(4) / 2) ** 2, (np.log(2) - np.log(16) / 2) ** 2
    np.testing.assert_allclose(reward([0, 1, 2], [1, 0], terminal=True), (one + np.log(2) ** 2) / 2, rtol=1e-5)
    np.testing.assert_allclose(reward([0, 1, 2], [1, 0], truncated=True), (one + other) / 2, rtol=1e-5)
    np.testing.assert_allclose(reward([0, 1], [1, 0], truncated=True), one, rtol=1e-5)
    assert reward([1], [0]) == 0


def test_without_penalty_and_temperature_it_is_behavioural_cloning_bit_for_bit():
    config = IQLearnConfig(**vars(SMALL), temperature=1.0, penalty=0.0)
    probes.assert_same_bits(probes.one_run(iq_learn, config), probes.one_run(bc, SMALL))


def test_with_temperature_one_it_is_rcal_with_the_squared_norm():
    ours = probes.one_run(iq_learn, IQLearnConfig(**vars(SMALL), temperature=1.0, penalty=0.3))
    theirs = probes.one_run(rcal, RCALConfig(**vars(SMALL), norm="squared", coefficient=0.3))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6), ours, theirs)


def test_it_is_a_network_of_logits_with_a_large_and_fast_output():
    """Adam without its epsilon: Q over 0.01 is a plain network whose last layer starts and moves 100 times as far."""
    temperature, updates, rate = 0.01, 200, 1e-3
    with jax.enable_x64(True):
        q, rng = probes.network(3, 6, 3), np.random.default_rng(3)
        batch = probes.triples(
            rng.normal(size=(9, 3)), rng.integers(0, 3, 9), rng.normal(size=(9, 3)), np.arange(9) > 2, np.arange(9) > 6
        )
        config = IQLearnConfig(temperature=temperature)
        plain = IQLearnConfig(temperature=1.0, penalty=temperature * config.penalty)

        def trained(network, config, factor):
            adam = optax.adam(rate, eps=0.0)

            def step(carry, _):
                network, state = carry
                move, state = adam.update(jax.grad(lambda n: iq_loss(n, batch, config)[0])(network), state)
                return (optax.apply_updates(network, cooled(move, 1 / factor)), state), None

            return jax.lax.scan(step, (network, adam.init(network)), length=updates)[0][0]

        states = rng.normal(size=(20, 3))
        ours = cooled(jax.jit(lambda n: trained(n, config, 1.0))(q), temperature)(states)
        theirs = jax.jit(lambda n: trained(n, plain, 1 / temperature))(cooled(q, temperature))(states)
        start = cooled(q, temperature)(states)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert np.abs(ours - start).max() > 1


def test_the_network_that_acts_gives_the_logits():
    demonstrations = probes.demonstrations()
    algorithm = iq_learn(spec_of(demonstrations), IQLearnConfig(hidden=(8,), temperature=0.01))
    state, states = algorithm.init(jax.random.key(0), make_dataset(demonstrations)), np.eye(3)
    np.testing.assert_allclose(state.network(states), 100 * state.q(states), rtol=1e-5)


def test_released_settings():
    entry = get("iq_learn")
    released = entry.presets["released"]
    assert (released.learning_rate, released.batch, released.temperature, entry.budget("released")) == (
        *(1e-4, 32, 0.001),
        100_000,
    )
    assert released.penalty == 1 / (4 * 0.5)
    assert entry.budget("default") == entry.budget("plain") == get("bc").budget("default")
