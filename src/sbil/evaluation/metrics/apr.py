"""The area under the precision-recall curve (average precision) of one action against the rest, averaged over actions.

If all decisions took one action there is nothing to rank, and unlike in scikit-learn it is not defined.
"""

from sbil.evaluation.metrics.base import Metric, mean_over_actions

METRIC = Metric("APR", "higher", mean_over_actions(lambda prepared: lambda weights: prepared.areas(weights).precision))
