"""Baselines by hand: what is counted, what it says, and that it goes through JSON unchanged."""

import json

import numpy as np
import pytest

import probes
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.evaluation.baselines import MAJORITY, PREVIOUS, Baselines
from sbil.evaluation.matching import scores


def taken(*episodes, names=("no", "yes", "never"), groups=None):
    trajectories = tuple(Trajectory(np.zeros((len(e), 1), np.float32), np.array(e)) for e in episodes)
    return Demonstrations(trajectories, names, groups=groups)


TRAINING = taken([0, 0, 1, 1], [1, 1], [0])


def test_counts_by_hand():
    found = Baselines.from_demonstrations(TRAINING)
    assert found.first.tolist() == [2, 1, 0]
    assert found.following.tolist() == [[1, 1, 0], [0, 2, 0], [0, 0, 0]]


def test_probabilities_by_hand():
    """One is added to each count; an episode does not follow the one before it."""
    found = Baselines.from_demonstrations(TRAINING).decided(taken([1, 0, 2], [2, 1]))
    np.testing.assert_allclose(found[MAJORITY].probabilities, [[4 / 10, 5 / 10, 1 / 10]] * 5)
    first, after_no, after_yes, after_never = [3, 2, 1], [2, 2, 1], [1, 3, 1], [1, 1, 1]
    expected = [np.array(row) / sum(row) for row in (first, after_yes, after_no, first, after_never)]
    np.testing.assert_allclose(found[PREVIOUS].probabilities, expected)
    for made in found.values():
        assert made.actions.tolist() == [1, 0, 2, 2, 1]
        assert made.episodes.tolist() == [0, 0, 0, 1, 1]
        assert np.isfinite(scores(made)["log_loss"])
    assert scores(found[MAJORITY])["auc"] == 0.5


def test_habits_are_matched():
    habits = taken([0] * 9, [1] * 9, [0] * 9, [1] * 9, names=("no", "yes"))
    found = Baselines.from_demonstrations(habits).decided(habits)
    assert scores(found[MAJORITY])["accuracy"] == 0.5
    assert scores(found[PREVIOUS])["accuracy"] == (4 * 8 + 2) / 36


def test_groups_are_kept_together():
    grouped = taken([0, 1], [1], [0], groups=np.array([4, 7, 4]))
    found = Baselines.from_demonstrations(grouped).decided(grouped)
    assert all(made.episodes.tolist() == [4, 4, 7, 4] for made in found.values())


def test_through_json():
    made = Baselines.from_demonstrations(probes.demonstrations())
    written = json.dumps({"first": made.first.tolist(), "following": made.following.tolist()})
    again = Baselines.from_json(json.loads(written))
    np.testing.assert_array_equal(again.first, made.first)
    np.testing.assert_array_equal(again.following, made.following)


GOOD = {"first": [1, 2], "following": [[1, 2], [3, 4]]}


@pytest.mark.parametrize(
    "content",
    [
        None,
        3,
        {},
        [],
        "text",
        {"first": [1, 2]},
        GOOD | {"first": [1]},
        GOOD | {"first": [1, -2]},
        GOOD | {"first": [1, 2.5]},
        GOOD | {"first": ["1", "2"]},
        GOOD | {"first": [10**30, 2]},
        GOOD | {"first": [True, False]},
        GOOD | {"first": [], "following": []},
        GOOD | {"following": [[1], [2, 3]]},
        GOOD | {"following": [1, 2]},
        GOOD | {"following": None},
    ],
)
def test_what_is_no_baseline_is_refused(content):
    with pytest.raises(UserError, match="counts"):
        Baselines.from_json(content)


def test_other_actions_are_refused():
    with pytest.raises(UserError, match="count 2 actions"):
        Baselines.from_json(GOOD).decided(TRAINING)
