"""The metrics of matching, one file per metric: the name of the file is the name of the metric.

A file that holds a `METRIC` is found here, and its metric appears in every table, card and JSON. Actions that were
never taken are left out of averages over actions; a metric that is not defined is NaN.
"""

from importlib import import_module
from pkgutil import iter_modules

from sbil.evaluation.metrics.base import Metric

FIRST = ("accuracy", "balanced_accuracy", "auc", "apr", "log_loss", "brier", "ece")  # the order of the columns


def _found() -> dict[str, Metric]:
    others = {module.name for module in iter_modules(__path__)} - {"base", *FIRST}
    return {name: import_module(f"{__name__}.{name}").METRIC for name in (*FIRST, *sorted(others))}


METRICS = _found()
