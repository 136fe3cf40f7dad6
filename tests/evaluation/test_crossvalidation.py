"""Cross-validation: every decision is judged by a policy that did not see its episode, and all judge the same rows."""

import dataclasses

import numpy as np
import pytest

import probes
from sbil.errors import UserError
from sbil.evaluation import crossvalidation
from sbil.evaluation.baselines import Baselines
from sbil.evaluation.crossvalidation import cross_validate
from sbil.evaluation.decided import Decided, decided
from sbil.evaluation.matching import differences
from sbil.fitting import fit

TINY = {"bc": {"hidden": (8,), "batch": 8}}


def test_every_decision_is_judged_by_a_policy_that_did_not_see_it(monkeypatch):
    """Policies that remember what they were trained on; groups are not torn apart."""
    groups = np.array([3, 3, 8, 8, 1, 4])
    demonstrations = dataclasses.replace(probes.demonstrations(), groups=groups)
    asked, steps = [], demonstrations.decisions()

    def fake_fit(name, training, **options):
        asked.append((name, options))
        return training

    def fake_decided(training, held_out):
        assert not set(training.groups) & set(held_out.groups)
        assert set(training.groups) | set(held_out.groups) == {1, 3, 4, 8}
        first = held_out.flat().observation[:, 0]  # one number per decision, which identifies it
        return Decided(np.stack([first, first, first], axis=1), held_out.decisions().action, None)

    monkeypatch.setattr(crossvalidation, "fit", fake_fit)
    monkeypatch.setattr(crossvalidation, "decided", fake_decided)
    told = []
    found = cross_validate(
        ["edm"], demonstrations, folds=3, settings={"edm": {"noise": 1}}, updates=5, watch=lambda *now: told.append(now)
    )
    assert list(found) == ["majority", "previous action", "bc", "edm"]
    for made in found.values():
        np.testing.assert_array_equal(made.actions, steps.action)
        np.testing.assert_array_equal(made.episodes, groups[steps.trajectory])
    for number, part in enumerate(demonstrations.folds(3, 0)):
        np.testing.assert_array_equal(found["bc"].folds == number, np.isin(steps.trajectory, part))
    np.testing.assert_array_equal(found["edm"].probabilities[:, 0], demonstrations.flat().observation[:, 0])
    assert [name for name, _ in asked] == ["bc", "edm"] * 3
    assert {options["noise"] for name, options in asked if name == "edm"} == {1}
    assert not any("noise" in options for name, options in asked if name == "bc")
    assert {options["updates"] for _, options in asked} == {5}
    assert told[0] == (0.0, "bc, fold 1 of 3")
    assert told[-1] == (pytest.approx(5 / 6), "edm, fold 3 of 3")


def test_folds_are_what_a_loop_gives():
    demonstrations = probes.demonstrations()
    found = cross_validate([], demonstrations, folds=2, seed=1, settings=TINY, updates=4, standardise=True)
    trajectory = demonstrations.decisions().trajectory
    for part in demonstrations.folds(2, 1):
        rest = np.setdiff1d(np.arange(6), part)
        training, held_out = demonstrations.select(rest), demonstrations.select(part)
        rows = np.isin(trajectory, part)
        policy = fit("bc", training, seed=1, updates=4, standardise=True, **TINY["bc"])
        np.testing.assert_allclose(policy.standardisation.mean, training.flat().observation.mean(axis=0), atol=1e-5)
        expected = {"bc": decided(policy, held_out)} | Baselines.from_demonstrations(training).decided(held_out)
        for name, one in expected.items():
            np.testing.assert_allclose(found[name].probabilities[rows], one.probabilities, atol=1e-6)
            np.testing.assert_array_equal(found[name].actions[rows], one.actions)
    assert differences(found["bc"], found["majority"], 10).resamples == 10  # the same rows, so they can be paired


def test_settings_of_nothing_are_refused():
    with pytest.raises(UserError, match="'rcal'"):
        cross_validate(["edm"], probes.demonstrations(), settings={"rcal": {}})


def test_too_many_folds_are_refused():
    with pytest.raises(UserError, match="folds"):
        cross_validate(["edm"], probes.demonstrations(), folds=7)
