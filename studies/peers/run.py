"""What the study of peers runs: every method in every cell, played live, and acting in the models of `auto`.

Nothing is chosen live. Settings that differ in their demonstrators share a folder, and each file in it holds the
methods that one program trains. What is finished is not run again. So methods can be added, and several processes can
share the work.
"""

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
import polars as pl
from jaxtyping import Array

from sbil import devices, environments
from sbil.algorithms.base import cross_entropy
from sbil.choosing import Judges, judges_of
from sbil.dataset import Pool, Rows, padded
from sbil.environments.base import JaxEnvironment
from sbil.errors import UserError
from sbil.networks import in_float32
from sbil.portfolio import portfolio, usable
from sbil.selection import Candidate, Job, alike, trainings
from studies.cells import Cells, Grid, acted, crossvalidated, trust, write
from studies.peers.live import best_checkpoints, scored
from studies.peers.methods import candidates_of, largest_of
from studies.peers.pooled import pools
from studies.peers.stored import FOLDS, LIVE, MODELS

SETTINGS = (
    *(f"CartPole-v1 {who} {thin}" for thin in (20, 1) for who in ("dqn greedy", "ppo greedy", "ppo sampled")),
    *(f"Acrobot-v1 ppo sampled {thin}" for thin in (1, 5, 20)),
    *(f"LunarLander-v3 ppo greedy {thin}" for thin in (1, 5)),
)
HELD_OUT = 20  # trajectories that no run sees
AT_ONCE = 64  # networks


@dataclass(frozen=True, kw_only=True)
class Run(Grid):
    """Run what is not in the folder yet."""

    seed: int = 4
    """Of demonstrations, draws and networks. Nothing was chosen with this one."""
    draws: int = 10
    """Draws per cell."""
    networks: int = 5
    """Initialisations per method and draw."""
    settings: tuple[str, ...] = SETTINGS
    """Environment, demonstrator, mode and thinning."""
    sizes: tuple[int, ...] = (1, 3, 7, 10, 15)
    """Trajectories per draw."""
    part: int = 0
    """Which part of the work this process does."""
    parts: int = 1
    """Processes that share the work."""


Task = Callable[[], pl.DataFrame]


def run(asked: Run) -> None:
    """Run one pool of settings after the other. What fails is named, and does not stop the others."""
    failed = []
    for cells in pools(asked, asked.settings):
        work = Work(cells)
        for name, task in list(work.tasks().items())[asked.part :: asked.parts]:
            path = asked.out / work.cells.name / f"{name}.parquet"
            if path.exists():
                continue
            try:
                write(path, work.cells.identified(task()).write_parquet)
                print(f"{work.cells.name}: {name}", flush=True)
            except Exception:
                traceback.print_exc()
                failed.append(f"{work.cells.name}: {name}")
    if failed:
        raise UserError(f"{len(failed)} programs failed ({', '.join(failed)}); repair them, and run the same again.")


@dataclass(frozen=True)
class Work:
    """The work of the settings that share programs."""

    cells: Cells

    @cached_property
    def judges(self) -> Judges:
        """The models that `auto` would choose with."""
        return judges_of(self.cells.spec, self.cells.dataset, self.cells.keys("choosing"))

    @cached_property
    def unseen(self) -> Rows:
        """The decisions in trajectories that no run has seen."""
        ends = np.cumsum(self.cells.collected[0].lengths)
        steps = np.split(np.arange(ends[-1]), ends[:-1])
        return padded([np.concatenate([steps[place] for place in order[-HELD_OUT:]]) for order in self.cells.orders])

    def tasks(self) -> dict[str, Task]:
        """Return what is to be done, by the names of files."""
        asked, setting = self.cells.asked, self.cells.setting
        candidates = usable(candidates_of(setting, asked.networks, asked.updates), self.cells.dataset)
        found: dict[str, Task] = {
            MODELS: lambda: trust(self.judges),
            FOLDS: lambda: crossvalidated(self.cells, portfolio(1, asked.updates)),
        }
        if isinstance(environments.get(setting.environment), JaxEnvironment):
            found[LIVE] = lambda: best_checkpoints(self.cells)
        for places in alike(candidates):
            own = [candidates[place] for place in places]
            found[_file(own)] = partial(self._trained, own)
        return found

    def _trained(self, candidates: list[Candidate]) -> pl.DataFrame:
        """Return one row per policy."""
        cells, parts = self.cells, []
        sizes = [largest_of(candidate.name) for candidate in candidates]
        runs = [[run for run, unit in enumerate(cells.units) if unit.size <= size] for size in sizes]
        jobs = [Job(run, number) for number, own in enumerate(runs) for run in own]
        for program, trained in trainings(cells.spec, candidates, cells.dataset, cells.keys("choosing"), jobs):
            networks, members = jax.device_get(trained.states.network), np.array([job.run for job in program])
            chosen = [candidates[job.candidate] for job in program]
            rows = Rows(self.unseen.indices[members], self.unseen.size[members])
            made = {
                "run": members,
                "method": [one.name for one in chosen],
                "network": [one.network for one in chosen],
                "diverged": trained.diverged,
                "distance": acted(cells, self.judges, networks, members)["distance"],
                **{name: np.asarray(values) for name, values in held_out(networks, rows, cells.dataset.pool).items()},
            }
            parts.append(pl.DataFrame(made | scored(cells, networks, members)))
        return pl.concat(parts)


def _file(candidates: list[Candidate]) -> str:
    """Name the file of a program by its methods: with another list of methods it is another file."""
    first, names = candidates[0], dict.fromkeys(candidate.name for candidate in candidates)
    words = re.sub(r"[^a-z0-9]+", "-", first.name.lower())
    return f"{words}-{len(names)}"


@jax.jit
def held_out(networks: Any, rows: Rows, pool: Pool) -> dict[str, Array]:
    """Return, per unseen decision, the log-loss of each network, and how often it prefers another action."""

    def one(own: tuple[Any, Rows]) -> dict[str, Array]:
        network, rows = own
        with in_float32():
            logits = network(pool.before(rows.indices))
        action = pool.action[rows.indices]
        losses, wrong = cross_entropy(logits, action), logits.argmax(axis=-1) != action
        return {
            "held_out_log_loss": losses.mean(where=rows.mask),
            "held_out_error": wrong.mean(where=rows.mask),
        }

    return devices.in_batches(one, (networks, rows), AT_ONCE)
