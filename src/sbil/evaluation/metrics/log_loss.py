"""The mean of -log of the probability of the action taken, clipped by the precision of its type."""

import numpy as np

from sbil.evaluation.decided import Decided
from sbil.evaluation.metrics.base import Metric, mean_over_decisions


def losses(decided: Decided) -> np.ndarray:
    """[n] -log of the probability of the action taken."""
    chance = decided.probabilities[np.arange(len(decided.actions)), decided.actions]
    edge = np.finfo(chance.dtype).eps
    found: np.ndarray = -np.log(np.clip(chance, edge, 1 - edge).astype(np.float64))
    return found


METRIC = Metric("log-loss", "lower", mean_over_decisions(losses))
