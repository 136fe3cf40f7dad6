"""ICU-Sepsis as a process that is known: who survives under a policy, exactly and in live episodes.

Clinicians' trajectories are drawn from the package's own policy. All tables are known, so the probability of survival
is the solution of the linear equations of the Markov chain. Live episodes check it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sbil import demonstrators
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.environments.icu_sepsis import ACTIONS, DEATH, LEAST, STATES, SURVIVAL, Patient, clinicians, steps, tables
from sbil.environments.icu_sepsis import ENVIRONMENT as ICU_SEPSIS
from sbil.evaluation import Policies, call, play
from sbil.evaluation.baselines import PREVIOUS
from sbil.evaluation.decided import Decided
from sbil.experiments import Process
from sbil.keys import named
from sbil.networks import MLP, Dense
from sbil.training import stack

PART = 100  # trajectories collected at once: until they are cut, each takes as much memory as the time limit allows
Table = Float[np.ndarray, "states actions"]


def visits(policy: Table) -> Float[np.ndarray, " living"]:
    """Return how often each state is visited before an episode is over, on average."""
    moves = np.einsum("sa,sat->st", policy[:DEATH], tables().transition[:DEATH, :, :DEATH])
    return np.linalg.solve(np.eye(DEATH) - moves.T, tables().start[:DEATH])


def survival(policy: Table) -> float:
    """Return the probability that a patient survives if actions are drawn from the policy."""
    last = np.einsum("sa,sa->s", policy[:DEATH], tables().transition[:DEATH, :, SURVIVAL])
    return float(visits(policy) @ last)


def likeliest(table: Table) -> Table:
    """Return the policy that takes the most probable action of another; of equally probable ones, any of them.

    table: probabilities or logits.
    """
    most = table == table.max(axis=1, keepdims=True)
    return most / most.sum(axis=1, keepdims=True)


def record(trajectories: int, seed: int = 0) -> Demonstrations:
    """Trajectories of the clinicians' policy."""
    counts = [PART] * (trajectories // PART) + [trajectories % PART] * (trajectories % PART > 0)
    whose = {"demonstrator": "clinicians"}
    parts = [
        demonstrators.collect(ICU_SEPSIS, clinicians(), count, seed + number, greedy=False, provenance=whose)[0]
        for number, count in enumerate(counts)
    ]
    together = tuple(trajectory for part in parts for trajectory in part.trajectories)
    return Demonstrations(together, parts[0].action_names, parts[0].observation_names, parts[0].provenance)


CLINICIANS, UNIFORM = "clinicians", "uniform actions"


def process(episodes: int = 1000) -> Process:
    """Return ICU-Sepsis as the process of a table; actions are drawn from a policy unless it says greedy.

    A method is asked what it would do first at every state, and what it would do after every action. The first says
    everything about a method that knows only the state, the second about the habit of repeating the action before.
    """
    acting = clinicians()
    at_random = replace(acting, network=jax.tree.map(jnp.zeros_like, acting.network))
    rows = np.eye(STATES, dtype=np.float32)
    first = [Trajectory(row[None], np.zeros(1, np.int32)) for row in rows]
    after = [Trajectory(rows[[0, 0]], np.array([action, 0], np.int32)) for action in range(ACTIONS)]
    asked = Demonstrations((*first, *after), ICU_SEPSIS.action_names, ICU_SEPSIS.observation_names)
    return Process(
        name=f"{ICU_SEPSIS.name}, {episodes} episodes",
        references={CLINICIANS: acting, UNIFORM: at_random},
        asked=asked,
        metrics={
            "survival": "survival, exact",
            "greedy_survival": "survival, exact, greedy",
            "live_survival": f"survival, {episodes:,} live episodes",
        },
        play=partial(_play, episodes),
    )


def _play(episodes: int, method: str, said: Mapping[int, Decided]) -> dict[int, dict[str, float]]:
    """Return the survival if actions are drawn from what was said, exact and live, and if the likeliest is taken.

    Uniform actions have no likeliest one. What was scored for the first of them is replaced by what an action drawn at
    random scores on average: right 1 time in 25, with that probability.
    """
    if not said:
        return {}
    habit = method == PREVIOUS
    exact: Callable[[np.ndarray], float] = habitual_survival if habit else survival
    # The habit's row before any action comes first, then one row per action.
    rows = [0, *range(STATES + 1, STATES + 2 * ACTIONS, 2)] if habit else list(range(STATES))
    policies = {seed: one.probabilities[rows] for seed, one in said.items()}
    logits = [jnp.log(jnp.maximum(jnp.asarray(policy, jnp.float32), LEAST)) for policy in policies.values()]
    networks = stack([MLP((Dense(each, jnp.zeros(ACTIONS)),), "elu") for each in logits])
    keys = jnp.stack([named("live", ICU_SEPSIS.name, seed) for seed in said])
    live = play(HABIT if habit else ICU_SEPSIS, Policies(call, networks), keys, episodes, greedy=False)
    chance = {"accuracy": 1 / ACTIONS, "balanced_accuracy": 1 / ACTIONS, "ece": 0.0} if method == UNIFORM else {}
    return {
        seed: {
            "survival": exact(policy),
            "greedy_survival": exact(likeliest(policy)),
            "live_survival": float(returns.mean()),
            **chance,
        }
        for (seed, policy), returns in zip(policies.items(), live, strict=True)
    }


def habitual_survival(policy: Float[np.ndarray, "befores actions"]) -> float:
    """Return the probability of survival if actions depend only on the action before; row 0 is for the first action.

    Let w(s, a) be the probability to survive after action a at state s. Then w = T(s, a, survival) + the sum over
    living t and actions b of T(s, a, t) policy(b | a) w(t, b). This is applied again and again until w stays.
    """
    rows = steps().row[:DEATH]  # most actions at a state lead to the same states: each row once
    _, where, which = np.unique(rows, return_index=True, return_inverse=True)
    leads = tables().transition[:DEATH].reshape(-1, STATES)[where]
    which, action = which.reshape(rows.shape), np.arange(ACTIONS)
    found, before = np.zeros((DEATH, ACTIONS)), np.ones((DEATH, ACTIONS))
    while np.abs(found - before).max() > 1e-9:
        after = leads[:, :DEATH] @ (found @ policy[1:].T) + leads[:, [SURVIVAL]]
        found, before = after[which, action], found
    return float(tables().start[:DEATH] @ found @ policy[0])


class Treated(NamedTuple):
    """A patient, and the action before: 0 for none, else its number from 1."""

    patient: Patient
    before: Int[Array, ""]


def _treat(treated: Treated, action: Int[Array, ""]) -> tuple[Treated, Float[Array, ""], Bool[Array, ""]]:
    patient, reward, terminal = ICU_SEPSIS.step(treated.patient, action)
    return Treated(patient, action.astype(jnp.int32) + 1), reward, terminal


# ICU-Sepsis for an observer who knows only the last action.
HABIT = replace(
    ICU_SEPSIS,
    reset=lambda key: Treated(ICU_SEPSIS.reset(key), jnp.int32(0)),
    observe=lambda treated: jax.nn.one_hot(treated.before, ACTIONS + 1),
    step=_treat,
)
