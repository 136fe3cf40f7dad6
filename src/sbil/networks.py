"""The networks: f(s) gives one logit an action, hence a policy and an energy of states at once."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbil.dataset import Dataset, Spec
from sbil.errors import UserError


@jax.custom_jvp
def elu(x: Array) -> Array:
    """x where positive, exp(x) - 1 elsewhere; twice as fast on CPU as through expm1, exact to 1e-7."""
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0)) - 1)


@elu.defjvp
def _elu_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    y = elu(*primals)
    return y, tangents[0] * jnp.where(y > 0, 1, y + 1)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"elu": elu, "relu": jax.nn.relu, "tanh": jnp.tanh}


class Dense(eqx.Module):
    """An affine layer, x @ weight + bias, over any leading axes."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return x @ self.weight + self.bias


class MLP(eqx.Module):
    """A fully connected network with a linear output; its leaves are arrays only, so vmap applies as it is."""

    layers: tuple[Dense, ...]
    activation: str = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return self.layers[-1](self.features(x, len(self.layers) - 1))

    def features(self, x: Float[Array, "*batch inputs"], depth: int) -> Float[Array, "*batch features"]:
        """What the first `depth` layers make of x, each followed by the activation."""
        for layer in self.layers[:depth]:
            x = ACTIVATIONS[self.activation](layer(x))
        return x


def mlp(key: PRNGKeyArray, sizes: tuple[int, ...], activation: str = "elu") -> MLP:
    """An MLP of the given layer sizes; weights and biases uniform in ±1/sqrt(inputs), as in EDM's released code."""
    layers = []
    for layer_key, inputs, outputs in zip(jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True):
        draws = jax.random.uniform(layer_key, (inputs + 1, outputs), minval=-(inputs**-0.5), maxval=inputs**-0.5)
        layers.append(Dense(draws[:-1], draws[-1]))
    return MLP(tuple(layers), activation)


def orthogonal(key: PRNGKeyArray, inputs: int, outputs: int) -> Float[Array, "inputs outputs"]:
    """A random matrix whose columns (or rows, if these are fewer) are orthonormal, without favoured directions.

    Gram and Schmidt's way, each column twice for precision. QR by LAPACK is not used, since it can hang when several
    CPU devices call it at once.
    """
    tall, few = max(inputs, outputs), min(inputs, outputs)

    def step(number: Array, columns: Array) -> Array:
        before = jnp.where(jnp.arange(few) < number, columns, 0.0)
        column = columns[:, number]
        for _ in range(2):
            column -= before @ (before.T @ column)
        return columns.at[:, number].set(column / jnp.linalg.norm(column))

    columns = jax.lax.fori_loop(0, few, step, jax.random.normal(key, (tall, few)))
    return columns if inputs >= outputs else columns.T


def orthogonal_mlp(key: PRNGKeyArray, sizes: tuple[int, ...], activation: str = "relu") -> MLP:
    """An MLP of the given layer sizes; orthogonal weights and no biases, as in ValueDICE's released code."""
    keys = jax.random.split(key, len(sizes) - 1)
    layers = (Dense(orthogonal(k, *size), jnp.zeros(size[1])) for k, size in zip(keys, pairwise(sizes), strict=True))
    return MLP(tuple(layers), activation)


def policy_network(key: PRNGKeyArray, spec: Spec, hidden: tuple[int, ...] = (64, 64)) -> MLP:
    """The paper's network for vector observations: two hidden layers of 64, ELU, one logit an action."""
    return mlp(key, (features_of(spec), *hidden, spec.actions))


def features_of(spec: Spec) -> int:
    """How many numbers an observation has; images are refused."""
    if len(spec.observation_shape) != 1:
        raise UserError(f"observations must be rows of numbers. Got shape {spec.observation_shape} (images, say).")
    return spec.observation_shape[0]


class Scaling(NamedTuple):
    """What a network that learns on standardised states does to an observation first: (s - mean) / scale."""

    mean: Float[Array, "*runs inputs"]
    scale: Float[Array, "*runs inputs"]

    def __call__(self, observation: Float[Array, "*batch inputs"]) -> Float[Array, "*batch inputs"]:
        return (observation - self.mean) / self.scale

    def folded_into(self, network: MLP) -> MLP:
        """The network that gives for s what `network` gives for (s - mean) / scale; stacked runs are fine.

        Inputs of `network` beyond those of s are taken as zero.
        """
        first, *rest = network.layers
        weight = first.weight[..., : self.scale.shape[-1], :] / self.scale[..., None]
        bias = first.bias - jnp.einsum("...i,...io->...o", self.mean, weight)
        return MLP((Dense(weight, bias), *rest), network.activation)


def scaling(dataset: Dataset) -> Scaling:
    """The scaling that standardises a run's labelled states; a constant column is only centred."""
    mean, deviation = dataset.moments()
    return Scaling(mean, jnp.where(deviation > 1e-6 * (1 + jnp.abs(mean)), deviation + 1e-3, 1.0))


def energy(logits: Float[Array, "*batch actions"]) -> Float[Array, "*batch"]:
    """E(s) = -log sum_a exp f(s)[a]: low where the network has seen states like s."""
    return -jax.nn.logsumexp(logits, axis=-1)
