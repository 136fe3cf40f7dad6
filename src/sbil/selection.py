"""The choice of settings on held-out demonstrations: cross-validation by trajectory, all candidates at once.

Every run of a dataset chooses for itself: its trajectories are dealt into folds, every candidate is trained on all
folds but one and scored by the log-loss of the decisions in that fold. The only trajectory of a run is cut into
stretches.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from sbil import algorithms
from sbil.algorithms.base import cross_entropy
from sbil.dataset import Dataset, Pool, Rows, Spec, padded
from sbil.errors import UserError, whole
from sbil.training import Report, room_for, train_many

FOLDS = 3
MOST_RUNS = 1000  # in one program on a GPU; a CPU is fastest with few
MOST_RUNS_CPU = 50
UNUSED = 2**32 - 1  # no update has this number, so folds have their own random numbers


class Selection(NamedTuple):
    """The choices of R runs among C candidates."""

    candidates: tuple[Any, ...]
    losses: np.ndarray  # [R, C], held-out log-loss per decision; infinite: training diverged, NaN: nothing held out
    chosen: np.ndarray  # [R], the number of the candidate with the smallest loss

    @property
    def configs(self) -> list[Any]:
        """[R], the settings that each run chose."""
        return [self.candidates[number] for number in self.chosen]


class Fold(NamedTuple):
    """One fold of one run."""

    run: int
    number: int
    training: np.ndarray  # steps of the pool
    held_out: np.ndarray


def folds_of(dataset: Dataset, folds: int = FOLDS, groups: np.ndarray | None = None) -> list[Fold]:
    """Return the folds of every run: whole trajectories (or groups), or stretches of a single trajectory."""
    folds = whole("folds", folds, 2)
    found = []
    trajectories = np.asarray(dataset.pool.trajectory)
    if groups is not None:
        trajectories = np.asarray(groups)[trajectories]
    for run, (indices, size) in enumerate(zip(*map(np.asarray, dataset.labelled), strict=True)):
        steps = indices[:size]
        _, number = np.unique(trajectories[steps], return_inverse=True)
        count = number.max() + 1
        fold = number % folds if count > 1 else np.arange(size) * min(folds, size) // size
        for held_out in range(fold.max() + 1):
            if (fold != held_out).any():
                found.append(Fold(run, held_out, steps[fold != held_out], steps[fold == held_out]))
    return found


def states_left(dataset: Dataset, part: Fold) -> np.ndarray:
    """Return the states without a decision that a run may learn from.

    States from a held-out decision to the next decision belong to the held-out one and are left out.
    """
    states, count = (np.asarray(leaf[part.run]) for leaf in dataset.unlabelled)
    states = states[:count]
    steps = np.sort(np.concatenate([part.training, part.held_out]))
    before = np.searchsorted(np.asarray(dataset.pool.row), states, side="right") - 1  # the pool's step at or before
    own = steps[np.maximum(np.searchsorted(steps, before, side="right") - 1, 0)]
    trajectory = np.asarray(dataset.pool.trajectory)
    return states[~(np.isin(own, part.held_out) & (trajectory[own] == trajectory[before]))]


class Job(NamedTuple):
    """One training to do: a candidate, by its number, on a fold."""

    fold: Fold
    candidate: int


def select(
    algorithm: str,
    spec: Spec,
    candidates: Sequence[Any],
    dataset: Dataset,
    keys: PRNGKeyArray,
    updates: int,
    *,
    folds: int = FOLDS,
    groups: np.ndarray | None = None,
    watch: Callable[[float, Report], None] | None = None,
) -> Selection:
    """For every run of `dataset`, choose the candidate settings with the smallest log-loss on held-out decisions.

    groups: [trajectories of the pool], the group of each; a fold holds whole groups.
    watch: called with the share of the work that is done, and the latest report.
    A run takes the first candidate, with NaN losses, if it has nothing to hold out, or if the algorithm cannot use the
    rest of its data.
    """
    parts = [part for part in folds_of(dataset, folds, groups) if _usable(algorithm, dataset, part)]
    jobs = [Job(part, number) for number in range(len(candidates)) for part in parts]
    total, count = np.zeros((len(keys), len(candidates))), np.zeros(len(keys))
    for part in parts:
        count[part.run] += len(part.held_out)
    done = 0

    def report(latest: Report) -> None:
        if watch:
            watch((done + len(program) * latest.update / latest.updates) / len(jobs), latest)

    for program in _programs(algorithm, spec, candidates, dataset, jobs):
        losses = _train_and_judge(algorithm, spec, candidates, dataset, keys, updates, program, report)
        for job, loss in zip(program, losses, strict=True):
            total[job.fold.run, job.candidate] += loss
        done += len(program)
    losses = np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], np.nan)
    return Selection(tuple(candidates), losses, total.argmin(axis=1))


def _programs(
    algorithm: str, spec: Spec, candidates: Sequence[Any], dataset: Dataset, jobs: list[Job]
) -> Iterator[list[Job]]:
    """Yield the jobs that are trained together: jobs with settings of one kind, as many as suit the device."""
    suited = MOST_RUNS_CPU if jax.default_backend() == "cpu" else MOST_RUNS
    most = min(suited, room_for(algorithms.get(algorithm).make, spec, candidates[0], dataset))
    for kind in alike([candidates[job.candidate] for job in jobs]):
        size = -(-len(kind) // -(-len(kind) // most))  # only the last program may be smaller
        for start in range(0, len(kind), size):
            yield [jobs[place] for place in kind[start : start + size]]


def _train_and_judge(
    algorithm: str,
    spec: Spec,
    candidates: Sequence[Any],
    dataset: Dataset,
    keys: PRNGKeyArray,
    updates: int,
    jobs: list[Job],
    watch: Callable[[Report], None],
) -> np.ndarray:
    """[jobs] the summed log-loss of the held-out decisions; infinite if training diverged."""
    entry, capacity, states = algorithms.get(algorithm), dataset.labelled.indices.shape[1], dataset.unlabelled
    parts = [job.fold for job in jobs]
    members = np.array([part.run for part in parts])
    sample = dataset.runs(members)._replace(labelled=padded([part.training for part in parts], capacity))
    config = jax.tree.map(lambda *leaves: np.array(leaves, np.float32), *(candidates[job.candidate] for job in jobs))
    if states.indices.shape[1]:
        left = [states_left(dataset, part) for part in parts]
        sample = sample._replace(unlabelled=padded(left, states.indices.shape[1]))
    own = _keys(keys[members], jnp.array([part.number for part in parts]))
    trained = train_many(entry.make, spec, config, sample, own, updates, watch, chunk=entry.chunk)
    held_out = padded([part.held_out for part in parts], capacity)
    losses = np.asarray(_held_out_loss(trained.states.network, held_out, dataset.pool), np.float64)
    losses[trained.diverged | ~np.isfinite(losses)] = np.inf
    return losses


def alike(configs: Sequence[Any]) -> list[np.ndarray]:
    """Return groups of places of configs that one program can train: they differ in floats only."""
    kinds: dict[Any, list[int]] = {}
    for place, config in enumerate(configs):
        kinds.setdefault(jax.tree.structure(config), []).append(place)
    return [np.array(places) for places in kinds.values()]


def share_of_work(candidates: int) -> float:
    """Return the share of the choice in all work; the rest is the training itself."""
    return 1 - 1 / (1 + FOLDS * candidates) if candidates > 1 else 0.0


def _usable(algorithm: str, dataset: Dataset, part: Fold) -> bool:
    """Whether the algorithm can learn from the rest of the data of a fold."""
    rows = Rows(part.training.astype(np.int32), np.int32(len(part.training)))  # type: ignore[arg-type]
    try:
        algorithms.require(algorithm, Dataset(dataset.pool, rows, rows))
    except UserError:
        return False
    return True


@jax.jit
@jax.vmap
def _keys(key: PRNGKeyArray, fold: Array) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.fold_in(key, UNUSED), fold)


@jax.jit
def _held_out_loss(networks: Any, rows: Rows, pool: Pool) -> Array:
    """[runs], the sum of -log pi(a|s) over the rows of each run."""

    def of(network: Any, rows: Rows) -> Array:
        if pool.images:  # a few at a time, because they are large
            logits = jax.lax.map(lambda row: network(pool.look(row)), pool.row[rows.indices], batch_size=64)
        else:
            logits = network(pool.look(pool.row[rows.indices]))
        return cross_entropy(logits, pool.action[rows.indices]).sum(where=rows.mask)

    return jax.vmap(of)(networks, rows)
