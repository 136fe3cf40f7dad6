"""The forward pass of a fully connected network in NumPy. It computes what sbil.networks.MLP does, without JAX."""

from collections.abc import Callable, Sequence

import numpy as np

Layers = Sequence[tuple[np.ndarray, np.ndarray]]  # (weight [inputs, outputs], bias [outputs]) of each layer


def elu(x: np.ndarray) -> np.ndarray:
    """x if positive, else exp(x) - 1; changes x."""
    negative = np.minimum(x, 0)
    np.exp(negative, out=negative)
    negative -= 1
    np.maximum(x, 0, out=x)
    x += negative
    return x


# Each changes its argument.
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "elu": elu,
    "relu": lambda x: np.maximum(x, 0, out=x),
    "tanh": lambda x: np.tanh(x, out=x),
}


def forward(layers: Layers, activation: str, observations: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The logits of observations [n, inputs], float32.

    Each row is multiplied separately. BLAS rounds a row of a product by the number of rows and by its place, and an
    episode must not depend on the episodes that are played beside it.
    weights: of networks that decide together, whose arrays are stacked; the logits are then the log of their mean.
    """
    if weights is not None:
        members = ([(weight[place], bias[place]) for weight, bias in layers] for place in range(len(weights)))
        return _log_mean(np.stack([forward(own, activation, observations) for own in members]), weights)
    activate = ACTIVATIONS[activation]
    x = observations[:, None, :]
    for number, (weight, bias) in enumerate(layers, start=1):
        x = x @ weight
        x += bias
        if number < len(layers):
            x = activate(x)
    return x[:, 0]


def _log_mean(logits: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the log of the weighted mean of the probabilities that logits [members, n, actions] give."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        shares = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)) + np.log(weights)[:, None, None]
    largest = shares.max(axis=0)
    return largest + np.log(np.exp(shares - largest).sum(axis=0))
