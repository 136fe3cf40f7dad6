"""Statistics against worked numbers and scipy."""

import numpy as np
import pytest
from scipy import stats

from sbil.reports.statistics import bootstrap, estimate, sign_flip


def test_mean_and_standard_error_by_hand():
    value = estimate(np.array([[1.0, 2.0], [3.0, 6.0]]))
    assert value.mean == 3.0
    assert value.standard_error == pytest.approx(np.sqrt(14 / 3) / 2)  # squares around 3: 4 + 1 + 0 + 9


def test_bootstrap_agrees_with_scipy():
    values = np.random.default_rng(1).gamma(2.0, size=30)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=20_000, rng=2).confidence_interval
    assert bootstrap(values) == pytest.approx(tuple(theirs), abs=0.03)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = [low <= 0 <= high for low, high in (bootstrap(rng.normal(size=20)) for _ in range(300))]
    assert 0.88 <= np.mean(covered) <= 0.98


def test_runs_of_one_draw_are_not_counted_as_independent():
    draws = np.random.default_rng(0).normal(size=(10, 1))
    copies = np.repeat(draws, 5, axis=1)  # five identical initialisations tell nothing new
    assert estimate(copies)[2:] == pytest.approx(estimate(draws)[2:])
    assert estimate(copies).standard_error < estimate(draws).standard_error  # as the paper's formula has it


def test_sign_flips_by_hand_and_against_scipy():
    assert sign_flip(np.array([1.0, 2.0, 4.0])) == 2 / 8  # only all plus and all minus are as far from zero
    assert sign_flip(np.zeros(5)) == 1
    values = np.random.default_rng(0).normal(0.5, 1, 11)
    theirs = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert sign_flip(values) == pytest.approx(theirs)
    many = np.random.default_rng(0).normal(0.2, 1, 50)
    assert sign_flip(many) == pytest.approx(stats.ttest_1samp(many, 0).pvalue, abs=0.02)


def test_a_few_large_values_are_not_a_clear_difference():
    values = np.array([0, 0, 0, 0, 0, 0, 0, 0.03, 0.43, 0.68])
    assert bootstrap(values)[0] >= 0  # the interval alone would let it pass
    assert sign_flip(values) > 0.05


def test_one_draw_and_one_run():
    several = estimate(np.array([[0.0, 1.0, 2.0]]))
    assert several.low < several.mean < several.high
    alone = estimate(np.array([[0.5]]))
    assert alone.mean == 0.5
    assert np.isnan([alone.standard_error, alone.low, alone.high]).all()


def test_equal_scores_give_equal_intervals():
    scores = np.random.default_rng(3).normal(size=(10, 5))
    assert estimate(scores) == estimate(scores.copy())
