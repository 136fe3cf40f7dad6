"""Seconds per run, for every algorithm: time a piece of training and scale it to the budget of the preset."""

from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.settings import Keep, Record, Settings
from benchmarks.tables import number, show, spread
from benchmarks.workload import make_cell
from sbil import algorithms
from sbil.training import Report, train_many

# DSFN trains inside its rounds: rounds with two small shares of their gradient steps are timed, the rest is the slope.
FRACTIONS = (100, 50)


def run(settings: Settings, keep: Keep) -> None:
    """Measure and print."""
    length = 50 if settings.quick else settings.updates or 200
    repeats = settings.repeats or (2 if settings.quick else 5)
    runs = settings.runs or ((10,) if settings.quick else (50, 1000) if settings.gpu else (50,))
    records = []
    for count in runs:
        for name in algorithms.ALGORITHMS:
            measured = dsfn(count, repeats) if name == "dsfn" else steps(name, count, length, repeats)
            records.append({"algorithm": name, "runs": count, **measured})
            keep(records[-1])
    columns = ["algorithm", "runs at once", "updates", "seconds a run", "first report, s"]
    rows = [[r["algorithm"], str(r["runs"]), f"{r['updates']:,}", _spread(r), number(r["first"])] for r in records]
    show("Seconds of a run", columns, rows, "Median (smallest to largest) of the timed pieces, scaled to the budget.")


def _spread(record: Record) -> str:
    return spread(record["seconds a run"])


def steps(name: str, runs: int, length: int, repeats: int) -> Record:
    """Chunks of updates, after a first one that compiles."""
    entry = algorithms.get(name)
    updates = entry.budget("default")
    chunks, first = timed(name, entry.config(), runs, length, repeats)
    return {"updates": updates, "seconds a run": [c / length * updates / runs for c in chunks], "first": first}


def dsfn(runs: int, repeats: int) -> Record:
    """A round has a fixed cost and a cost per gradient step; the warm start costs what TRIL costs."""
    default = algorithms.DSFNConfig()
    parts = ("feature_updates", "value_updates")
    pieces = []
    for fraction in FRACTIONS:
        small = {part: getattr(default, part) // fraction for part in parts}
        config = algorithms.DSFNConfig(warm_updates=1, **small)
        rounds, first = timed("dsfn", config, runs, 1, repeats)
        pieces.append(rounds)
    short, longer = (1 / fraction for fraction in FRACTIONS)
    slopes = [(b - a) / (longer - short) for a, b in zip(*pieces, strict=True)]
    whole = [a + slope * (1 - short) for a, slope in zip(pieces[0], slopes, strict=True)]
    warm = median(steps("tril", runs, 200, repeats)["seconds a run"])
    warm *= default.warm_updates / algorithms.get("tril").budget("default")
    seconds = [each * default.rounds / runs + warm for each in whole]
    return {"updates": default.rounds, "seconds a run": seconds, "first": first}


def timed(name: str, config: Any, runs: int, length: int, repeats: int) -> tuple[list[float], float]:
    """(seconds of each chunk, seconds to the first report with compilation)."""
    cell, clock = make_cell(runs), [perf_counter()]

    def watch(report: Report) -> None:
        clock.append(perf_counter())

    make = algorithms.get(name).make
    train_many(make, cell.spec, config, cell.dataset, cell.keys, length * (repeats + 1), watch, chunk=length)
    pieces = [after - before for before, after in pairwise(clock)]
    return pieces[1:], pieces[0]
