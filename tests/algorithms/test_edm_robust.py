"""EDM with its remedies: every switch against a step worked out by hand, a closed form, or EDM itself."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import multivariate_normal

import probes
from sbil import langevin
from sbil.algorithms.bc import BCConfig, bc, policy_loss
from sbil.algorithms.edm import state_loss
from sbil.algorithms.edm_robust import (
    PRESETS,
    EDMRobustConfig,
    contrastive_loss,
    edm_robust,
    law_of,
    mixture_of,
    score_loss,
)
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.networks import MLP, Dense, energy
from sbil.training import train_one

SMALL = dataclasses.replace(
    PRESETS["bare"],
    **{
        name: getattr(probes.small(EDMRobustConfig), name)
        for name in ("hidden", "batch", "chains", "chain_length", "buffer_size")
    },
)
DEMONSTRATIONS = probes.demonstrations()
SPEC, DATASET = spec_of(DEMONSTRATIONS), make_dataset(DEMONSTRATIONS)
KEY = jax.random.key(7)


@partial(jax.jit, static_argnums=(0, 2))
def run(make, config, updates=5):
    """(state, metrics) after a few updates from one key; configs that differ in floats share a program."""
    return train_one(make(SPEC, config), updates, KEY, DATASET)


@jax.jit
def update(config, key, state, dataset):
    """One update of a state."""
    return edm_robust(SPEC, config).update(key, state, dataset)


def changed(**settings):
    return dataclasses.replace(SMALL, **settings)


def assert_same(one, other, atol=1e-6):
    for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


@pytest.fixture(scope="module")
def cloned():
    return run(bc, BCConfig(hidden=(8,), batch=8))[0].network


@pytest.mark.parametrize("estimator", ["chains", "contrastive", "score"])
def test_weight_zero_is_behavioural_cloning(cloned, estimator):
    assert_same(run(edm_robust, changed(weight=0.0, average=0.0, estimator=estimator))[0].network, cloned)


@pytest.mark.parametrize("metropolis", [False, True])
def test_without_a_state_term_chains_stand_still(metropolis):
    """Without the term, moving chains would drift far away, and a sound run of cloning would count as diverged."""
    config = changed(weight=0.0, step_size=100.0, restart=0.0, metropolis=metropolis)
    state = edm_robust(SPEC, config).init(KEY, DATASET)
    for number in range(3):
        after, metrics = update(config, jax.random.fold_in(KEY, number), state, DATASET)
    np.testing.assert_array_equal(after.buffer, state.buffer)
    assert all(np.isfinite(value) for value in metrics.values())


def test_a_separate_head_leaves_the_policy_of_cloning_alone(cloned):
    """With weight 0 nothing moves the energy, and log-softmax does not change what is learned of the policy."""
    network = run(edm_robust, changed(weight=0.0, average=0.0, separate=True))[0].network
    assert_same(network.layers, cloned.layers)
    assert network.level.weight.shape == (8, 1)


@pytest.mark.parametrize("square", [0.0, 1.0])
def test_with_all_switches_off_a_step_is_that_of_edms_loss(square):
    """Chains that stand still are set against the demonstrated states; the gradient is that of `edm`'s own loss."""
    config = changed(step_size=0.0, noise=1e-30, restart=0.0, square=square, weight=0.7)
    optimiser = optax.adamw(config.learning_rate, weight_decay=0.0)
    state = edm_robust(SPEC, config).init(KEY, DATASET)
    batch = DATASET.batch(jax.random.fold_in(KEY, 0), config.batch)
    draw, _, _ = jax.random.split(jax.random.fold_in(KEY, 2), 3)
    others = state.buffer[langevin.slots(jax.random.uniform(draw, (config.chains, 2))[:, 0], len(state.buffer))]

    def loss(network):
        l_rho = state_loss(network, batch.observation, others)
        return policy_loss(network, batch) + 0.7 * (l_rho + square * l_rho**2)

    step, _ = optimiser.update(jax.grad(loss)(state.learner), optimiser.init(state.learner), state.learner)
    ours, metrics = update(config, KEY, state, DATASET)
    assert_same(ours.learner, optax.apply_updates(state.learner, step), atol=1e-5)
    assert abs(float(metrics["energy_gap"])) > 1e-3


def test_energy_of_a_separate_head():
    network = MLP(
        (Dense(jnp.eye(2), jnp.zeros(2)), Dense(jnp.eye(2), jnp.zeros(2))), "relu", Dense(jnp.ones((2, 1)), jnp.ones(1))
    )
    state = jnp.array([[1.0, 2.0]])
    np.testing.assert_allclose(energy(network(state)), [-4.0], rtol=1e-6)
    np.testing.assert_allclose(jax.nn.softmax(network(state)), jax.nn.softmax(state), rtol=1e-6)


