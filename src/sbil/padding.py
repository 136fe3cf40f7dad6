"""Rows that are never read: they fill arrays up to a power of two, so that few sizes need few compiled programs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbil.dataset import Dataset, Rows

LEAST = 512  # rows, where they are padded


def full(dataset: Dataset) -> Dataset:
    """The dataset with every array filled up to a power of two rows; the counts stay, so the rows are never read."""

    def fill(array: Any, axis: int) -> Any:
        more = _power(array.shape[axis]) - array.shape[axis]
        return jnp.asarray(np.pad(np.asarray(array), [(0, more * (axis == each)) for each in range(array.ndim)]))

    pool, steps = jax.tree.map(lambda array: fill(array, 0), dataset.pool), len(dataset.pool.trajectory)
    after = dataset.pool.trajectory[-1] + 1  # numbers of trajectories stay in order
    pool = pool._replace(trajectory=jnp.where(jnp.arange(len(pool.trajectory)) < steps, pool.trajectory, after))
    return Dataset(pool, Rows(fill(dataset.labelled.indices, 1), dataset.labelled.size), dataset.unlabelled)


def filled(rows: np.ndarray) -> np.ndarray:
    """The rows, then the first row again up to a power of two of them: few sizes need few compiled programs."""
    return np.concatenate([rows, np.repeat(rows[:1], _power(len(rows)) - len(rows), axis=0)])


def _power(size: int) -> int:
    return max(LEAST, 1 << (size - 1).bit_length())
