"""Memory of the experiment runner as cells grow: the same grid, ever longer, in one process."""

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.settings import Keep, Record, Settings
from benchmarks.tables import show
from sbil.experiments import Cell, EnvironmentTask, Method
from sbil.experiments.run import run_grid
from sbil.experiments.store import Store

# One cell of the paper's protocol with fewer updates: their number costs time, not memory.
CELL = Cell(EnvironmentTask("CartPole-v1", "ppo", "sampled", 20), Method("bc"), 1, updates=20)


def run(settings: Settings, keep: Keep) -> None:
    """Measure and print."""
    decays, batches = (2, 3) if settings.quick else (16, 24)
    decayed = [Method("bc", settings=(f"weight_decay={n}",)) for n in range(decays)]
    same = [replace(CELL, method=method, size=size) for method in decayed for size in range(1, 16)]
    other = [replace(CELL, method=Method("bc", settings=(f"batch={8 + n}",))) for n in range(batches)]
    records = [*followed("one program", same, keep), *followed("a program each", other, keep)]
    rows = [[r["cells are"], str(r["cells"]), f"{r['MiB']:,.0f}"] for r in records]
    show(
        "Memory of the runner",
        ["cells share", "cells done", "resident, MiB"],
        rows,
        "Memory of the process after each number of cells.",
    )


def followed(name: str, cells: list[Cell], keep: Keep) -> list[Record]:
    """Resident memory after the first cell, a third, two thirds and all of them."""
    records = []
    stops = {1, len(cells) // 3, 2 * len(cells) // 3, len(cells)}
    with TemporaryDirectory() as folder:
        for done, (result, _) in enumerate(run_grid(cells, Store(Path(folder)), together=1), start=1):
            result.summary()
            if done in stops:
                records.append({"cells are": name, "cells": done, "MiB": resident()})
                keep(records[-1])
    return records


def resident() -> float:
    """Of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
