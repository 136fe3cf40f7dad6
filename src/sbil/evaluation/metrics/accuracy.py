"""How often the most probable action is the one that was taken."""

from sbil.evaluation.metrics.base import Metric, mean_over_decisions

METRIC = Metric("accuracy", "higher", mean_over_decisions(lambda decided: decided.right))
