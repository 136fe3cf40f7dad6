"""How the cost of an EDM update grows: runs, batch, chain length and state dimension, one at a time."""

from dataclasses import dataclass, replace
from statistics import median

from benchmarks.settings import Keep, Record, Settings
from benchmarks.tables import number, show, spread
from benchmarks.workload import RELEASED, make_cell, time_chunks


@dataclass(frozen=True)
class Point:
    """A setting of the four factors."""

    runs: int = 10
    batch: int = 64
    chain_length: int = 20
    dimension: int = 4


Levels = dict[str, tuple[int, ...]]

LEVELS: Levels = {
    "runs": (1, 2, 5, 10, 20, 50, 100, 200),
    "batch": (16, 32, 64, 128, 256),
    "chain_length": (0, 5, 10, 20, 40, 80),
    "dimension": (4, 16, 64, 256),
}
# Every level is a program to compile: a GPU, where compiling takes most of the time, has fewer levels.
GPU_LEVELS: Levels = {
    "runs": (1, 10, 100, 1000),
    "batch": (16, 32, 64, 256),
    "chain_length": (0, 20, 80),
    "dimension": (4, 64, 256),
}
QUICK_LEVELS: Levels = {"runs": (1, 10), "batch": (32,), "chain_length": (20,), "dimension": (4,)}


def run(settings: Settings, keep: Keep) -> None:
    """Measure and print."""
    base, levels, length, repeats = _plan(settings)
    length, repeats = settings.updates or length, settings.repeats or repeats
    measured: dict[Point, Record] = {}
    rows: list[list[str]] = []
    for factor, values in levels.items():
        for value in values:
            point = replace(base, **{factor: value})
            if point not in measured:
                measured[point] = _measure(point, length, repeats)
                keep(measured[point])
            rows.append(_row(factor, value, point == base, measured[point]))
    _print(rows, base, length, repeats)


def _plan(settings: Settings) -> tuple[Point, Levels, int, int]:
    """The base, the levels, and how many updates and repeats to time.

    On a GPU the base and the updates are those of the part edm, so its compiled programs are reused.
    """
    if settings.quick:
        return Point(batch=32), QUICK_LEVELS, 50, 2
    return (Point(runs=100), GPU_LEVELS, 500, 3) if settings.gpu else (Point(), LEVELS, 100, 3)


def _measure(point: Point, length: int, repeats: int) -> Record:
    config = replace(RELEASED, batch=point.batch, chain_length=point.chain_length)
    timing = time_chunks(make_cell(point.runs, point.dimension), config, length, repeats)
    return {
        **vars(point),
        "updates timed": length,
        "chunk seconds": timing.chunks,
        "microseconds per update": [seconds * 1e6 / length for seconds in timing.chunks],
        "microseconds per update per run": [seconds * 1e6 / length / point.runs for seconds in timing.chunks],
        "compile and set-up seconds": timing.first - median(timing.chunks),
    }


def _row(factor: str, value: int, is_base: bool, record: Record) -> list[str]:
    name = f"{factor.replace('_', ' ')} {value}{' *' if is_base else ''}"
    together = median(record["microseconds per update"])
    return [name, spread(record["microseconds per update per run"]), number(together)]


def _print(rows: list[list[str]], base: Point, length: int, repeats: int) -> None:
    columns = ["one factor changed", "microseconds per update per run", "per update of all runs"]
    at = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in vars(base).items())
    caption = f"Median (smallest to largest) of {repeats} chunks of {length} updates. * the base: {at}."
    show("Cost of an EDM update", columns, rows, caption)
