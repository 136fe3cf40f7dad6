"""Imitating clinicians in ICU-Sepsis: how well their decisions are matched, and who survives.

    pip install 'sbil[sepsis]'
    python -m sbil.clinical.icu_sepsis --out icu_sepsis.json

Clinicians' trajectories are drawn from the package's own policy; every method learns from the same ones. What is
learned is then scored without sampling, since all tables are known: decisions over the states that clinicians visit,
and the probability of survival by solving the linear equations of the Markov chain. Live episodes check the latter.
`process` lets the table of `sbil reproduce --env ICU-Sepsis` score policies the same way.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil import algorithms, demonstrators, files
from sbil.algorithms import BCConfig, EDMConfig, EDMExactConfig, EDMMetropolisConfig
from sbil.clinical.comparison import Process
from sbil.dataset import capacity_for, make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.environments.icu_sepsis import (
    ACTIONS,
    DEATH,
    LEAST,
    STATES,
    SURVIVAL,
    Patient,
    clinicians,
    steps,
    tables,
)
from sbil.environments.icu_sepsis import ENVIRONMENT as ICU_SEPSIS
from sbil.errors import UserError, unknown
from sbil.evaluation import Policies, call, play
from sbil.evaluation.baselines import PREVIOUS
from sbil.evaluation.matching import Decided
from sbil.keys import named
from sbil.networks import MLP, Dense, energy
from sbil.training import stack, train_many

PART = 100  # trajectories collected at once: until they are cut, each takes as much memory as the time limit allows
TABLE = 0.01  # step of Adam: in a table nothing is learned of a state but by drawing it
METHODS: dict[str, tuple[str, Any]] = {
    "bc": ("bc", BCConfig()),
    "edm_exact": ("edm_exact", EDMExactConfig()),
    "edm_metropolis": ("edm_metropolis", EDMMetropolisConfig()),
    "edm": ("edm", EDMConfig()),
    "bc, table": ("bc", BCConfig(hidden=(), learning_rate=TABLE)),
    "edm_exact, table": ("edm_exact", EDMExactConfig(hidden=(), learning_rate=TABLE)),
}
Table = Float[np.ndarray, "states actions"]


@dataclass(frozen=True)
class Score:
    """What a policy is worth; decisions are compared over the states that clinicians visit."""

    match: float  # the probability that a clinician does what the policy thinks most probable
    log_loss: float  # of clinicians' decisions
    divergence: float  # KL(clinicians, policy): the log-loss beyond the clinicians' own entropy
    survival: float  # where actions are drawn from the policy
    greedy_survival: float  # where the most probable action is taken, of several alike any
    live: float | None = None  # the share that survived in episodes with actions drawn from the policy
    states: float | None = None  # total variation between p(s) = exp(-E(s)) / Z and the states that clinicians visit


@dataclass(frozen=True)
class Row:
    """One method, learned from one draw of demonstrations."""

    method: str
    trajectories: int
    draw: int
    score: Score
    diverged: bool = False


def visits(policy: Table) -> Float[np.ndarray, " living"]:
    """How often each state is visited before an episode is over, on average."""
    moves = np.einsum("sa,sat->st", policy[:DEATH], tables().transition[:DEATH, :, :DEATH])
    return np.linalg.solve(np.eye(DEATH) - moves.T, tables().start[:DEATH])


def survival(policy: Table) -> float:
    """The probability that a patient survives when actions are drawn from the policy."""
    last = np.einsum("sa,sa->s", policy[:DEATH], tables().transition[:DEATH, :, SURVIVAL])
    return float(visits(policy) @ last)


def likeliest(table: Table) -> Table:
    """The policy that takes the most probable action of another (probabilities or logits), of several alike any."""
    most = table == table.max(axis=1, keepdims=True)
    return most / most.sum(axis=1, keepdims=True)


def score(logits: Table, live: float | None = None, states: np.ndarray | None = None) -> Score:
    """The worth of a policy from its logits at every state; states: p(s), where there is a model of them."""
    logs = logits - np.logaddexp.reduce(logits.astype(np.float64), axis=1, keepdims=True)
    truth, best = tables().clinicians[:DEATH], likeliest(logits)
    visited = visits(tables().clinicians)
    visited /= visited.sum()
    log_loss = -float(visited @ (truth * logs[:DEATH]).sum(axis=1))
    entropy = -float(visited @ np.where(truth > 0, truth * np.log(np.maximum(truth, 1e-300)), 0).sum(axis=1))
    distance = None
    if states is not None:
        distance = float(np.abs(np.pad(visited, (0, STATES - DEATH)) - states).sum() / 2)
    return Score(
        match=float(visited @ (truth * best[:DEATH]).sum(axis=1)),
        log_loss=log_loss,
        divergence=log_loss - entropy,
        survival=survival(np.exp(logs)),
        greedy_survival=survival(best),
        live=live,
        states=distance,
    )


def record(trajectories: int, seed: int = 0) -> Demonstrations:
    """Trajectories of the clinicians' policy."""
    counts = [PART] * (trajectories // PART) + [trajectories % PART] * (trajectories % PART > 0)
    whose = {"demonstrator": "clinicians"}
    parts = [
        demonstrators.collect(ICU_SEPSIS, clinicians(), count, seed + number, greedy=False, provenance=whose)
        for number, count in enumerate(counts)
    ]
    together = tuple(trajectory for part in parts for trajectory in part.trajectories)
    return Demonstrations(together, parts[0].action_names, parts[0].observation_names, parts[0].provenance)


CLINICIANS, UNIFORM = "clinicians", "uniform actions"


def process(episodes: int = 1000) -> Process:
    """ICU-Sepsis as what a comparison plays policies in; actions are drawn from a policy unless it says greedy.

    A method is asked what it would do first at every state, and what after every action: where it knows no more than
    the state, the former says all, and of the habit of taking the same action again the latter does.
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
    """Who survives where actions are drawn from what was said, exactly and live, and where the likeliest is taken.

    Uniform actions have no likeliest one. What was scored for the first of them is replaced by what one drawn at random
    scores on average: it is right 1 time in 25, and as sure of it.
    """
    if not said:
        return {}
    habit = method == PREVIOUS
    exact: Callable[[np.ndarray], float] = habitual_survival if habit else survival
    # The habit's row before any action comes first, then one an action.
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
    """The probability of survival where actions depend on the action before alone; row 0 is for the first action.

    Of w(s, a), to survive after action a at state s, w = T(s, a, survival) + sum over living t and actions b of
    T(s, a, t) policy(b | a) w(t, b); put in again and again until it stays.
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


def _admitted(key: PRNGKeyArray) -> Treated:
    return Treated(ICU_SEPSIS.reset(key), jnp.int32(0))


def _treat(treated: Treated, action: Int[Array, ""]) -> tuple[Treated, Float[Array, ""], Bool[Array, ""]]:
    patient, reward, terminal = ICU_SEPSIS.step(treated.patient, action)
    return Treated(patient, action.astype(jnp.int32) + 1), reward, terminal


# ICU-Sepsis seen by one who knows nothing but the last action.
HABIT = replace(
    ICU_SEPSIS,
    reset=_admitted,
    observe=lambda treated: jax.nn.one_hot(treated.before, ACTIONS + 1),
    step=_treat,
)


def references(episodes: int) -> list[Row]:
    """What the clinicians themselves are worth, and what uniform actions are."""
    acting = clinicians().network
    networks = stack([acting, jax.tree.map(jnp.zeros_like, acting)])
    live = play(ICU_SEPSIS, Policies(call, networks), named("live", ICU_SEPSIS.name), episodes, greedy=False)
    logits = at_every_state(networks)
    return [
        Row(name, 0, 0, score(logits[number], float(live[number].mean())))
        for number, name in enumerate((CLINICIANS, UNIFORM))
    ]


def at_every_state(networks: Any) -> Float[np.ndarray, "runs states actions"]:
    """The logits of stacked networks."""
    return np.asarray(jax.vmap(lambda network: network(jnp.eye(STATES)))(networks))


def study(
    sizes: Sequence[int] = (10, 100, 1000),
    draws: int = 5,
    methods: Sequence[str] = tuple(METHODS),
    updates: int = 10_000,
    episodes: int = 1000,
    tell: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Every method from every size and draw.

    Draws share no trajectory; of a draw, the smaller sizes are the first trajectories of the largest.
    """
    if not sizes or min(sizes) < 1 or draws < 1:
        raise UserError(f"sizes and draws must be whole numbers from 1. Got {list(sizes)} and {draws}.")
    for method in methods:
        if method not in METHODS:
            raise unknown("method", method, METHODS)
    rows = references(episodes)
    for row in rows:
        tell(row)
    demonstrations, most = record(draws * max(sizes)), max(sizes)
    spec, capacity = spec_of(demonstrations), capacity_for(demonstrations, most)
    keys = jnp.stack([named(ICU_SEPSIS.name, draw) for draw in range(draws)])
    for method in methods:
        name, config = METHODS[method]
        for size in sizes:
            chosen = [draw * most + np.arange(size) for draw in range(draws)]
            dataset = make_dataset(demonstrations, chosen, capacity=capacity)
            algorithms.require(name, dataset)
            trained = train_many(algorithms.get(name).make, spec, config, dataset, keys, updates)
            network = trained.states.network
            live = play(ICU_SEPSIS, Policies(call, network), keys, episodes, greedy=False).mean(axis=1)
            logits = at_every_state(network)
            states = (
                np.asarray(jax.nn.softmax(-energy(jnp.asarray(logits)))) if name.startswith("edm") else [None] * draws
            )
            for draw in range(draws):
                found = score(logits[draw], float(live[draw]), states[draw])
                rows.append(Row(method, size, draw, found, bool(trained.diverged[draw])))
                tell(rows[-1])
    return rows


def in_words(row: Row) -> str:
    """One row as a line of a table."""
    of = row.score
    states = "" if of.states is None else f", states off by {of.states:.3f}"
    return (
        f"{row.method} n={row.trajectories} draw {row.draw}: match {of.match:.3f}, log-loss {of.log_loss:.3f}, KL "
        f"{of.divergence:.3f}; survival {of.survival:.4f}, greedy {of.greedy_survival:.4f}, live {of.live:.3f}{states}"
        f"{' (diverged)' * row.diverged}"
    )


@dataclass(frozen=True)
class Command:
    """Learn from clinicians' trajectories in ICU-Sepsis, and score what was learned."""

    out: Path
    """The file to write (JSON): every method, size and draw."""
    sizes: tuple[int, ...] = (10, 100, 1000)
    """Numbers of trajectories."""
    draws: int = 5
    """Draws of demonstrations, which share no trajectory."""
    methods: tuple[str, ...] = tuple(METHODS)
    """What to learn by."""
    updates: int = 10_000
    """Updates of every run."""
    episodes: int = 1000
    """Live episodes of every policy."""


def main() -> None:
    """Run the study, line by line, and write it down."""
    asked = tyro.cli(Command, prog="python -m sbil.clinical.icu_sepsis")

    def tell(row: Row) -> None:
        print(in_words(row), flush=True)

    rows = study(asked.sizes, asked.draws, asked.methods, asked.updates, asked.episodes, tell)
    content = {"updates": asked.updates, "rows": [asdict(row) for row in rows]}
    files.write_text(asked.out, json.dumps(content, indent=1) + "\n")
    print(f"wrote {asked.out}")


if __name__ == "__main__":
    main()
