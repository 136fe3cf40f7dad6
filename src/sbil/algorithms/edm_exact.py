"""EDM for finitely many states: the sum over all of them replaces EDM's samples.

    L = L_pi + weight * (L_rho + square * L_rho^2)
    L_pi  = -mean log pi(a|s),                  pi = softmax f(s)
    L_rho = mean E(s) - sum_s p(s) E(s),        E(s) = -log sum_a exp f(s)[a],  p(s) = exp(-E(s)) / Z

Needs one-hot pairs: state s of d is row s of the d x d identity, so the encoding itself says what all states are, also
those that were never visited. No gradient flows through p, as none flows through EDM's samples. The gradient of L_rho
is that of -mean log p(s), without noise and without bias, and L is the joint likelihood of states and decisions. So the
square, which keeps EDM from diverging, is not needed. With `hidden=()` the network is a table without restrictions, and
on the visited states its policy is that of BC (docs/exact_edm.md). Jarrett, Bica and van der Schaar (2020).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, adam, config, setting
from sbil.algorithms.bc import BCConfig, policy_loss
from sbil.algorithms.edm import LIMITS
from sbil.dataset import Dataset, Spec, Transitions, features_of
from sbil.errors import UserError
from sbil.networks import ACTIVATIONS, MLP, energy, mlp


@config
class FiniteEDMConfig(BCConfig):
    """Settings that both forms of EDM on finitely many states share."""

    hidden: tuple[int, ...] = setting((64, 64), "hidden layers of the network; without any, a table of logits")
    weight: float = setting(1.0, "weight of the state term; 0 is behavioural cloning")
    square: float = setting(0.0, "weight of the squared state term; 0 is the loss as printed")


@config
class EDMExactConfig(FiniteEDMConfig):
    """Settings of exact EDM."""


class FiniteEDMState(NamedTuple):
    """The network, its optimiser, and the chains of states if the method has chains."""

    network: MLP
    optimiser: optax.OptState
    chains: Any


def table(network: MLP) -> Float[Array, "states actions"]:
    """Return the logits at every state: the first layer turns a unit vector into a row of its weights."""
    first, *rest = network.layers
    rows = first.weight + first.bias
    if not rest:
        return rows
    return MLP(tuple(rest), network.activation)(ACTIVATIONS[network.activation](rows))


def state_loss(network: MLP, seen: Array, frequency: Float[Array, " states"]) -> Float[Array, ""]:
    """L_rho = mean E(s) - sum_s frequency(s) E(s); with p for the frequency its gradient is that of -mean log p(s)."""
    return energy(network(seen)).mean() - jax.lax.stop_gradient(frequency) @ energy(table(network))


def finite_edm(
    spec: Spec,
    config: FiniteEDMConfig,
    start: Callable[[PRNGKeyArray], Any],
    visit: Callable[[PRNGKeyArray, Float[Array, " states"], Any], tuple[Float[Array, " states"], Any]],
) -> Algorithm:
    """EDM on finitely many states.

    start: key -> the chains to begin with, or nothing
    visit: (key, energies of all states, chains) -> (how often each state is visited under exp(-E), chains)
    """
    if len(spec.observation_shape) != 1:
        raise UserError("EDM on finitely many states needs one-hot rows. Got images; use edm.")
    optimiser = adam(config)

    def init(key: PRNGKeyArray, dataset: Dataset) -> FiniteEDMState:
        network = mlp(jax.random.fold_in(key, 0), (features_of(spec), *config.hidden, spec.actions))
        return FiniteEDMState(network, optimiser.init(network), start(jax.random.fold_in(key, 1)))

    def loss(network: MLP, batch: Transitions, seen: Array, frequency: Array) -> tuple[Array, Metrics]:
        l_pi, l_rho = policy_loss(network, batch), state_loss(network, seen, frequency)
        metrics = {"policy_loss": l_pi, "energy_gap": l_rho, "energy": energy(network(seen)).mean()}
        return l_pi + config.weight * (l_rho + config.square * l_rho**2), metrics

    def update(key: PRNGKeyArray, state: FiniteEDMState, dataset: Dataset) -> tuple[FiniteEDMState, Metrics]:
        batch = dataset.batch(jax.random.fold_in(key, 0), config.batch)
        seen = dataset.states(jax.random.fold_in(key, 1), batch)
        energies = energy(table(state.network))
        frequency, chains = visit(jax.random.fold_in(key, 2), energies, state.chains)
        gradient, metrics = jax.grad(loss, has_aux=True)(state.network, batch, seen, frequency)
        step, optimiser_state = optimiser.update(gradient, state.optimiser, state.network)
        metrics["state_loss"] = metrics["energy"] + jax.nn.logsumexp(-energies)  # the exact -mean log p(s)
        return FiniteEDMState(optax.apply_updates(state.network, step), optimiser_state, chains), metrics

    return Algorithm(init, update, batch=config.batch, limits=LIMITS)


def edm_exact(spec: Spec, config: EDMExactConfig) -> Algorithm:
    """EDM with the sum over all states as three pure functions."""

    def visit(key: PRNGKeyArray, energies: Array, chains: tuple[()]) -> tuple[Array, tuple[()]]:
        return jax.nn.softmax(-energies), chains

    return finite_edm(spec, config, lambda key: (), visit)


ENTRY = Entry(
    make=edm_exact,
    presets={"default": EDMExactConfig(), "table": EDMExactConfig(hidden=())},
    needs="one-hot pairs",
    reference="Jarrett, Bica and van der Schaar (2020), without samples",
    titles={"default": "EDM, exact"},
    uses_states=True,
    trains_energy=True,
)
