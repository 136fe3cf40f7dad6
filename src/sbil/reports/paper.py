"""What the EDM paper prints, to stand beside what was measured here (paper.csv: mean and standard error)."""

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

from sbil.experiments.cell import Result
from sbil.reports.statistics import estimate

METHODS = ("bc", "rcal", "dsfn", "value_dice", "edm")  # of its table, by our names


class Printed(NamedTuple):
    """A cell of the paper's table."""

    mean: float
    standard_error: float


@cache
def _table() -> dict[tuple[str, str, str], Printed]:
    text = resources.files("sbil.reports").joinpath("paper.csv").read_text()
    rows = csv.DictReader(text.splitlines())
    return {
        (row["environment"], row["demonstrations_or_metric"], row["algorithm"]): Printed(
            float(row["mean"]), float(row["standard_error"])
        )
        for row in rows
    }


def printed(environment: str, size: int, algorithm: str) -> Printed | None:
    """What the paper prints for a cell, if it has it."""
    return _table().get((environment, str(size), algorithm))


def differs(result: Result) -> bool:
    """Whether a cell is more than two standard errors (ours and the paper's together) from the printed one."""
    theirs = printed(result.cell.environment, result.cell.size, result.cell.method.algorithm)
    if theirs is None:
        return False
    ours = estimate(result.scores)
    together = (ours.standard_error**2 + theirs.standard_error**2) ** 0.5
    return abs(ours.mean - theirs.mean) > 2 * together
