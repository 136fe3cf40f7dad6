"""Imitating clinicians in ICU-Sepsis: how well their decisions are matched, and who survives.

    pip install 'sbil[sepsis]'
    python -m studies.icu_sepsis --out icu_sepsis/

Every method learns from the same trajectories of the clinicians' policy. All tables are known, so what was learned is
scored without sampling: decisions over the states that clinicians visit, and the probability of survival. Live
episodes check the latter. What is finished is not run again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Float

from sbil import algorithms
from sbil.clinical.icu_sepsis import Table, likeliest, record, survival, visits
from sbil.dataset import capacity_for, make_dataset, spec_of
from sbil.demonstrations import Demonstrations
from sbil.environments.icu_sepsis import DEATH, STATES, clinicians, tables
from sbil.environments.icu_sepsis import ENVIRONMENT as ICU_SEPSIS
from sbil.errors import program
from sbil.evaluation import Policies, call, play
from sbil.experiments import Cell, Method, Result
from sbil.experiments.run import run_grid
from sbil.experiments.store import Store
from sbil.experiments.task import Prepared, Run, Scores, Task, at_least
from sbil.keys import named
from sbil.networks import energy
from sbil.training import stack

TABLE = "+hidden=none+learning_rate=0.01"  # a logit per state and action; few steps reach each of them
METHODS = ("bc", "edm_exact", "edm_metropolis", "edm", f"bc{TABLE}", f"edm_exact{TABLE}")


@dataclass(frozen=True)
class SepsisTask(Task):
    """Draws of clinicians' trajectories that share none; smaller sizes are the first trajectories of the largest."""

    largest: int  # size
    draws: int
    episodes: int = 1000

    @classmethod
    def columns(cls) -> dict[str, Any]:
        return {name: kind for name, kind in super().columns().items() if name != "draws"}  # a column of every cell

    @property
    def setting(self) -> str:
        return ICU_SEPSIS.name

    @property
    def scale(self) -> tuple[float, float]:
        return 0.0, 1.0  # a mean return is a rate of survival

    @property
    def asked(self) -> dict[str, Any]:
        return {"study": ICU_SEPSIS.name, **self.as_row()}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "SepsisTask":
        return cls(row["largest"], row["draws"], row["episodes"])

    def file_name(self, cell: Cell) -> str:
        return f"{ICU_SEPSIS.name}.{cell.method.algorithm}.n{cell.size}"

    def check(self, cell: Cell) -> None:
        at_least(1, size=cell.size, updates=cell.updates, episodes=self.episodes)

    def surroundings(self, cell: Cell) -> list[Any]:
        return []

    def require(self, methods: Sequence[Method]) -> None:
        ICU_SEPSIS.check()

    def program(self, cell: Cell) -> tuple[Any, ...]:
        return self, cell

    def prepare(self, runs: Sequence[Run]) -> Prepared:
        """Return the runs of one method and size."""
        cell = runs[0].cell
        demonstrations = recorded(self.draws * self.largest)
        chosen = [run.draw * self.largest + np.arange(cell.size) for run in runs]
        dataset = make_dataset(demonstrations, chosen, capacity=capacity_for(demonstrations, self.largest))
        keys = jnp.stack([named(ICU_SEPSIS.name, run.draw) for run in runs])

        def score_runs(networks: Any, members: np.ndarray, diverged: np.ndarray) -> Scores:
            returns = play(ICU_SEPSIS, Policies(call, networks), keys[members], self.episodes, greedy=False)
            logits = at_every_state(networks)
            rows = [score(each) for each in logits]
            found = {name: np.array([row[name] for row in rows]) for name in rows[0]}
            if algorithms.get(cell.method.algorithm).trains_energy:
                models = np.asarray(jax.nn.softmax(-energy(jnp.asarray(logits))))
                found["states"] = np.array([distance(model) for model in models])
            return {"returns": returns, **found}

        return Prepared(spec_of(demonstrations), dataset, keys, score_runs)


@lru_cache(maxsize=1)
def recorded(trajectories: int) -> Demonstrations:
    """Trajectories of the clinicians' policy; several methods learn from the same."""
    return record(trajectories)


def at_every_state(networks: Any) -> Float[np.ndarray, "runs states actions"]:
    """Return the logits of stacked networks."""
    return np.asarray(jax.vmap(lambda network: network(jnp.eye(STATES)))(networks))


