"""The mean of -log of the probability of the action taken, clipped by the precision of its type."""

import numpy as np

from sbil.evaluation.decided import Decided
from sbil.evaluation.metrics.base import Metric, mean_over_decisions


def _losses(decided: Decided) -> np.ndarray:
    chance = decided.probabilities[np.arange(len(decided.actions)), decided.actions]
    edge = np.finfo(chance.dtype).eps
    losses: np.ndarray = -np.log(np.clip(chance, edge, 1 - edge).astype(np.float64))
    return losses


METRIC = Metric("log-loss", "lower", mean_over_decisions(_losses))
