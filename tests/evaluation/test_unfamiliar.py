"""The choice of the measure: it is the one that works on the data, at a rate of false alarms that is known."""

from dataclasses import replace

import numpy as np
import pytest

import probes
import sbil
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.evaluation.unfamiliar import CLEAN, Rates, area, best, faults, with_measure
from sbil.policy import Policy
from sbil.policy.guard_measures import FAULTS, NAMES
from sbil.policy.training_states import training_guard

NAMED = ("pulse", "oxygen", "glucose")


def stays(count, seed, width=3):
    """Stays of eight hours: three columns that are related, and what was decided."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        ill = rng.normal() + 0.3 * rng.normal(size=8)
        rows = np.column_stack([80 + 12 * ill, 0.4 + 0.05 * ill, 110 * np.exp(0.2 * ill)])
        rows += rng.normal(size=rows.shape) * [2, 0.01, 5]
        found.append(Trajectory(rows[:, :width].astype(np.float32), (ill > 0).astype(np.int32)))
    return Demonstrations(tuple(found), ("none", "some"), NAMED[:width])


DATA, LATER = stays(250, 1), stays(80, 2)


def policy(data=DATA, network=None):
    width = len(data.observation_names)
    made = Policy(network or probes.network(width, 6, 2), data.observation_names, data.action_names)
    return replace(made, guard=training_guard(data))


@pytest.mark.parametrize("held_out", [LATER, None], ids=["held out", "training"])
def test_absurd_states_are_flagged_and_real_ones_are_not(held_out):
    made = with_measure(policy(), DATA, held_out)
    new = stays(100, 3).flat().observation
    assert (made.percentile(new) > 99).mean() <= 0.02
    for column, instead in ((0, 99_999), (1, 40), (2, 6)):  # absurd, percent, mmol/l
        rows = new.copy()
        rows[:, column] = instead
        assert (made.percentile(rows) > 99).mean() >= 0.99
    record = made.guard.measure.record
    assert record["held_out"] == (held_out is not None)
    assert record["states"] == (640 if held_out else 600)
    assert set(record["measures"]) == set(NAMES)
    kept = record["measures"][made.guard.measure.name]
    assert kept["clean"] <= 0.02
    assert kept["found"]["absurd"] >= 0.99
    assert set(kept["found"]) == set(FAULTS)


def test_the_rates_are_those_that_new_states_show():
    made = with_measure(policy(), DATA, LATER)
    new = stays(200, 4).flat().observation
    made_faulty = faults(new, made.guard)
    kept = made.guard.measure.record["measures"][made.guard.measure.name]
    for kind, (rows, really) in made_faulty.items():
        assert abs((made.percentile(rows[really]) > 99).mean() - kept["found"][kind]) < 0.05
    assert abs((made.percentile(new) > 99).mean() - CLEAN) < 0.01


def test_a_measure_that_is_worse_than_chance_is_called_so():
    """The largest probability grows without end away from the data; a linear network is surest where it knows least."""
    made = with_measure(policy(), DATA, LATER)
    record = made.guard.measure.record
    assert record["measures"]["probability"]["area"] < 0.5
    assert "the largest probability" in (words := sbil.policy.guard_measures.in_words(made.guard.measure))
    assert "worse than chance" in words


def test_every_fault_is_what_it_says():
    rows = LATER.flat().observation
    guard = training_guard(DATA)
    found = faults(rows, guard)
    for kind, factor in (("times 100", 100), ("over 18", 1 / 18)):
        made, really = found[kind]
        moved = made != rows
        assert (moved.sum(axis=1) == 1).all()
        assert really.all()
        np.testing.assert_allclose(made[moved], rows[moved] * factor, rtol=1e-5)
    absurd = found["absurd"][0]
    assert (absurd[absurd != rows] >= 99_999).all()
    swapped = found["swapped"][0]
    np.testing.assert_array_equal(np.sort(swapped, axis=1), np.sort(rows, axis=1))
    assert ((swapped != rows).sum(axis=1) == 2).all()
    assert "swapped" not in faults(rows[:, :1], training_guard(stays(50, 1, width=1)))
    zeros = np.zeros_like(rows)
    assert set(faults(zeros, guard)) == {"absurd"}


def test_the_share_outside_is_that_of_the_held_out_states():
    made = with_measure(policy(), DATA, LATER)
    outside = made.outside(LATER.flat().observation).any(axis=1).mean()
    assert made.guard.measure.record["outside"] == round(float(outside), 3) <= 0.02


def test_the_best_measure_is_the_simplest_of_those_that_find_most():
    def rates(mean, clean=0.01):
        return Rates(clean, {"absurd": mean}, 0.9)

    assert best({"range": rates(0.8), "distance": rates(0.9)}) == "distance"
    assert best({"range": rates(0.895), "distance": rates(0.9)}) == "range"
    assert best({"range": rates(0.7, clean=0.05), "distance": rates(0.6)}) == "distance"
    assert best({"range": rates(0.7, clean=0.05), "energy": rates(0.1)}) == "range"


def test_the_area_is_the_share_of_pairs_in_order():
    assert area(np.array([3.0, 1.0]), np.array([2.0, 0.0])) == 0.75
    assert area(np.array([1.0]), np.array([1.0])) == 0.5


def test_few_states_and_images_choose_nothing():
    few = stays(5, 5)
    made = policy(few)
    assert made.guard is not None
    assert with_measure(made, few) is made
    assert with_measure(made, few, stays(4, 6)) is made
    assert (made.guard.measure.name, made.guard.measure.record) == ("range", {})
    assert (made.percentile(few.flat().observation) > 99).mean() <= 0.05
    bare = replace(made, guard=None)
    assert with_measure(bare, DATA, LATER) is bare


def test_a_network_without_a_finite_answer_leaves_the_other_measures():
    network = probes.table(np.full((3, 2), 3e38, np.float32))
    made = with_measure(policy(network=network), DATA, LATER)
    assert set(made.guard.measure.record["measures"]) == {"range", "mahalanobis", "distance"}


def test_training_records_the_choice():
    report = sbil.train("bc", DATA, updates=20, hidden=(8,), held_out=0.3)
    measure = report.policy.guard.measure
    assert measure.record["held_out"]
    assert sbil.verify(report.policy, DATA).same
    other = replace(report.policy, guard=replace(report.policy.guard, measure=replace(measure, name="energy")))
    assert sbil.verify(other, DATA).same
    wider = replace(report.policy.guard, high=report.policy.guard.high + 1)
    assert sbil.verify(replace(report.policy, guard=wider), DATA).differs == ("guard",)
