"""Ensembles of the policies of a draw that stay nearest: the mean of their logits, as one wide network."""

from collections.abc import Sequence
from itertools import pairwise

import jax.numpy as jnp
import numpy as np

from sbil.networks import MLP, Dense

SIZES = (3, 5)  # policies


def ensemble(networks: Sequence[MLP], width: int) -> MLP:
    """Return one network whose logits are the mean of those of several; each of these has room for `width` features.

    Hidden layers stand beside each other, and the output layer takes the mean.
    """
    count, first = len(networks), networks[0]
    inputs, actions = first.layers[0].weight.shape[0], first.output.weight.shape[1]
    sizes = [inputs, *[count * width] * (first.depth - 1), actions]
    layers = []
    for depth, shape in enumerate(pairwise(sizes)):
        weight, bias = np.zeros(shape, np.float32), np.zeros(shape[1], np.float32)
        last = depth == first.depth - 1
        for place, network in enumerate(networks):
            own = network.layers[depth]
            row, column = width * place * (depth > 0), width * place * (not last)
            rows, columns = own.weight.shape
            weight[row : row + rows, column : column + columns] += own.weight / (count if last else 1)
            bias[column : column + columns] += own.bias / (count if last else 1)
        layers.append(Dense(jnp.asarray(weight), jnp.asarray(bias)))
    return MLP(tuple(layers), first.activation)
