"""A table of 10^7 rows and 20 columns: memory and time to check, train, evaluate and predict by the command line."""

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import polars as pl

from benchmarks.settings import Keep, Record, Settings
from benchmarks.tables import number, show

COLUMNS, LENGTH, PART, BATCH = 20, 100, 1_000_000, 64


def run(settings: Settings, keep: Keep) -> None:
    """Write the table as a folder of Parquet files, then watch each command."""
    rows = 100_000 if settings.quick else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "table", rows)
        write(Path(folder) / "held_out", rows, first=rows)
        roles = ["--episode", "episode", "--time", "step", "--action", "action"]
        table, held_out, policy = (f"{folder}/{name}" for name in ("table", "held_out", "policy"))
        updates = str(settings.updates or rows // BATCH)  # as many decisions as there are
        training = ["--data", table, *roles, "--updates", updates, "--out"]
        commands = {
            "check": ["check", table, *roles],
            "train bc": ["train", "bc", *training, policy],
            "train edm": ["train", "edm", *training, f"{folder}/edm"],
            "evaluate": ["evaluate", policy, "--data", held_out],
            "predict": ["predict", policy, "--data", held_out, "--out", f"{folder}/decisions.parquet"],
        }
        records: list[Record] = []
        for name, words in commands.items():
            records.append({"command": name, "rows": rows, **watched([sys.executable, "-m", "sbil", *words])})
            keep(records[-1])
    title = f"A table of {rows:,} rows and {COLUMNS} columns (evaluate and predict: as many others)"
    heads = ["command", "seconds", "memory of its own, GB", "with mapped files, GB"]
    show(title, heads, [[r["command"], *(number(r[k]) for k in ("seconds", "own", "all"))] for r in records])


def write(folder: Path, rows: int, first: int = 0) -> None:
    """Random rows whose first columns decide, in parts."""
    folder.mkdir()
    rng = np.random.default_rng(first)
    for start in range(0, rows, PART):
        count = min(PART, rows - start)
        states = rng.normal(size=(count, COLUMNS)).astype(np.float32)
        place = first + start + np.arange(count)
        frame: dict[str, np.ndarray] = {f"column {index}": states[:, index] for index in range(COLUMNS)}
        frame |= {"episode": place // LENGTH, "step": place % LENGTH}
        score = states[:, 0] - states[:, 1] * states[:, 2] + rng.normal(size=count)
        frame["action"] = np.where(score > 0, "treat", "wait")
        pl.DataFrame(frame).write_parquet(folder / f"part{start // PART:03}.parquet")


def watched(words: list[str]) -> Record:
    """Seconds of a command, and the most memory that it and its children held at a time."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    most = {"own": 0.0, "all": 0.0}

    def look() -> None:
        while process.poll() is None:
            for name, held in memory(process.pid).items():
                most[name] = max(most[name], held)
            sleep(0.05)

    started = perf_counter()
    watcher = threading.Thread(target=look)
    watcher.start()
    _, complaint = process.communicate()
    watcher.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(words[2:5])} failed: {complaint.strip()[-300:]}")
    return {"seconds": perf_counter() - started, **most}


def memory(process: int) -> dict[str, float]:
    """GB that a process and its descendants hold: their own memory, and with mapped files.

    The second is never less than the largest that one of them has held so far, which the system records.
    """
    own = everything = most = 0.0
    for pid in family(process):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        sizes = dict(line.split(":", 1) for line in status.splitlines() if line.startswith(("Rss", "VmHWM")))
        parts = {name: int(text.split()[0]) * 1024 / 1e9 for name, text in sizes.items()}
        most = max(most, parts.pop("VmHWM", 0))
        own += parts.get("RssAnon", 0) + parts.get("RssShmem", 0)
        everything += sum(parts.values())
    return {"own": own, "all": max(everything, most)}


def family(process: int) -> list[int]:
    """Return a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry))
    found, left = [], [process]
    while left:
        found.append(left.pop())
        left += parents.get(found[-1], [])
    return found
