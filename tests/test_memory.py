"""Memory for large tables: one more copy of the data would fail here."""

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import polars as pl
import pytest

from sbil.evaluation.decided import Decided
from sbil.evaluation.matching import Agreement, intervals

COLUMNS = 20
ROWS = 1_000_000
TABLE = 4 * COLUMNS * ROWS  # bytes, as float32
MOST = {"bc": 3.3, "edm": 3.5, "evaluate": 4.2, "predict": 5.0}  # tables; one more copy would not fit
ROLES = ("--episode", "episode", "--time", "step", "--action", "action")


def peak(function, *arguments):
    """The most bytes that NumPy held while a function ran."""
    tracemalloc.start()
    try:
        function(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("function", "most"), [(Agreement.of, 80), (intervals, 250)])
def test_scores_take_so_many_bytes_a_decision(function, most):
    rng = np.random.default_rng(0)
    rows = 200_000
    chance = rng.random(rows, np.float32)
    made = Decided(np.stack([chance, 1 - chance], axis=1), rng.integers(2, size=rows), np.arange(rows) // 100)
    few = (made,) if function is not intervals else (made, 3)
    assert peak(function, *few) < most * rows


def written(path, rows):
    rng = np.random.default_rng(0)
    states = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
    frame = {f"column {index}": states[:, index] for index in range(COLUMNS)}
    place = np.arange(rows)
    action = np.where(states[:, 0] > 0, "treat", "wait")
    pl.DataFrame({**frame, "episode": place // 100, "step": place % 100, "action": action}).write_parquet(path)
    return path


def most_held(*words):
    """Bytes that a command held at most, mapped files counted."""
    process = subprocess.Popen([sys.executable, "-m", "sbil", *map(str, words)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_maxrss * 1024


@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="what is counted as held differs elsewhere")
def test_commands_hold_a_large_table_a_few_times(tmp_path):
    """Additional memory for three times as many rows, divided by the size of those rows in float32."""
    held = {}
    for times in (1, 3):
        table = written(tmp_path / f"{times}.parquet", times * ROWS)
        policies = {name: tmp_path / f"{name}{times}" for name in ("bc", "edm")}
        commands = {
            name: ("train", name, "--data", table, *ROLES, "--updates", "10", "--out", out)
            for name, out in policies.items()
        }
        commands["evaluate"] = ("evaluate", policies["bc"], "--data", table)
        commands["predict"] = ("predict", policies["bc"], "--data", table, "--out", tmp_path / f"{times}.csv")
        for name, words in commands.items():
            held.setdefault(name, []).append(most_held(*words))
    grown = {name: (large - small) / (2 * TABLE) for name, (small, large) in held.items()}
    assert all(grown[name] < most for name, most in MOST.items()), grown
