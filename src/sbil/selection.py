"""Choosing settings on held-out demonstrations alone: cross-validation by trajectory, all candidates at once.

Every run of a dataset chooses for itself: its trajectories are dealt into folds, every candidate is trained on all
folds but one and scored by the log-loss of the decisions in that one. A run with a single trajectory is cut into
stretches.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from sbil import algorithms
from sbil.algorithms.base import cross_entropy
from sbil.dataset import Dataset, Pool, Rows, Spec, padded
from sbil.errors import UserError
from sbil.training import Report, room_for, train_many

FOLDS = 3
MOST_RUNS = 1000  # in one program on a GPU; a CPU is fastest with few
MOST_RUNS_CPU = 50
UNUSED = 2**32 - 1  # the number of no update: folds have random numbers of their own


class Selection(NamedTuple):
    """What R runs chose among C candidates."""

    candidates: tuple[Any, ...]
    losses: np.ndarray  # [R, C], held-out log-loss a decision; infinite where training diverged, NaN where none is
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
    """The folds of every run: whole trajectories (whole groups of them), or stretches of the only one there is."""
    if folds < 2:
        raise UserError(f"folds must be a whole number from 2. Got {folds}.")
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
    """A run's states without a decision, less those from a held-out decision to the next: they belong to it."""
    states, count = (np.asarray(leaf[part.run]) for leaf in dataset.unlabelled)
    states = states[:count]
    steps = np.sort(np.concatenate([part.training, part.held_out]))
    before = np.searchsorted(np.asarray(dataset.pool.row), states, side="right") - 1  # the pool's step at or before
    own = steps[np.maximum(np.searchsorted(steps, before, side="right") - 1, 0)]
    trajectory = np.asarray(dataset.pool.trajectory)
    return states[~(np.isin(own, part.held_out) & (trajectory[own] == trajectory[before]))]


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
    """For every run of `dataset`, the candidate settings with the smallest log-loss on decisions held out.

    groups: [trajectories of the pool], the group of each, which no fold tears apart.
    watch: called with the share of the work that is done, and the latest report.
    A run that has nothing to hold out, or would be left with data that the algorithm cannot use, takes the first
    candidate; its losses are NaN.
    """
    entry, runs = algorithms.get(algorithm), len(keys)
    parts = [part for part in folds_of(dataset, folds, groups) if _usable(algorithm, dataset, part)]
    capacity = dataset.labelled.indices.shape[1]
    total, count = np.zeros((runs, len(candidates))), np.zeros(runs)
    for part in parts:
        count[part.run] += len(part.held_out)
    jobs = [(part, number) for number in range(len(candidates)) for part in parts]
    room = room_for(entry.make, spec, candidates[0], dataset)
    kinds = alike([candidates[number] for _, number in jobs])
    done = 0
    for group in (group for kind in kinds for group in _groups([jobs[place] for place in kind], room)):

        def report(latest: Report, done: int = done, group: int = len(group)) -> None:
            if watch:
                watch((done + group * latest.update / latest.updates) / len(jobs), latest)

        members = np.array([part.run for part, _ in group])
        sample = dataset.runs(members)._replace(labelled=padded([part.training for part, _ in group], capacity))
        config = jax.tree.map(lambda *leaves: np.array(leaves, np.float32), *(candidates[c] for _, c in group))
        if dataset.unlabelled.indices.shape[1]:
            left = [states_left(dataset, part) for part, _ in group]
            sample = sample._replace(unlabelled=padded(left, dataset.unlabelled.indices.shape[1]))
        own = _keys(keys[members], jnp.array([part.number for part, _ in group]))
        trained = train_many(entry.make, spec, config, sample, own, updates, report, chunk=entry.chunk)
        held_out = padded([part.held_out for part, _ in group], capacity)
        losses = np.asarray(_held_out_loss(trained.states.network, held_out, dataset.pool), np.float64)
        losses[trained.diverged | ~np.isfinite(losses)] = np.inf
        for (part, number), loss in zip(group, losses, strict=True):
            total[part.run, number] += loss
        done += len(group)
    losses = np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], np.nan)
    return Selection(tuple(candidates), losses, total.argmin(axis=1))


def alike(configs: Sequence[Any]) -> list[np.ndarray]:
    """The places of configs that one program can train, group by group: they differ in floats only."""
    kinds: dict[Any, list[int]] = {}
    for place, config in enumerate(configs):
        kinds.setdefault(jax.tree.structure(config), []).append(place)
    return [np.array(places) for places in kinds.values()]


def share_of_work(candidates: int) -> float:
    """What choosing takes of all work; the rest is the training itself."""
    return 1 - 1 / (1 + FOLDS * candidates) if candidates > 1 else 0.0


def _usable(algorithm: str, dataset: Dataset, part: Fold) -> bool:
    """Whether the algorithm can learn from what a fold leaves."""
    rows = Rows(part.training.astype(np.int32), np.int32(len(part.training)))  # type: ignore[arg-type]
    try:
        algorithms.require(algorithm, Dataset(dataset.pool, rows, rows))
    except UserError:
        return False
    return True


def _groups(jobs: list[Any], most: int) -> list[list[Any]]:
    """Jobs in as few programs as the device likes, all but the last of one size."""
    most = min(MOST_RUNS_CPU if jax.default_backend() == "cpu" else MOST_RUNS, most)
    size = -(-len(jobs) // -(-len(jobs) // most))
    return [jobs[start : start + size] for start in range(0, len(jobs), size)]


@jax.jit
@jax.vmap
def _keys(key: PRNGKeyArray, fold: Array) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.fold_in(key, UNUSED), fold)


@jax.jit
def _held_out_loss(networks: Any, rows: Rows, pool: Pool) -> Array:
    """[runs], the sum of -log pi(a|s) over the rows of each run."""

    def of(network: Any, rows: Rows) -> Array:
        if pool.images:  # a few at a time, for they are large
            logits = jax.lax.map(lambda row: network(pool.look(row)), pool.row[rows.indices], batch_size=64)
        else:
            logits = network(pool.look(pool.row[rows.indices]))
        return cross_entropy(logits, pool.action[rows.indices]).sum(where=rows.mask)

    return jax.vmap(of)(networks, rows)
