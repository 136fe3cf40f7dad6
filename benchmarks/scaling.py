"""How the cost of an EDM update grows: runs, batch, chain length and state dimension, one at a time."""

from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.settings import Settings
from benchmarks.tables import middle, number, show, spread
from benchmarks.workload import make_cell, time_chunks
from sbil.algorithms import EDMConfig


@dataclass(frozen=True)
class Point:
    """A setting of the four factors."""

    runs: int = 10
    batch: int = 64
    chain_length: int = 20
    dimension: int = 4


LEVELS = {
    "runs": (1, 2, 5, 10, 20, 50, 100, 200),
    "batch": (16, 32, 64, 128, 256),
    "chain_length": (0, 5, 10, 20, 40, 80),
    "dimension": (4, 16, 64, 256),
}
# Every level is a program to compile: on a GPU, where compiling costs most of the time, fewer of them.
GPU_LEVELS = {
    "runs": (1, 10, 100, 1000),
    "batch": (16, 64, 256),
    "chain_length": (0, 20, 80),
    "dimension": (4, 64, 256),
}
QUICK_LEVELS = {"runs": (1, 10), "batch": (64,), "chain_length": (0, 20), "dimension": (4, 64)}


def run(settings: Settings) -> dict[str, Any]:
    """Measure, print, and return the raw seconds."""
    base = Point(runs=100) if settings.gpu else Point()
    levels = QUICK_LEVELS if settings.quick else GPU_LEVELS if settings.gpu else LEVELS
    if settings.quick and settings.gpu:
        base = Point()
    length = settings.updates or (20 if settings.quick else 100)
    repeats = settings.repeats or (2 if settings.quick else 3)
    measured: dict[Point, dict[str, Any]] = {}
    rows: list[list[str]] = []
    for factor, values in levels.items():
        for value in values:
            point = replace(base, **{factor: value})
            if point not in measured:
                measured[point] = _measure(point, length, repeats)
            rows.append(_row(factor, value, point == base, measured[point]))
    _print(rows, base, length, repeats)
    return {"base": vars(base), "updates timed": length, "records": list(measured.values())}


def _measure(point: Point, length: int, repeats: int) -> dict[str, Any]:
    config = EDMConfig(batch=point.batch, chain_length=point.chain_length)
    timing = time_chunks(make_cell(point.runs, point.dimension), config, length, repeats)
    return {
        **vars(point),
        "chunk seconds": timing.chunks,
        "microseconds per update": [seconds * 1e6 / length for seconds in timing.chunks],
        "microseconds per update per run": [seconds * 1e6 / length / point.runs for seconds in timing.chunks],
        "compile and set-up seconds": timing.first - median(timing.chunks),
    }


def _row(factor: str, value: int, is_base: bool, record: dict[str, Any]) -> list[str]:
    each, together = record["microseconds per update per run"], record["microseconds per update"]
    name = f"{factor.replace('_', ' ')} {value}{' *' if is_base else ''}"
    return [name, middle(each), spread(each), middle(together), number(record["compile and set-up seconds"])]


def _print(rows: list[list[str]], base: Point, length: int, repeats: int) -> None:
    columns = ["one factor changed", "us per update per run", "spread", "us per update", "compile s"]
    at = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in vars(base).items())
    caption = f"Medians of {repeats} chunks of {length} updates. * the base: {at}."
    show("Cost of an EDM update", columns, rows, caption)