def test_law_of_the_demonstrated_states():
    states, actions = (
        np.concatenate([t.observations[: len(t)] for t in DEMONSTRATIONS.trajectories]),
        np.concatenate([t.actions for t in DEMONSTRATIONS.trajectories]),
    )
    law = law_of(DATASET)
    np.testing.assert_allclose(law.mean, states.mean(0), atol=1e-5)
    np.testing.assert_allclose(law.spread, states.std(0), atol=1e-5)
    mixture = mixture_of(DATASET, law, SPEC.actions)
    np.testing.assert_allclose(jnp.exp(mixture.log_share), np.bincount(actions) / len(actions), atol=1e-6)
    for action in range(SPEC.actions):
        np.testing.assert_allclose(mixture.means[action], states[actions == action].mean(0), atol=1e-5)
        np.testing.assert_allclose(mixture.spreads[action], states[actions == action].std(0), atol=1e-5)


def test_law_of_constant_and_rare_states():
    """A constant column gets a spread that fits its size. An action taken once gets a tenth of the spread of all
    states; an action never taken gets weight zero."""
    states = np.stack([np.full(6, 1000.0), np.arange(6.0)], axis=1).astype(np.float32)
    trajectory = Trajectory(np.concatenate([states, states[:1]]), np.array([0, 0, 0, 0, 0, 2]), False, True)
    dataset = make_dataset(Demonstrations((trajectory,), ("a", "b", "c")))
    law = law_of(dataset)
    mixture = mixture_of(dataset, law, 3)
    np.testing.assert_allclose(law.spread, [1.001, states[:, 1].std()], rtol=1e-4)
    np.testing.assert_allclose(mixture.means[2], states[5], rtol=1e-5)
    np.testing.assert_allclose(mixture.spreads[2], 0.1 * law.spread, rtol=1e-4)
    np.testing.assert_allclose(jnp.exp(mixture.log_share), [5 / 6, 0, 1 / 6], atol=1e-6)
    assert np.isfinite(mixture.means).all()


@pytest.mark.parametrize(("name", "value"), [("estimator", "contrastive"), ("start", "mixture")])
def test_what_needs_a_density_of_the_states_is_refused_for_images(name, value):
    film = Trajectory(np.zeros((3, 36, 36), np.uint8), np.array([0, 1, 0], np.int32))
    pictures = Demonstrations((film,), ("a", "b"), stack=2)
    with pytest.raises(UserError, match=f"{name} {value} needs rows of numbers"):
        edm_robust(spec_of(pictures), changed(**{name: value})).init(KEY, make_dataset(pictures))


def test_contrastive_loss_by_hand():
    """-mean log sigma(log p - log q) over seen states, -mean log sigma(log q - log p) over those of q."""
    rng = np.random.default_rng(0)
    law = law_of(DATASET)
    network, seen, noise = probes.network(3, 8, 3), rng.normal(size=(6, 3)), rng.normal(size=(5, 3))
    scale = np.asarray(law.spread)

    def odds(states):
        q = multivariate_normal(np.asarray(law.mean), np.diag(scale**2)).logpdf(states) + np.log(scale).sum()
        return -np.asarray(energy(network(jnp.asarray(states, jnp.float32)))) - q

    expected = np.logaddexp(0, -odds(seen)).mean() + np.logaddexp(0, odds(noise)).mean()
    ours = contrastive_loss(network, jnp.asarray(seen, jnp.float32), jnp.asarray(noise, jnp.float32), law)
    np.testing.assert_allclose(ours, expected, rtol=1e-4)


def test_score_loss_is_least_for_the_blurred_density():
    """Of -E = -s^2 / (2 v) the loss is least where v is the variance of the data and of the noise together."""
    rng = np.random.default_rng(1)
    seen, noise = (jnp.asarray(rng.normal(size=(20_000, 1)), jnp.float32) for _ in range(2))

    def loss(variance):
        def quadratic(states):  # one action: the energy is minus its logit
            return -(states**2) / (2 * variance)

        return float(score_loss(quadratic, seen, noise, jnp.array([0.5])))

    losses = {variance: loss(variance) for variance in (0.8, 1.0, 1.25, 1.6, 2.0)}
    assert min(losses, key=losses.get) == 1.25
    assert losses[1.25] == pytest.approx((1 - 0.25 / 1.25) / 2, rel=0.02)


@pytest.mark.parametrize("limit", [0.1, 0.5])
def test_balance_limits_the_state_terms_gradient(limit):
    metrics = run(edm_robust, changed(balance=limit, weight=100.0, prior=0.0))[1]
    np.testing.assert_allclose(metrics["state_gradient"], limit * metrics["policy_gradient"], rtol=1e-4)


