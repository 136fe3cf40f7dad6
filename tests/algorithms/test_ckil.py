"""CKIL: its estimates and its regression by hand, its rules for bandwidths, tables, and data without quadruples."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from sbil import algorithms
from sbil.algorithms.ckil import (
    PRESETS,
    PRINTED,
    CKILConfig,
    Quadruples,
    ckil,
    estimated,
    first_of_each,
    kernel,
    left_out_likelihood,
    median_rule,
    printed,
    scott,
    squares,
    transition_weights,
    validated,
)
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.training import train_one

SMALL = probes.small(CKILConfig)
DEMONSTRATIONS = probes.demonstrations()
SPEC, DATASET = spec_of(DEMONSTRATIONS), make_dataset(DEMONSTRATIONS)
KEY = jax.random.key(7)


def changed(**settings):
    return dataclasses.replace(SMALL, **settings)


@partial(jax.jit, static_argnums=1)
def begun(dataset, config, key=KEY):
    """The state before the first update."""
    return ckil(SPEC, config).init(key, dataset)


def quadruples(state, action, after, decision):
    column = lambda values: jnp.array(values, jnp.float32)[:, None]  # noqa: E731
    return Quadruples(column(state), jnp.array(action), column(after), jnp.array(decision), jnp.ones(len(state), bool))


THREE = quadruples((0, 1, 2), (0, 1, 0), (1, 2, 1.5), (1, 0, 0))
APART = np.exp(-1.0)  # the printed kernel of two actions at distance 1, with h = 1 / 2


def three(width=0.5):
    near = kernel(squares(THREE.after, THREE.after), 0.5)
    return near, transition_weights(THREE, width, APART)


def test_the_estimates_of_three_quadruples_by_hand():
    near, weights = three()
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    found = estimated(near, weights, THREE.decision, 2)
    np.testing.assert_allclose(found.weight, [1.619026, 1.664859, 2.197741], rtol=1e-5)
    np.testing.assert_allclose(found.share[:, 0], [0.467482, 0.889889, 0.723956], rtol=1e-5)
    np.testing.assert_allclose(found.share[jnp.arange(3), THREE.decision], [0.532518, 0.889889, 0.723956], rtol=1e-5)
    np.testing.assert_allclose(found.share.sum(axis=1), 1, rtol=1e-6)


def test_the_double_sum_is_a_regression():
    near, weights = map(np.asarray, three())
    policy = np.array([0.6, 0.7, 0.4])
    agree = np.asarray(THREE.decision)[:, None] == np.asarray(THREE.decision)
    lead, decide = near @ weights.T, (near * agree) @ weights.T  # T_ij, P_ij
    double = ((decide - policy[:, None] * lead) ** 2).sum()
    found = estimated(near, weights, THREE.decision, 2)
    share = np.asarray(found.share)[np.arange(3), THREE.decision]
    fit = (np.asarray(found.weight) * (policy - share) ** 2).sum()
    np.testing.assert_allclose([double, fit, double - fit], [0.980257, 0.298051, 0.682206], atol=2e-6)


def test_with_a_wide_kernel_of_what_came_before_labels_are_smoothed():
    """Nadaraya-Watson at s'."""
    near, _ = three()
    weights = transition_weights(THREE, 1e12, 1.0)
    share = estimated(near, weights, THREE.decision, 2).share[jnp.arange(3), THREE.decision]
    np.testing.assert_allclose(share, [0.465836, 0.828629, 0.695496], rtol=1e-5)
    direct = near / near.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(share, (direct * (THREE.decision[:, None] == THREE.decision)).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize(
    ("visits", "reached", "decided", "expected"),
    [((4, 1), (2, 1), ((2, 0), (0, 1)), 1 / 2), ((2, 1), (2, 1), ((2, 0), (0, 1)), 2 / 3)],
)
def test_in_a_table_predecessors_are_weighed_by_how_often_they_lead_there(visits, reached, decided, expected):
    """Where decisions lead to one state only, as in the second case, the shares are those of BC: 2/3 in both."""
    rows = []
    for place, (count, there, decisions) in enumerate(zip(visits, reached, decided, strict=True)):
        rows += [(place, 0, 10, action) for action, times in enumerate(decisions) for _ in range(times)]
        rows += [(place, 0, 20, 0)] * (count - there)
    table = quadruples(*zip(*rows, strict=True))
    near, weights = kernel(squares(table.after, table.after), 1e-6), transition_weights(table, 1e-6, 0.0)
    there = int(np.flatnonzero(table.after[:, 0] == 10)[0])
    np.testing.assert_allclose(estimated(near, weights, table.decision, 2).share[there, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("columns", [1, 5, 40])
def test_squared_distances(columns):
    one, other = (np.random.default_rng(seed).normal(size=(4 + seed, columns)) for seed in range(2))
    direct = [[((x - y) ** 2).sum() for y in other] for x in one]
    np.testing.assert_allclose(squares(jnp.asarray(one), jnp.asarray(other)), direct, rtol=1e-5)
    assert (np.diag(squares(jnp.asarray(one), jnp.asarray(one))) == 0).all()


def test_padding_has_no_weight():
    longer = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[:2]]), THREE)
    longer = longer._replace(mask=jnp.arange(5) < 3)
    weights = transition_weights(longer, 0.5, APART)
    np.testing.assert_allclose(weights[:3, :3], three()[1], rtol=1e-6)
    assert not weights[3:].any()
    assert not weights[:, 3:].any()


