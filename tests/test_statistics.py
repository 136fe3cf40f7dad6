"""Statistics against worked numbers, scipy, simulations with a known truth, and properties."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from sbil import statistics
from sbil.statistics import (
    aggregate,
    bootstrap,
    difference,
    estimate,
    estimate_over_splits,
    improvement,
    iqm,
    mean,
    profile,
    ratio,
    sign_flip,
)

few = settings(max_examples=40, deadline=None)
numbers = st.integers(-1000, 1000).map(lambda number: number / 8)  # exact in binary, so that ties stay ties
values = arrays.arrays(np.float64, st.integers(1, 30), elements=numbers)
cells = arrays.arrays(np.float64, (2, 4, 3), elements=numbers)  # two cells of four draws and three initialisations


def trimmed(values: np.ndarray) -> float:
    """What scipy takes for the middle half."""
    return stats.trim_mean(values, 0.25)


def lower_median(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A statistic that the package does not have."""
    order = np.argsort(values)
    ends = np.cumsum(weights[..., order], axis=-1)
    return values[order][(ends < ends[..., -1:] / 2 - 1e-12).sum(axis=-1)]


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


def test_random_signs_never_give_a_p_of_zero():
    """Beyond 20 values the observed signs count as one of the draws, as in Phipson and Smyth (2010)."""
    assert [sign_flip(np.ones(count)) for count in (1, 2, 12, 20)] == [1, 0.5, 2 / 2**12, 2 / 2**20]  # exact
    least = 1 / (statistics.RESAMPLES + 1)
    assert sign_flip(np.ones(30)) == least
    assert sign_flip(np.ones(21)) >= least
    assert sign_flip(np.zeros(30)) == sign_flip(np.zeros(20)) == 1


def test_random_signs_come_near_the_exact_ones(monkeypatch):
    values = np.random.default_rng(1).normal(0.3, 1, 18)
    exact = sign_flip(values)
    monkeypatch.setattr(statistics, "MOST_EXACT", 12)
    assert sign_flip(values) == pytest.approx(exact, abs=0.015)
    assert sign_flip(values) != exact


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
    statistics._counts.cache_clear()
    first = aggregate([scores[None]])
    statistics._counts.cache_clear()
    assert aggregate([scores[None]]) == first


def test_the_middle_half_by_hand():
    assert iqm(np.array([7.0])) == 7
    assert iqm(np.array([1.0, 3.0])) == 2
    assert iqm(np.array([9.0, 1.0, 2.0])) == pytest.approx(
        (1 / 4 * 1 + 2 + 1 / 4 * 9) / 1.5
    )  # a quarter is 3/4 of a value
    assert iqm(np.array([0.0, 10.0, 20.0, 30.0, 1000.0])) == pytest.approx((0.75 * 10 + 20 + 0.75 * 30) / 2.5)
    assert iqm(np.array([1.0, 5.0, 9.0]), np.array([1.0, 2.0, 1.0])) == 5
    assert iqm(np.array([4.0, 0.0]), np.array([1.0, 3.0])) == 0
    np.testing.assert_allclose(iqm(np.array([4.0, 0.0]), np.array([[1.0, 1.0], [3.0, 1.0]])), [2, 4])


@pytest.mark.parametrize("count", [4, 8, 20, 52])
def test_the_middle_half_agrees_with_scipy_where_a_quarter_is_whole(count):
    values = np.random.default_rng(count).normal(size=count)
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))


@few
@given(values, st.integers(-4, 4), st.sampled_from([0.5, 1.0, 4.0]))
def test_the_middle_half_moves_with_its_values(values, shift, scale):
    middle = iqm(values)
    assert values.min() - 1e-9 <= middle <= values.max() + 1e-9
    assert iqm(values * scale + shift) == pytest.approx(middle * scale + shift, abs=1e-9)
    assert iqm(-values) == pytest.approx(-middle, abs=1e-9)
    assert iqm(np.repeat(values, 3)) == pytest.approx(middle, abs=1e-9)
    assert iqm(np.sort(values)) == pytest.approx(middle, abs=1e-9)


@few
@given(values, st.data())
def test_weights_are_repetitions(values, data):
    counts = data.draw(arrays.arrays(np.int64, len(values), elements=st.integers(0, 3)).filter(np.any))
    repeated = np.repeat(values, counts)
    assert iqm(values, counts.astype(float)) == pytest.approx(iqm(repeated), abs=1e-9)
    assert mean(values, counts.astype(float)) == pytest.approx(repeated.mean(), abs=1e-9)


def test_one_cell_has_the_interval_it_always_had():
    scores = np.random.default_rng(0).normal(size=(10, 5))
    assert aggregate([scores[None]], mean) == pytest.approx(tuple(np.delete(estimate(scores), 1)))


