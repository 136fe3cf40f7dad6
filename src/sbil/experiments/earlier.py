"""Tables of version 0.1.0: one file per method, one row per split. The same call of `sbil reproduce` takes them up."""

from pathlib import Path

import numpy as np
import polars as pl

from sbil.algorithms import settings_of
from sbil.evaluation.matching import METRICS
from sbil.experiments.cell import Cell
from sbil.experiments.result import Result
from sbil.experiments.table import TableTask, mark, slug
from sbil.version import MADE_BY

COLUMNS = {"dataset", "method", "seed", "run", *METRICS}
SIZES = ("trajectories", "held_out_trajectories", "held_out_decisions")


def is_earlier(table: pl.DataFrame) -> bool:
    """Whether a table is one of these."""
    return "fingerprint" not in table.columns and set(table.columns) >= COLUMNS


def path_of(folder: Path, cell: Cell) -> Path | None:
    """Where version 0.1.0 kept the method of a cell of a table."""
    if not isinstance(cell.task, TableTask):
        return None
    return folder / cell.task.place / f"{slug(cell.task.title)}.{slug(str(cell.method))}.parquet"


def result_in(table: pl.DataFrame, cell: Cell) -> Result | None:
    """The result of a cell, if all its runs are in the table, and of the same data and settings."""
    assert isinstance(cell.task, TableTask)
    metrics = [*METRICS, *(metric for metric, _ in cell.task.played), *SIZES]
    rows = {row["run"]: row for row in table.rows(named=True)}
    marks = [_mark_of(cell, cell.task, draw) for draw, _ in cell.runs]
    if not rows.keys() >= set(marks) or not set(table.columns) >= set(metrics):
        return None
    values = {name: np.array([rows[mark][name] for mark in marks], np.float64) for name in metrics}
    return Result(
        cell,
        np.zeros((len(marks), 0)),
        cell.task.scale,
        np.where(np.isnan(values["accuracy"]), cell.updates, -1),
        seconds={"training": float(sum(rows[mark]["seconds"] for mark in marks))},
        made_by={"sbil": "0.1.0"},
        fingerprint=cell.fingerprint,
        metrics=values,
    )


def _mark_of(cell: Cell, task: TableTask, draw: int) -> str:
    """The name that version 0.1.0 gave to a run."""
    trained = [part for config in cell.candidates.values() for part in (cell.updates, settings_of(config))]
    way = [*([] if task.standardise else ["as they are"]), *([task.process] if task.process else [])]
    asked = [task.origin, str(cell.method), *trained, task.held_out, *way]
    return mark([MADE_BY, *asked, task.seed + draw])