@pytest.mark.parametrize(
    ("inputs", "counts", "expected"),
    [
        (4, (499, 1497, 3493), (0.2116, 0.1608, 0.1301)),
        (6, (79, 237, 553), (0.4173, 0.3350, 0.2828)),
        (8, (299, 897, 2093), (0.3867, 0.3220, 0.2796)),
    ],
)
def test_scotts_rule(inputs, counts, expected):
    np.testing.assert_allclose([scott(count, inputs) for count in counts], expected, atol=5e-5)


def test_a_neighbour_at_the_median_distance_weighs_one_part_of_all():
    after, mask = jnp.array([[0.0], [1.0], [3.0], [9.0]]), jnp.array([True, True, True, False])
    width = median_rule(after, mask, jnp.float32(3))
    np.testing.assert_allclose(kernel(2.0**2, width), 1 / 4, rtol=1e-5)  # distances 1, 2, 3


def shares_left_out(after, decision, width, actions):
    """The likelihood, decision by decision."""
    total = 0.0
    for i in range(len(after)):
        others = np.arange(len(after)) != i
        near = np.exp(-((after[others] - after[i]) ** 2).sum(axis=1) / (2 * width))
        agree = near[decision[others] == decision[i]].sum()
        total += np.log((agree + 1e-3 / actions) / (near.sum() + 1e-3))
    return total


def test_the_chosen_bandwidth_has_the_largest_likelihood_of_decisions_left_out():
    rng = np.random.default_rng(0)
    after = rng.normal(size=(60, 2))
    decision = (after[:, 0] + 0.3 * rng.normal(size=60) > 0).astype(int)
    grid = 0.5 * 2.0 ** np.arange(-8, 3)
    found = [shares_left_out(after, decision, width, 2) for width in grid]
    padded = jnp.array(np.concatenate([after, np.full((4, 2), 9.0)]), jnp.float32)
    decisions, mask = jnp.array([*decision, 1, 1, 1, 1]), jnp.arange(64) < 60
    ours = left_out_likelihood(squares(padded, padded), decisions, mask, 2, grid[5])
    np.testing.assert_allclose(ours, found[5], rtol=1e-4)
    np.testing.assert_allclose(validated(padded, decisions, mask, 2, jnp.float32(0.5)), grid[np.argmax(found)])
    assert 0 < np.argmax(found) < len(grid) - 1


@pytest.mark.parametrize(
    ("rule", "size", "expected"),
    [("cartpole", 1, 0.01), ("cartpole", 6, 0.005), ("acrobot", 10, 0.008), ("lunar_lander", 40, 0.00005)],
)
def test_printed_bandwidths_are_those_of_the_number_of_trajectories(rule, size, expected):
    lengths = tuple(np.arange(size) % 3 + 2)
    demonstrations = probes.demonstrations(features=PRINTED[rule][1], lengths=lengths)
    dataset = make_dataset(demonstrations)
    np.testing.assert_allclose(printed(rule, dataset), expected)
    algorithm = ckil(spec_of(demonstrations), dataclasses.replace(PRESETS[f"printed_{rule}"], bandwidth=2.0))
    kernels = jax.jit(algorithm.init)(KEY, dataset).kernels
    np.testing.assert_allclose([kernels.width, kernels.other], [2 * expected, np.exp(-1 / (4 * expected))], rtol=1e-5)
    np.testing.assert_array_equal(kernels.scaling.scale, 1)  # states as they are


def test_printed_bandwidths_are_for_their_own_task():
    with pytest.raises(UserError, match="rule cartpole of ckil is for states of 4 numbers, and these have 3") as raised:
        begun(DATASET, changed(rule="cartpole"))
    assert "\n" not in str(raised.value)


