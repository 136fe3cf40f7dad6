"""All statistics: intervals of means, paired differences, and resampling by unit.

1. Scores of runs. Runs of one draw share their data, so draws are resampled and not runs.
   Scores of a cell are [draws, initialisations]. Several cells come as strata, [cells, draws, initialisations] each.
   The cells of a stratum share their draws, because a small size uses the first demonstrations of a larger one.
   So every cell of a stratum takes a draw equally often. Different strata are resampled independently.
   All methods see the same resamples, which pairs them.
2. Rows of units: decisions that belong to episodes or patients. Units are resampled, never single rows.
3. Scores over splits of one dataset. The splits share most of their rows, and the interval allows for that.

Resampling is weighting. A resample says how often each unit was taken; a statistic is a function of values [n] and
weights [..., n].
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv, stdtrit

LEVEL = 0.95
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
RESAMPLES = 10_000  # of draws
RESAMPLES_OF_TWO = 1000  # of two kinds of units at once
MOST_EXACT = 20  # values at most, if every choice of their signs is tried
RUNS_AT_ONCE = 2**16  # weights of runs held in memory at once
ROWS_AT_ONCE = 2**19  # weights of rows held in memory at once
WORK = 2**30  # weights of rows computed for one set of intervals: half a minute
FEWEST = 100  # resamples of rows, however many rows there are

Statistic = Callable[[np.ndarray, np.ndarray], Any]


class Estimate(NamedTuple):
    """A mean, its standard error as the paper prints it, and a 95 % interval."""

    mean: float
    standard_error: float
    low: float
    high: float


class Interval(NamedTuple):
    """A statistic and its 95 % interval. The ends are NaN if a single unit leaves nothing to resample."""

    value: float
    low: float
    high: float

    def as_json(self) -> dict[str, float | None]:
        """Return plain values; NaN and infinity become None."""
        return {name: value if math.isfinite(value) else None for name, value in self._asdict().items()}


class Profile(NamedTuple):
    """The share of runs above each of several scores [scores], and its pointwise 95 % band."""

    share: np.ndarray
    low: np.ndarray
    high: np.ndarray


def estimate(scores: np.ndarray) -> Estimate:
    """Estimate the mean of scores [draws, initialisations].

    The standard error treats runs as independent, as the paper does. The interval is a percentile bootstrap over
    draws; all initialisations of a draw stay together. A single draw has its initialisations resampled instead.
    The interval is a little narrow for few draws: with 10 draws it holds the true mean in 90 % of cases, with 30 draws
    in about 93 % (normal scores). It is far too narrow if nearly all draws score alike and a rare one fails.
    So the verdict on a difference also needs `sign_flip`.
    """
    scores = np.asarray(scores, np.float64)
    groups = scores.mean(axis=1) if len(scores) > 1 else scores[0]
    error = scores.std(ddof=1) / np.sqrt(scores.size) if scores.size > 1 else math.nan
    return Estimate(float(scores.mean()), float(error), *(bootstrap(groups) if len(groups) > 1 else [math.nan] * 2))


def estimate_over_splits(values: np.ndarray, held_out: float) -> Estimate:
    """Estimate the mean over random splits of one dataset; `held_out` is the share that each split holds out.

    NaN values (training diverged) are left out. The standard error says how much another split would change a number.
    The interval is the corrected resampled t interval (Nadeau and Bengio 2003, "Inference for the generalization
    error"): with J splits, the variance of the mean is (1/J + held-out / learning) times the variance between splits.
    """
    known = values[~np.isnan(values)]
    count = len(known)
    if count < 2:
        return Estimate(float(known[0]) if count else math.nan, *[math.nan] * 3)
    mean, variance = float(known.mean()), float(known.var(ddof=1))
    reach = float(stdtrit(count - 1, TAILS[1])) * (variance * (1 / count + held_out / (1 - held_out))) ** 0.5
    return Estimate(mean, (variance / count) ** 0.5, mean - reach, mean + reach)


def sign_flip(values: np.ndarray) -> float:
    """Return the two-sided p of a mean: how often random signs give a mean as far from zero as the observed one.

    The test is exact for up to 20 values. Beyond 20, the observed signs count as one of the random choices, so that
    p is never 0. A few values cannot give a small p, whatever their interval.
    """
    if len(values) <= MOST_EXACT:
        first, second = np.array_split(np.asarray(values, float), 2)
        sums = np.add.outer(_every_sign(first), _every_sign(second))
    else:
        signs = np.random.default_rng(0).choice([-1, 1], (RESAMPLES, len(values)))
        sums = np.append(signs @ values, values.sum())
    return float((np.abs(sums) >= np.abs(values.sum()) - 1e-12).mean())


def _every_sign(values: np.ndarray) -> np.ndarray:
    """Return the sums of values for every choice of their signs."""
    signs = 1 - 2 * ((np.arange(2 ** len(values))[:, None] >> np.arange(len(values))) & 1)
    return signs @ values


def bootstrap(values: np.ndarray) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean of independent values. The seed is fixed."""
    chosen = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[chosen].mean(axis=1), TAILS)
    return float(low), float(high)


