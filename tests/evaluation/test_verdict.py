"""The verdict: which differences are sure, and in which words they are said."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbil.evaluation.baselines import MAJORITY, PREVIOUS
from sbil.evaluation.decided import Decided
from sbil.evaluation.verdict import LEAST, Verdict, difference

RNG = np.random.default_rng(0)


def method(right, units=40, steps=10, spread=0.05):
    """Gives the action that was taken about this probability; every unit has `steps` decisions."""
    rows = units * steps
    chance = np.clip(right + spread * np.random.default_rng(1).normal(size=rows), 0.01, 0.99)
    return Decided(np.stack([1 - chance, chance], axis=1), np.ones(rows, int), np.repeat(np.arange(units), steps))


def verdict(units=40, **given):
    decided = {name.replace("_", " "): method(right, units) for name, right in given.items()}
    return Verdict.of(decided, "edm", "patient")


def test_better_and_by_how_much():
    found = verdict(majority=0.5, edm=0.8)
    assert found.words.startswith("edm is better than the most frequent action (0.4")
    assert found.words.endswith("In brackets: the difference of log-loss, with its 95 % interval over 40 patients.")
    (one,) = found.differences
    assert one.verdict == "better"
    assert one.log_loss.low < one.log_loss.value < one.log_loss.high < 0
    np.testing.assert_allclose(one.log_loss.value, np.log(0.5 / 0.8), atol=0.02)


def test_worse_than_repeating_the_last_action_must_not_be_deployed():
    words = verdict(majority=0.4, previous_action=0.9, edm=0.7).words
    assert words.startswith("edm is worse than repeating the last action: do not deploy (0.25")
    assert "edm is better than the most frequent action" in words


def test_worse_than_the_most_frequent_action_must_not_be_deployed():
    assert "edm is worse than the most frequent action: do not deploy" in verdict(majority=0.9, edm=0.7).words


def test_worse_than_trees_is_said_without_a_ban():
    words = verdict(majority=0.4, logistic=0.6, trees=0.9, edm=0.7).words
    assert "edm is worse than gradient-boosted trees (" in words
    assert "do not deploy" not in words
    assert "edm is better than the most frequent action (" in words
    assert " and logistic regression (" in words


def test_no_difference_is_not_sure():
    noisy = method(0.7)
    noise = np.random.default_rng(3).permutation(noisy.probabilities[:, 1])
    other = noisy._replace(probabilities=np.stack([1 - noise, noise], axis=1))
    found = Verdict.of({MAJORITY: other, "edm": noisy}, "edm", "patient")
    assert found.differences[0].verdict == "unclear"
    assert found.words.startswith("edm cannot be told from the most frequent action (")


def test_few_units_cannot_tell():
    found = verdict(units=LEAST - 1, majority=0.1, edm=0.9)
    assert found.words == "No verdict: 5 patients, too few to tell which method is better."
    assert found.differences[0].verdict == "unclear"
    assert verdict(units=1, majority=0.1, edm=0.9).words.startswith("No verdict: 1 patient,")
    assert verdict(units=LEAST, majority=0.1, edm=0.9).differences[0].verdict == "better"


def test_decisions_that_were_learned_from_give_no_verdict():
    decided = {MAJORITY: method(0.5), "edm": method(0.9)}
    words = Verdict.of(decided, "edm", "episode", known=True).words
    assert words == "No verdict: the policy was trained on these decisions, or on some of them."


def test_a_gap_between_training_and_new_decisions_is_named():
    decided = {MAJORITY: method(0.5), "edm": method(0.7)}
    words = Verdict.of(decided, "edm", "patient", on_training=0.05).words
    assert "Its log-loss is 0.050 on the decisions that it learned from and 0.3" in words
    assert "does not hold for other patients" in words
    assert "learned from" not in Verdict.of(decided, "edm", "patient", on_training=0.34).words
    assert "learned from" not in Verdict.of(decided, "edm", "patient", on_training=0.9).words


def test_where_no_decision_has_one_before_repeating_it_is_no_method():
    same = method(0.5)
    found = Verdict.of({MAJORITY: same, PREVIOUS: same, "edm": method(0.8)}, "edm", "row")
    assert [one.against for one in found.differences] == [MAJORITY]


def test_the_best_of_several_is_judged():
    decided = {MAJORITY: method(0.5), PREVIOUS: method(0.99), "bc": method(0.6), "edm": method(0.8)}
    found = Verdict.of_best(decided, "patient")
    assert found.words.startswith(
        "Of the methods that learn, edm has the smallest log-loss. edm is worse than repeating"
    )
    assert {one.against for one in found.differences} == {MAJORITY, PREVIOUS, "bc"}


def test_units_are_resampled_whole():
    """One unit with all of the difference is no evidence, however many decisions it has."""
    values = np.concatenate([np.full(1000, -1.0), np.zeros(20)])
    episodes = np.concatenate([np.zeros(1000, int), 1 + np.arange(20)])
    assert not difference("majority", values, episodes).sure
    assert difference("majority", values[:1000], np.arange(1000) % 20).sure


@given(st.integers(2, 30), st.integers(0, 2**16))
def test_a_difference_and_its_opposite_mirror_each_other(units, seed):
    rng = np.random.default_rng(seed)
    values, episodes = rng.normal(rng.normal(), 1, 90), rng.integers(0, units, 90)
    one, other = difference("a", values, episodes), difference("a", -values, episodes)
    assert one.sure == other.sure
    value, low, high = other.log_loss
    np.testing.assert_allclose(one.log_loss, (-value, -high, -low), atol=1e-9)


def test_chance_is_rarely_called_a_difference():
    """Twelve units, no difference: at most one in ten of 300 verdicts is sure."""
    rng = np.random.default_rng(0)
    unit = np.repeat(np.arange(12), 5)
    sure = [difference("a", rng.normal(size=60) + rng.normal(size=12)[unit], unit).sure for _ in range(300)]
    assert np.mean(sure) < 0.1


def test_everything_is_plain_json():
    found = json.loads(json.dumps(verdict(units=1, majority=0.5, edm=0.8).as_json(), allow_nan=False))
    assert found["method"] == "edm"
    assert found["differences"][0]["log_loss"]["low"] is None
    assert found["words"].startswith("No verdict")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_lists_read_as_sentences(count):
    names = ["majority", "logistic", "trees"][:count]
    words = verdict(**dict.fromkeys(names, 0.5), edm=0.8).words
    assert words.count(" and ") == (count > 1)
