"""Trajectories: thinning, ends, draws, splits, and what is refused."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import probes
from sbil.demonstrations import Demonstrations, Trajectory, thinned
from sbil.errors import UserError

DEMONSTRATIONS = probes.demonstrations()


def line(length, last=True, **ends):
    """A trajectory whose observation at time t is t."""
    return Trajectory(np.arange(length + last, dtype=np.float32)[:, None], np.arange(length) % 2, **ends)


def of(*trajectories, actions=("left", "right")):
    return Demonstrations(trajectories, actions)


def test_flat_without_thinning_is_every_step():
    flat = of(line(3, terminal=True), line(2, last=False)).flat()
    np.testing.assert_array_equal(flat.observation[:, 0], [0, 1, 2, 0, 1])
    np.testing.assert_array_equal(flat.next_observation[:, 0], [1, 2, 3, 1, 1])
    assert flat.action.tolist() == [0, 1, 0, 0, 1]
    assert flat.has_next.tolist() == [True, True, True, True, False]
    assert flat.terminal.tolist() == [False, False, True, False, False]
    assert flat.time.tolist() == [0, 1, 2, 0, 1]
    assert flat.trajectory.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("offset", [0, 7, 19])
def test_successors_are_attached_before_thinning(offset):
    flat = of(line(60)).flat(thin=20, thin_offset=offset)
    assert flat.time.tolist() == [offset, offset + 20, offset + 40]
    np.testing.assert_array_equal(flat.observation[:, 0], flat.time)
    np.testing.assert_array_equal(flat.next_observation[:, 0], flat.time + 1)
    assert flat.has_next.all()


@given(st.integers(1, 40), st.integers(1, 12), st.data(), st.booleans(), st.booleans())
def test_thinned_steps_are_the_same_steps(length, thin, data, last, terminal):
    offset = data.draw(st.integers(0, thin - 1))
    demonstrations = of(line(length, last=last, terminal=terminal))
    keep = thinned(length, thin, offset)
    assert keep.tolist() == [t for t in range(length) if t % thin == offset]
    whole, part = demonstrations.flat(), demonstrations.flat(thin, offset)
    for full, kept in zip(whole, part, strict=True):
        np.testing.assert_array_equal(kept, full[keep])


def test_terminal_is_of_the_last_step_and_truncated_of_none():
    for ends, expected in [({"terminal": True}, [0, 0, 1]), ({"truncated": True}, [0, 0, 0]), ({}, [0, 0, 0])]:
        assert of(line(3, **ends)).flat().terminal.tolist() == expected


def test_terminal_step_that_is_thinned_away_leaves_none():
    assert not of(line(4, terminal=True)).flat(thin=2).terminal.any()
    assert of(line(3, terminal=True)).flat(thin=2).terminal.tolist() == [False, True]


def test_last_observation():
    assert line(3).has_last_observation
    assert not line(3, last=False).has_last_observation
    assert len(line(3)) == 3


@pytest.mark.parametrize(("thin", "offset"), [(0, 0), (-1, 0), (3, 3), (3, -1), (1, 1)])
def test_impossible_thinning_is_refused(thin, offset):
    with pytest.raises(UserError, match="thin"):
        DEMONSTRATIONS.flat(thin, offset)


def test_draws_are_nested_over_sizes():
    for seed in range(20):
        whole = DEMONSTRATIONS.draw(6, seed)
        assert sorted(whole) == list(range(6))
        for size in range(1, 6):
            np.testing.assert_array_equal(DEMONSTRATIONS.draw(size, seed), whole[:size])


def test_draws_depend_on_the_seed_alone():
    np.testing.assert_array_equal(DEMONSTRATIONS.draw(3, 1), probes.demonstrations().draw(3, 1))
    firsts = {int(DEMONSTRATIONS.draw(1, seed)[0]) for seed in range(60)}
    assert firsts == set(range(6))


@pytest.mark.parametrize("size", [0, -1, 7])
def test_impossible_draws_are_refused(size):
    with pytest.raises(UserError, match="1 to 6"):
        DEMONSTRATIONS.draw(size, 0)


@given(st.integers(2, 12), st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_split_is_disjoint_and_complete(count, share, seed):
    demonstrations = of(*(line(length) for length in range(1, count + 1)))
    training, held_out = demonstrations.split(share, seed)
    lengths = [*training.lengths, *held_out.lengths]
    assert sorted(lengths) == list(range(1, count + 1))
    assert len(training) >= 1
    assert abs(len(held_out) - share * count) < 1 or len(held_out) in (1, count - 1)
    again = demonstrations.split(share, seed)
    assert again[1].lengths.tolist() == held_out.lengths.tolist()
    assert training.action_names == demonstrations.action_names


def test_split_depends_on_the_seed():
    held_out = {tuple(DEMONSTRATIONS.split(0.4, seed)[1].lengths) for seed in range(20)}
    assert len(held_out) > 5


def test_one_group_makes_no_folds():
    data = dataclasses.replace(DEMONSTRATIONS, groups=np.zeros(len(DEMONSTRATIONS), int))
    with pytest.raises(UserError, match="one group cannot be shared out into folds; bring at least two"):
        data.folds(2, 0)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_impossible_shares_are_refused(share):
    with pytest.raises(UserError, match="share to hold out"):
        DEMONSTRATIONS.split(share, 0)


def test_one_trajectory_cannot_be_split():
    with pytest.raises(UserError, match="at least two"):
        of(line(3)).split(0.5, 0)


def test_select_keeps_order_and_names():
    chosen = DEMONSTRATIONS.select([4, 0])
    assert chosen.lengths.tolist() == [4, 7]
    assert chosen.action_names == DEMONSTRATIONS.action_names
    assert chosen.observation_names == DEMONSTRATIONS.observation_names


def test_summary_counts():
    assert DEMONSTRATIONS.steps == 39
    assert DEMONSTRATIONS.observation_shape == (3,)
    assert repr(DEMONSTRATIONS) == (
        "Demonstrations(6 trajectories, 39 steps, observations (3,), "
        "actions ['action 0', 'action 1', 'action 2'], 2 terminal, 2 truncated)"
    )
    assert DEMONSTRATIONS.observation_names == ("observation_0", "observation_1", "observation_2")


BAD = {
    "no actions taken": (line(3), Trajectory(np.zeros((1, 1)), np.zeros(0, int))),
    "actions of real numbers": (dataclasses.replace(line(3), actions=np.zeros(3)),),
    "a table of actions": (dataclasses.replace(line(3), actions=np.zeros((3, 1), int)),),
    "too few observations": (Trajectory(np.zeros((2, 1)), np.zeros(3, int)),),
    "too many observations": (Trajectory(np.zeros((5, 1)), np.zeros(3, int)),),
    "another shape": (line(3), Trajectory(np.zeros((4, 2)), np.zeros(3, int))),
    "observations of whole numbers": (Trajectory(np.zeros((4, 1), int), np.zeros(3, int)),),
    "complex observations": (Trajectory(np.zeros((4, 1), complex), np.zeros(3, int)),),
    "an action too large": (Trajectory(np.zeros((4, 1)), np.array([0, 1, 2])),),
    "a negative action": (Trajectory(np.zeros((4, 1)), np.array([0, -1, 0])),),
    "not a number": (Trajectory(np.array([[0], [np.nan], [0], [0]]), np.zeros(3, int)),),
    "infinite at the last observation": (Trajectory(np.array([[0], [0], [0], [np.inf]]), np.zeros(3, int)),),
    "terminal and truncated": (line(3, terminal=True, truncated=True),),
}


@pytest.mark.parametrize("case", BAD)
def test_what_no_algorithm_can_use_is_refused(case):
    trajectories = BAD[case]
    with pytest.raises(UserError, match=f"trajectory {len(trajectories) - 1}") as raised:
        of(*trajectories)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("shape", [(), (0,)])
def test_observations_without_columns_are_refused(shape):
    """A flat list of numbers could be saved but not loaded; a table without columns holds nothing."""
    with pytest.raises(UserError, match="observation"):
        of(Trajectory(np.zeros((4, *shape)), np.zeros(3, int)))


def test_bad_values_are_located():
    with pytest.raises(UserError, match="trajectory 0, step 1, column 0"):
        of(*BAD["not a number"])
    with pytest.raises(UserError, match="trajectory 0, step 2: action 2"):
        of(*BAD["an action too large"])


def test_demonstrations_need_trajectories_and_names():
    with pytest.raises(UserError, match="no trajectories"):
        of()
    with pytest.raises(UserError, match="action_names"):
        of(line(3), actions=())
    with pytest.raises(UserError, match="2 observation names for 1"):
        Demonstrations((line(3),), ("left", "right"), ("one", "two"))
