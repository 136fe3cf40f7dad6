"""The accuracy at the decisions of one action, averaged over actions."""

import numpy as np

from sbil.evaluation.areas import sums
from sbil.evaluation.metrics.base import Metric, PreparedDecisions, Under, mean_over_actions


def _recalls(prepared: PreparedDecisions) -> Under:
    """Weights -> [actions, resamples], how often each action was the most probable one where it was taken."""
    actions = prepared.decided.actions
    taken = sums(actions, np.ones(len(actions)), prepared.unit)
    right = sums(actions, prepared.decided.right.astype(np.float64), prepared.unit)

    def under(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return (right(weights) / taken(weights)).T

    return under


METRIC = Metric("balanced accuracy", "higher", mean_over_actions(_recalls))
