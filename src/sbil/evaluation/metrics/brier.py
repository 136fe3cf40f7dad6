"""The Brier score: the sum over actions of squared errors, from 0 to 2, averaged over decisions."""

import numpy as np

from sbil.evaluation.decided import Decided
from sbil.evaluation.metrics.base import Metric, mean_over_decisions


def _squares(decided: Decided) -> np.ndarray:
    probabilities = decided.probabilities
    chance = probabilities[np.arange(len(decided.actions)), decided.actions]
    squares: np.ndarray = np.einsum("ij,ij->i", probabilities, probabilities, dtype=np.float64) - 2.0 * chance + 1
    return squares


METRIC = Metric("Brier", "lower", mean_over_decisions(_squares))
