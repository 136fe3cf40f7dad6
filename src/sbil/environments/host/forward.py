"""The forward pass of a fully connected network in NumPy: what sbil.networks.MLP computes, without JAX."""

from collections.abc import Callable, Sequence

import numpy as np

Layers = Sequence[tuple[np.ndarray, np.ndarray]]  # (weight [inputs, outputs], bias [outputs]) a layer


def elu(x: np.ndarray) -> np.ndarray:
    """x where positive, exp(x) - 1 elsewhere; changes x."""
    negative = np.minimum(x, 0)
    np.exp(negative, out=negative)
    negative -= 1
    np.maximum(x, 0, out=x)
    x += negative
    return x


def relu(x: np.ndarray) -> np.ndarray:
    """x where positive, 0 elsewhere; changes x."""
    return np.maximum(x, 0, out=x)


def tanh(x: np.ndarray) -> np.ndarray:
    """The hyperbolic tangent; changes x."""
    return np.tanh(x, out=x)


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"elu": elu, "relu": relu, "tanh": tanh}


def forward(layers: Layers, activation: str, observations: np.ndarray) -> np.ndarray:
    """The logits of observations [n, inputs], float32.

    Every row is multiplied by itself, a vector by a matrix: BLAS rounds the rows of a product differently with their
    number and place, and an episode must not depend on which others are still being played.
    """
    activate = ACTIVATIONS[activation]
    x = observations[:, None, :]
    for number, (weight, bias) in enumerate(layers, start=1):
        x = x @ weight
        x += bias
        if number < len(layers):
            x = activate(x)
    return x[:, 0]
