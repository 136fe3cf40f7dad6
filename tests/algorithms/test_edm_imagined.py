"""EDM on imagined states: its energies and gradients worked out by hand, its dynamics, and BC without its term."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from sbil.algorithms.bc import BCConfig, bc
from sbil.algorithms.edm_imagined import (
    EDMImaginedConfig,
    density_of,
    edm_imagined,
    expected_energy,
    kernel_energy,
    prediction_loss,
    rollout_energy,
    units_of,
)
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.networks import Scaling, scaling
from sbil.training import train_one

SMALL = probes.small(EDMImaginedConfig)
DEMONSTRATIONS = probes.demonstrations()  # some of its steps have no successor
SPEC, DATASET = spec_of(DEMONSTRATIONS), make_dataset(DEMONSTRATIONS)
KEY = jax.random.key(7)


@partial(jax.jit, static_argnums=(0, 2))
def run(make, config, updates=50):
    """(state, metrics) after some updates from one key; configs that differ in floats share a program."""
    return train_one(make(SPEC, config), updates, KEY, DATASET)


def changed(**settings):
    return dataclasses.replace(SMALL, **settings)


def assert_same_bits(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.fixture(scope="module")
def cloned():
    return run(bc, BCConfig(hidden=(8,), batch=8))[0].network


@pytest.mark.parametrize("horizon", [1, 2])
def test_weight_zero_is_behavioural_cloning(cloned, horizon):
    state, metrics = run(edm_imagined, changed(weight=0.0, horizon=horizon))
    assert_same_bits(state.network, cloned)
    assert np.ptp(metrics["imagined_energy"]) > 0  # the term is there, and counts for nothing


@pytest.mark.parametrize("horizon", [1, 2])
def test_dynamics_that_do_not_know_the_action_give_behavioural_cloning(cloned, horizon):
    """The energy is then the same whatever the policy does."""

    def blind(states):
        return jnp.broadcast_to(0.5 * states[..., None, :], (*states.shape[:-1], SPEC.actions, states.shape[-1]))

    state, _ = run(partial(edm_imagined, follow=blind), changed(weight=1.0, horizon=horizon))
    for one, other in zip(jax.tree.leaves(state.network), jax.tree.leaves(cloned), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_without_any_successor_it_is_behavioural_cloning():
    """Only ends are known: nothing moves, because the dynamics begin as zero and have nothing to learn from."""
    states = np.random.default_rng(0).normal(size=(6, 1, 2)).astype(np.float32)
    ends = tuple(Trajectory(s, np.array([i % 2]), terminal=True) for i, s in enumerate(states))
    demonstrations = Demonstrations(ends, ("left", "right"))
    arguments = 20, KEY, make_dataset(demonstrations)
    state, metrics = train_one(edm_imagined(spec_of(demonstrations), SMALL), *arguments)
    assert not metrics["prediction_loss"].any()
    assert not any(np.any(leaf) for leaf in jax.tree.leaves((state.dynamics.linear, state.dynamics.heads.output)))
    other, _ = train_one(bc(spec_of(demonstrations), BCConfig(hidden=(8,), batch=8)), *arguments)
    for one, two in zip(jax.tree.leaves(state.network), jax.tree.leaves(other.network), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)


def exact(logits, energies):
    """The term at one state, whose successor after action a is the number a."""
    after = lambda states: jnp.arange(len(energies), dtype=float)[None, :, None]  # noqa: E731
    table = lambda states: jnp.asarray(energies)[states[..., 0].astype(int)]  # noqa: E731
    return expected_energy(lambda states: logits[None], after, table, jnp.zeros((1, 1)))


@pytest.mark.parametrize(
    ("logits", "energies", "mean", "gradient"),
    [
        ((0.0, np.log(3)), (2.0, 0.0), 0.5, (0.375, -0.375)),
        ((0.2, -0.1, 0.4), (1.0, 3.0, 0.5), 1.294014, (-0.099255, 0.426648, -0.327393)),
        ((0.2, -0.1, 0.4), (11.0, 13.0, 10.5), 11.294014, (-0.099255, 0.426648, -0.327393)),  # a constant: the same
    ],
)
def test_one_step_is_exact(logits, energies, mean, gradient):
    value, slope = jax.value_and_grad(exact)(jnp.array(logits), energies)
    np.testing.assert_allclose(value, mean, rtol=1e-5)
    np.testing.assert_allclose(slope, gradient, atol=1e-5)


@pytest.mark.parametrize(
    ("shares", "energies", "weight", "expected"),
    [
        ((0.5, 0.5), (1.0, 0.0), 1.0, (0.292893, 0.707107)),
        ((0.9, 0.1), (2.0, 0.0), 1.0, (0.414590, 0.585410)),
        ((0.9, 0.1), (2.0, 0.0), 0.25, (0.829180, 0.170820)),
        ((1.0, 0.0), (2.0, 0.0), 1.0, (0.5, 0.5)),  # strong enough, it overrules decisions that were always the same
    ],
)
def test_in_a_table_it_reweighs_demonstrated_actions(shares, energies, weight, expected):
    """At the optimum pi(a) = p(a) / (mu + w E_a)."""

    @jax.jit
    def optimum():
        loss = lambda f: -jnp.array(shares) @ jax.nn.log_softmax(f) + weight * exact(f, energies)  # noqa: E731
        return jax.lax.fori_loop(0, 1000, lambda _, f: f - jax.grad(loss)(f), jnp.array([0.5, 0.0]))

    np.testing.assert_allclose(jax.nn.softmax(optimum()), expected, atol=3e-4)


def test_kernel_energy_by_hand():
    centres, states = jnp.array([[0.0], [1.0], [jnp.inf]]), jnp.array([[0.0], [0.5], [2.0]])
    mask = jnp.array([True, True, False])
    centres = jnp.where(mask[:, None], centres, 9.0)
    found = kernel_energy(states, centres, mask, 0.5)
    np.testing.assert_allclose(found, [0.379885, 0.25, 1.644560], atol=1e-5)


def test_energies_of_demonstrated_states_have_mean_zero_and_deviation_one():
    """Each under the others: with its own kernel a state would always seem familiar."""
    standard = scaling(DATASET)
    density = density_of(DATASET, standard, 512, 1.0)
    states = np.asarray(standard(DATASET.pool.before(DATASET.labelled.indices)), np.float64)
    count, inputs = states.shape
    assert density.mask.sum() == count == DATASET.labelled.size
    width = count ** (-2 / (inputs + 4))
    np.testing.assert_allclose(density.width, width, rtol=1e-5)
    squares = ((states[:, None] - states) ** 2).sum(axis=-1)
    own = np.array([-np.log(np.exp(-np.delete(row, i) / (2 * width)).mean()) for i, row in enumerate(squares)])
    np.testing.assert_allclose([density.mean, density.spread], [own.mean(), own.std()], rtol=1e-4)
    everywhere = -np.log(np.exp(-squares / (2 * width)).mean(axis=1))
    found = density.energy(jnp.asarray(states, jnp.float32))
    np.testing.assert_allclose(found, (everywhere - own.mean()) / own.std(), atol=1e-4)
    wide = density_of(DATASET, standard, 512, 4.0)
    np.testing.assert_allclose(wide.width, 4 * width, rtol=1e-5)


def test_of_many_states_the_centres_are_evenly_spaced():
    density = density_of(DATASET, scaling(DATASET), 13, 1.0)
    steps = np.floor(np.arange(13) * int(DATASET.labelled.size) / 13).astype(int)
    expected = scaling(DATASET)(DATASET.pool.before(DATASET.labelled.indices[steps]))
    np.testing.assert_array_equal(density.centres, expected)


def line(slope, key, start=1.0, horizon=2, temperature=1.0):
    """The term from one place on a line: actions -1 and +1 are added, E = s^2 / 2, logits (0, slope * s)."""
    policy = lambda s: jnp.concatenate([jnp.zeros_like(s), slope * s], axis=-1)  # noqa: E731
    after = lambda s: s[..., None, :] + jnp.array([[-1.0], [1.0]])  # noqa: E731
    energy = lambda s: (s[..., 0] ** 2) / 2  # noqa: E731
    return rollout_energy(key, policy, after, energy, jnp.array([[start]]), horizon, temperature)


@pytest.mark.parametrize(("slope", "expected"), [(-1.0, 0.583059), (0.0, 1.25), (1.0, 2.268887)])
def test_rollouts_have_the_exact_mean_energy(slope, expected):
    found = jax.vmap(partial(line, slope))(jax.random.split(KEY, 40_000))
    assert abs(found.mean() - expected) < 4 * found.std() / 200


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, 1 / 6), (0.5, 0.2146), (0.1, 0.2480)])
def test_the_bias_of_straight_through_gradients_is_the_known_one(temperature, expected):
    """One step, two actions, equal logits, energies 0 and 1: exact would be 1/4."""

    def term(logit, key):
        policy = lambda s: jnp.stack([jnp.zeros(1), logit[None]], axis=-1)  # noqa: E731
        after = lambda s: jnp.array([[[0.0], [1.0]]])  # noqa: E731
        return rollout_energy(key, policy, after, lambda s: s[..., 0], jnp.zeros((1, 1)), 1, temperature)

    slopes = jax.vmap(jax.grad(term), (None, 0))(jnp.float32(0), jax.random.split(KEY, 40_000))
    assert abs(slopes.mean() - expected) < 4 * slopes.std() / 200 + 1e-3


def test_gradients_run_through_later_steps():
    """The first of two actions moves both states; with one step the same action moves one."""
    slope = jax.vmap(jax.grad(lambda c, key: line(c, key, horizon=2)), (None, 0))
    assert slope(jnp.float32(0), jax.random.split(KEY, 4_000)).mean() > 0.5  # exact: 1


def test_prediction_loss_by_hand():
    """Standardised by mean 1 and scale 2, steps in units of 1/2. The third step has no successor, and is not read."""
    state, following, action = np.array([0.5, -1.0, 0.25]), np.array([1.5, 2.0, np.nan]), np.array([0, 1, 1])
    batch = probes.transitions(1 + 2 * state[:, None], action)
    batch = batch._replace(
        next_observation=jnp.asarray(1 + 2 * following[:, None]), has_next=jnp.array([True, True, False])
    )
    one = Scaling(jnp.array([1.0]), jnp.array([2.0]))
    units = units_of(DATASET)._replace(scaling=one, step=jnp.array([0.5]))
    dynamics = lambda s: jnp.stack([s, 3 * s], axis=-2)  # noqa: E731
    errors = (1.0 / 0.5 - 0.5) ** 2, (3.0 / 0.5 + 3.0) ** 2
    np.testing.assert_allclose(prediction_loss(dynamics, units, batch), np.mean(errors), rtol=1e-6)
    assert prediction_loss(dynamics, units, batch._replace(has_next=jnp.zeros(3, bool))) == 0


def test_units_are_those_of_the_steps_and_the_box_is_wider_by_a_width():
    units, steps = units_of(DATASET), DATASET.labelled.indices
    before, after = (np.asarray(units.scaling(look(steps))) for look in (DATASET.pool.before, DATASET.pool.after))
    known = np.asarray(DATASET.pool.has_next)[steps]
    np.testing.assert_allclose(units.step, np.sqrt(((after - before)[known] ** 2).mean(axis=0)), rtol=1e-5)
    low, high = before.min(axis=0), before.max(axis=0)
    np.testing.assert_allclose(units.low, low - (high - low), rtol=1e-5)
    np.testing.assert_allclose(units.high, high + (high - low), rtol=1e-5)


@pytest.fixture(scope="module")
def pushed():
    """Both actions at every place of a line, each decided as often. Right leads into the middle, left away."""
    rng = np.random.default_rng(3)
    places = rng.normal(5, 2, (60, 1)).astype(np.float32)
    trajectories = tuple(
        Trajectory(np.stack([place, place + (0.5 if action else -0.5) * np.sign(5 - place)]), np.array([action]))
        for place in places
        for action in (0, 1)
    )
    return Demonstrations(trajectories, ("away", "back"))


def test_linear_dynamics_are_learnt_and_the_policy_goes_where_states_are_dense(pushed):
    config = EDMImaginedConfig(hidden=(16,), weight=3.0, learning_rate=0.01, dynamics_learning_rate=0.01)
    algorithm, dataset = edm_imagined(spec_of(pushed), config), make_dataset(pushed)
    state, metrics = jax.jit(lambda key: train_one(algorithm, 600, key, dataset))(KEY)
    assert metrics["prediction_loss"][-20:].mean() < 0.1
    back = jax.nn.softmax(algorithm.logits(state, jnp.array([[2.0], [8.0]])))[:, 1]
    assert (back > 0.7).all()
    cloned = train_one(bc(spec_of(pushed), BCConfig(hidden=(16,), learning_rate=0.01)), 600, KEY, dataset)[0]
    even = jax.nn.softmax(cloned.network(jnp.array([[2.0], [8.0]])))[:, 1]
    assert (even < 0.65).all()


def test_images_are_refused():
    film = Trajectory(np.zeros((3, 36, 36), np.uint8), np.array([0, 1, 0], np.int32))
    pictures = Demonstrations((film,), ("a", "b"), stack=2)
    with pytest.raises(UserError, match="edm_imagined needs rows of numbers, not images") as raised:
        edm_imagined(spec_of(pictures), SMALL).init(KEY, make_dataset(pictures))
    assert "\n" not in str(raised.value)
