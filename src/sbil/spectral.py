"""Spectral norms: the largest factor by which a layer stretches a vector, and networks whose layers stay below a bound.

A norm is found by power iteration, one step per update; the vectors are kept between updates. There is no SVD, because
LAPACK can hang if several CPU devices call it at once.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sbil.networks import Dense

T = TypeVar("T")  # anything made of layers: a network, or a pytree of networks
Vectors = tuple[Float[Array, " inputs"], ...]  # one unit vector per layer
TINY = 1e-12  # a vector that is shorter has no direction


def start_vectors(network: T) -> Vectors:
    """Return the vectors with which power iteration begins: in each, all coordinates are equal."""
    sizes = [layer.weight.shape[0] for layer in _layers(network)]
    return tuple(jnp.full(size, size**-0.5) for size in sizes)


def iterate(network: T, vectors: Vectors) -> Vectors:
    """Make one step of power iteration in every layer."""
    pairs = zip(_layers(network), vectors, strict=True)
    return tuple(_directions(jax.lax.stop_gradient(layer.weight), vector)[0] for layer, vector in pairs)


def spectral_norms(network: T, vectors: Vectors) -> tuple[Float[Array, ""], ...]:
    """Return the spectral norm of every layer. It is too small until the vectors have converged.

    The gradient takes the vectors as constants.
    """
    norms = []
    for layer, vector in zip(_layers(network), vectors, strict=True):
        left, right = _directions(*jax.lax.stop_gradient((layer.weight, vector)))
        norms.append(left @ layer.weight @ right)
    return tuple(norms)


def bounded(network: T, vectors: Vectors, bound: float | Array) -> T:
    """Return the network with W / max(1, norm(W) / bound) in place of every layer's weights W."""
    layers, structure = jax.tree.flatten(network, is_leaf=_is_layer)
    norms = spectral_norms(network, vectors)
    scaled = [
        Dense(layer.weight / jnp.maximum(1.0, norm / bound), layer.bias)
        for layer, norm in zip(layers, norms, strict=True)
    ]
    return jax.tree.unflatten(structure, scaled)


def _directions(weight: Array, vector: Array) -> tuple[Array, Array]:
    """Return the next vectors, of inputs and of outputs. A layer of zeros keeps its vector."""
    right = _unit(vector @ weight, jnp.zeros(weight.shape[1]))
    return _unit(weight @ right, vector), right


def _unit(vector: Array, otherwise: Array) -> Array:
    """Return the vector with length 1, or `otherwise` if it is zero."""
    length = jnp.sqrt(jnp.vdot(vector, vector))
    return jnp.where(length > TINY, vector / jnp.maximum(length, TINY), otherwise)


def _is_layer(part: object) -> bool:
    return isinstance(part, Dense)


def _layers(network: object) -> list[Dense]:
    return jax.tree.leaves(network, is_leaf=_is_layer)
