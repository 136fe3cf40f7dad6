"""Tasks that play: runs learn from demonstrations of an environment, and every policy is played there.

Decisions of demonstrations that a run has not seen judge it too, without the environment.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sbil import algorithms, demonstrators, environments
from sbil.dataset import Dataset, Pool, Rows, Spec, capacity_for, make_dataset, padded, spec_of
from sbil.demonstrations import Demonstrations
from sbil.environments.base import JaxEnvironment
from sbil.errors import UserError
from sbil.evaluation import Policies, call, play
from sbil.experiments.methods import Method
from sbil.experiments.task import Cell, Prepared, Run, Scores, Task, at_least
from sbil.folds import FOLDS
from sbil.keys import named
from sbil.selection import held_out_sums

SIZES = (1, 3, 7, 10, 15)
TRAJECTORIES = 200  # the most that any environment collects for an experiment
HELD_OUT = 50  # trajectories that a run has not seen, by which its decisions are judged


@dataclass(frozen=True)
class EnvironmentTask(Task):
    """An environment, who demonstrates it, and what of the demonstrations is shown."""

    environment: str
    demonstrator: str
    mode: str
    thin: int = 1
    episodes: int = 300
    unlabelled: int = 0  # further trajectories of which the states are shown, and no decision
    every_state: bool = False  # whether states are shown whose decision is thinned away
    seed: int = 0  # of the demonstrations, their draws and the networks: another seed makes everything anew

    def __post_init__(self) -> None:
        at_least(1, thin=self.thin, episodes=self.episodes)
        at_least(0, unlabelled=self.unlabelled, seed=self.seed)

    @property
    def setting(self) -> str:
        return f"{self.environment}-{self.demonstrator}-{self.mode}-thin{self.thin}"

    @property
    def asked(self) -> dict[str, Any]:
        fields = self.as_row()
        return {name: value for name, value in fields.items() if value or name not in ("every_state", "seed")}

    @property
    def scale(self) -> tuple[float, float]:
        return environments.scale(self.environment, self.demonstrator, self.mode)

    @property
    def shows_states(self) -> bool:
        return self.unlabelled > 0 or self.every_state

    def words(self, size: int) -> str:
        states = f" +{self.unlabelled} unlabelled" if self.unlabelled else ""
        states += " every state" if self.every_state else ""
        seed = f" seed {self.seed}" if self.seed else ""
        return f"n={size}{states}{seed}"

    def file_name(self, cell: Cell) -> str:
        return f"{self.environment}.{cell.method.algorithm}.n{cell.size}"

    def check(self, cell: Cell) -> None:
        at_least(1, size=cell.size, updates=cell.updates)
        if cell.size + self.unlabelled > TRAJECTORIES:
            shown = f"{cell.size} and {self.unlabelled} unlabelled" if self.unlabelled else str(cell.size)
            raise UserError(f"size must be at most {TRAJECTORIES} trajectories. Got {shown}.")

    def surroundings(self, cell: Cell) -> list[Any]:
        environment = environments.get(self.environment)
        pool, name = environment.demonstrations, cell.method.algorithm
        if cell.size + self.unlabelled > pool:
            raise UserError(f"{self.environment} has {pool} demonstrations to draw from. Got {cell}.")
        if self.shows_states and not algorithms.get(name).uses_states:
            raise UserError(f"{name} learns nothing from unlabelled states; leave it out with them.")
        _ = self.scale  # refuses a mode that was never measured
        expert = demonstrators.fingerprint(f"{self.environment}-{self.demonstrator}")
        # Earlier versions rounded demonstrations and play on a GPU.
        rounding = ["demonstrations in float32"] * isinstance(environment, JaxEnvironment)
        return [expert, pool, FOLDS, *rounding]

    def require(self, methods: Sequence[Method]) -> None:
        environments.get(self.environment).check()

    def program(self, cell: Cell) -> tuple[Any, ...]:
        return self.environment, self.seed, self.shows_states, max(cell.size, *SIZES), self.episodes

    def prepare(self, runs: Sequence[Run]) -> Prepared:
        spec, dataset = data_of(runs)
        # Names leave out the algorithm, its settings and the size: runs are paired across all of them.
        seed = [self.seed] if self.seed else []
        names: list[Any] = [(self.environment, draw, initialisation, *seed) for _, draw, initialisation in runs]
        starts = jnp.stack([named("evaluate", *name) for name in names])
        held_out = unseen(runs, dataset)

        def score(networks: Any, members: np.ndarray, diverged: np.ndarray) -> Scores:
            environment = environments.get(self.environment)
            returns = play(environment, Policies(call, networks), starts[members], self.episodes)
            found = mismatch(networks, held_out, members, dataset.pool)
            return {"returns": returns, **{f"held_out_{name}": values for name, values in found.items()}}

        return Prepared(spec, dataset, jnp.stack([named(*name) for name in names]), score)


def played(cell: Cell) -> EnvironmentTask:
    """The task of a cell whose policies play in an environment."""
    if not isinstance(cell.task, EnvironmentTask):
        raise TypeError(f"{cell} is not played in an environment")
    return cell.task


@lru_cache(maxsize=8)
def demonstrations_for(environment: str, demonstrator: str, mode: str, seed: int = 0) -> Demonstrations:
    """Collect the demonstrations that the draws of an experiment are taken from."""
    policy, task = demonstrators.get(f"{environment}-{demonstrator}"), environments.get(environment)
    if mode not in demonstrators.MODES:
        raise UserError(f"a demonstrator is greedy or sampled. Got '{mode}'.")
    whose = {"demonstrator": demonstrator}
    return demonstrators.collect(task, policy, task.demonstrations, seed, greedy=mode == "greedy", provenance=whose)[0]


def data_of(runs: Sequence[Run]) -> tuple[Spec, Dataset]:
    """Return what all runs learn from: one pool of the demonstrations of every demonstrator among them."""
    sources, orders = drawn_by(runs)
    trajectories = tuple(trajectory for each in sources for trajectory in each.trajectories)
    pool = Demonstrations(trajectories, sources[0].action_names, stack=sources[0].stack)
    cells = [cell for cell, _, _ in runs]
    thin = [played(cell).thin for cell in cells]
    largest = max(*SIZES, *(cell.size for cell in cells))
    draws, others = [], []
    for cell, order in zip(cells, orders, strict=True):
        seen = order[: cell.size + cell.task.unlabelled]
        draws.append(seen[: cell.size])
        others.append(seen[0 if cell.task.every_state else cell.size :])
    return spec_of(pool), make_dataset(
        pool,
        draws,
        thin=thin,
        unlabelled=others,
        thin_unlabelled=[1 if cell.task.every_state else k for cell, k in zip(cells, thin, strict=True)],
        capacity=max(capacity_for(each, largest, min(thin)) for each in sources),
    )


def drawn_by(runs: Sequence[Run]) -> tuple[list[Demonstrations], list[np.ndarray]]:
    """Return the demonstrations of every demonstrator of the runs, and in which order each run draws trajectories.

    Trajectories are numbered through all demonstrations; a run draws those of its own demonstrator.
    """
    tasks = [played(cell) for cell, _, _ in runs]
    names = [(task.environment, task.demonstrator, task.mode, task.seed) for task in tasks]
    sources = {name: demonstrations_for(*name) for name in dict.fromkeys(names)}
    begin = dict(zip(sources, np.cumsum([0, *map(len, sources.values())]), strict=False))
    orders = []
    for name, (cell, draw, _) in zip(names, runs, strict=True):
        collected = sources[name]
        orders.append(begin[name] + collected.draw(len(collected), seed=draw + 1000 * cell.task.seed))
    return list(sources.values()), orders


def unseen(runs: Sequence[Run], dataset: Dataset) -> Rows | None:
    """Return every step of the last `HELD_OUT` trajectories that a run has not seen, if any. None for images."""
    if dataset.pool.images:
        return None
    sources, orders = drawn_by(runs)
    ends = np.cumsum(np.concatenate([each.lengths for each in sources]))
    steps = np.split(np.arange(ends[-1]), ends[:-1])
    found = []
    for (cell, _, _), order in zip(runs, orders, strict=True):
        others = order[max(cell.size + cell.task.unlabelled, len(order) - HELD_OUT) :]
        found.append(np.concatenate([np.array([], int), *(steps[trajectory] for trajectory in others)]))
    return padded(found)


def mismatch(networks: Any, rows: Rows | None, members: np.ndarray, pool: Pool) -> dict[str, np.ndarray]:
    """Return, per unseen decision, the log-loss of some of the runs, and how often they prefer another action."""
    if rows is None:
        return {}
    own = Rows(rows.indices[members], rows.size[members])
    # From the host to one device: each run taken apart on several devices would be a collective program.
    sums = _mismatch(jax.device_get(networks), own, pool)
    count = np.where(own.size, own.size, np.nan)  # a run without unseen decisions has no score
    return {name: np.asarray(values, np.float64) / count for name, values in sums.items()}


@jax.jit
def _mismatch(networks: Any, rows: Rows, pool: Pool) -> dict[str, Array]:
    def of(run: tuple[Any, Rows]) -> dict[str, Array]:
        log_loss, error = held_out_sums(*run, pool)
        return {"log_loss": log_loss, "error": error}

    return jax.lax.map(of, (networks, rows), batch_size=8)
