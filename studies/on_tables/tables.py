"""The tables of the study, from the lines of its file."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sbil.evaluation.baselines import PREVIOUS
from sbil.statistics import estimate_over_splits
from sbil.text import markdown_table
from studies.pages import bold

COLUMNS = ("cell", "seed", "method", "log_loss", "auc", "ece", "decisions")
AUTO = "auto"
LEARNERS = (AUTO, "table_network", "trees", "logistic", "bc", "edm")
METHODS = (*LEARNERS, "gradient boosting", "regression", PREVIOUS)  # those with spaces have scikit-learn's defaults
SHARE = 0.3  # of the units is held out

Line = dict[str, str]


def rows(path: Path) -> list[Line]:
    """Return the lines of the file; none if there is no file."""
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def table(lines: Sequence[Line], metric: str) -> str:
    """Return a metric, one row per cell; bold where a method is clearly better or worse than `auto`."""
    cells = dict.fromkeys(line["cell"] for line in lines)
    printed = [["table", "seeds", *METHODS]]
    for cell in cells:
        own = values(lines, cell, AUTO, metric)
        found = [shown(values(lines, cell, method, metric), own) for method in METHODS]
        printed.append([cell, str(len(own)), *found])
    return markdown_table(printed, numbers=True)


def values(lines: Sequence[Line], cell: str, method: str, metric: str) -> dict[str, float]:
    """Return a metric of a method on a cell by seed."""
    return {line["seed"]: float(line[metric]) for line in lines if (line["cell"], line["method"]) == (cell, method)}


def shown(own: dict[str, float], auto: dict[str, float]) -> str:
    """Return the mean over seeds; bold if the 95 % interval of the paired differences from `auto` excludes 0.

    The interval is the corrected one for overlapping splits.
    """
    if not own:
        return "-"
    both = sorted(own.keys() & auto.keys())
    apart = estimate_over_splits(np.array([own[seed] - auto[seed] for seed in both]), SHARE)
    return bold(f"{np.mean(list(own.values())):.3f}", apart.low > 0 or apart.high < 0)
