"""Policies made of others: a network that sees rows in pieces, and a weighted mean of several methods."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

FAR = 3.0  # the size that no number exceeds once it is squashed
LARGEST = 1e9  # numbers beyond it count as it, so that no square overflows


class Pieces(eqx.Module):
    """What a network for tables sees of a row: each column squashed, and how far it has come in each of its ranges.

    Squashed: z / sqrt(1 + (z / 3)^2) for z = (x - centre) * factor, so far values are near. A factor of 0 hides the
    column. In a range: (x - low) * slope, cut to 0 below the range and to 1 above it. So the network sees a threshold
    as easily as a tree does (Gorishniy et al., 2022, "On embeddings for numerical features").
    """

    centre: Float[Array, "*runs inputs"]
    factor: Float[Array, "*runs inputs"]
    low: Float[Array, "*runs inputs ranges"]
    slope: Float[Array, "*runs inputs ranges"]

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        x = jnp.clip(x, -LARGEST, LARGEST)
        z = (x - self.centre) * self.factor
        squashed = z / jnp.sqrt(1 + (z / FAR) ** 2)
        places = jnp.clip((x[..., None] - self.low) * self.slope, 0, 1)
        return jnp.concatenate([squashed, places.reshape(*x.shape[:-1], -1)], axis=-1)

    @property
    def outputs(self) -> int:
        """How many numbers the network sees."""
        return self.centre.shape[-1] + self.low.shape[-2] * self.low.shape[-1]


class InPieces(eqx.Module):
    """A network that sees rows in pieces."""

    pieces: Pieces
    network: Any  # an MLP

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return self.network(self.pieces(x))


class Blend(eqx.Module):
    """The weighted mean of the probabilities of its parts, as logs. So its energy is 0 everywhere."""

    parts: tuple[Any, ...]  # networks and trees
    weights: Float[Array, " parts"]  # they sum to 1

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch actions"]:
        weights = jnp.log(self.weights)
        shares = [jax.nn.log_softmax(part(x)) + weights[number] for number, part in enumerate(self.parts)]
        return jax.nn.logsumexp(jnp.stack(shares), axis=0)


class Adapted(eqx.Module):
    """A network of plain observations whose logits are divided by a temperature."""

    network: Any
    mean: Float[Array, " inputs"]
    scale: Float[Array, " inputs"]
    temperature: Float[Array, ""]

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch actions"]:
        return self.network((x - self.mean) / self.scale) / self.temperature


Composed = InPieces | Blend


def adapted(network: Composed, inputs: int, standardisation: Any, temperature: float) -> Adapted:
    """Return the network of plain observations, with a temperature. standardisation: mean and scale, or None."""
    mean, scale = standardisation or (np.zeros(inputs), np.ones(inputs))
    return Adapted(network, *(jnp.asarray(part, jnp.float32) for part in (mean, scale, temperature)))
