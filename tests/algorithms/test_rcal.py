"""Reward-regularised classification: the inverse Bellman equation, its relatives, and which steps it looks at."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from scipy.special import logsumexp

import probes
from sbil.algorithms.bc import BCConfig, bc, policy_loss
from sbil.algorithms.rcal import NORMS, PRESETS, RCALConfig, implied_reward, rcal, reward_loss
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.training import train_many

STATES, ACTIONS, DISCOUNT = 5, 3, 0.9
NORM_NAMES = ("l1", "squared", "huber")
loss_of = jax.jit(lambda network, batch, config: (policy_loss(network, batch), reward_loss(network, batch, config)))


def soft_values(reward, dynamics, goes_on):
    """Q = R + discount * goes_on * E log sum exp Q(s'), by iteration."""
    values = np.zeros_like(reward)
    for _ in range(1_000):
        values = reward + DISCOUNT * goes_on * (dynamics @ logsumexp(values, axis=1))
    return values


def random_batch(count=12, features=3, actions=3):
    """Random steps, some of which end the process, and some with nothing known of what follows."""
    rng = np.random.default_rng(2)
    terminal, has_next = np.arange(count) % 4 == 1, np.arange(count) % 3 > 0
    steps = (rng.normal(size=(count, features)), rng.integers(0, actions, count), rng.normal(size=(count, features)))
    return probes.triples(*steps, has_next, terminal)


def implied(values, state, action, after, terminal):
    """The reward that a table of logits implies for these steps."""
    states, actions, others = np.eye(STATES)[state], np.asarray(action), np.eye(STATES)[after]
    steps = probes.triples(states, actions, others, np.ones(len(actions), bool), terminal)
    return jax.jit(implied_reward)(probes.table(values), steps, DISCOUNT)


def test_inverse_bellman_returns_the_reward_of_a_deterministic_process():
    """R1: soft value iteration for a known reward, then back; two decisions end the process."""
    rng = np.random.default_rng(0)
    reward, successor = rng.normal(size=(STATES, ACTIONS)), rng.integers(0, STATES, (STATES, ACTIONS))
    terminal = np.zeros((STATES, ACTIONS), bool)
    terminal[1, 2] = terminal[4, 0] = True
    values = soft_values(reward, np.eye(STATES)[successor], ~terminal)
    state, action = np.indices(reward.shape).reshape(2, -1)
    with jax.enable_x64(True):
        found = implied(values, state, action, successor.ravel(), terminal.ravel())
    np.testing.assert_allclose(found, reward.ravel(), atol=1e-12)


def test_inverse_bellman_returns_the_expected_reward_of_a_stochastic_process():
    """R1: for a single successor it is another number, the mean over successors is the reward."""
    rng = np.random.default_rng(1)
    reward, dynamics = rng.normal(size=(STATES, ACTIONS)), rng.dirichlet(np.ones(STATES), (STATES, ACTIONS))
    values = soft_values(reward, dynamics, 1.0)
    state, action, after = np.indices(dynamics.shape).reshape(3, -1)
    with jax.enable_x64(True):
        found = np.asarray(implied(values, state, action, after, np.zeros(state.size, bool))).reshape(dynamics.shape)
    np.testing.assert_allclose((dynamics * found).sum(-1), reward, atol=1e-12)
    assert np.abs(found - reward[..., None]).max() > 0.1


RUNS = {"bc": (bc, BCConfig(hidden=(8,), batch=8, learning_rate=0.01, weight_decay=0.1))}
for _name in NORM_NAMES:
    RUNS[_name] = (rcal, RCALConfig(**vars(RUNS["bc"][1]), coefficient=0.0, norm=_name))
RUNS["penalised"] = (rcal, dataclasses.replace(RUNS["l1"][1], coefficient=0.01))


def many_runs(make, config):
    """The networks of three runs as `train_many` does them."""
    demonstrations = probes.demonstrations()
    dataset = make_dataset(demonstrations, [np.array([0, 1]), np.array([2]), np.array([3, 4, 5])])
    keys = jax.random.split(jax.random.key(0), 3)
    return train_many(make, spec_of(demonstrations), config, dataset, keys, 50).states.network


@pytest.fixture(scope="module")
def cloned():
    return {program: program(*RUNS["bc"]) for program in (probes.one_run, many_runs)}


@pytest.mark.parametrize(("program", "norm"), [*((probes.one_run, norm) for norm in NORM_NAMES), (many_runs, "l1")])
def test_coefficient_zero_is_behavioural_cloning_bit_for_bit(cloned, program, norm):
    """R2, with steps that end the process and steps of which no successor is known."""
    probes.assert_same_bits(program(*RUNS[norm]), cloned[program])


def test_a_coefficient_that_is_not_zero_is_not_behavioural_cloning(cloned):
    weights, others = many_runs(*RUNS["penalised"]).layers[0].weight, cloned[many_runs].layers[0].weight
    assert np.abs(weights - others).max() > 1e-3


def test_shift_of_all_logits():
    """R3: c added everywhere leaves the policy and adds (1 - discount) c to the reward, at an end the whole c."""

    @jax.jit
    def at(c, network, batch):
        last = dataclasses.replace(network.layers[-1], bias=network.layers[-1].bias + c)
        shifted = dataclasses.replace(network, layers=(*network.layers[:-1], last))
        return implied_reward(shifted, batch, DISCOUNT), policy_loss(shifted, batch)

    with jax.enable_x64(True):
        network, batch = probes.network(3, 4, 3), random_batch()
        (reward, loss), (shifted, same) = at(0.0, network, batch), at(0.7, network, batch)
    added = np.where(batch.terminal, 0.7, (1 - DISCOUNT) * 0.7)
    np.testing.assert_allclose(shifted, np.asarray(reward) + added, atol=1e-14)
    np.testing.assert_allclose(same, loss, atol=1e-14)
    assert 0 < batch.terminal.sum() < 12


@pytest.mark.parametrize("norm", NORM_NAMES)
def test_gradient_equals_finite_differences(norm):
    """R4: the parameters act at s and at s', and the gradient knows both."""
    config, step = RCALConfig(norm=norm, discount=DISCOUNT), 1e-5

    @jax.jit
    def both(network, batch):
        flat, restore = ravel_pytree(network)
        loss = lambda flat: reward_loss(restore(flat), batch, config)  # noqa: E731
        moves = step * jnp.eye(flat.size)
        slopes = (jax.vmap(loss)(flat + moves) - jax.vmap(loss)(flat - moves)) / (2 * step)
        rewards = implied_reward(network, batch, DISCOUNT)
        return jax.grad(loss)(flat), slopes, rewards

    with jax.enable_x64(True):
        network = jax.tree.map(lambda leaf: 2 * leaf, probes.network(3, 4, 3, seed=1))
        gradient, slopes, rewards = both(network, random_batch())
    np.testing.assert_allclose(gradient, slopes, atol=1e-8)
    assert np.abs(gradient).max() > 0.1
    sizes = np.abs(rewards)
    assert min(sizes.min(), np.abs(sizes - 1).min()) > 1e-3  # no kink is near, and there are
    assert sizes.min() < 1 < sizes.max()  # rewards on both sides of Huber's


def test_gradient_at_a_state_that_is_only_a_successor():
    """By hand: one step from state 0 to state 1; at s' the gradient of |R| is -discount sign(R) pi(.|s')."""
    walk = Trajectory(np.eye(3, dtype=np.float32)[:2], np.array([0]))
    batch = make_dataset(Demonstrations((walk,), ("a", "b"))).pool.transitions(jnp.arange(1))
    loss = lambda logits: reward_loss(probes.table(logits), batch, RCALConfig(discount=0.5))  # noqa: E731
    gradient = jax.jit(jax.grad(loss))(np.log([[4.0, 1.0], [1.0, 3.0], [1.0, 1.0]]))
    # R = log 4 - 0.5 log(1 + 3) = log 2 > 0; the policy at state 1 is 1/4, 3/4.
    np.testing.assert_allclose(gradient, [[1, 0], [-0.5 / 4, -0.5 * 3 / 4], [0, 0]], atol=1e-6)


def test_the_end_has_no_next_value_and_a_time_limit_has():
    """By hand, through the dataset: logits log 1, log 3 | log 2, log 2 | log 5, log 11; log sum exp is log 4, 4, 16."""
    table = probes.table(np.log([[1.0, 3.0], [2.0, 2.0], [5.0, 11.0]]))
    eye = np.eye(3, dtype=np.float32)

    def loss(states, actions, **ending):
        demonstrations = Demonstrations((Trajectory(eye[states], np.array(actions), **ending),), ("a", "b"))
        batch = make_dataset(demonstrations).pool.transitions(jnp.arange(len(actions)))
        return loss_of(table, batch, RCALConfig(discount=0.5))

    through = abs(np.log(3) - 0.5 * np.log(4)), abs(np.log(2) - 0.5 * np.log(16))  # state 0 to 1, state 1 to 2
    policy = -(np.log(3 / 4) + np.log(1 / 2)) / 2
    for states, ending, expected in [
        ([0, 1, 2], {"terminal": True}, (through[0] + np.log(2)) / 2),  # the last state is recorded, but it is the end
        ([0, 1], {"terminal": True}, (through[0] + np.log(2)) / 2),
        ([0, 1, 2], {"truncated": True}, sum(through) / 2),
        ([0, 1, 2], {}, sum(through) / 2),
        ([0, 1], {"truncated": True}, through[0]),  # what followed the last step is not known: it does not count
        ([0, 1], {}, through[0]),
    ]:
        np.testing.assert_allclose(loss(states, [1, 0], **ending), (policy, expected), rtol=1e-5)
    np.testing.assert_allclose(loss([1], [0]), (np.log(2), 0), atol=1e-6)  # no successor known at all


def test_norms_worked_by_hand():
    """At an end the implied reward is the logit itself."""
    rewards = np.array([0.2, 0.8, 1.5, 4.0, -3.0], np.float32)
    expected = {
        "l1": [0.2, 0.8, 1.5, 4.0, 3.0],
        "squared": [0.04, 0.64, 2.25, 16.0, 9.0],
        "huber": [0.02, 0.32, 1.0, 3.5, 2.5],
    }
    no = np.zeros(5, bool)
    batch = probes.triples(np.eye(5), np.zeros(5, int), np.eye(5), no, ~no)
    for norm, values in expected.items():
        np.testing.assert_allclose(NORMS[norm](rewards), values, rtol=1e-6)
        _, loss = loss_of(probes.table(rewards[:, None]), batch, RCALConfig(norm=norm))
        np.testing.assert_allclose(loss, np.mean(values), rtol=1e-6)


def test_update_with_the_squared_norm_is_one_of_offline_iq_learn():
    """With Q = tau f and coefficient tau / (4 alpha), the gradient is that of its chi-squared objective over tau."""
    tau, alpha = 0.3, 0.4
    states = np.random.default_rng(4).normal(size=(9, 3)).astype(np.float32)
    trajectories = (
        Trajectory(states[:4], np.array([0, 2, 1, 1]), terminal=True),
        Trajectory(states[4:], np.array([2, 0, 0, 1]), truncated=True),
    )
    demonstrations = Demonstrations(trajectories, ("a", "b", "c"))
    config = RCALConfig(hidden=(4,), batch=16, norm="squared", coefficient=tau / (4 * alpha), discount=DISCOUNT)
    algorithm = rcal(spec_of(demonstrations), config)

    def iq_learn(network, batch):
        """-mean(Q - y) + mean(V - y) + mean(Q - y)^2 / (4 alpha) with V = tau log sum exp(Q / tau)."""
        value = lambda states: tau * jax.nn.logsumexp(network(states), axis=-1)  # noqa: E731
        q = tau * (network(batch.observation) * jax.nn.one_hot(batch.action, 3)).sum(-1)
        y = (1 - batch.terminal) * DISCOUNT * value(batch.next_observation)
        return -(q - y).mean() + (value(batch.observation) - y).mean() + jnp.square(q - y).mean() / (4 * alpha)

    @jax.jit
    def gradients(key, dataset):
        state = algorithm.init(key, dataset)
        batch = dataset.batch(jax.random.fold_in(key, 0), config.batch)
        after, metrics = algorithm.update(key, state, dataset)
        # Adam's first moment after one update is a tenth of the gradient.
        ours = jax.tree.map(lambda m: 10 * m, optax.tree_utils.tree_get(after.optimiser, "mu"))
        value, theirs = jax.value_and_grad(iq_learn)(state.network, batch)
        total = metrics["policy_loss"] + config.coefficient * metrics["reward_norm"]
        return ours, jax.tree.map(lambda g: g / tau, theirs), total, value / tau, batch.terminal

    with jax.enable_x64(True):
        ours, theirs, total, value, terminal = gradients(jax.random.key(0), make_dataset(demonstrations))
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
        assert np.abs(one).max() > 1e-3
    np.testing.assert_allclose(total, value, atol=1e-12)
    assert 0 < terminal.sum() < len(terminal)


def test_preset_of_iq_learn_has_its_temperature_and_alpha():
    tau, alpha = 0.01, 0.5
    assert PRESETS["iq_learn"].norm == "squared"
    np.testing.assert_allclose(PRESETS["iq_learn"].coefficient, tau / (4 * alpha), rtol=1e-12)
