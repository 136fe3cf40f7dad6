"""Networks for tables: their folds, their pieces and their early stop, with answers worked out by hand."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import probes
import sbil
from sbil.algorithms import TableNetworkConfig
from sbil.algorithms.table_network import in_folds, pieces_of, table_network, together, with_dropout
from sbil.dataset import Dataset, Rows, make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.mixtures import InPieces
from sbil.networks import mlp

SMALL = {"members": 2, "hidden": (8,), "steps": 5, "batch": 32}


def rows_of(values, trajectory, size=None, group=None):
    """One run whose pool has a column of values; `size` rows are its own, the others are padding."""
    values = np.asarray(values, np.float32).reshape(len(trajectory), -1)
    episodes = [values[np.asarray(trajectory) == each] for each in dict.fromkeys(trajectory)]
    parts = tuple(Trajectory(each, np.arange(len(each), dtype=np.int32) % 2) for each in episodes)
    groups = None if group is None else np.asarray(group)
    data = Demonstrations(parts, ("a", "b"), groups=groups)
    dataset = make_dataset(data)
    rows = Rows(dataset.labelled.indices, jnp.int32(len(values) if size is None else size))
    return Dataset(dataset.pool, rows, dataset.unlabelled)


def parts(held):
    """The rows of each fold."""
    first = np.asarray(held.first)
    return [np.asarray(held.indices)[low:high].tolist() for low, high in pairwise(first)]


def test_whole_trajectories_are_held_out():
    trajectory = [0, 0, 1, 1, 1, 2, 3]
    held = in_folds(rows_of(np.arange(7), trajectory), 3)
    assert parts(held) == [[0, 1, 6], [2, 3, 4], [5]]


def test_whole_groups_are_held_out():
    held = in_folds(rows_of(np.arange(6), [0, 0, 1, 2, 2, 3], group=[5, 9, 5, 9]), 2)
    assert parts(held) == [[0, 1, 3, 4], [2, 5]]


def test_a_single_trajectory_is_cut_into_stretches():
    assert parts(in_folds(rows_of(np.arange(7), [0] * 7), 3)) == [[0, 1, 2], [3, 4], [5, 6]]


def test_padding_is_in_no_fold():
    held = in_folds(rows_of(np.arange(6), [0, 1, 2, 3, 4, 5], size=4), 2)
    assert parts(held) == [[0, 2], [1, 3]]


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(1, 6), st.sampled_from((1, 3)), st.integers(0, 99))
def test_every_row_is_in_one_fold_and_no_member_learns_from_what_it_holds_out(rows, episodes, folds, seed):
    rng = np.random.default_rng(seed)
    trajectory = np.concatenate([np.sort(rng.integers(0, episodes, rows)), np.full(30 - rows, 6)])
    held = in_folds(rows_of(np.arange(30), trajectory, size=rows), folds)
    found = parts(held)
    assert sorted(row for own in found for row in own) == list(range(rows))
    for fold, own in enumerate(found):
        drawn = set(np.asarray(held.others(jax.random.key(seed), jnp.int32(fold), 200)).tolist())
        assert drawn <= set(range(rows))
        assert not drawn & set(own) or len(own) == rows
        judged = held.judged(jnp.int32(fold))
        assert np.asarray(judged.indices)[: int(judged.size)].tolist() == own


def test_pieces_are_cut_at_quantiles():
    values = np.array([0, 1, 2, 3, 4, 5, 6, 7, 100, 7])[:9]
    columns = np.stack([values, np.full(9, 5), values > 7], axis=1)
    pieces = pieces_of(rows_of(columns, range(9)), 4)
    np.testing.assert_allclose(pieces.centre, [4, 5, 0.5])
    np.testing.assert_allclose(pieces.factor, [1 / 4, 0, 2])  # the middle half is 2 to 6
    np.testing.assert_allclose(pieces.low[0], [0, 2, 4, 6])
    np.testing.assert_allclose(pieces.slope[0], [1 / 2, 1 / 2, 1 / 2, 1 / 94])
    np.testing.assert_array_equal(pieces.slope[1], np.zeros(4))
    np.testing.assert_allclose(pieces(jnp.array([3.0, 9, 1]))[3:7], [1, 0.5, 0, 0])


def test_pieces_do_not_see_padding():
    some = pieces_of(rows_of([3, 1, 2, 1e6, -1e6], range(5), size=3), 2)
    alone = pieces_of(rows_of([3, 1, 2], range(3)), 2)
    for own, other in zip(jax.tree.leaves(some), jax.tree.leaves(alone), strict=True):
        np.testing.assert_array_equal(own, other)


def test_dropout_changes_single_logits_and_not_their_mean():
    member, x = mlp(jax.random.key(0), (3, 400, 2)), jnp.ones((2000, 3))
    np.testing.assert_array_equal(with_dropout(member, jax.random.key(1), x, 0.0), member(x))
    dropped = np.asarray(with_dropout(member, jax.random.key(1), x, 0.5))
    assert dropped.std(axis=0).min() > 0.01
    np.testing.assert_allclose(dropped.mean(axis=0), member(x)[0], atol=0.02)


def test_the_ensemble_is_the_mean_of_its_members():
    members = jax.vmap(lambda key: mlp(key, (3, 5, 4, 2)))(jax.random.split(jax.random.key(0), 3))
    x = jax.random.normal(jax.random.key(1), (7, 3))
    expected = jax.vmap(lambda member: member(x))(members).mean(axis=0)
    np.testing.assert_allclose(together(members)(x), expected, atol=1e-6)


def noise(rows=200):
    rng = np.random.default_rng(0)
    episodes = [(rng.normal(size=(4, 6)), rng.integers(0, 2, 4)) for _ in range(rows // 4)]
    return Demonstrations(
        tuple(Trajectory(o.astype(np.float32), a.astype(np.int32)) for o, a in episodes), ("a", "b"), tuple("uvwxyz")
    )


def test_members_keep_the_weights_with_the_smallest_held_out_loss():
    """Nothing is to be learned. So the members that go on learn the noise, and those that are kept do not."""
    data = noise()
    config = TableNetworkConfig(members=2, hidden=(64,), steps=4, rounds=40, dropout=0.0, learning_rate=0.01)
    algorithm, dataset = table_network(spec_of(data), config), make_dataset(data)
    state = algorithm.init(jax.random.key(0), dataset)
    update, held_out = jax.jit(algorithm.update), []
    for number in range(40):
        state, metrics = update(jax.random.key(number), state, dataset)
        held_out.append(float(metrics["held_out_loss"]))
    assert held_out == sorted(held_out, reverse=True)
    assert 0.5 < held_out[-1] < 0.8
    last = InPieces(state.network.pieces, together(state.members))
    rows, taken = data.flat().observation, data.flat().action
    losses = [
        -jax.nn.log_softmax(network(rows))[np.arange(len(taken)), taken].mean() for network in (state.network, last)
    ]
    assert losses[1] < losses[0] - 0.1


@pytest.mark.parametrize("lengths", [(1,), (2,), (1, 1), (9, 1)])
def test_few_decisions_are_enough(lengths):
    data = probes.demonstrations(lengths=lengths)
    policy = sbil.fit("table_network", data, updates=2, **SMALL)
    assert np.isfinite(policy.probabilities(data.flat().observation)).all()


def test_images_are_refused():
    frames = np.zeros((3, 36, 36, 1), np.uint8)
    images = Demonstrations((Trajectory(frames, np.zeros(3, np.int32)),), ("a", "b"))
    with pytest.raises(sbil.UserError, match="table_network needs numeric pairs"):
        sbil.fit("table_network", images)


def test_thresholds_are_learned():
    """The action changes at three values of one column. A plain network does not learn them so soon."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(1200, 3)).astype(np.float32)
    taken = (np.searchsorted([-0.67, 0, 0.67], states[:, 0]) % 2).astype(np.int32)
    data = Demonstrations(tuple(Trajectory(s[None], a[None]) for s, a in zip(states, taken, strict=True)), ("a", "b"))
    policy = sbil.fit("table_network", data.select(np.arange(900)), updates=12, members=2)
    assert (policy.act(states[900:]) == taken[900:]).mean() > 0.95
