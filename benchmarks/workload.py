"""What is measured: EDM on synthetic demonstrations of CartPole's shape, timed chunk by chunk."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from sbil import training
from sbil.algorithms import EDMConfig, edm
from sbil.algorithms.edm import PRESETS
from sbil.dataset import Dataset, Spec, make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.keys import named
from sbil.training import Report, Trained, train_many

PAIRS = 25  # a CartPole episode of 500 steps, every 20th kept
TRAJECTORIES = 20
SIZE = 3  # trajectories a run learns from: 75 pairs, more than the largest usual batch
FULL_RUN = 10_000  # updates of a run in the paper
RELEASED: EDMConfig = PRESETS["released"]


class Cell(NamedTuple):
    """R runs to train: the task, what each run learns from, and its key."""

    spec: Spec
    dataset: Dataset
    keys: PRNGKeyArray


class Timing(NamedTuple):
    """Seconds of one call of `train_many`."""

    first: float  # until the first report: set-up, compilation and one chunk
    chunks: list[float]  # of every later chunk


def demonstrations(dimension: int = 4) -> Demonstrations:
    """Made-up episodes with two actions; the action is the sign of a fixed combination of the observations."""
    rng = np.random.default_rng(0)
    rule = rng.normal(size=dimension)
    trajectories = []
    for _ in range(TRAJECTORIES):
        observations = rng.normal(0, 0.3, (PAIRS + 1, dimension)).astype(np.float32)
        actions = (observations[:-1] @ rule > 0).astype(np.int32)
        trajectories.append(Trajectory(observations, actions, truncated=True))
    return Demonstrations(tuple(trajectories), action_names=("left", "right"))


def make_cell(runs: int, dimension: int = 4) -> Cell:
    """R runs; run i has the same key and the same trajectories whatever R is."""
    recorded = demonstrations(dimension)
    draws = [recorded.draw(SIZE, seed) for seed in range(runs)]
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(named("benchmark"), jnp.arange(runs))
    return Cell(spec_of(recorded), make_dataset(recorded, draws), keys)


@contextmanager
def chunks_of(length: int) -> Iterator[None]:
    """Let `train_many` report every `length` updates, so that a short piece of training can be timed."""
    before = training.CHUNK
    training.CHUNK = length
    try:
        yield
    finally:
        training.CHUNK = before


def train_cell(cell: Cell, config: EDMConfig, updates: int, watch: Callable[[Report], None] | None = None) -> Trained:
    """Train the R runs by the package's own entry point."""
    return train_many(edm, cell.spec, config, cell.dataset, cell.keys, updates, watch)


def time_chunks(
    cell: Cell, config: EDMConfig, length: int, chunks: int, between: Callable[[], None] | None = None
) -> Timing:
    """Time `chunks` chunks of `length` updates after a first one that compiles.

    between: called before each timed chunk, outside the clock: whatever it measures alternates with the chunks.
    """
    seconds: list[float] = []
    clock = perf_counter()

    def watch(report: Report) -> None:
        nonlocal clock
        seconds.append(perf_counter() - clock)
        if between and report.update < report.updates:
            between()
        clock = perf_counter()

    with chunks_of(length):
        train_cell(cell, config, length * (chunks + 1), watch)
    return Timing(seconds[0], seconds[1:])
