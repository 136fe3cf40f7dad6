"""Peak memory of an EDM cell on the CPU, measured in a fresh process."""

import json
import resource
import sys
from pathlib import Path

from benchmarks import child
from benchmarks.settings import Keep, Record, Settings
from benchmarks.tables import number, show

MIB = 1 << 20


def run(settings: Settings, keep: Keep) -> None:
    """Measure and print."""
    length, chunks = (50, 2) if settings.quick else (settings.updates or 500, 3)
    records = []
    for runs in (10,) if settings.quick else (1, 50):
        records.append(child.call("benchmarks.memory", {"runs": runs, "length": length, "chunks": chunks}))
        keep(records[-1])
    columns = ["runs at once", "packages loaded, MiB", "peak, MiB", "increase, MiB"]
    caption = f"Peak resident memory on the CPU over {chunks} chunks of {length} updates; more chunks reuse it."
    show("Memory of an EDM cell", columns, [_row(record) for record in records], caption)


def _row(record: Record) -> list[str]:
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


def train_and_measure(runs: int, length: int, chunks: int) -> Record:
    """In the child: train a cell for some chunks and look at the peak before and after."""
    from benchmarks import machine
    from benchmarks.workload import RELEASED, chunks_of, make_cell, train_cell

    device = machine.jax_device()
    loaded = peak()
    with chunks_of(length):
        train_cell(make_cell(runs), RELEASED, length * chunks)
    sizes = {"runs": runs, "updates": length * chunks, "device": device}
    return {**sizes, "loaded bytes": loaded, "peak bytes": peak()}


if __name__ == "__main__":
    print(json.dumps(train_and_measure(**json.loads(sys.argv[1]))))
