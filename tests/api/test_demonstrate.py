"""Demonstrations as a library: who plays, and what its episodes return."""

import numpy as np
import pytest

from sbil import demonstrate, demonstrators, read
from sbil.errors import UserError


def test_the_returns_are_those_of_the_episodes():
    """In Acrobot every step costs 1, but not the one that ends the episode."""
    made = demonstrate("Acrobot-v1", 3, mode="greedy", seed=1)
    expected = [t.terminal - len(t) for t in made.demonstrations.trajectories]
    np.testing.assert_array_equal(made.returns, expected)
    assert made.mean == np.mean(expected)
    assert made.as_json()["min_return"] == min(expected)


def test_a_policy_of_ones_own_demonstrates_greedily():
    own = demonstrate("CartPole-v1", 2, policy=demonstrators.get("CartPole-v1-ppo"))
    assert own.demonstrations.provenance["mode"] == "greedy"
    assert own.demonstrations.provenance["demonstrator"] == "policy"
    assert demonstrate("CartPole-v1", 2).demonstrations.provenance["mode"] == "sampled"


def test_demonstrations_are_written(tmp_path):
    out = tmp_path / "demos.npz"
    made = demonstrate("CartPole-v1", 2, out=out)
    assert repr(read(out)) == repr(made.demonstrations)
    for wrong, words in (
        ({"out": out}, "exists already"),
        ({"out": tmp_path / "demos.csv"}, "something.npz"),
        ({"out": tmp_path}, "is a folder"),
        ({"out": out, "overwrite": 1}, "overwrite must be True or False"),
    ):
        with pytest.raises(UserError, match=words):
            demonstrate("CartPole-v1", 2, **wrong)
    assert len(demonstrate("CartPole-v1", 3, out=str(out), overwrite=True).demonstrations) == len(read(out)) == 3


def test_what_cannot_demonstrate_is_refused():
    for wrong, words in (
        ({"demonstrator": "ppo", "policy": "policy/"}, "give one of them"),
        ({"demonstrator": "sac"}, "unknown demonstrator"),
        ({"demonstrator": "dqn", "mode": "sampled"}, "no mode 'sampled'"),
        ({"mode": "greddy"}, "did you mean 'greedy'"),
    ):
        with pytest.raises(UserError, match=words):
            demonstrate("CartPole-v1", 2, **wrong)