def score(logits: Table) -> dict[str, float]:
    """Score a policy by its logits at every state; decisions are compared over the states that clinicians visit.

    match: the probability that a clinician does what the policy thinks most probable. log_loss: of clinicians'
    decisions. divergence: KL(clinicians, policy), the log-loss beyond the clinicians' own entropy. survival: if actions
    are drawn from the policy. greedy_survival: if the most probable action is taken.
    """
    logs = logits - np.logaddexp.reduce(logits.astype(np.float64), axis=1, keepdims=True)
    truth, best, visited = tables().clinicians[:DEATH], likeliest(logits), shares_of_visits()
    log_loss = -float(visited @ (truth * logs[:DEATH]).sum(axis=1))
    entropy = -float(visited @ np.where(truth > 0, truth * np.log(np.maximum(truth, 1e-300)), 0).sum(axis=1))
    return {
        "match": float(visited @ (truth * best[:DEATH]).sum(axis=1)),
        "log_loss": log_loss,
        "divergence": log_loss - entropy,
        "survival": survival(np.exp(logs)),
        "greedy_survival": survival(best),
    }


def shares_of_visits() -> Float[np.ndarray, " living"]:
    """Return the share of each state among all that clinicians visit."""
    visited = visits(tables().clinicians)
    return visited / visited.sum()


def distance(states: np.ndarray) -> float:
    """Return the total variation between p(s) = exp(-E(s)) / Z and the states that clinicians visit."""
    return float(np.abs(np.pad(shares_of_visits(), (0, STATES - DEATH)) - states).sum() / 2)


def references(episodes: int) -> dict[str, dict[str, float]]:
    """Return what the clinicians themselves are worth, and what uniform actions are."""
    acting = clinicians().network
    networks = stack([acting, jax.tree.map(jnp.zeros_like, acting)])
    live = play(ICU_SEPSIS, Policies(call, networks), named("live", ICU_SEPSIS.name), episodes, greedy=False)
    rows = zip(("clinicians", "uniform actions"), at_every_state(networks), live, strict=True)
    return {name: {**score(logits), "live": float(returns.mean())} for name, logits, returns in rows}


def in_words(found: dict[str, float]) -> str:
    """Return the scores of one policy as a line."""
    states = f", states off by {found['states']:.3f}" if "states" in found else ""
    return (
        f"match {found['match']:.3f}, log-loss {found['log_loss']:.3f}, KL {found['divergence']:.3f}; "
        f"survival {found['survival']:.4f}, greedy {found['greedy_survival']:.4f}, live {found['live']:.3f}{states}"
    )


def lines(result: Result) -> Iterator[str]:
    """Yield a line per run."""
    for run, (draw, _) in enumerate(result.cell.runs):
        found = {name: float(values[run]) for name, values in result.metrics.items()}
        diverged = " (diverged)" * bool(result.diverged_at[run] >= 0)
        live = float(result.returns[run].mean())
        yield f"{result.cell.method} n={result.cell.size} draw {draw}: {in_words({**found, 'live': live})}{diverged}"


@dataclass(frozen=True)
class Command:
    """Learn from clinicians' trajectories in ICU-Sepsis, and score what was learned."""

    out: Path
    """The folder of results: a file per method and size."""
    sizes: tuple[int, ...] = (10, 100, 1000)
    """Numbers of trajectories."""
    draws: int = 5
    """Draws of demonstrations, which share no trajectory."""
    methods: tuple[str, ...] = METHODS
    """What to learn by."""
    updates: int = 10_000
    """Updates of every run."""
    episodes: int = 1000
    """Live episodes of every policy."""


def cells(asked: Command) -> list[Cell]:
    """The cells of the study, method by method."""
    at_least(1, sizes=min(asked.sizes, default=0), draws=asked.draws)
    task = SepsisTask(max(asked.sizes), asked.draws, asked.episodes)
    methods = [Method.parse(name) for name in asked.methods]
    return [Cell(task, method, size, asked.draws, 1, asked.updates) for method in methods for size in asked.sizes]


def run(asked: Command) -> list[Result]:
    """Run what is missing, and print a line per run."""
    wanted = cells(asked)
    for cell in wanted:
        _ = cell.fingerprint  # a wrong name is refused before anything is run
    for name, found in references(asked.episodes).items():
        print(f"{name}: {in_words(found)}", flush=True)
    results = []
    for result, _ in run_grid(wanted, Store(asked.out)):
        print(*lines(result), sep="\n", flush=True)
        results.append(result)
    return results


def main() -> None:
    """Run the study."""
    run(tyro.cli(Command, prog="python -m studies.icu_sepsis"))


if __name__ == "__main__":
    program("icu_sepsis", main)
