"""The networks: f(s) gives one logit per action, and so both a policy and an energy of states."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbil.dataset import Dataset, Spec, features_of
from sbil.errors import UserError
from sbil.mixtures import Composed
from sbil.trees import Trees


@jax.custom_jvp
def elu(x: Array) -> Array:
    """Return x if positive, else exp(x) - 1. On CPU this is twice as fast as expm1, and exact to 1e-7."""
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0)) - 1)


@elu.defjvp
def _elu_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    y = elu(*primals)
    return y, tangents[0] * jnp.where(y > 0, 1, y + 1)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"elu": elu, "relu": jax.nn.relu, "tanh": jnp.tanh}


def in_float32() -> AbstractContextManager[None]:
    """Compute in full float32, for every network that decides.

    By default recent GPUs round the factors of products to three digits. This changes decisions if the two best outputs
    are close: every tenth decision of our DQN. Training keeps the device's default, which is faster.
    """
    return jax.default_matmul_precision("float32")


class Dense(eqx.Module):
    """An affine layer, x @ weight + bias, over any leading axes."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return x @ self.weight + self.bias


class MLP(eqx.Module):
    """A fully connected network with a linear output. Its leaves are arrays only, so vmap applies directly.

    With a `level` the energy is a separate output: the logits are log-softmax of the output, plus minus-energy.
    """

    layers: tuple[Dense, ...]
    activation: str = eqx.field(static=True)
    level: Dense | None = None  # from the features below the output to -E

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        features = self.features(x, self.depth - 1)
        outputs = self.layers[-1](features)
        return outputs if self.level is None else jax.nn.log_softmax(outputs) + self.level(features)

    def features(self, x: Float[Array, "*batch inputs"], depth: int) -> Float[Array, "*batch features"]:
        """Apply the first `depth` layers to x, each followed by the activation."""
        for layer in self.layers[:depth]:
            x = ACTIVATIONS[self.activation](layer(x))
        return x

    @property
    def depth(self) -> int:
        """The number of layers, including the linear output."""
        return len(self.layers)

    @property
    def output(self) -> Dense:
        """The last layer."""
        return self.layers[-1]


class Kernel(NamedTuple):
    """A convolution: number of outputs, width of a patch, and stride. The width is a multiple of the stride."""

    outputs: int
    width: int
    stride: int


KERNELS = (Kernel(32, 8, 4), Kernel(64, 4, 2), Kernel(64, 3, 1))  # Mnih et al. (2015)


