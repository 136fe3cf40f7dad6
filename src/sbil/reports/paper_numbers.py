"""The numbers that the EDM paper prints (paper.csv: mean and standard error), for comparison with ours."""

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

from sbil.experiments import Result
from sbil.statistics import estimate

NAMES = {"bc": "BC", "rcal": "RCAL", "dsfn": "DSFN", "value_dice": "ValueDICE", "edm": "EDM"}
METHODS = tuple(NAMES)  # of the paper's table, by our names
COUNTERPARTS = {**{method: method for method in METHODS}, "edm:paper": "edm"}  # our methods that repeat one of these


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


# The versions that the paper ran no longer exist; these are their successors.
SUCCESSORS = {"LunarLander-v3": "LunarLander-v2", "BeamRiderNoFrameskip-v4": "BeamRider-v4"}


def printed(environment: str, size: int, algorithm: str) -> Printed | None:
    """Return what the paper prints for a cell, or None."""
    return _table().get((SUCCESSORS.get(environment, environment), str(size), algorithm))


def printed_metric(dataset: str, metric: str, algorithm: str) -> Printed | None:
    """Return ACC, AUC or APR of a clinical dataset as the paper prints it, or None."""
    return _table().get((dataset, metric, algorithm))


@cache
def printed_returns() -> dict[str, dict[str, str]]:
    """Return the paper's returns of random networks and demonstrators, by our names of the environments."""
    text = resources.files("sbil.reports").joinpath("paper_returns.csv").read_text()
    ours = {theirs: mine for mine, theirs in SUCCESSORS.items()}
    return {ours.get(row["environment"], row["environment"]): row for row in csv.DictReader(text.splitlines())}


def counterpart(result: Result) -> Printed | None:
    """Return the printed cell that a result repeats; None for our variants and for cells with further states."""
    cell = result.cell
    method = COUNTERPARTS.get(str(cell.method))
    if method is None or cell.unlabelled or cell.every_state:
        return None
    return printed(cell.environment, cell.size, method)


def differs(result: Result) -> bool:
    """Return whether a cell is more than two standard errors (ours and the paper's together) from the printed one."""
    theirs = counterpart(result)
    if theirs is None:
        return False
    ours = estimate(result.scores)
    together = (ours.standard_error**2 + theirs.standard_error**2) ** 0.5
    return abs(ours.mean - theirs.mean) > 2 * together
