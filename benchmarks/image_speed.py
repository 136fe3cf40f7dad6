"""Training on images of 84 x 84 x 4: seconds per run of 10,000 updates."""

from statistics import median
from time import perf_counter

import jax
import numpy as np

from benchmarks.settings import Keep, Record, Settings
from benchmarks.tables import number, show, spread
from sbil import algorithms
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.training import train_many

BUDGET = 10_000
METHODS = ("bc", "edm")


def run(settings: Settings, keep: Keep) -> None:
    """Time pieces of training after one that compiles, and print."""
    updates = settings.updates or (200 if settings.gpu else 1)
    demonstrations = films(100 if settings.quick or not settings.gpu else 1000)
    records: list[Record] = []
    for runs in settings.runs or ((1, 5, 15) if settings.gpu else (1,)):
        for method in METHODS:
            records.append(_measure(method, demonstrations, runs, updates, settings.repeats or 3))
            keep(records[-1])
            jax.clear_caches()
    rows = [[r["method"], str(r["runs"]), spread(r["seconds a run"]), number(r["compile"])] for r in records]
    title = f"Images of 84 x 84 x 4: seconds per run of {BUDGET:,} updates ({updates} are timed)"
    show(title, ["method", "runs at once", "seconds a run", "compile and start, s"], rows)


def films(length: int) -> Demonstrations:
    """Return random frames: their content does not change the time."""
    rng = np.random.default_rng(0)
    games = (rng.integers(0, 256, (length + 1, 84, 84), dtype=np.uint8) for _ in range(3))
    names = tuple(f"action {number}" for number in range(9))
    return Demonstrations(tuple(Trajectory(game, rng.integers(0, 9, length)) for game in games), names, stack=4)


def _measure(method: str, demonstrations: Demonstrations, runs: int, updates: int, repeats: int) -> Record:
    """Scale by the difference between two lengths, so that one-time work (the start of the chains) is not scaled up."""
    entry, spec = algorithms.get(method), spec_of(demonstrations)
    dataset = make_dataset(demonstrations, [np.arange(len(demonstrations))] * runs)
    keys = jax.random.split(jax.random.key(0), runs)

    def seconds(pieces: int) -> float:
        started = perf_counter()
        train_many(entry.make, spec, entry.presets["default"], dataset, keys, pieces * updates, chunk=updates)
        return perf_counter() - started

    first = seconds(1)
    taken = [(seconds(3) - seconds(1)) / 2 for _ in range(repeats)]
    return {
        "method": method,
        "runs": runs,
        "updates": updates,
        "seconds a run": [piece / updates * BUDGET / runs for piece in taken],
        "compile": first - median(taken),
    }
