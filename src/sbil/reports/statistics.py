"""Statistics of scores. The sample is the runs, and runs of one draw share their data: draws are resampled."""

from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
LEVEL = 0.95


class Estimate(NamedTuple):
    """A mean over runs, its standard error as the paper prints it, and a 95 % interval."""

    mean: float
    standard_error: float
    low: float
    high: float


def estimate(scores: np.ndarray) -> Estimate:
    """Of scores [draws, initialisations]; with a single draw the initialisations are resampled instead.

    The standard error treats runs as independent, as the paper does. The interval is a percentile bootstrap
    that resamples draws, all initialisations of a draw together.
    """
    scores = np.asarray(scores, np.float64)
    groups = scores.mean(axis=1) if len(scores) > 1 else scores[0]
    error = scores.std(ddof=1) / np.sqrt(scores.size) if scores.size > 1 else float("nan")
    low, high = bootstrap(groups) if len(groups) > 1 else (float("nan"), float("nan"))
    return Estimate(float(scores.mean()), float(error), low, high)


def sign_flip(values: np.ndarray) -> float:
    """Two-sided p of a mean difference: how often random signs give a mean as far from zero as the one seen.

    Exact for up to 12 values. Few values that differ from zero cannot give a small p, whatever their interval.
    """
    count = len(values)
    if count <= 12:
        signs = 1 - 2 * ((np.arange(2**count)[:, None] >> np.arange(count)) & 1)
    else:
        signs = np.random.default_rng(0).choice([-1, 1], (RESAMPLES, count))
    means = np.abs(signs @ values)
    return float((means >= np.abs(values.sum()) - 1e-12).mean())


def bootstrap(values: np.ndarray) -> tuple[float, float]:
    """The 95 % percentile interval of the mean of independent values; the same values, the same interval."""
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, len(values), (RESAMPLES, len(values)))
    means = values[chosen].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