class ConvNet(eqx.Module):
    """Convolutions with ReLU, then an MLP. An input is a flat row: an image [height, width, channels], and the
    numbers that follow it, which join after the convolutions. The convolutions count as one layer.
    """

    convolutions: tuple[Dense, ...]
    head: MLP
    shape: tuple[int, int, int] = eqx.field(static=True)
    kernels: tuple[Kernel, ...] = eqx.field(static=True, default=KERNELS)

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return self.head(self.look(x))

    def look(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch features"]:
        """Apply the convolutions to the image; return a row with the numbers that follow it."""
        pixels = math.prod(self.shape)
        image = x[..., :pixels].reshape(*x.shape[:-1], *self.shape)
        for layer, kernel in zip(self.convolutions, self.kernels, strict=True):
            image = jax.nn.relu(layer(patches(image, kernel)))
        return jnp.concatenate([image.reshape(*x.shape[:-1], -1), x[..., pixels:]], axis=-1)

    def features(self, x: Float[Array, "*batch inputs"], depth: int) -> Float[Array, "*batch features"]:
        """Apply the first `depth` layers to x."""
        return self.head.features(self.look(x), depth - 1) if depth else x

    @property
    def depth(self) -> int:
        """The number of layers, the convolutions counting as one."""
        return 1 + self.head.depth

    @property
    def output(self) -> Dense:
        """The last layer."""
        return self.head.output


Network = MLP | ConvNet  # what learns by gradients
N = TypeVar("N", bound=Network)
Acting = Network | Trees | Composed  # what a policy may be


def patches(
    image: Float[Array, "*batch height width channels"], kernel: Kernel
) -> Float[Array, "*batch rows columns patch"]:
    """Return the patches that a convolution sees, so that it is a matrix product.

    Many networks at once are then one batched product; a convolution would become a slow grouped one. Squares of
    stride x stride pixels are gathered first; a patch is a few of these squares.
    """
    *batch, height, width, channels = image.shape
    stride, squares = kernel.stride, kernel.width // kernel.stride
    rows, columns = ((size - kernel.width) // stride + 1 for size in (height, width))
    tall, wide = rows + squares - 1, columns + squares - 1
    cropped = image[..., : tall * stride, : wide * stride, :].reshape(*batch, tall, stride, wide, stride, channels)
    gathered = jnp.moveaxis(cropped, -4, -3).reshape(*batch, tall, wide, stride * stride * channels)
    shifted = [gathered[..., i : i + rows, j : j + columns, :] for i in range(squares) for j in range(squares)]
    return jnp.concatenate(shifted, axis=-1)


def seen(shape: tuple[int, ...], kernels: tuple[Kernel, ...] = KERNELS) -> tuple[list[int], int]:
    """Return (the size of a patch of each convolution, the numbers that the last one gives) for images of a shape."""
    height, width, channels = shape
    sizes = []
    for kernel in kernels:
        sizes.append(kernel.width**2 * channels)
        height, width = ((size - kernel.width) // kernel.stride + 1 for size in (height, width))
        channels = kernel.outputs
        if min(height, width) < 1:
            raise UserError(f"images of {shape[0]} x {shape[1]} pixels are too small for the convolutions; 36 x 36 do.")
    return sizes, height * width * channels


def uniform_dense(key: PRNGKeyArray, inputs: int, outputs: int) -> Dense:
    """Draw weights and biases uniform in ±1/sqrt(inputs), as in EDM's released code."""
    draws = jax.random.uniform(key, (inputs + 1, outputs), minval=-(inputs**-0.5), maxval=inputs**-0.5)
    return Dense(draws[:-1], draws[-1])


def orthogonal_dense(key: PRNGKeyArray, inputs: int, outputs: int) -> Dense:
    """Draw orthogonal weights; biases are zero, as in ValueDICE's released code."""
    return Dense(orthogonal(key, inputs, outputs), jnp.zeros(outputs))


Layer = Callable[[PRNGKeyArray, int, int], Dense]  # how a layer begins


def mlp(key: PRNGKeyArray, sizes: tuple[int, ...], activation: str = "elu", layer: Layer = uniform_dense) -> MLP:
    """Return an MLP of the given layer sizes."""
    keys = jax.random.split(key, len(sizes) - 1)
    return MLP(tuple(layer(k, *size) for k, size in zip(keys, pairwise(sizes), strict=True)), activation)


def make_network(
    key: PRNGKeyArray,
    spec: Spec,
    hidden: tuple[int, ...],
    outputs: int,
    activation: str = "elu",
    *,
    more: int = 0,
    layer: Layer = uniform_dense,
) -> Network:
    """Return a network of observations and `more` numbers. For images convolutions replace the first hidden layer."""
    if len(spec.observation_shape) == 1:
        return mlp(key, (features_of(spec) + more, *hidden, outputs), activation, layer)
    sizes, last = seen(spec.observation_shape)
    keys = jax.random.split(key, len(KERNELS) + 1)
    below = zip(keys, sizes, KERNELS, strict=False)
    convolutions = tuple(layer(k, inputs, kernel.outputs) for k, inputs, kernel in below)
    head = mlp(keys[-1], (last + more, *hidden[1:], outputs), activation, layer)
    height, width, channels = spec.observation_shape
    return ConvNet(convolutions, head, (height, width, channels))


def orthogonal(key: PRNGKeyArray, inputs: int, outputs: int) -> Float[Array, "inputs outputs"]:
    """Draw a matrix with orthonormal columns (or rows, if they are fewer), uniform over directions.

    This is Gram-Schmidt, each column twice for precision. LAPACK's QR is not used, because it can hang when several CPU
    devices call it at once.
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


def policy_network(key: PRNGKeyArray, spec: Spec, hidden: tuple[int, ...] = (64, 64)) -> Network:
    """Return the paper's network, with one logit per action.

    For rows of numbers: two hidden layers of 64, ELU. For images: convolutions of 32, 64 and 64 and a layer of 64,
    ReLU.
    """
    return make_network(key, spec, hidden, spec.actions, "elu" if len(spec.observation_shape) == 1 else "relu")


class Scaling(NamedTuple):
    """The scaling in front of a network that learns on standardised states: (s - mean) / scale."""

    mean: Float[Array, "*runs inputs"]
    scale: Float[Array, "*runs inputs"]

    def __call__(self, observation: Float[Array, "*batch inputs"]) -> Float[Array, "*batch inputs"]:
        return (observation - self.mean) / self.scale

    def folded_into(self, network: Network) -> Network:
        """Return the network that gives for s what `network` gives for (s - mean) / scale; runs may be stacked.

        Inputs of `network` beyond those of s count as zero. Images are not scaled, so nothing is folded.
        """
        if isinstance(network, ConvNet):
            _, last = seen(network.shape, network.kernels)
            joined, *rest = network.head.layers
            head = MLP(
                (Dense(joined.weight[..., :last, :], joined.bias), *rest), network.head.activation, network.head.level
            )
            return ConvNet(network.convolutions, head, network.shape, network.kernels)
        first, *rest = network.layers
        weight = first.weight[..., : self.scale.shape[-1], :] / self.scale[..., None]
        bias = first.bias - jnp.einsum("...i,...io->...o", self.mean, weight)
        return MLP((Dense(weight, bias), *rest), network.activation, network.level)


def scaling(dataset: Dataset) -> Scaling:
    """Return the scaling of a run's labelled states. Constant columns are only centred; images are not changed."""
    if dataset.pool.images:
        nothing = jnp.zeros(dataset.pool.inputs)
        return Scaling(nothing, nothing + 1)
    mean, deviation = dataset.moments()
    return Scaling(mean, jnp.where(deviation > 1e-6 * (1 + jnp.abs(mean)), deviation + 1e-3, 1.0))


def cooled(network: N, temperature: float | Array) -> N:
    """Return the network whose outputs are those of `network` over a temperature; runs may be stacked."""
    temperature = jnp.asarray(temperature)[..., None]
    output = Dense(network.output.weight / temperature[..., None], network.output.bias / temperature)
    return eqx.tree_at(lambda whole: whole.output, network, output)


def energy(logits: Float[Array, "*batch actions"]) -> Float[Array, "*batch"]:
    """E(s) = -log sum_a exp f(s)[a]: low where the network has seen states like s."""
    return -jax.nn.logsumexp(logits, axis=-1)