def first_update(dataset, config, key=KEY):
    """(network before, network after, metrics, the decisions drawn once) of the first update."""
    algorithm = ckil(SPEC, config)

    @jax.jit
    def program(key, dataset):
        state = algorithm.init(key, dataset)
        return state, *algorithm.update(key, state, dataset)

    before, after, metrics = program(key, dataset)
    places = before.kernels.rows.places(jax.random.fold_in(key, 0), config.batch)
    return before, after, metrics, np.unique(before.kernels.rows.indices[places])


def brier(network, dataset, steps):
    """mean (1 - pi(a|s))^2 of some steps."""
    policy = jax.nn.softmax(network(dataset.pool.before(steps)))
    return jnp.square(1 - jnp.take_along_axis(policy, dataset.pool.action[steps][:, None], axis=1)).mean()


def assert_same_step(before, after, loss):
    """Adam's first moment is a tenth of the gradient."""
    expected = jax.tree.map(lambda leaf: 0.1 * leaf, jax.grad(loss)(before.network))
    moment = after.optimiser[0].mu
    for one, other in zip(jax.tree.leaves(moment), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert any(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(moment))


@pytest.mark.parametrize("estimate", ["batch", "all"])
def test_with_narrow_kernels_it_is_the_square_of_what_is_missing(estimate):
    config = changed(rule="scott", bandwidth=1e-6, entropy=0.0, estimate=estimate, batch=32, centres=99)
    before, after, metrics, steps = first_update(DATASET, config)
    assert 5 < len(steps) < 32  # some were drawn twice, and count once
    starts = set(np.flatnonzero(np.asarray(DATASET.pool.time) == 0))
    assert not starts & set(steps.tolist())  # nothing is known of what came before them
    assert_same_step(before, after, lambda network: brier(network, DATASET, steps))
    np.testing.assert_allclose(metrics["fit_loss"], brier(before.network, DATASET, steps), rtol=1e-5)


def test_without_quadruples_it_is_the_same_on_pairs():
    thinned = make_dataset(DEMONSTRATIONS, thin=2)
    for settings in ({"leave_out": True, "predecessors": "permuted"}, {"estimate": "all"}):
        before, after, _, steps = first_update(thinned, changed(entropy=0.0, batch=32, **settings))
        assert not before.kernels.linked
        assert_same_step(before, after, lambda network, steps=steps: brier(network, thinned, steps))


def test_a_batch_of_everything_agrees_with_all():
    """Both are regressions onto the same shares, with the same weights."""
    some = make_dataset(Demonstrations(DEMONSTRATIONS.trajectories[:1], DEMONSTRATIONS.action_names))
    wide = {"rule": "scott", "bandwidth": 3.0, "batch": 256, "centres": 99}
    for settings in ({"targets": "every"}, {"leave_out": True, "predecessors": "ignored"}):
        found = [first_update(some, changed(estimate=how, **wide, **settings)) for how in ("batch", "all")]
        assert len(found[0][3]) == 6
        np.testing.assert_allclose(found[0][2]["fit_loss"], found[1][2]["fit_loss"], rtol=1e-4)
        for one, other in zip(*(jax.tree.leaves(each[1].optimiser[0].mu) for each in found), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


def by_hand(dataset, width, leave_out=False, permuted=False):
    """(steps, C_i / mean, q_i) of all decisions, in NumPy and float64."""
    pool = jax.tree.map(np.asarray, dataset.pool)
    later = np.array([s for s in np.asarray(dataset.labelled.indices) if pool.time[s] > 0])
    seen = pool.observations[pool.row[np.asarray(dataset.labelled.indices)]].astype(float)
    places = (pool.observations[pool.row] - seen.mean(axis=0)) / (seen.std(axis=0) + 1e-3)
    earlier = np.roll(later, -(len(later) // 2)) - 1 if permuted else later - 1
    gauss = lambda x: np.exp(-((x[:, None] - x) ** 2).sum(axis=-1) / (2 * width))  # noqa: E731
    near = gauss(places[later]) * (1 - np.eye(len(later)) * leave_out)
    alike = gauss(places[earlier]) * (pool.action[earlier][:, None] == pool.action[earlier])
    weights = alike / alike.sum(axis=1, keepdims=True)
    lead = near @ weights.T
    decide = np.stack([(near * (pool.action[later] == b)) @ weights.T for b in range(SPEC.actions)], axis=-1)
    total = (lead**2).sum(axis=1)
    return later, total / total.mean(), (decide * lead[..., None]).sum(axis=1) / total[:, None]


@pytest.mark.parametrize("settings", [{}, {"leave_out": True}, {"predecessors": "permuted"}])
def test_the_estimates_of_all_decisions_by_the_double_sum(settings):
    state = begun(DATASET, changed(rule="scott", bandwidth=2.0, estimate="all", centres=99, **settings))
    count = int(state.kernels.rows.size)
    steps, weight, share = by_hand(
        DATASET, 2 * scott(count, 3), "leave_out" in settings, settings.get("predecessors") == "permuted"
    )
    np.testing.assert_array_equal(state.kernels.rows.indices[:count], steps)
    np.testing.assert_allclose(state.estimate.weight[:count], weight, rtol=1e-4)
    np.testing.assert_allclose(state.estimate.share[:count], share, atol=1e-5)
    np.testing.assert_allclose(state.estimate.share[:count].sum(axis=1), 1, rtol=1e-5)


def test_of_many_decisions_evenly_spaced_ones_make_the_estimates():
    state = begun(DATASET, changed(rule="scott", bandwidth=2.0, estimate="all", centres=7))
    share = state.estimate.share[: int(state.kernels.rows.size)]
    assert np.isfinite(share).all()
    np.testing.assert_allclose(share.sum(axis=1), 1, rtol=1e-4)
    everything = begun(DATASET, changed(rule="scott", bandwidth=2.0, estimate="all", centres=99))
    assert np.abs(share - everything.estimate.share[: len(share)]).max() > 0.01


def test_a_row_that_is_drawn_twice_counts_once():
    assert first_of_each(jnp.array([3, 5, 3, 3, 5, 1])).tolist() == [True, True, False, False, False, True]


def test_entropy_bounds_the_margin_of_a_decision_that_stands_alone():
    """With two actions, at the optimum of (1 - p)^2 - entropy * H(p)."""
    alone = Demonstrations((Trajectory(np.zeros((3, 1), np.float32), np.zeros(3, int)),), ("a", "b"))
    dataset = make_dataset(alone)

    @jax.jit
    def margin(entropy):
        config = CKILConfig(hidden=(), entropy=entropy, batch=4, learning_rate=0.3)
        network = train_one(ckil(spec_of(alone), config), 3000, KEY, dataset)[0].network
        return network(jnp.zeros(1)) @ jnp.array([1.0, -1.0])

    np.testing.assert_allclose([margin(each) for each in (0.001, 0.01, 0.1)], [5.83, 3.91, 2.13], atol=0.05)


def test_a_confident_mistake_is_counted_as_stranded():
    """Far from the label the square has almost no gradient."""
    algorithm = ckil(SPEC, changed(rule="scott", bandwidth=1e-6))
    state = jax.jit(algorithm.init)(KEY, DATASET)
    sure = state.network.output.bias.at[0].set(50.0)
    network = dataclasses.replace(
        state.network, layers=(*state.network.layers[:-1], dataclasses.replace(state.network.output, bias=sure))
    )
    _, metrics = jax.jit(algorithm.update)(KEY, state._replace(network=network), DATASET)
    steps = state.kernels.rows.indices[state.kernels.rows.places(jax.random.fold_in(KEY, 0), 8)]
    wrong = np.asarray(DATASET.pool.action[np.unique(steps)]) != 0
    np.testing.assert_allclose(metrics["stranded"], wrong.mean(), rtol=1e-5)
    assert wrong.any()


@pytest.mark.parametrize("preset", ["default", "all"])
def test_decisions_by_the_side_of_a_line_are_learnt(preset):
    """One long trajectory of points, whose decisions depend on the point alone."""
    points = probes.separable(120)
    config = dataclasses.replace(PRESETS[preset], hidden=(16, 8))
    algorithm, dataset = ckil(spec_of(points), config), make_dataset(points)
    state, _ = jax.jit(lambda key: train_one(algorithm, 600, key, dataset))(KEY)
    (data,) = points.trajectories
    assert (state.network(jnp.asarray(data.observations)).argmax(axis=-1) == data.actions).mean() > 0.95


def test_commands_refuse_data_without_quadruples():
    runs = [np.array([0, 1]), np.array([2])]
    algorithms.require("ckil", make_dataset(DEMONSTRATIONS, runs))
    with pytest.raises(UserError, match=r"ckil needs quadruples: .* leave out thinning") as raised:
        algorithms.require("ckil", make_dataset(DEMONSTRATIONS, runs, thin=2))
    assert "\n" not in str(raised.value)


def test_images_are_refused():
    film = Trajectory(np.zeros((3, 36, 36), np.uint8), np.array([0, 1, 0], np.int32))
    pictures = Demonstrations((film,), ("a", "b"), stack=2)
    with pytest.raises(UserError, match="ckil needs rows of numbers, not images") as raised:
        ckil(spec_of(pictures), SMALL).init(KEY, make_dataset(pictures))
    assert "\n" not in str(raised.value)