def means_over_both(values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return resampled means of values [units, others]: both kinds of units are drawn with replacement."""
    units, others = (random.integers(0, size, (RESAMPLES_OF_TWO, size)) for size in values.shape)
    means: np.ndarray = values[units[:, :, None], others[:, None, :]].mean(axis=(1, 2))
    return means


def least_share(hits: float, count: int, chance: float) -> float:
    """Return the smallest share that a count of hits agrees with: fewer hits are not rarer than `chance` (exact)."""
    return float(betaincinv(hits, count - hits + 1, chance)) if hits else 0.0


def mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mean of values [n] under weights [..., n]."""
    return weights @ values / weights.sum(axis=-1)


def iqm(values: np.ndarray, weights: np.ndarray | None = None) -> Any:
    """Return the interquartile mean: the mean of the middle half of values [n], under weights [..., n] if given.

    A few failed runs move it less than the mean. It is steadier than the median, which rests on one or two runs.
    A value on a quartile counts with the part of its weight that lies inside, so any number of values will do.
    """
    values = np.asarray(values, np.float64).ravel()
    weights = np.ones(len(values)) if weights is None else weights
    order = np.argsort(values, kind="stable")
    values, ends = values[order], np.cumsum(weights.take(order, axis=-1), axis=-1)
    total = ends[..., -1]
    # Sum by parts: each value times its weight inside the quartiles.
    inside = np.clip(ends[..., :-1], total[..., None] / 4, 3 * total[..., None] / 4)
    return ((3 * values[-1] - values[0]) * total / 4 - inside @ np.diff(values)) / (total / 2)


def aggregate(strata: Sequence[np.ndarray], statistic: Statistic = iqm) -> Interval:
    """Return a statistic of all runs of several cells and its interval. Every cell has the same weight."""
    return interval(*_resampled(strata, statistic), _fewest_draws(strata))


def difference(strata: Sequence[np.ndarray], baseline: Sequence[np.ndarray], statistic: Statistic = mean) -> Interval:
    """Return a statistic of one method minus that of a baseline in the same cells, on the same resampled draws.

    A draw that is easy or hard for both methods cancels, so the interval is narrower than two separate ones suggest.
    """
    ours, theirs = _resampled(strata, statistic), _resampled(baseline, statistic)
    return interval(ours[0] - theirs[0], ours[1] - theirs[1], _fewest_draws(strata))


def ratio(strata: Sequence[np.ndarray], baseline: Sequence[np.ndarray]) -> Interval:
    """Return the geometric mean over cells of (mean of a method / mean of a baseline), on the same resampled draws."""
    cells = sum(map(len, strata))
    value, samples = 0.0, np.zeros(RESAMPLES)
    for number, pair in enumerate(zip(strata, baseline, strict=True)):
        ours, theirs = (_by_draw(stratum).mean(axis=2) for stratum in pair)  # [cells, draws]
        taken = _counts(ours.shape[1], number)
        value += np.log(ours.mean(axis=1) / theirs.mean(axis=1)).sum() / cells
        samples += np.log((taken @ ours.T) / (taken @ theirs.T)).sum(axis=1) / cells
    return interval(np.exp(value), np.exp(samples), _fewest_draws(strata))


def improvement(strata: Sequence[np.ndarray], baseline: Sequence[np.ndarray]) -> Interval:
    """Return the probability that a run of one method beats a run of a baseline, P(X > Y) + P(X = Y) / 2.

    This is the mean over all pairs of runs of a cell (the U of Mann and Whitney, divided by their number), averaged
    over cells. It says how often a method wins and not by how much. The scale of the scores does not matter.
    """
    cells = sum(map(len, strata))
    value, samples = 0.0, np.zeros(RESAMPLES)
    for number, (ours, theirs) in enumerate(zip(strata, baseline, strict=True)):
        x, y = _by_draw(ours)[..., None, None], _by_draw(theirs)[:, None, None]
        won = ((x > y) + (x == y) / 2).mean(axis=(2, 4)).sum(axis=0) / cells  # [draws of x, draws of y]
        taken = _counts(len(won), number) / len(won)
        value += won.mean()
        samples += ((taken @ won) * taken).sum(axis=1)
    return interval(value, samples, _fewest_draws(strata))


def profile(strata: Sequence[np.ndarray], scores: np.ndarray) -> Profile:
    """Return the performance profile: the share of runs that score above each of `scores`. Cells weigh the same.

    It shows the whole distribution. A mean cannot tell a method that often succeeds and sometimes fails from one that
    is always mediocre; the profile can.
    """
    cells = sum(map(len, strata))
    share, samples = np.zeros(len(scores)), np.zeros((RESAMPLES, len(scores)))
    for number, stratum in enumerate(strata):
        above = (_by_draw(stratum)[..., None] > scores).mean(axis=2).sum(axis=0) / cells  # [draws, scores]
        share += above.mean(axis=0)
        samples += _counts(len(above), number) @ above / len(above)
    low, high = np.quantile(samples if _fewest_draws(strata) > 1 else samples * np.nan, TAILS, axis=0)
    return Profile(share, low, high)


def quartiles(values: np.ndarray) -> np.ndarray:
    """Return the quartiles [3, points] of values [runs, points] over the runs with a finite value; NaN without one."""
    values = np.where(np.isfinite(values), values, np.nan)
    known = ~np.isnan(values).all(axis=0)
    found = np.full((3, len(known)), np.nan)
    found[:, known] = np.nanquantile(values[:, known], (0.25, 0.5, 0.75), axis=0)
    return found


def interval(value: Any, resampled: np.ndarray, units: int) -> Interval:
    """Return a value and the middle 95 % of its resamples. Resamples in which it is undefined (NaN) do not count."""
    known = resampled[~np.isnan(resampled)]
    if units < 2 or not len(known) or np.isnan(value):
        return Interval(float(value), math.nan, math.nan)
    low, high = np.quantile(known, TAILS)
    return Interval(float(value), float(low), float(high))


def _resampled(strata: Sequence[np.ndarray], statistic: Statistic) -> tuple[Any, np.ndarray]:
    """Return (the statistic, the statistic of each resample)."""
    groups = [_by_draw(stratum) for stratum in strata]
    values = np.concatenate([group.ravel() for group in groups])
    firsts = np.cumsum([0, *(group.shape[1] for group in groups)])
    numbers = [np.arange(first, last)[:, None] for first, last in pairwise(firsts)]
    draws = np.concatenate([np.broadcast_to(n, g.shape).ravel() for n, g in zip(numbers, groups, strict=True)])
    shares = np.concatenate([np.full(g.shape[1], 1 / g[0].size) for g in groups])  # of one run in its cell, by draw
    value = statistic(values, shares[draws])
    if _fewest_draws(strata) < 2:
        return value, np.full(RESAMPLES, np.nan)
    taken = shares * np.concatenate([_counts(g.shape[1], number) for number, g in enumerate(groups)], axis=1)
    step = max(RUNS_AT_ONCE // len(values), 1)
    blocks = (taken[start : start + step].take(draws, axis=1) for start in range(0, RESAMPLES, step))
    return value, np.concatenate([statistic(values, weights) for weights in blocks])


def _by_draw(stratum: np.ndarray) -> np.ndarray:
    """Return [cells, draws, initialisations]. The initialisations of a single draw stand in for draws."""
    stratum = np.asarray(stratum, np.float64)
    return stratum.swapaxes(1, 2) if stratum.shape[1] == 1 else stratum


def _fewest_draws(strata: Sequence[np.ndarray]) -> int:
    """Return how many units the smallest stratum has; with 1 there is nothing to resample."""
    return min(_by_draw(stratum).shape[1] for stratum in strata)


@lru_cache(maxsize=64)
def _counts(draws: int, number: int) -> np.ndarray:
    """[resamples, draws], how often each draw of a stratum is taken. The number of the stratum is the seed."""
    return _tally(np.random.default_rng(number).integers(0, draws, (RESAMPLES, draws)))


def _tally(chosen: np.ndarray) -> np.ndarray:
    """Count how often each of n units was taken: [resamples, n] numbers below n -> [resamples, n] counts."""
    count, units = chosen.shape
    places = chosen + units * np.arange(count)[:, None]
    return np.bincount(places.ravel(), minlength=count * units).reshape(count, units).astype(np.float64)


def evenly(count: int, most: int) -> np.ndarray:
    """Return at most `most` of the numbers below `count`, evenly spaced, the last one included."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def numbered(units: np.ndarray) -> tuple[np.ndarray, int]:
    """Number the units of rows [n] from 0; return the numbers and how many units there are."""
    names, numbers = np.unique(units, return_inverse=True)
    return numbers.astype(np.int32), len(names)


def affordable(resamples: int, rows: int, passes: int) -> int:
    """Return how many resamples to draw: fewer if `rows` that are read `passes` times each would take too long."""
    return min(resamples, max(WORK // (rows * passes), FEWEST))


def unit_counts(units: int, resamples: int, rows: int, seed: int) -> Iterator[np.ndarray]:
    """Yield [resamples, units], how often each unit is taken, in blocks whose weights of `rows` fit into memory."""
    rng, most = np.random.default_rng(seed), max(ROWS_AT_ONCE // max(rows, units), 1)
    for start in range(0, resamples, most):
        yield _tally(rng.integers(units, size=(min(most, resamples - start), units)))
