"""EDM for finitely many states with samples: Metropolis chains replace the sum of `edm_exact`.

    L = L_pi + weight * (L_rho + square * L_rho^2),     L_rho = mean E(s) - mean E(s~),  s~ from the chains

Needs one-hot pairs. A chain proposes every state with the same probability and accepts it with
probability min(1, exp(E(here) - E(there))). Its stationary law is exactly exp(-E) / Z: at temperature 1 and on the
states only. EDM's Langevin steps have neither property. The chains persist from update to update. The longer they are,
the closer the gradient is to that of `edm_exact`. This method checks `edm_exact`; use the exact sum if it is possible.
Metropolis et al. (1953); Jarrett, Bica and van der Schaar (2020).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, config, setting
from sbil.algorithms.edm_exact import FiniteEDMConfig, finite_edm
from sbil.dataset import Spec, features_of


@config
class EDMMetropolisConfig(FiniteEDMConfig):
    """Settings of EDM with Metropolis chains."""

    chains: int = setting(64, "chains, all of them continued in every update", low=1)
    chain_length: int = setting(20, "steps of each chain per update", "iota", low=1)


def metropolis(
    key: PRNGKeyArray, energies: Float[Array, " states"], here: Int[Array, " chains"], length: int
) -> Int[Array, " chains"]:
    """Return the state of every chain after `length` steps."""

    def step(here: Array, key: PRNGKeyArray) -> tuple[Array, None]:
        where, whether = jax.random.split(key)
        there = jax.random.randint(where, here.shape, 0, len(energies))
        chance = jnp.exp(energies[here] - energies[there])
        return jnp.where(jax.random.uniform(whether, here.shape) < chance, there, here), None

    return jax.lax.scan(step, here, jax.random.split(key, length))[0]


def edm_metropolis(spec: Spec, config: EDMMetropolisConfig) -> Algorithm:
    """EDM with Metropolis chains as three pure functions."""

    def start(key: PRNGKeyArray) -> Array:
        return jax.random.randint(key, (config.chains,), 0, features_of(spec))

    def visit(key: PRNGKeyArray, energies: Array, chains: Array) -> tuple[Array, Array]:
        chains = metropolis(key, energies, chains, config.chain_length)
        return jnp.bincount(chains, length=len(energies)) / config.chains, chains

    return finite_edm(spec, config, start, visit)


ENTRY = Entry(
    make=edm_metropolis,
    presets={"default": EDMMetropolisConfig(), "table": EDMMetropolisConfig(hidden=())},
    needs="one-hot pairs",
    reference="Jarrett, Bica and van der Schaar (2020)",
    titles={"default": "EDM, Metropolis chains"},
    uses_states=True,
    trains_energy=True,
)
