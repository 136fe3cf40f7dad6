"""Tables of an older sbil: a file per method, a row per split. The same call of `sbil reproduce` takes them up."""

from pathlib import Path

import numpy as np
import polars as pl

from sbil.algorithms import settings_of
from sbil.evaluation.matching import METRICS
from sbil.experiments.result import Result
from sbil.experiments.table import TableTask, mark, slug
from sbil.experiments.task import Cell
from sbil.version import MADE_BY

COUNTS = ("trajectories", "held_out_trajectories", "held_out_decisions")


def is_earlier(table: pl.DataFrame) -> bool:
    """Whether a table is one of these."""
    return "fingerprint" not in table.columns and {"dataset", "method", "seed", "run"} <= {*table.columns}


def path_of(folder: Path, cell: Cell) -> Path | None:
    """Where the method of a cell of a table was kept."""
    task = cell.task
    return folder / task.place / f"{slug(task.setting)}.{slug(str(cell.method))}.parquet" if task.place else None


def result_in(table: pl.DataFrame, cell: Cell) -> Result | None:
    """The result of a cell, if all its runs are in the table, and of the same data and settings."""
    task = cell.task
    assert isinstance(task, TableTask)
    rows = pl.DataFrame({"run": _marks_of(cell, task)}).join(table, on="run", how="inner", maintain_order="left")
    names = [*METRICS, *dict(task.played), *COUNTS]
    if len(rows) < len(cell.runs) or not {*names} <= {*rows.columns}:
        return None
    metrics = {name: rows[name].cast(pl.Float64).to_numpy() for name in names}
    return Result(
        cell,
        np.zeros((len(rows), 0)),
        task.scale,
        np.where(np.isnan(metrics["accuracy"]), cell.updates, -1),
        seconds={"training": float(rows["seconds"].sum())},
        made_by={"sbil": MADE_BY},
        fingerprint=cell.fingerprint,
        metrics=metrics,
    )


def _marks_of(cell: Cell, task: TableTask) -> list[str]:
    """The names that its runs had."""
    trained = [part for config in cell.candidates.values() for part in (cell.updates, settings_of(config))]
    way = [*([] if task.standardise else ["as they are"]), *([task.process] if task.process else [])]
    asked = [MADE_BY, task.origin, str(cell.method), *trained, task.held_out, *way]
    return [mark([*asked, task.seed + draw]) for draw, _ in cell.runs]
