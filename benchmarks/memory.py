"""Peak memory of an EDM cell on the CPU, measured in a fresh process."""

import json
import resource
import sys
from pathlib import Path
from typing import Any

from benchmarks import child
from benchmarks.settings import Settings
from benchmarks.tables import number, show

MIB = 1 << 20


def run(settings: Settings) -> dict[str, Any]:
    """Measure, print, and return the bytes."""
    counts = (10,) if settings.quick else (1, 50)
    length, chunks = (20, 2) if settings.quick else (settings.updates or 500, 2)
    records = [
        child.call("benchmarks.memory", {"runs": runs, "length": length, "chunks": chunks}) for runs in counts
    ]
    columns = ["runs at once", "packages loaded, MiB", "after training, MiB", "increase, MiB"]
    caption = (
        f"Peak resident memory on the CPU over {chunks} chunks of {length} updates; later ones reuse it."
    )
    show("Memory of an EDM cell (default settings)", columns, [_row(record) for record in records], caption)
    return {"records": records}


def _row(record: dict[str, Any]) -> list[str]:
    before, after = record["loaded bytes"], record["peak bytes"]
    return [str(record["runs"]), *(number(size / MIB) for size in (before, after, after - before))]


def peak() -> int:
    """Peak resident memory of this process in bytes.

    Linux lets a child inherit the peak of its parent in getrusage; VmHWM starts anew with the program.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def train_and_measure(runs: int, length: int, chunks: int) -> dict[str, Any]:
    """In the child: train a cell for some chunks and look at the peak before and after."""
    from benchmarks.workload import chunks_of, make_cell, train_cell
    from sbil import devices
    from sbil.algorithms import EDMConfig

    device = devices.describe()
    loaded = peak()
    with chunks_of(length):
        train_cell(make_cell(runs), EDMConfig(), length * chunks)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "runs": runs, "updates": length * chunks, "device": device, "loaded bytes": loaded, "peak bytes": peak(),
        "getrusage maxrss": used,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(train_and_measure(**json.loads(sys.argv[1]))))