@pytest.mark.parametrize(("ours", "theirs", "count"), [(iqm, trimmed, 32), (lower_median, np.median, 33)])
def test_an_aggregate_of_any_kind_agrees_with_scipy(ours, theirs, count):
    """One run per draw. An odd count has one value as its median; a quarter of 32 is a whole number."""
    values = np.random.default_rng(2).gamma(2.0, size=count)
    found = stats.bootstrap((values,), theirs, method="percentile", n_resamples=4000, vectorized=False, rng=1)
    interval = aggregate([values[None, :, None]], ours)
    assert interval.value == pytest.approx(theirs(values))
    assert interval[1:] == pytest.approx(tuple(found.confidence_interval), abs=0.05)


def test_two_strata_against_a_resampling_written_out():
    """A stratum of two cells that share four draws, and one of six draws: whole draws are resampled in each stratum."""
    rng = np.random.default_rng(5)
    first, second = rng.normal(size=(2, 4, 3)), rng.normal(1, 2, size=(1, 6, 1))
    samples = []
    for _ in range(5000):
        one, two = first[:, rng.integers(0, 4, 4)], second[:, rng.integers(0, 6, 6)]
        samples.append((one[0].mean() + one[1].mean() + two[0].mean()) / 3)  # every cell has the same weight
    interval = aggregate([first, second], mean)
    assert interval.value == pytest.approx((first[0].mean() + first[1].mean() + second.mean()) / 3)
    assert interval[1:] == pytest.approx(np.quantile(samples, [0.025, 0.975]), abs=0.04)


@few
@given(cells, st.integers(-4, 4), st.sampled_from([0.5, 2.0]), st.sampled_from([iqm, mean]))
def test_aggregates_lie_among_their_values_and_move_with_them(stratum, shift, scale, statistic):
    interval = aggregate([stratum], statistic)
    assert stratum.min() - 1e-9 <= interval.low <= interval.high <= stratum.max() + 1e-9
    moved = aggregate([stratum * scale + shift], statistic)
    assert moved == pytest.approx(tuple(value * scale + shift for value in interval), abs=1e-8)


@few
@given(cells, cells)
def test_differences_are_paired_and_change_sign(ours, theirs):
    found = difference([ours], [theirs])
    assert found == pytest.approx(tuple(aggregate([ours - theirs], mean)), abs=1e-8)
    back = difference([theirs], [ours])
    assert (back.value, back.low, back.high) == pytest.approx((-found.value, -found.high, -found.low), abs=1e-8)
    assert difference([ours + 2], [ours], iqm) == pytest.approx((2, 2, 2), abs=1e-8)  # what both share cancels


def test_ratios_by_hand_and_against_a_resampling_written_out():
    one, other = np.array([[[1.0], [3.0]], [[8.0], [8.0]]]), np.array([[[4.0], [4.0]], [[2.0], [2.0]]])
    assert ratio([one], [other]).value == pytest.approx((2 / 4 * 8 / 2) ** 0.5)
    assert ratio([one], [other])[1:] == pytest.approx(((1 / 4 * 4) ** 0.5, (3 / 4 * 4) ** 0.5))  # one draw, twice
    rng = np.random.default_rng(6)
    ours, theirs = ([rng.uniform(1, 3, shape) for shape in ((2, 8, 3), (1, 6, 1))] for _ in range(2))
    samples = []
    for _ in range(5000):
        taken = [rng.integers(0, draws, draws) for draws in (8, 6)]
        logs = [
            np.log(x[:, some].mean(axis=(1, 2)) / y[:, some].mean(axis=(1, 2)))
            for x, y, some in zip(ours, theirs, taken, strict=True)
        ]
        samples.append(np.exp(np.concatenate(logs).mean()))
    assert ratio(ours, theirs)[1:] == pytest.approx(np.quantile(samples, [0.025, 0.975]), abs=0.02)
    assert ratio(ours, ours) == pytest.approx((1, 1, 1))


def test_the_probability_of_improvement_by_hand():
    ours, theirs = np.array([[[1.0], [3.0]]]), np.array([[[2.0], [3.0]]])
    # 1 against 2 and 3: none. 3 against 2: won, against 3: half.
    assert improvement([ours], [theirs]).value == 1.5 / 4
    # Taking the second draw alone gives a half, the first alone nothing.
    assert improvement([ours], [theirs])[1:] == (0, 0.5)
    both = improvement([ours, ours + 9], [theirs, theirs])  # a cell of its own, in which every run wins
    assert both.value == pytest.approx((1.5 / 4 + 1) / 2)


def test_the_probability_of_improvement_agrees_with_mann_and_whitney():
    rng = np.random.default_rng(0)
    ours, theirs = rng.integers(0, 9, (3, 10, 5)).astype(float), rng.integers(0, 7, (3, 10, 5)).astype(float)
    expected = [stats.mannwhitneyu(x.ravel(), y.ravel()).statistic / 50**2 for x, y in zip(ours, theirs, strict=True)]
    assert improvement([ours], [theirs]).value == pytest.approx(np.mean(expected))
    assert improvement([ours[:1], ours[1:]], [theirs[:1], theirs[1:]]).value == pytest.approx(np.mean(expected))


