"""The expected calibration error of the most probable action, in 15 bins of equal width."""

import numpy as np

from sbil.evaluation.areas import sums
from sbil.evaluation.metrics.base import Metric, PreparedDecisions, Under

BINS = 15


def bins_of(confidence: np.ndarray, bins: int) -> np.ndarray:
    """[n] the bin of each probability among `bins` of equal width; an edge belongs to the bin above it."""
    return np.minimum((confidence * bins).astype(np.int32), bins - 1)


def _prepare(prepared: PreparedDecisions) -> Under:
    confidence = prepared.decided.probabilities.max(axis=1).astype(np.float64)
    gaps = sums(bins_of(confidence, BINS), confidence - prepared.decided.right, prepared.unit)

    def under(weights: np.ndarray) -> np.ndarray:
        error: np.ndarray = np.abs(gaps(weights)).sum(axis=1) / (weights @ prepared.decisions)
        return error

    return under


METRIC = Metric("ECE", "lower", _prepare)
