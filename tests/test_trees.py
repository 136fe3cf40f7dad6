"""Trees in JAX and in NumPy: the same bits, in the units of the data as after standardisation, at every threshold."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbil.trees import Nodes, Trees, _before_scaling

FLOATS = st.floats(-1e6, 1e6, width=32)


def stump(feature, threshold, low, high):
    """One tree with one question."""
    parts = [[feature, 0, 0], [threshold, 0, 0], [1, 1, 2], [0, low, high]]
    kinds = (np.int32, np.float32, np.int32, np.float32)
    return Nodes(*(np.array([[part]], kind) for part, kind in zip(parts, kinds, strict=True)))


def random_trees(rounds=7, trees=3, inputs=4, seed=0, size=15):
    """Trees whose thresholds are among the values of `rows`."""
    rng = np.random.default_rng(seed)
    child = np.broadcast_to(np.arange(size, dtype=np.int32), (rounds, trees, size)).copy()
    for tree in child.reshape(-1, size):
        free, waiting = 1, [0]
        while waiting and free + 1 < size:
            place = waiting.pop(rng.integers(len(waiting)))
            tree[place], free = free, free + 2
            waiting += [free - 2, free - 1]
    threshold = rng.choice(rows(inputs=inputs).ravel(), child.shape).astype(np.float32)
    feature = rng.integers(0, inputs, child.shape).astype(np.int32)
    value = rng.normal(size=child.shape).astype(np.float32)
    return Trees(Nodes(feature, threshold, child, value), rng.normal(size=trees).astype(np.float32), inputs)


def rows(count=200, inputs=4):
    return np.random.default_rng(3).integers(-9, 9, (count, inputs)).astype(np.float32)


def walked(network, row):
    """The logits of a row by the rule itself."""
    total = np.zeros(network.nodes.child.shape[1], np.float32)
    for nodes in network.rounds():
        for number, tree in enumerate(zip(*nodes, strict=True)):
            tree, place = Nodes(*tree), 0
            while tree.child[place] != place:
                place = tree.child[place] + int(row[tree.feature[place]] > tree.threshold[place])
            total[number] += tree.value[place]
    return np.asarray(network.start) + total


def test_a_value_at_the_threshold_goes_to_the_first_child():
    network = Trees(stump(1, 0.5, -1, 2), np.array([0.25, 0], np.float32), 2)
    states = np.array([[9, 0.5], [9, np.nextafter(np.float32(0.5), np.float32(1))], [0, -3]], np.float32)
    expected = [[0.25, -1], [0.25, 2], [0.25, -1]]  # the first of two actions has no tree
    np.testing.assert_array_equal(network(states), expected)
    np.testing.assert_array_equal(network.in_numpy(states), expected)


def test_jax_and_numpy_give_the_same_bits():
    network, states = random_trees(), rows()
    expected = np.array([walked(network, row) for row in states])
    np.testing.assert_array_equal(network.in_numpy(states), expected)
    np.testing.assert_array_equal(jax.jit(lambda trees, x: trees(x))(network, states), expected)


@pytest.mark.parametrize("batch", [(), (1,), (5, 8)])
def test_any_batch_of_rows(batch):
    network, states = random_trees(), rows(40)
    found = network(states[: int(np.prod(batch, dtype=int))].reshape(*batch, 4))
    assert found.shape == (*batch, 3)
    np.testing.assert_array_equal(
        np.reshape(found, (-1, 3)), network.in_numpy(states[: int(np.prod(batch, dtype=int))])
    )


def test_many_networks_at_once():
    several, states = [random_trees(seed=seed) for seed in range(3)], rows()
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *several)
    found = jax.jit(jax.vmap(lambda one: one(states)))(stacked)
    for one, logits in zip(several, found, strict=True):
        np.testing.assert_array_equal(logits, one.in_numpy(states))


def test_cooled_logits_are_divided():
    network, states = random_trees(), rows()
    np.testing.assert_allclose(network.cooled(2.5).in_numpy(states), network.in_numpy(states) / 2.5, atol=1e-5)


@given(FLOATS, FLOATS, st.floats(2**-10, 1e6, width=32))
def test_a_threshold_moves_before_the_scaling_exactly(threshold, mean, scale):
    """The largest float32 that still passes; the next one does not."""
    threshold, mean, scale = (np.array([number], np.float32) for number in (threshold, mean, scale))
    found = _before_scaling(threshold, mean, scale)
    assert ((found - mean) / scale <= threshold).all()
    assert ((np.nextafter(found, np.float32(np.inf)) - mean) / scale > threshold).all()


def test_plain_states_go_the_same_way_as_standardised_ones():
    mean, scale = np.array([1, 200, -3, 0.1], np.float32), np.array([0.3, 7, 1000, 1], np.float32)
    plain = rows() * scale + mean
    standardised = (plain - mean) / scale
    network = random_trees()
    np.testing.assert_array_equal(network.of_plain(mean, scale).in_numpy(plain), network.in_numpy(standardised))
