"""The recorded steps that a model of the dynamics learns from."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sbil.dataset import Dataset
from sbil.folds import Fold, folds_of

MOST = 20_000  # steps that a model learns from, below 2**16; of more, evenly spaced stretches
MOST_NUMBERS = 5_000_000  # in their states: of wide tables fewer steps
STRETCH = 100  # steps in a row
LEVELS = 8  # values: a column with more is continuous
PER_LEVEL = 5  # steps per value, so that few steps do not make a column discrete


class Triples(NamedTuple):
    """The steps of a draw, with what followed them. Padding has neither a successor nor an end."""

    state: Float[Array, "steps inputs"]
    action: Int[Array, " steps"]
    after: Float[Array, "steps inputs"]  # means nothing where has_next is False
    has_next: Bool[Array, " steps"]
    terminal: Bool[Array, " steps"]
    fold: Int[Array, " steps"]  # for cross-validation
    following: Int[Array, " steps"]  # the place of the step that was recorded next, or -1
    levels: Float[Array, "inputs levels"]  # the values of a discrete column, then NaN; all NaN: continuous
    groups: Int[Array, "groups columns"]  # columns of which exactly one is 1, then the count of all columns

    @property
    def known(self) -> Bool[Array, " steps"]:
        """Where it is known what followed: a state, or the end."""
        return self.has_next | self.terminal


def triples_of(dataset: Dataset, groups: np.ndarray | None = None, one_hot: Sequence[Sequence[int]] = ()) -> Triples:
    """Return the triples of R runs, stacked along a leading axis.

    groups: [trajectories of the pool], the group of each; a fold holds whole groups.
    one_hot: lists of columns of which exactly one is 1 in every state.
    """
    every: list[list[Fold]] = [[] for _ in dataset.labelled.size]
    for fold in folds_of(dataset, groups=groups):
        every[fold.run].append(fold)
    inputs = dataset.pool.inputs
    most = min(MOST, MOST_NUMBERS // inputs)
    steps = [_spaced(np.asarray(indices)[:size], most) for indices, size in zip(*dataset.labelled, strict=True)]
    width = max(map(len, steps))
    groups = _groups(inputs, one_hot)
    parts = [_of(dataset, own, folds, groups, width) for own, folds in zip(steps, every, strict=True)]
    triples = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    needed = int((~jnp.isnan(triples.levels)).sum(axis=-1).max())  # none, if every column is continuous
    return triples._replace(levels=triples.levels[..., :needed])


def _spaced(steps: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the steps, in stretches of neighbours, so that what follows is there too."""
    if len(steps) <= most:
        return steps
    stretch = min(STRETCH, most)
    starts = np.linspace(0, len(steps) - stretch, most // stretch).astype(int)
    return steps[np.unique(starts[:, None] + np.arange(stretch))]


def _of(dataset: Dataset, steps: np.ndarray, folds: list[Fold], groups: np.ndarray, width: int) -> Triples:
    """Return the triples of one run, padded to `width` steps."""
    pool = dataset.pool
    observations, row, has_next = (np.asarray(leaf) for leaf in (pool.observations, pool.row, pool.has_next))
    number = np.zeros(len(row), int)
    for fold in folds:
        number[fold.held_out] = fold.number
    follows = np.append(row[steps[1:]] == row[steps[:-1]] + 1, False) & has_next[steps]
    state, after = observations[row[steps]], observations[row[steps] + has_next[steps]]

    def fill(values: np.ndarray, padding: int = 0) -> Array:
        more = [(0, width - len(values))] + [(0, 0)] * (values.ndim - 1)
        return jnp.asarray(np.pad(values, more, constant_values=padding))

    return Triples(
        state=fill(state),
        action=fill(np.asarray(pool.action)[steps]),
        after=fill(after),
        has_next=fill(has_next[steps]),
        terminal=fill(np.asarray(pool.terminal)[steps]),
        fold=fill(number[steps]),
        following=fill(np.where(follows, np.arange(len(steps)) + 1, -1), -1),
        levels=jnp.asarray(np.stack([_levels(*columns) for columns in zip(state.T, after.T, strict=True)])),
        groups=jnp.asarray(groups),
    )


def _levels(column: np.ndarray, after: np.ndarray) -> np.ndarray:
    """[LEVELS], the few values of a discrete column, then NaN."""
    values, found = np.unique([column, after]), np.full(LEVELS, np.nan, np.float32)
    if len(values) <= min(LEVELS, max(1, len(column) // PER_LEVEL)):
        found[: len(values)] = values
    return found


def _groups(inputs: int, one_hot: Sequence[Sequence[int]]) -> np.ndarray:
    groups = np.full((len(one_hot), max(map(len, one_hot), default=0)), inputs)
    for own, columns in zip(groups, one_hot, strict=True):
        own[: len(columns)] = columns
    return groups
