"""`sbil train auto` on a table: its blend, and its 45 policies with imagined rollouts, beside bc and edm."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.settings import Keep, Record, Settings
from benchmarks.table_size import watched
from benchmarks.tables import number, show

ROWS, COLUMNS, LENGTH = 5000, 8, 50


def run(settings: Settings, keep: Keep) -> None:
    """Write the table, then train on it by the command line."""
    rows = 500 if settings.quick else ROWS
    records: list[Record] = []
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.parquet"
        write(table, rows)
        roles = ["--data", str(table), "--episode", "episode", "--time", "step", "--action", "action"]
        for what in ("bc", "edm", "auto", "auto --criterion imagined"):
            words = [sys.executable, "-m", "sbil", "train", *what.split(), *roles, "--out", f"{folder}/{what}"]
            words += ["--updates", str(settings.updates)] if settings.updates else []
            records.append({"algorithm": what, "rows": rows, **watched(words)})
            keep(records[-1])
    rows_shown = [[r["algorithm"], number(r["seconds"]), number(r["own"])] for r in records]
    show(
        f"Training on a table of {rows:,} rows and {COLUMNS} columns",
        ["algorithm", "seconds", "memory, GB"],
        rows_shown,
    )


def write(path: Path, rows: int) -> None:
    """Episodes of a linear system that the actions push, so that a model of it can be learned."""
    random = np.random.default_rng(0)
    turn = 0.95 * np.linalg.qr(random.normal(size=(COLUMNS, COLUMNS)))[0]
    push = random.normal(size=(2, COLUMNS)) / 2
    states, actions = np.zeros((rows, COLUMNS)), np.zeros(rows, int)
    for row in range(rows):
        if row % LENGTH == 0:
            states[row] = random.normal(size=COLUMNS)
        else:
            states[row] = turn @ states[row - 1] + push[actions[row - 1]] + random.normal(size=COLUMNS) / 20
        actions[row] = states[row, 0] - states[row, 1] + random.normal() / 2 > 0
    columns = {f"column {index}": states[:, index] for index in range(COLUMNS)}
    place = np.arange(rows)
    frame = pl.DataFrame({"episode": place // LENGTH, "step": place % LENGTH, **columns})
    frame.with_columns(action=pl.Series(np.where(actions, "treat", "wait"))).write_parquet(path)
