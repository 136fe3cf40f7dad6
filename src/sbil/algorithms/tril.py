"""Transition-regularised imitation: BC whose features must also predict the next state.

    L = -mean log pi(a|s) + dynamics * mean (s' - g(phi(s), a))^2,   pi = softmax h(phi(s))

Needs triples. It is the warm start of DSFN (Lee, Srinivasan and Doshi-Velez 2019, "Truly Batch Apprenticeship Learning
with Deep Successor Features"): it gives the features phi and a first policy. States are standardised.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, config, cross_entropy, setting
from sbil.dataset import Dataset, Spec, Transitions, features_of
from sbil.networks import MLP, Network, Scaling, make_network, mlp, scaling


@config
class TRILConfig:
    """Settings of transition-regularised imitation."""

    learning_rate: float = setting(3e-4, "step of Adam", open_low=True)
    batch: int = setting(64, "triples per update", low=1)
    trunk: tuple[int, ...] = setting((128, 64), "layers that both heads share; the last gives the features phi", low=1)
    head: tuple[int, ...] = setting((128,), "hidden layers of each head")
    dynamics: float = setting(1.4, "weight of the prediction of the next state; 0 is behavioural cloning")


class Heads(eqx.Module):
    """One network h(phi(s)), its first layers being phi, and g(phi(s), a)."""

    policy: Network
    dynamics: MLP
    depth: int = eqx.field(static=True)

    def features(self, state: Float[Array, "*batch inputs"]) -> Float[Array, "*batch features"]:
        """phi(s), in (-1, 1)."""
        return self.policy.features(state, self.depth)


class TRILState(NamedTuple):
    """Both heads, their optimiser, and the scaling of the states they see."""

    heads: Heads
    optimiser: optax.OptState
    scaling: Scaling

    @property
    def network(self) -> Network:
        """Return the policy as a network of unscaled observations."""
        return self.scaling.folded_into(self.heads.policy)


def prediction_loss(heads: Heads, scaling: Scaling, batch: Transitions, actions: int) -> Float[Array, ""]:
    """Return the mean square of s' - g(phi(s), a), in standardised units, over the steps with a recorded successor."""
    action = jax.nn.one_hot(batch.action, actions)
    inputs = jnp.concatenate([heads.features(scaling(batch.observation)), action], axis=-1)
    error = scaling(batch.next_observation) - heads.dynamics(inputs)
    return jnp.square(error).mean(axis=-1).sum(where=batch.has_next) / jnp.maximum(batch.has_next.sum(), 1)


def tril(spec: Spec, config: TRILConfig) -> Algorithm:
    """Transition-regularised imitation as three pure functions."""
    optimiser = optax.adam(config.learning_rate)
    features = features_of(spec)

    def init(key: PRNGKeyArray, dataset: Dataset) -> TRILState:
        dynamics_sizes = (config.trunk[-1] + spec.actions, *config.head, features)
        heads = Heads(
            make_network(jax.random.fold_in(key, 0), spec, (*config.trunk, *config.head), spec.actions, "tanh"),
            mlp(jax.random.fold_in(key, 1), dynamics_sizes, "tanh"),
            len(config.trunk),
        )
        return TRILState(heads, optimiser.init(heads), scaling(dataset))

    def loss(heads: Heads, scaling: Scaling, batch: Transitions) -> tuple[Array, Metrics]:
        l_pi = cross_entropy(heads.policy(scaling(batch.observation)), batch.action).mean()
        l_next = prediction_loss(heads, scaling, batch, spec.actions)
        return l_pi + config.dynamics * l_next, {"policy_loss": l_pi, "prediction_loss": l_next}

    def update(key: PRNGKeyArray, state: TRILState, dataset: Dataset) -> tuple[TRILState, Metrics]:
        batch = dataset.batch(jax.random.fold_in(key, 0), config.batch)
        gradient, metrics = jax.grad(loss, has_aux=True)(state.heads, state.scaling, batch)
        step, optimiser_state = optimiser.update(gradient, state.optimiser)
        return TRILState(optax.apply_updates(state.heads, step), optimiser_state, state.scaling), metrics

    return Algorithm(init, update, batch=config.batch)


ENTRY = Entry(
    make=tril,
    presets={"default": TRILConfig()},
    needs="triples",
    reference="Lee, Srinivasan and Doshi-Velez (2019)",
    titles={"default": "TRIL (warm start of DSFN)"},
    updates={"default": 50_000},
)
