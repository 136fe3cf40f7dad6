"""Statistics against worked numbers and scipy."""

import numpy as np
import pytest
from scipy import stats

from sbil.reports.statistics import bootstrap, estimate


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


def test_one_draw_and_one_run():
    several = estimate(np.array([[0.0, 1.0, 2.0]]))
    assert several.low < several.mean < several.high
    alone = estimate(np.array([[0.5]]))
    assert alone.mean == 0.5
    assert np.isnan([alone.standard_error, alone.low, alone.high]).all()


def test_equal_scores_give_equal_intervals():
    scores = np.random.default_rng(3).normal(size=(10, 5))
    assert estimate(scores) == estimate(scores.copy())
