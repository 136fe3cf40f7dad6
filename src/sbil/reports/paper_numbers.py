"""The numbers that the EDM paper prints (paper.csv: mean and standard error), for comparison with ours."""

import csv
from functools import cache
from typing import NamedTuple

from sbil.experiments import Result
from sbil.experiments.environment import played
from sbil.reports.cells import is_ordinary, method_of
from sbil.reports.html import asset
from sbil.statistics import estimate

NAMES = {"bc": "BC", "rcal": "RCAL", "dsfn": "DSFN", "value_dice": "ValueDICE", "edm": "EDM"}
METHODS = tuple(NAMES)  # of the paper's table, by our names
COUNTERPARTS = {**{method: method for method in METHODS}, "edm:paper": "edm"}  # our methods that repeat one of these


class PaperNumber(NamedTuple):
    """A cell of the paper's table."""

    mean: float
    standard_error: float


@cache
def _table() -> dict[tuple[str, str, str], PaperNumber]:
    found = {}
    for row in csv.DictReader(asset("paper.csv").splitlines()):
        place = row["environment"], row["demonstrations_or_metric"], row["algorithm"]
        found[place] = PaperNumber(float(row["mean"]), float(row["standard_error"]))
    return found


# The versions that the paper ran no longer exist; these are their successors.
SUCCESSORS = {"LunarLander-v3": "LunarLander-v2", "BeamRiderNoFrameskip-v4": "BeamRider-v4"}


def printed(task: str, what: int | str, algorithm: str) -> PaperNumber | None:
    """Return what the paper prints of an environment and size, or of a clinical dataset and ACC, AUC or APR."""
    return _table().get((SUCCESSORS.get(task, task), str(what), algorithm))


def counterpart(result: Result) -> PaperNumber | None:
    """Return the printed cell that a result repeats; None for our variants and for cells with further states."""
    cell, method = result.cell, COUNTERPARTS.get(method_of(result))
    return printed(played(cell).environment, cell.size, method) if method and is_ordinary(cell) else None


def differs(result: Result) -> bool:
    """Return whether a cell is more than two standard errors (ours and the paper's together) from the printed one."""
    theirs = counterpart(result)
    if theirs is None:
        return False
    ours = estimate(result.scores)
    together = (ours.standard_error**2 + theirs.standard_error**2) ** 0.5
    return abs(ours.mean - theirs.mean) > 2 * together
