"""Pieces of algorithms: subsets of rows, moments, scalings folded into networks, weights, targets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import probes
from sbil.algorithms.dsfn import DSFNConfig, bounds, descend, discounted_weights
from sbil.dataset import Dataset, Rows, make_dataset
from sbil.networks import MLP, Dense, Scaling, mlp, orthogonal_dense, scaling

DEMONSTRATIONS = probes.demonstrations()
CAPACITY = 12
where = jax.jit(Rows.where)
rows_and_choice = st.integers(0, CAPACITY).flatmap(
    lambda size: st.tuples(
        st.lists(st.integers(0, 99), min_size=size, max_size=size),
        st.lists(st.booleans(), min_size=CAPACITY, max_size=CAPACITY),
    )
)


def padded(rows, fill=77):
    indices = np.full(CAPACITY, fill, np.int32)
    indices[: len(rows)] = rows
    return Rows(jnp.asarray(indices), jnp.int32(len(rows)))


@given(rows_and_choice)
def test_where_keeps_the_chosen_rows_in_their_order(example):
    rows, keep = example
    kept = where(padded(rows), jnp.asarray(keep))
    expected = [row for row, chosen in zip(rows, keep, strict=False) if chosen]
    assert int(kept.size) == len(expected)
    assert kept.indices.tolist() == expected + [0] * (CAPACITY - len(expected))
    assert kept.indices.dtype == kept.size.dtype == jnp.int32


@given(st.lists(rows_and_choice, min_size=3, max_size=3))
def test_where_of_stacked_runs(examples):
    runs = [(padded(rows), jnp.asarray(keep)) for rows, keep in examples]
    stacked = jax.vmap(where)(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs))
    for number, (rows, keep) in enumerate(runs):
        for one, many in zip(where(rows, keep), stacked, strict=True):
            np.testing.assert_array_equal(one, many[number])


def poisoned(draw, capacity):
    """A run whose padding is a step and a state of NaN that belong to no trajectory."""
    dataset = probes.run_of(make_dataset(DEMONSTRATIONS, [np.array(draw)], capacity=capacity), 0)
    pool, rows = dataset.pool, dataset.labelled
    bad = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[-1:]]), pool)
    bad = bad._replace(
        observations=bad.observations.at[-1].set(jnp.nan), row=bad.row.at[-1].set(len(pool.observations))
    )
    indices = jnp.where(rows.mask, rows.indices, len(pool.row))
    return Dataset(bad, Rows(indices, rows.size), dataset.unlabelled)


@pytest.mark.parametrize("draw", [[0], [1], [2, 0], [3, 1, 4]])
def test_triples_are_the_steps_of_which_the_next_is_known(draw):
    """All but the last of a trajectory that has neither its last state nor an end; 4 ends without one."""
    dataset = poisoned(draw, 30)
    first = np.cumsum(DEMONSTRATIONS.lengths) - DEMONSTRATIONS.lengths
    expected = []
    for number in draw:
        trajectory = DEMONSTRATIONS.trajectories[number]
        known = len(trajectory) - (not (trajectory.has_last_observation or trajectory.terminal))
        expected += range(first[number], first[number] + known)
    triples = jax.jit(lambda dataset: dataset.triples)(dataset)
    assert triples.indices[: triples.size].tolist() == expected
    assert not triples.indices[triples.size :].any()


@pytest.mark.parametrize("draw", [[0], [1, 5], [4, 2, 3]])
def test_moments_are_of_the_labelled_states(draw):
    """Not of a last state, at which nothing was decided, nor of the padding."""
    trajectories = [DEMONSTRATIONS.trajectories[i] for i in draw]
    states = np.concatenate([t.observations[: len(t)] for t in trajectories])
    dataset = poisoned(draw, 30)
    mean, deviation = jax.jit(Dataset.moments)(dataset)
    np.testing.assert_allclose(mean, states.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(deviation, states.std(axis=0), atol=1e-6)
    standard = scaling(dataset)(jnp.asarray(states))
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(standard.std(axis=0), 1, atol=0.01)


def test_a_constant_column_stays_finite():
    dataset = make_dataset(DEMONSTRATIONS)
    constant = dataset.pool.observations.at[:, 1].set(4.0)
    scaled = scaling(dataset._replace(pool=dataset.pool._replace(observations=constant)))
    np.testing.assert_allclose(scaled.mean[1], 4, rtol=1e-6)
    assert scaled.scale[1] == 1  # only centred: divided by something small, it would swamp the other columns
    np.testing.assert_allclose(scaled(constant)[:, 1], 0, atol=1e-2)


def scale_of(rng, *shape):
    return Scaling(jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.uniform(0.5, 2, shape)))


def test_scaling_folded_into_a_network():
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        scale, network, states = scale_of(rng, 3), probes.network(3, 5, 2), jnp.asarray(rng.normal(size=(7, 3)))
        np.testing.assert_allclose(scale.folded_into(network)(states), network(scale(states)), atol=1e-12)
        np.testing.assert_allclose(scale(states), (states - scale.mean) / scale.scale, atol=1e-12)
        assert np.abs(network(states) - network(scale(states))).max() > 0.1


def test_inputs_beyond_the_observation_are_zero():
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        scale, network, states = scale_of(rng, 3), probes.network(5, 4, 2), jnp.asarray(rng.normal(size=(7, 3)))
        expected = network(jnp.hstack([scale(states), jnp.zeros((7, 2))]))
        np.testing.assert_allclose(scale.folded_into(network)(states), expected, atol=1e-12)


def test_scalings_of_stacked_runs():
    rng = np.random.default_rng(2)
    with jax.enable_x64(True):
        scales, states = scale_of(rng, 4, 3), jnp.asarray(rng.normal(size=(7, 3)))
        networks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(probes.network(5, 4, 2, seed=i) for i in range(4)))
        folded = scales.folded_into(networks)
        for run in range(4):
            one, scale, network = jax.tree.map(lambda leaf, run=run: leaf[run], (folded, scales, networks))
            expected = network(jnp.hstack([scale(states), jnp.zeros((7, 2))]))
            np.testing.assert_allclose(one(states), expected, atol=1e-12)
            np.testing.assert_allclose(scale.folded_into(network)(states), expected, atol=1e-12)


def test_orthogonal_weights_and_no_biases():
    """A layer that narrows has orthonormal columns; one that widens, orthonormal rows."""
    network = mlp(jax.random.key(0), (9, 5, 7, 7, 2), "relu", orthogonal_dense)
    assert [layer.weight.shape for layer in network.layers] == [(9, 5), (5, 7), (7, 7), (7, 2)]
    for layer in network.layers:
        inputs, outputs = layer.weight.shape
        tall = layer.weight if inputs >= outputs else layer.weight.T
        np.testing.assert_allclose(tall.T @ tall, np.eye(min(inputs, outputs)), atol=1e-5)
        np.testing.assert_array_equal(layer.bias, np.zeros(outputs))
    other = mlp(jax.random.key(1), (9, 5, 7, 7, 2), "relu", orthogonal_dense)
    pairs = zip(network.layers, other.layers, strict=True)
    assert all(np.abs(one.weight - another.weight).max() > 0.1 for one, another in pairs)


def test_features_worked_by_hand():
    """tanh(2 x), then tanh(tanh(2 x) - 1), then 3 times that plus 5 with no activation."""
    layers = [Dense(jnp.full((1, 1), w), jnp.full(1, b)) for w, b in ((2.0, 0.0), (1.0, -1.0), (3.0, 5.0))]
    network, x = MLP(tuple(layers), "tanh"), jnp.array([[-1.0], [0.3]])
    first = np.tanh(2 * x)
    second = np.tanh(first - 1)
    for depth, expected in enumerate((x, first, second)):
        np.testing.assert_allclose(network.features(x, depth), expected, rtol=1e-6)
    np.testing.assert_allclose(network(x), 3 * second + 5, rtol=1e-6)


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh"])
def test_the_last_layer_on_the_last_features_is_the_network(activation):
    network = mlp(jax.random.key(0), (3, 5, 4, 2), activation)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 3)), jnp.float32)
    np.testing.assert_array_equal(network.layers[-1](network.features(x, 2)), network(x))
    assert network.features(x, 1).shape == (2, 6, 5)


def test_discounted_weights_worked_by_hand():
    """Two trajectories and padding that looks like the second one going on; the same, every second step kept; pairs."""
    trajectory, mask = jnp.array([4, 4, 4, 0, 0, 0]), jnp.arange(6) < 5
    ends = jnp.array([False, False, True, False, False, True])  # the first truly ended, the second was cut
    weights, first = discounted_weights(jnp.array([0, 1, 2, 0, 1, 0]), trajectory, ends, mask, 0.5)
    np.testing.assert_allclose(weights, [0.5, 0.25, 0.125, 0.5, 0.5, 0])
    assert first.tolist() == [True, False, False, True, False, False]
    weights, _ = discounted_weights(jnp.array([1, 3, 5, 1, 3, 0]), trajectory, ends, mask, 0.5)
    np.testing.assert_allclose(weights, [0.75, 0.1875, 0.046875, 0.75, 0.25, 0])
    single = jnp.array([2, 0, 1]), jnp.array([True, False, True]), jnp.ones(3, bool)
    weights, first = discounted_weights(jnp.arange(3), *single, 0.5)
    np.testing.assert_allclose(weights, [0.5, 1, 0.5])
    assert first.all()
    twice, _ = discounted_weights(
        jnp.array([0, 1, 0, 1]), jnp.zeros(4, int), jnp.zeros(4, bool), jnp.ones(4, bool), 0.5
    )
    np.testing.assert_allclose(twice, [0.5, 0.5, 0.5, 0.5])  # drawn twice: it starts anew


def test_bounds_of_discounted_sums():
    """Zero is always between them, since a sum may end; rows that are not given, and padding, are not read."""
    values = np.array([[1.0, -2.0], [3.0, -1.0], [np.nan, np.nan]])
    low, high = bounds(jnp.asarray(values), padded([0, 1, 0], fill=2))
    np.testing.assert_array_equal([low, high], [[0, -2], [3, 0]])
    low, high = bounds(jnp.array([2.0, -5.0, 9.0]), padded([1, 0]))
    assert (low, high) == (-5, 2)


def test_the_target_follows_slowly():
    """On a constant slope Adam walks 0.01 a step; the target stays behind by the sum of a geometric series."""
    start, zero = MLP((Dense(jnp.zeros((1, 1)), jnp.zeros(1)),), "tanh"), jnp.zeros(1)
    rows, config = padded([0, 1]), DSFNConfig(learning_rate=0.01, target_rate=0.1)
    network, last = descend(
        jax.random.key(0), start, lambda x, target, *_: (target(zero) - x(zero)).sum(), rows, 50, 2, config
    )
    np.testing.assert_allclose(network(zero), 0.01 * 50, rtol=1e-5)
    np.testing.assert_allclose(-last, 0.01 * (0.9 ** np.arange(1, 50)).sum(), rtol=1e-5)
