"""Folds for cross-validation within a draw: whole trajectories, or groups of them, or stretches of a single one."""

from typing import NamedTuple

import numpy as np

from sbil.dataset import Dataset
from sbil.errors import whole

FOLDS = 3


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
    for run, (indices, size) in enumerate(zip(*map(np.asarray, dataset.labelled), strict=True)):
        steps = indices[:size]
        units = trajectories[steps] if groups is None else np.asarray(groups)[trajectories[steps]]
        _, number = np.unique(units, return_inverse=True)
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
