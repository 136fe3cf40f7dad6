"""The area under the ROC curve of one action against the rest, averaged over actions."""

from sbil.evaluation.metrics.base import Metric, mean_over_actions

METRIC = Metric("AUC", "higher", mean_over_actions(lambda prepared: lambda weights: prepared.areas(weights).roc))
