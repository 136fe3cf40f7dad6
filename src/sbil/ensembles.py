"""Ensembles: several networks as one wide network, whose logits are the mean of theirs."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax.scipy.linalg import block_diag
from jaxtyping import Array

from sbil.errors import UserError
from sbil.networks import MLP, Dense


def ensemble(networks: Sequence[MLP]) -> MLP:
    """Return one network whose logits are the mean of those of several, which may differ in width.

    Hidden layers stand beside each other, and the output layer takes the mean.
    """
    _must_fit(networks)
    last = networks[0].depth - 1
    layers = []
    for depth, own in enumerate(zip(*(network.layers for network in networks), strict=True)):
        weight = _beside([jnp.asarray(layer.weight) for layer in own], depth == 0, depth == last)
        bias = [jnp.asarray(layer.bias) for layer in own]
        layers.append(
            Dense(weight / len(own), jnp.stack(bias).mean(axis=0)) if depth == last else Dense(weight, jnp.hstack(bias))
        )
    return MLP(tuple(layers), networks[0].activation)


def widened(network: MLP, width: int) -> MLP:
    """Return the same network with `width` units in every hidden layer; the new ones have weight 0."""
    layers = []
    for depth, layer in enumerate(network.layers):
        inputs, outputs = layer.weight.shape
        rows = 0 if depth == 0 else width - inputs
        columns = 0 if depth == network.depth - 1 else width - outputs
        layers.append(Dense(jnp.pad(layer.weight, ((0, rows), (0, columns))), jnp.pad(layer.bias, (0, columns))))
    return MLP(tuple(layers), network.activation, network.level)


def _beside(weights: list[Array], first: bool, last: bool) -> Array:
    """Return the weights of layers that share their inputs if they are the first, and their sums if they are last."""
    if first:
        return jnp.stack(weights).sum(axis=0) if last else jnp.hstack(weights)
    return jnp.vstack(weights) if last else block_diag(*weights)


def _must_fit(networks: Sequence[MLP]) -> None:
    """Refuse networks that one network cannot hold beside each other."""
    if not networks:
        raise UserError("an ensemble needs one network or more; the list is empty.")
    for network in networks:
        if not isinstance(network, MLP) or network.level is not None:
            kind = "an MLP with an output for the energy" if isinstance(network, MLP) else type(network).__name__
            raise UserError(f"an ensemble needs fully connected networks with one output per action. Got {kind}.")
    agreed: dict[str, list[int] | list[str]] = {
        "count of layers": [network.depth for network in networks],
        "count of inputs": [network.layers[0].weight.shape[0] for network in networks],
        "count of actions": [network.output.weight.shape[1] for network in networks],
        "activation": [network.activation for network in networks],
    }
    for what, values in agreed.items():
        if len(set(values)) > 1:
            raise UserError(
                f"the networks of an ensemble must have the same {what}. Got {', '.join(map(str, values))}."
            )
