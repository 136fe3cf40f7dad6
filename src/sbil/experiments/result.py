"""What a cell gave, and its table: one row a run, in a file of one cell or of many."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from sbil.errors import UserError
from sbil.experiments.cell import Cell, Method

METRIC = "metric_"  # the columns of training diagnostics start with this
HELD_OUT = "held_out_"  # those of how well decisions were met that the run has not seen
SECONDS = ("selection", "training", "evaluation")
CELL_COLUMNS: dict[str, Any] = {
    "environment": pl.String,
    "demonstrator": pl.String,
    "mode": pl.String,
    "thin": pl.Int32,
    "method": pl.String,
    "size": pl.Int32,
    "draws": pl.Int32,
    "initialisations": pl.Int32,
    "updates": pl.Int32,
    "episodes": pl.Int32,
    "unlabelled": pl.Int32,
}
LATER_COLUMNS: dict[str, Any] = {"every_state": pl.Boolean, "seed": pl.Int32}  # of a cell; older files lack them
RUN_COLUMNS: dict[str, Any] = {
    "fingerprint": pl.String,  # of the cell
    "draw": pl.Int32,
    "initialisation": pl.Int32,
    "settings": pl.String,  # the hyper-parameters of the run, as JSON
    "chosen": pl.String,  # those it chose on its own held-out demonstrations, if it had a choice
    "returns": pl.List(pl.Float32),  # raw, one an episode
    "return": pl.Float64,  # their mean
    "score": pl.Float64,  # the same, scaled: random 0, demonstrator 1
    "random_return": pl.Float64,
    "demonstrator_return": pl.Float64,
    "diverged_at": pl.Int32,  # the update at which the run was given up; null where it stayed sound
    "points": pl.List(pl.Int32),  # updates done at each entry of the diagnostics
    **{f"{name}_seconds": pl.Float64 for name in SECONDS},  # the run's share of the cell's
    "made_by": pl.String,  # versions, device and commit, as JSON
}


@dataclass(frozen=True)
class Result:
    """What a cell gave; one entry a run, in the order of `cell.runs`."""

    cell: Cell
    returns: np.ndarray  # [runs, episodes], raw
    scale: tuple[float, float]  # the returns of a random network and of the demonstrator
    diverged_at: np.ndarray  # [runs], -1 where the run stayed sound
    curves: dict[str, np.ndarray] = field(default_factory=dict)  # [runs, points], diagnostics along the training
    points: np.ndarray = field(default_factory=lambda: np.array([], int))  # [points], updates done at each
    settings: tuple[str, ...] = ()  # [runs], hyper-parameters as JSON
    chosen: tuple[str, ...] = ()  # [runs], what each run chose, as name=value; empty where there was no choice
    seconds: dict[str, float] = field(default_factory=dict)  # of the whole cell
    made_by: dict[str, Any] = field(default_factory=dict)  # versions, device, commit
    fingerprint: str = ""
    held_out: dict[str, np.ndarray] = field(default_factory=dict)  # [runs], log-loss and error a decision

    @property
    def scores(self) -> np.ndarray:
        """[draws, initialisations], mean return scaled so that random is 0 and the demonstrator is 1."""
        low, high = self.scale
        scores = (self.returns.mean(axis=1) - low) / (high - low)
        return scores.reshape(self.cell.draws, self.cell.initialisations)

    @property
    def diverged(self) -> int:
        """How many runs diverged."""
        return int((self.diverged_at >= 0).sum())

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """[runs], the diagnostics at the end of training."""
        return {name: values[:, -1] for name, values in self.curves.items()}

    def without_episodes(self) -> "Result":
        """The same with one mean return a run: all that a report needs, in little memory."""
        return replace(self, returns=self.returns.mean(axis=1, keepdims=True))

    def summary(self) -> "Result":
        """The same with one mean return a run and no diagnostics: all that a table needs."""
        return replace(self.without_episodes(), curves={}, points=np.array([], int), settings=())

    def table(self) -> pl.DataFrame:
        """One row a run."""
        cell, count = self.cell, len(self.cell.runs)
        shared = {name: getattr(cell, name) for name in (*CELL_COLUMNS, *LATER_COLUMNS)} | {"method": str(cell.method)}
        low, high = self.scale
        rows: dict[str, Any] = {
            **{name: [value] * count for name, value in shared.items()},
            "fingerprint": [self.fingerprint] * count,
            "draw": [draw for draw, _ in cell.runs],
            "initialisation": [i for _, i in cell.runs],
            "settings": list(self.settings) or [None] * count,
            "chosen": list(self.chosen) or [None] * count,
            "returns": list(self.returns.astype(np.float32)),
            "return": self.returns.mean(axis=1),
            "score": self.scores.ravel(),
            "random_return": [low] * count,
            "demonstrator_return": [high] * count,
            "diverged_at": [int(at) if at >= 0 else None for at in self.diverged_at],
            "points": [self.points.astype(np.int32)] * count,
            **{f"{name}_seconds": [self.seconds.get(name, math.nan) / count] * count for name in SECONDS},
            "made_by": [json.dumps(self.made_by, sort_keys=True)] * count,
            **{f"{METRIC}{name}": list(values.astype(np.float32)) for name, values in sorted(self.curves.items())},
        }
        rows |= {f"{HELD_OUT}{name}": values for name, values in sorted(self.held_out.items())}
        diagnostics = {f"{METRIC}{name}": pl.List(pl.Float32) for name in sorted(self.curves)}
        held_out = {f"{HELD_OUT}{name}": pl.Float64 for name in sorted(self.held_out)}
        return pl.DataFrame(rows, schema={**CELL_COLUMNS, **LATER_COLUMNS, **RUN_COLUMNS, **diagnostics, **held_out})


def results_in(table: pl.DataFrame) -> Iterator[Result]:
    """The cells of a table with one row a run, in the order in which they stand."""
    for name, kind in LATER_COLUMNS.items():
        column = pl.col(name) if name in table.columns else pl.lit(None)
        table = table.with_columns(column.fill_null(0).cast(kind).alias(name))
    for group in table.partition_by([*CELL_COLUMNS, *LATER_COLUMNS, "fingerprint"], maintain_order=True):
        yield _result(group)


def _result(table: pl.DataFrame) -> Result:
    first = table.row(0, named=True)
    fields = {name: first[name] for name in (*CELL_COLUMNS, *LATER_COLUMNS) if name != "method"}
    cell = Cell(method=Method.parse(first["method"]), **fields)
    if list(zip(table["draw"], table["initialisation"], strict=True)) != cell.runs:
        raise UserError(f"the runs of {cell} are not all there, or not in order")
    metrics = [name for name in table.columns if name.startswith(METRIC) and first[name] is not None]
    held_out = [name for name in table.columns if name.startswith(HELD_OUT) and first[name] is not None]
    made_by: dict[str, Any] = json.loads(first["made_by"])
    return Result(
        cell,
        np.array(table["returns"].to_list(), np.float64),
        (first["random_return"], first["demonstrator_return"]),
        table["diverged_at"].fill_null(-1).to_numpy(),
        {name.removeprefix(METRIC): np.array(table[name].to_list(), np.float64) for name in metrics},
        np.array(first["points"], int),
        tuple(table["settings"]) if first["settings"] is not None else (),
        tuple(table["chosen"]) if first["chosen"] is not None else (),
        {name: float(table[f"{name}_seconds"].sum()) for name in SECONDS},
        made_by,
        first["fingerprint"],
        {name.removeprefix(HELD_OUT): table[name].to_numpy() for name in held_out},
    )
