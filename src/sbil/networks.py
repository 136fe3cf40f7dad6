"""The networks: f(s) gives one logit an action, hence a policy and an energy of states at once."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbil.dataset import Spec
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
        activation = ACTIVATIONS[self.activation]
        for layer in self.layers[:-1]:
            x = activation(layer(x))
        return self.layers[-1](x)


def mlp(key: PRNGKeyArray, sizes: tuple[int, ...], activation: str = "elu") -> MLP:
    """An MLP of the given layer sizes; weights and biases uniform in ±1/sqrt(inputs), as in the released code."""
    layers = []
    for layer_key, inputs, outputs in zip(jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True):
        draws = jax.random.uniform(layer_key, (inputs + 1, outputs), minval=-(inputs**-0.5), maxval=inputs**-0.5)
        layers.append(Dense(draws[:-1], draws[-1]))
    return MLP(tuple(layers), activation)


def policy_network(key: PRNGKeyArray, spec: Spec, hidden: tuple[int, ...] = (64, 64)) -> MLP:
    """The paper's network for vector observations: two hidden layers of 64, ELU, one logit an action."""
    if len(spec.observation_shape) != 1:
        raise UserError(f"observations must be rows of numbers. Got shape {spec.observation_shape} (images, say).")
    (inputs,) = spec.observation_shape
    return mlp(key, (inputs, *hidden, spec.actions))


def energy(logits: Float[Array, "*batch actions"]) -> Float[Array, "*batch"]:
    """E(s) = -log sum_a exp f(s)[a]: low where the network has seen states like s."""
    return -jax.nn.logsumexp(logits, axis=-1)