@few
@given(cells, cells)
def test_the_probability_of_improvement_is_one_and_the_others_is_what_is_left(ours, theirs):
    found, back = improvement([ours], [theirs]), improvement([theirs], [ours])
    assert 0 <= found.low <= found.high <= 1 + 1e-12
    assert (back.value, back.low, back.high) == pytest.approx((1 - found.value, 1 - found.high, 1 - found.low))
    assert improvement([ours], [ours]) == pytest.approx((0.5, 0.5, 0.5))
    assert improvement([ours * 2 + 1], [theirs * 2 + 1]) == pytest.approx(found)


def test_a_profile_by_hand():
    found = profile([np.array([[[0.0, 0.5], [1.0, 1.0]]])], np.array([-1, 0, 0.5, 0.9, 1]))
    np.testing.assert_allclose(found.share, [1, 3 / 4, 2 / 4, 2 / 4, 0])
    np.testing.assert_allclose(found.low, [1, 1 / 2, 0, 0, 0])  # the first draw twice
    np.testing.assert_allclose(found.high, [1, 1, 1, 1, 0])  # the second draw twice


@few
@given(cells, cells)
def test_profiles_fall_from_one_to_zero(first, second):
    levels = np.linspace(-126, 126, 50)
    found = profile([first, second[:1]], levels)
    for curve in found:
        assert curve[0] == pytest.approx(1)
        assert curve[-1] == pytest.approx(0)
        assert (np.diff(curve) <= 1e-12).all()
    shares = [(cell[..., None] > levels).mean(axis=(0, 1)) for cell in [*first, second[0]]]
    np.testing.assert_allclose(found.share, np.mean(shares, axis=0))


def test_what_cannot_be_resampled_has_no_interval():
    alone = np.array([[[0.25]], [[0.75]]])  # one run in each of two cells
    assert aggregate([alone]).value == 0.5
    pairs = (difference([alone], [alone]), ratio([alone], [alone]), improvement([alone], [alone]))
    for interval in (aggregate([alone]), *pairs):
        assert np.isnan(interval[1:]).all()
    found = profile([alone], np.array([0.5]))
    assert found.share == 0.5
    assert np.isnan([found.low, found.high]).all()
    initialisations = aggregate([np.array([[[0.0, 1.0, 2.0]]])], mean)  # of one draw: they are resampled instead
    assert initialisations == pytest.approx(tuple(np.delete(estimate(np.array([[0.0, 1.0, 2.0]])), 1)))


def covered(count: int, strata: Callable[[np.ndarray], list[np.ndarray]]) -> float:
    """How often the interval of a mean holds 0, the truth, when draws matter more than initialisations do."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(count):
        scores = rng.normal(size=(1, 30, 1)) + 0.5 * rng.normal(size=(3, 30, 5))  # three sizes of the same draws
        interval = aggregate(strata(scores), mean)
        held += interval.low <= 0 <= interval.high
    return held / count


def test_intervals_over_draws_cover_the_truth_and_intervals_over_runs_do_not():
    assert 0.88 <= covered(200, lambda scores: [scores]) <= 0.98
    assert covered(100, lambda scores: [scores[:1].reshape(1, 150, 1)]) < 0.8  # as if every run had its own draw
    assert covered(100, lambda scores: list(scores[:, None])) < 0.8  # as if every cell had draws of its own


def test_rare_failures_break_the_interval_and_not_the_sign_flips():
    """Nine draws in ten score 1 and the tenth 0: why a clear difference needs both."""
    rng = np.random.default_rng(0)
    samples = [(rng.random((2, 10)) < 0.9).astype(float) for _ in range(300)]
    held = [low <= 0.9 <= high for low, high in (statistics.bootstrap(one) for one, _ in samples)]
    assert 0.5 < np.mean(held) < 0.8
    false = [statistics.sign_flip(one - other) < 0.05 for one, other in samples]
    assert np.mean(false) <= 0.05


# Estimates over splits.


def test_an_interval_by_hand():
    """Two splits: variance 0.005; t of one degree of freedom is 12.706; 1/2 + 0.2/0.8 = 3/4."""
    found = estimate_over_splits(np.array([0.8, 0.9]), 0.2)
    assert found.mean == pytest.approx(0.85)
    assert found.standard_error == pytest.approx(0.05)
    assert found.high - found.mean == pytest.approx(12.7062 * (0.005 * 0.75) ** 0.5, rel=1e-5)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)


def test_the_correction_is_that_of_nadeau_and_bengio():
    values = np.random.default_rng(0).normal(size=10)
    found = estimate_over_splits(values, 0.2)
    plain = stats.t.interval(0.95, 9, values.mean(), stats.sem(values))
    assert (found.high - found.low) / (plain[1] - plain[0]) == pytest.approx((1 + 10 * 0.25) ** 0.5)


def test_splits_that_diverged_are_left_out():
    assert estimate_over_splits(np.array([0.8, np.nan, 0.9]), 0.2) == estimate_over_splits(np.array([0.8, 0.9]), 0.2)
    one, none = estimate_over_splits(np.array([0.8, np.nan]), 0.2), estimate_over_splits(np.array([np.nan]), 0.2)
    assert one.mean == 0.8
    assert np.isnan([*one[1:], *none]).all()
