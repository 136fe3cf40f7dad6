"""ICU-Sepsis: treating sepsis in intensive care as a Markov decision process of 716 states and 25 actions.

Built from MIMIC-III by Choudhary, Gupta and Thomas (2024), "ICU-Sepsis: A Benchmark MDP Built from Real Medical Data".
Everything is read from the tables of the package `icu-sepsis` (version 2 of its environment) when it is first played;
none of its code is run. An observation is the state as a one-hot row. The return is 1 if the patient survives and 0 if
not, so a mean return is a rate of survival. An action is one of five doses of fluids and one of five doses of
vasopressors. An action that was too rarely taken at a state has the mean effect of the others.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.dataset import Spec
from sbil.environments.base import JaxEnvironment
from sbil.errors import UserError
from sbil.networks import MLP, Dense
from sbil.policy import Policy

NAME = "ICU-Sepsis-v2"
STATES, DOSES = 716, 5
ACTIONS = DOSES * DOSES
DEATH, SURVIVAL = 713, 714  # an episode is over in these states, and in the one that follows them
MISSING = "ICU-Sepsis needs the package icu-sepsis: pip install 'sbil[sepsis]'."
LEAST = 1e-9  # the probability of what clinicians never do; a network can hold its logarithm


class Tables(NamedTuple):
    """What the package says about the process."""

    transition: Float[np.ndarray, "states actions states"]
    start: Float[np.ndarray, " states"]
    clinicians: Float[np.ndarray, "states actions"]  # how they acted; zeros if the episode is over


@cache
def tables() -> Tables:
    """Read the tables of the package; if it is not installed, say how to install it."""
    package = find_spec("icu_sepsis")
    if package is None or package.origin is None:
        raise UserError(MISSING)
    file = Path(package.origin).parent / "envs" / "assets" / "dynamics.npz"
    try:
        with np.load(file) as found:
            read = Tables(*(found[name] for name in ("tx_mat", "d_0", "expert_policy")))
    except (OSError, ValueError, KeyError):
        raise UserError(f"{file}: no tables of ICU-Sepsis can be read there; {MISSING}") from None
    if [table.shape for table in read] != [(STATES, ACTIONS, STATES), (STATES,), (STATES, ACTIONS)]:
        raise UserError(f"{file}: the tables have other sizes than those of ICU-Sepsis version 2; {MISSING}")
    return read


class StepTables(NamedTuple):
    """The transitions as sums along the states. Most actions at a state share a row, and each row is kept once."""

    row: Int[np.ndarray, "states actions"]
    sums: Float[np.ndarray, "rows states"]
    start: Float[np.ndarray, " states"]


@cache
def steps() -> StepTables:
    """The tables in the form in which they are played."""
    read, rows = tables(), dict[bytes, int]()
    number = [[rows.setdefault(row.tobytes(), len(rows)) for row in leads] for leads in read.transition]
    different = np.frombuffer(b"".join(rows), read.transition.dtype).reshape(-1, STATES)
    return StepTables(np.array(number, np.int32), _sums(different), _sums(read.start))


def _sums(probabilities: np.ndarray) -> np.ndarray:
    """Return cumulative probabilities that end at exactly 1, so a state of probability 0 is never drawn."""
    summed = np.cumsum(probabilities, axis=-1)
    return (summed / summed[..., -1:]).astype(np.float32)


class Patient(NamedTuple):
    """A state, and the key from which the next states are drawn."""

    state: Int[Array, ""]
    key: PRNGKeyArray


def _draw(key: PRNGKeyArray, sums: Float[Array, " states"]) -> Int[Array, ""]:
    return (sums <= jax.random.uniform(key)).sum(dtype=jnp.int32)


def reset(key: PRNGKeyArray) -> Patient:
    """A patient at the onset of sepsis."""
    own, later = jax.random.split(key)
    return Patient(_draw(own, jnp.asarray(steps().start)), later)


def step(patient: Patient, action: Int[Array, ""]) -> tuple[Patient, Float[Array, ""], Bool[Array, ""]]:
    """Four hours of treatment; the reward is 1 when the patient survives."""
    own, later = jax.random.split(patient.key)
    found = steps()
    state = _draw(own, jnp.asarray(found.sums)[jnp.asarray(found.row)[patient.state, action]])
    return Patient(state, later), (state == SURVIVAL).astype(jnp.float32), state >= DEATH


def clinicians() -> Policy:
    """Return the clinicians' policy: a network without hidden layers; its logits are log probabilities."""
    logits = jnp.log(jnp.maximum(jnp.asarray(tables().clinicians, jnp.float32), LEAST))
    network = MLP((Dense(logits, jnp.zeros(ACTIONS)),), "elu")
    provenance = {"environment": NAME, "algorithm": "clinicians' policy of the package icu-sepsis"}
    return Policy(network, ENVIRONMENT.observation_names, ENVIRONMENT.action_names, provenance=provenance)


ENVIRONMENT = JaxEnvironment(
    name=NAME,
    spec=Spec((STATES,), ACTIONS),
    time_limit=500,
    observation_names=tuple(f"state {number}" for number in range(STATES)),
    action_names=tuple(f"fluids {fluids}, vasopressors {drugs}" for fluids in range(DOSES) for drugs in range(DOSES)),
    reset=reset,
    observe=lambda patient: jax.nn.one_hot(patient.state, STATES),
    step=step,
    check=tables,
)
