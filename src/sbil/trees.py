"""Sums of decision trees as plain arrays, evaluated in JAX and in NumPy with the same bits."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

_LARGEST = int(np.finfo(np.float32).max.view(np.int32))  # the place of the largest number


class Nodes(NamedTuple):
    """The nodes of trees; number 0 is the root. All trees have room for as many nodes, and unused ones are leaves.

    A row goes to `child` if its feature is at most the threshold, else to the node after `child`. A leaf is its own
    child.
    """

    feature: Any  # [..., nodes], int32; all four are arrays of JAX or of NumPy
    threshold: Any  # [..., nodes], float32
    child: Any  # [..., nodes], int32
    value: Any  # [..., nodes], float32, of leaves

    def at(self, place: Any) -> "Nodes":
        """Return the node of each tree at which each row is; place: [rows, trees]."""
        trees = np.arange(place.shape[1])
        return Nodes(*(part[trees, place] for part in self))


class Trees(eqx.Module):
    """The logits are `start` plus the sum of a tree per round and action; the first actions may have no trees."""

    nodes: Nodes  # [rounds, trees, nodes]
    start: Float[Array, " actions"]
    inputs: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch actions"]:
        rows = jnp.asarray(x).reshape(-1, x.shape[-1])
        counts = len(rows), self.nodes.child.shape[-2]

        def add(total: Array, nodes: Nodes) -> tuple[Array, None]:
            return total + nodes.at(_leaves(nodes, rows, counts)).value, None

        total, _ = jax.lax.scan(add, jnp.zeros(counts, jnp.float32), self.nodes)
        without = jnp.zeros((len(rows), self.start.shape[-1] - counts[1]), jnp.float32)
        return (self.start + jnp.concatenate([without, total], axis=1)).reshape(*x.shape[:-1], -1)

    def in_numpy(self, rows: np.ndarray) -> np.ndarray:
        """Return what a call returns for rows [n, inputs], without JAX."""
        counts = len(rows), self.nodes.child.shape[-2]
        total, number = np.zeros(counts, np.float32), np.arange(len(rows))[:, None]
        for nodes in self.rounds():
            place, moving = np.zeros(counts, np.int32), True
            while moving:
                here = nodes.at(place)
                after = np.where(here.child == place, place, here.child + (rows[number, here.feature] > here.threshold))
                place, moving = after, bool((after != place).any())
            total += nodes.at(place).value
        without = np.zeros((len(rows), self.start.shape[-1] - counts[1]), np.float32)
        return np.asarray(self.start) + np.concatenate([without, total], axis=1)

    def rounds(self) -> Iterator[Nodes]:
        """Yield the trees [trees, nodes] of each round, as NumPy arrays."""
        return (Nodes(*part) for part in zip(*map(np.asarray, self.nodes), strict=True))

    def cooled(self, temperature: float) -> "Trees":
        """Return the trees whose logits are divided by a temperature."""
        nodes = self.nodes._replace(value=self.nodes.value / temperature)
        return Trees(nodes, self.start / temperature, self.inputs)

    def of_plain(self, mean: np.ndarray, scale: np.ndarray) -> "Trees":
        """Return the trees that give for x what these give for (x - mean) / scale."""
        feature, threshold = np.asarray(self.nodes.feature), np.asarray(self.nodes.threshold)
        threshold = _before_scaling(threshold, mean[feature], scale[feature])
        return Trees(self.nodes._replace(threshold=jnp.asarray(threshold)), self.start, self.inputs)


def _before_scaling(threshold: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the largest x with (x - mean) / scale <= threshold, all in float32, so that no row changes its way."""
    low = np.full(threshold.shape, -_LARGEST, np.int64)
    high = -low
    with np.errstate(over="ignore"):
        while (high - low > 1).any():
            middle = (low + high) // 2
            fits = (_float(middle) - mean) / scale <= threshold
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return _float(low)


def _float(place: np.ndarray) -> np.ndarray:
    """Return the float32 numbers at these places, counted from 0 in the order of size."""
    size = np.abs(place).astype(np.int32).view(np.float32)
    return np.where(place < 0, -size, size)


def _leaves(nodes: Nodes, rows: Array, counts: tuple[int, int]) -> Int[Array, "rows trees"]:
    """Return the leaf of each tree [trees] to which each row comes."""
    number = np.arange(len(rows))[:, None]

    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        place, _ = state
        here = nodes.at(place)
        above = rows[number, here.feature] > here.threshold
        after = jnp.where(here.child == place, place, here.child + above)
        return after, (after != place).any()

    begin = jnp.zeros(counts, nodes.child.dtype), jnp.array(True)
    return jax.lax.while_loop(lambda state: state[1], step, begin)[0]
