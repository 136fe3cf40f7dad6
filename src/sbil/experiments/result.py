"""What a cell gave, and its table: one row per run, in a file of one cell or of many."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from sbil.errors import UserError
from sbil.experiments.methods import Method
from sbil.experiments.task import NUMBERS, Cell, Task

DIAGNOSTIC = "metric_"  # the columns of training diagnostics start with this
SECONDS = ("selection", "training", "evaluation")
CELL_COLUMNS: dict[str, Any] = {"method": pl.String, **dict.fromkeys(NUMBERS, pl.Int32)}  # after those of the task
RUN_COLUMNS: dict[str, Any] = {
    "fingerprint": pl.String,  # of the cell
    "draw": pl.Int32,
    "initialisation": pl.Int32,
    "settings": pl.String,  # the hyper-parameters of the run, as JSON
    "chosen": pl.String,  # those it chose on its own held-out demonstrations, if it had a choice
    "returns": pl.List(pl.Float32),  # raw, one per episode
    "return": pl.Float64,  # their mean
    "score": pl.Float64,  # `Result.scores`
    "random_return": pl.Float64,
    "demonstrator_return": pl.Float64,
    "diverged_at": pl.Int32,  # the update at which the run was given up; null if it stayed sound
    "points": pl.List(pl.Int32),  # updates done at each entry of the diagnostics
    **{f"{name}_seconds": pl.Float64 for name in SECONDS},  # the run's share of the cell's
    "made_by": pl.String,  # versions, device and commit, as JSON
}


@dataclass(frozen=True)
class Result:
    """What a cell gave; one entry per run, in the order of `cell.runs`."""

    cell: Cell
    returns: np.ndarray  # [runs, episodes], raw; no episodes if the policies did not play
    scale: tuple[float, float]  # the returns of a random network and of the demonstrator
    diverged_at: np.ndarray  # [runs], -1 if the run stayed sound
    curves: dict[str, np.ndarray] = field(default_factory=dict)  # [runs, points], diagnostics along the training
    points: np.ndarray = field(default_factory=lambda: np.array([], int))  # [points], updates done at each
    settings: tuple[str, ...] = ()  # [runs], hyper-parameters as JSON
    chosen: tuple[str, ...] = ()  # [runs], what each run chose, as name=value; empty if there was no choice
    seconds: dict[str, float] = field(default_factory=dict)  # of the whole cell
    made_by: dict[str, Any] = field(default_factory=dict)  # versions, device, commit
    fingerprint: str = ""
    metrics: dict[str, np.ndarray] = field(default_factory=dict)  # [runs], everything else that the task measured

    @property
    def scores(self) -> np.ndarray:
        """[draws, initialisations], the number by which runs are compared first.

        That is the mean return, scaled so that random is 0 and the demonstrator is 1; without returns the accuracy.
        """
        low, high = self.scale
        scores = (self.returns.mean(axis=1) - low) / (high - low) if self.returns.size else self.metrics["accuracy"]
        return scores.reshape(self.cell.draws, self.cell.initialisations)

    @property
    def diverged(self) -> int:
        return int((self.diverged_at >= 0).sum())

    def without_episodes(self) -> "Result":
        """The same with one mean return per run: all that a report needs, in little memory."""
        return replace(self, returns=self.returns.mean(axis=1, keepdims=True)) if self.returns.size else self

    def summary(self) -> "Result":
        """The same with one mean return per run and no diagnostics: all that a table needs."""
        return replace(self.without_episodes(), curves={}, points=np.array([], int), settings=())

    def table(self) -> pl.DataFrame:
        """One row per run."""
        schema = {
            **self.cell.task.columns(),
            **CELL_COLUMNS,
            **RUN_COLUMNS,
            **{f"{DIAGNOSTIC}{name}": pl.List(pl.Float32) for name in sorted(self.curves)},
            **{name: pl.Float64 for name in sorted(self.metrics)},
        }
        return pl.DataFrame({**self._shared_columns(), **self._run_columns()}, schema=schema)

    def _shared_columns(self) -> dict[str, list[Any]]:
        """The columns that have the same value for every run."""
        cell, count = self.cell, len(self.cell.runs)
        low, high = self.scale
        values: dict[str, Any] = {
            **cell.task.as_row(),
            "method": str(cell.method),
            **cell.numbers,
            "fingerprint": self.fingerprint,
            "random_return": low,
            "demonstrator_return": high,
            "points": self.points.astype(np.int32),
            **{f"{name}_seconds": self.seconds.get(name, math.nan) / count for name in SECONDS},
            "made_by": json.dumps(self.made_by, sort_keys=True),
        }
        return {name: [value] * count for name, value in values.items()}

    def _run_columns(self) -> dict[str, Any]:
        """The columns with a value per run."""
        count = len(self.cell.runs)
        played = self.returns.size > 0
        return {
            "draw": [draw for draw, _ in self.cell.runs],
            "initialisation": [i for _, i in self.cell.runs],
            "settings": list(self.settings) or [None] * count,
            "chosen": list(self.chosen) or [None] * count,
            "returns": list(self.returns.astype(np.float32)),
            "return": self.returns.mean(axis=1) if played else [None] * count,
            "score": self.scores.ravel(),
            "diverged_at": [int(at) if at >= 0 else None for at in self.diverged_at],
            **{f"{DIAGNOSTIC}{name}": list(values.astype(np.float32)) for name, values in self.curves.items()},
            **self.metrics,
        }


def results_in(table: pl.DataFrame) -> Iterator[Result]:
    """The cells of a table with one row per run, in the order in which they stand."""
    of_tasks = {name for kind in Task.__subclasses__() for name in kind.columns()}
    keys = [name for name in table.columns if name in of_tasks or name in CELL_COLUMNS]
    for group in table.partition_by([*keys, "fingerprint"], maintain_order=True):
        yield _result(group, of_tasks)


def _result(table: pl.DataFrame, of_tasks: set[str]) -> Result:
    first = table.row(0, named=True)
    cell = _cell(first)
    if list(zip(table["draw"], table["initialisation"], strict=True)) != cell.runs:
        raise UserError(f"the runs of {cell} are not all there, or not in order")
    known = {*of_tasks, *CELL_COLUMNS, *RUN_COLUMNS}
    told = [name for name in table.columns if name not in known and first[name] is not None]
    curves = [name for name in told if name.startswith(DIAGNOSTIC)]
    return Result(
        cell,
        np.array(table["returns"].to_list(), np.float64),
        (first["random_return"], first["demonstrator_return"]),
        table["diverged_at"].fill_null(-1).to_numpy(),
        {name.removeprefix(DIAGNOSTIC): np.array(table[name].to_list(), np.float64) for name in curves},
        np.array(first["points"], int),
        _texts(table["settings"]),
        _texts(table["chosen"]),
        {name: float(table[f"{name}_seconds"].sum()) for name in SECONDS},
        json.loads(first["made_by"]),
        first["fingerprint"],
        {name: table[name].to_numpy() for name in told if name not in curves},
    )


def _cell(row: dict[str, Any]) -> Cell:
    """The cell that a row belongs to."""
    for kind in Task.__subclasses__():
        if row.get(next(iter(kind.columns()))) is not None:
            return Cell(kind.from_row(row), Method.parse(row["method"]), **{name: row[name] for name in NUMBERS})
    raise UserError("not a file of results: it does not say what was run.")


def _texts(column: pl.Series) -> tuple[str, ...]:
    """One text per run; empty if the runs have none."""
    return tuple(column) if column[0] is not None else ()
