"""The triples of draws: which follow each other, their folds, discrete columns, and limits on their number."""

import numpy as np
import pytest
import systems
from hypothesis import given, settings
from hypothesis import strategies as st

from sbil.dataset import make_dataset
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.dynamics import triples as module
from sbil.dynamics.triples import triples_of
from sbil.folds import FOLDS


def counted(lengths, inputs, last=True):
    """States whose first number says where they are: trajectory * 100 + time."""
    random = np.random.default_rng(0)
    made = []
    for number, length in enumerate(lengths):
        states = random.normal(size=(length + last, inputs))
        states[:, 0] = number * 100 + np.arange(length + last)
        made.append(Trajectory(states.astype(np.float32), random.integers(2, size=length).astype(np.int32)))
    return Demonstrations(tuple(made), tuple("ab"))


@settings(max_examples=12)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 4), st.booleans(), st.integers(1, 3))
def test_what_follows_is_the_next_recorded_step(lengths, inputs, last, thin):
    made = counted(lengths, inputs, last)
    draws = [np.arange(len(lengths))[::-1], np.array([0])]
    stacked = triples_of(make_dataset(made, draws, thin=thin))
    for draw in range(2):
        triples = systems.only(stacked, draw)
        place, known = np.asarray(triples.state[:, 0]), np.asarray(triples.has_next)
        np.testing.assert_array_equal(triples.after[known, 0], place[known] + 1)
        for step in np.flatnonzero(known):
            following = int(triples.following[step])
            if following >= 0:
                assert place[following] == place[step] + 1
            else:
                assert place[step] + 1 not in place[known] or thin > 1
        assert (np.asarray(triples.following)[~known] == -1).all()
        if thin > 1:
            assert (triples.following == -1).all()


def test_folds_hold_whole_trajectories():
    triples = systems.triples(counted([5, 3, 7, 2], 2))
    for trajectory in range(4):
        own = np.asarray(triples.state[:, 0]) // 100 == trajectory
        assert len(set(np.asarray(triples.fold)[own])) == 1
    assert set(np.asarray(triples.fold).tolist()) == set(range(FOLDS))


def test_folds_hold_whole_groups():
    groups = np.array([1, 0, 1, 2])
    triples = systems.triples(counted([5, 3, 7, 2], 2), groups=groups)
    group = groups[(np.asarray(triples.state[:, 0]) // 100).astype(int)]
    np.testing.assert_array_equal(triples.fold, group % FOLDS)


def test_columns_with_few_values_are_discrete():
    states = np.random.default_rng(0).normal(size=(101, 4)).astype(np.float32)
    states[:, 1] = np.arange(101) % 3
    states[:, 2] = 5
    states[:, 3] = [0] * 100 + [1]  # 1 only in the last state
    made = Demonstrations((Trajectory(states, (np.arange(100) % 2).astype(np.int32)),), tuple("ab"))
    np.testing.assert_array_equal(
        systems.triples(made).levels, [[np.nan] * 3, [0, 1, 2], [5, np.nan, np.nan], [0, 1, np.nan]]
    )


def test_without_discrete_columns_there_are_no_levels():
    triples = systems.triples(systems.demonstrations())
    assert triples.levels.shape == (3, 0)
    assert triples.groups.shape == (0, 0)


def test_groups_are_padded_by_the_number_of_columns():
    triples = systems.triples(counted([5], 6), one_hot=[[1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(triples.groups, [[1, 2, 6], [3, 4, 5]])


@pytest.mark.parametrize(("limit", "most"), [("MOST", 400), ("MOST_NUMBERS", 800)])
def test_of_many_steps_stretches_are_taken(monkeypatch, limit, most):
    monkeypatch.setattr(module, limit, most)
    triples = systems.triples(counted([90] * 30, 2))
    places = np.asarray(triples.state[:, 0])
    assert len(places) == len(set(places)) == 400
    assert places.min() == 0
    assert places.max() == 2989
    follows = np.asarray(triples.following) >= 0
    assert follows.mean() > 0.9  # neighbours are there too
    np.testing.assert_array_equal(places[triples.following[follows]], places[follows] + 1)