def test_the_weight_fades_and_counts_as_decisions():
    """Gradients shares of the first update: the weight is halved after each update, and is prior / N of itself."""
    plain = run(edm_robust, changed(prior=0.0, average=0.0), updates=1)[1]["state_gradient"][0]
    prior = run(edm_robust, changed(prior=7.8, average=0.0), updates=1)[1]["state_gradient"][0]
    assert prior == pytest.approx(float(plain) * 7.8 / int(DATASET.labelled.size), rel=1e-5)
    fading, steady = (
        run(edm_robust, changed(fade=fade, prior=0.0, learning_rate=1e-12), updates=3)[1]["state_gradient"]
        for fade in (1.0, 0.0)
    )
    np.testing.assert_allclose(fading / steady, [1, 0.5, 0.25], rtol=1e-4)


def test_the_step_of_adam_decays():
    """With decay alone moving the weights, they shrink by 1 - learning_rate 2^(-t / half_life) weight_decay."""
    config = changed(weight=0.0, average=0.0, half_life=2.0, weight_decay=0.5, learning_rate=0.1)
    network = edm_robust(SPEC, config).init(KEY, DATASET).network
    optimiser = optax.adamw(lambda count: 0.1 * 2.0 ** (-count / 2), weight_decay=0.5)
    state, expected = optimiser.init(network), network
    ours = edm_robust(SPEC, config).init(KEY, DATASET)
    for number in range(3):
        key = jax.random.fold_in(KEY, number)
        batch = DATASET.batch(jax.random.fold_in(key, 0), config.batch)
        step, state = optimiser.update(jax.grad(policy_loss)(expected, batch), state, expected)
        expected = optax.apply_updates(expected, step)
        ours, _ = update(config, key, ours, DATASET)
    assert_same(ours.network, expected, atol=1e-5)


@pytest.mark.parametrize("average", [0.0, 0.75, 1.0])
def test_the_policy_is_the_mean_of_the_iterates(average):
    """Later iterates have more weight; the initial network has none."""
    config = changed(average=average)
    state, iterates = edm_robust(SPEC, config).init(KEY, DATASET), []
    for number in range(3):
        state, _ = update(config, jax.random.fold_in(KEY, number), state, DATASET)
        iterates.append(state.learner)
    weights = average ** np.arange(2, -1, -1.0)
    mean = jax.tree.map(
        lambda *leaves: sum(w * leaf for w, leaf in zip(weights, leaves, strict=True)) / weights.sum(), *iterates
    )
    assert_same(state.network, mean)


@pytest.mark.parametrize("metropolis", [False, True])
def test_bounded_chains_stay_near_the_box(metropolis):
    config = changed(bound=0.25, noise=5.0, step_size=12.5, scaled=0.0, metropolis=metropolis, restart=0.0)
    state, _ = run(edm_robust, config, updates=20)
    low, high = DATASET.bounds()
    width = np.asarray(high - low)
    assert (state.buffer >= low - 0.25 * width - 1e-3).all()
    assert (state.buffer <= high + 0.25 * width + 1e-3).all()
    if not metropolis:  # they do reach the border
        assert np.abs(np.asarray(state.buffer)).max() > np.abs(np.asarray(high)).max()


@pytest.mark.parametrize("start", ["box", "data", "mixture"])
def test_where_chains_start(start):
    buffer = np.asarray(edm_robust(SPEC, changed(start=start, buffer_size=4_000)).init(KEY, DATASET).buffer)
    states = np.asarray(DATASET.pool.before(DATASET.labelled.indices))
    law = law_of(DATASET)
    if start == "data":
        assert {tuple(row) for row in buffer.tolist()} == {tuple(row) for row in states.tolist()}
    elif start == "box":
        middle = (np.asarray(law.box.low) + np.asarray(law.box.high)) / 2
        np.testing.assert_allclose(buffer.mean(0), middle, atol=0.1)
    else:
        mixture = mixture_of(DATASET, law, SPEC.actions)
        share, means = np.exp(mixture.log_share), np.asarray(mixture.means)
        np.testing.assert_allclose(buffer.mean(0), share @ means, atol=0.1)
        spread = share @ (np.asarray(mixture.spreads) ** 2 + means**2) - (share @ means) ** 2
        np.testing.assert_allclose(buffer.var(0), spread, rtol=0.15)


def test_steps_in_units_of_the_spread_do_not_depend_on_units():
    """A column given in thousandths makes the chains of a flat energy move a thousand times as far in it."""

    def moved(factor):
        scale = np.array([1, factor, 1], np.float32)
        trajectories = tuple(
            Trajectory(t.observations * scale, t.actions, t.terminal, t.truncated) for t in DEMONSTRATIONS.trajectories
        )
        dataset = make_dataset(Demonstrations(trajectories, DEMONSTRATIONS.action_names))
        config = changed(scaled=1.0, step_size=0.0, noise=0.3, restart=0.0, start="box")
        state = edm_robust(SPEC, config).init(KEY, dataset)
        return np.asarray(update(config, KEY, state, dataset)[0].buffer - state.buffer)

    np.testing.assert_allclose(moved(1000.0)[:, 1], 1000 * moved(1.0)[:, 1], rtol=1e-3, atol=0.5)
