"""Energy-based distribution matching: BC whose logits also model where the demonstrator goes.

    L = L_pi + weight * (L_rho + square * L_rho^2)
    L_pi  = -mean log pi(a|s),                    pi = softmax f(s)
    L_rho = mean E(s) - mean E(s~),               E(s) = -log sum_a exp f(s)[a],  s~ ~ exp(-E)

Needs pairs, and uses state-only observations if there are any. Jarrett, Bica and van der Schaar (2020),
"Strictly Batch Imitation Learning by Energy-based Distribution Matching". The square is not in the paper
but in its authors' code; without it training diverges on CartPole.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from sbil import langevin
from sbil.algorithms.base import Algorithm, Entry, Metrics, adam, config, setting
from sbil.algorithms.bc import BCConfig, policy_loss
from sbil.dataset import Dataset, Spec, Transitions, features_of
from sbil.networks import Network, energy, policy_network

# A run with larger metrics counts as diverged: stable runs have metrics that are ten to a hundred times smaller.
LIMITS = {"energy": 1e4, "energy_gap": 1e4, "chain_size": 1e4}


@config
class EDMConfig(BCConfig):
    """Settings of energy-based distribution matching."""

    batch: int = setting(64, "pairs per update, and chains per update", "N", low=1)
    weight: float = setting(1.0, "weight of the state term; 0 is behavioural cloning")
    square: float = setting(1.0, "weight of the squared state term; 0 is the loss as printed")
    step_size: float = setting(0.01, "Langevin step", "alpha")
    noise: float = setting(0.01, "standard deviation of the Langevin noise", "sigma")
    chain_length: int = setting(20, "Langevin steps per update", "iota")
    buffer_size: int = setting(10_000, "chains kept (at least the batch)", "kappa", low=1)
    restart: float = setting(0.05, "probability that a chain starts afresh", "delta", high=1)
    start: Literal["box", "unit"] = setting(
        "box", "where chains start: uniform in the box of the demonstrated states, or in (-1, 1)", "U(S)"
    )


class EDMState(NamedTuple):
    """The network, its optimiser, and the persistent chains with the box they start from."""

    network: Network
    optimiser: optax.OptState
    buffer: Float[Array, "size inputs"]
    box: langevin.Box


def state_loss(network: Network, seen: Array, sampled: Array) -> Float[Array, ""]:
    """L_rho = mean E(s) - mean E(s~); its gradient is that of -mean log rho(s)."""
    return energy(network(seen)).mean() - energy(network(sampled)).mean()


def sample(
    key: PRNGKeyArray, energy: langevin.Energy, buffer: Array, box: langevin.Box, config: EDMConfig
) -> tuple[Array, Array]:
    """Return (samples, buffer): continue chains of the buffer, and restart each with probability `restart`.

    A fresh chain begins uniformly in the box. The samples are constants: no gradient flows through them to the
    energy's parameters.
    """
    start_key, chain_key = jax.random.split(key)
    # One call of the generator draws slot, restart and fresh state: every call costs time to compile and to run.
    draws = jax.random.uniform(start_key, (config.batch, 2 + len(box.low)))
    fresh = langevin.uniform(draws[:, 2:], *box)
    chosen, states = langevin.resume(draws[:, :2], buffer, fresh, config.restart)
    states = langevin.chain(chain_key, energy, states, config.chain_length, config.step_size, config.noise)
    states = jax.lax.stop_gradient(states)
    return states, langevin.put_back(buffer, chosen, states)


def edm(spec: Spec, config: EDMConfig) -> Algorithm:
    """Energy-based distribution matching as three pure functions."""
    optimiser = adam(config)

    def init(key: PRNGKeyArray, dataset: Dataset) -> EDMState:
        network = policy_network(jax.random.fold_in(key, 0), spec, config.hidden)
        unit = jnp.ones(features_of(spec))
        box = langevin.Box(*(dataset.bounds() if config.start == "box" else (-unit, unit)))
        size = max(config.buffer_size, config.batch)
        # Chains of images are kept in half precision: 10,000 of 84 x 84 x 4 take 0.6 GB.
        kept = jnp.float16 if dataset.pool.images else jnp.float32
        draws = jax.random.uniform(jax.random.fold_in(key, 1), (size, features_of(spec)), kept)
        buffer = langevin.uniform(draws, *(side.astype(kept) for side in box))
        return EDMState(network, optimiser.init(network), buffer, box)

    def loss(network: Network, batch: Transitions, seen: Array, sampled: Array) -> tuple[Array, Metrics]:
        l_pi, l_rho = policy_loss(network, batch), state_loss(network, seen, sampled)
        metrics = {"policy_loss": l_pi, "energy_gap": l_rho, "energy": energy(network(seen)).mean()}
        return l_pi + config.weight * (l_rho + config.square * l_rho**2), metrics

    def update(key: PRNGKeyArray, state: EDMState, dataset: Dataset) -> tuple[EDMState, Metrics]:
        batch = dataset.batch(jax.random.fold_in(key, 0), config.batch)
        seen = dataset.states(jax.random.fold_in(key, 1), batch)
        model = lambda states: energy(state.network(states))  # noqa: E731
        sampled, buffer = sample(jax.random.fold_in(key, 2), model, state.buffer, state.box, config)
        gradient, metrics = jax.grad(loss, has_aux=True)(state.network, batch, seen, sampled)
        step, optimiser_state = optimiser.update(gradient, state.optimiser, state.network)
        network = optax.apply_updates(state.network, step)
        metrics["chain_size"] = jnp.abs(sampled).max()
        return EDMState(network, optimiser_state, buffer, state.box), metrics

    return Algorithm(init, update, batch=config.batch, limits=LIMITS)


PRESETS = {"default": EDMConfig(), "paper": EDMConfig(square=0.0), "released": EDMConfig(batch=32, start="unit")}
ENTRY = Entry(
    make=edm,
    presets=PRESETS,
    needs="pairs",
    reference="Jarrett, Bica and van der Schaar (2020)",
    titles={"default": "EDM (our default)", "released": "EDM, released code", "paper": "EDM, as printed"},
    uses_states=True,
    trains_energy=True,
)
