"""What the study of peers runs: every method in every cell, played live after its last update.

Nothing is chosen live. The draws, the keys and the settings are those of the study of choosing (seed 3), which holds
the runs of BC, of EDM and of `auto`. Each setting is a folder, and each file in it holds the methods that one program
trains. What is finished is not run again, so methods can be added.
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
from sbil.dataset import Pool, Rows, padded
from sbil.environments.base import JaxEnvironment
from sbil.errors import UserError
from sbil.networks import in_float32
from sbil.selection import Candidate, Job, alike, trainings
from studies.cells import Cells, Grid, Setting, write
from studies.choosing.run import SETTINGS as CHOOSING
from studies.peers.live import LIVE, best_checkpoints, scored
from studies.peers.methods import candidates_of, largest_of

SETTINGS = (*CHOOSING, "CartPole-v1 dqn greedy 1", "CartPole-v1 ppo sampled 1")
HELD_OUT = 20  # trajectories that no run sees
AT_ONCE = 64  # networks


@dataclass(frozen=True, kw_only=True)
class Run(Grid):
    """Run what is not in the folder yet."""

    draws: int = 10
    """Draws per cell."""
    networks: int = 1
    """Initialisations per method and draw."""
    settings: tuple[str, ...] = SETTINGS
    """Environment, demonstrator, mode and thinning."""
    sizes: tuple[int, ...] = (1, 3, 7)
    """Trajectories per draw."""
    methods: tuple[str, ...] = ()
    """Methods to run, as the study writes them, and "live" for the best checkpoints (default: all)."""


Task = Callable[[], pl.DataFrame]


def run(asked: Run) -> None:
    """Run one setting after the other. What fails is named, and does not stop the others."""
    failed = []
    for text in asked.settings:
        work = Work(Cells(asked, Setting.parse(text)), asked.methods)
        for name, task in work.tasks().items():
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
    """The work of one setting."""

    cells: Cells
    methods: tuple[str, ...] = ()  # default: all

    @cached_property
    def unseen(self) -> Rows:
        """The decisions in trajectories that no run has seen."""
        ends = np.cumsum(self.cells.collected[0].lengths)
        steps = np.split(np.arange(ends[-1]), ends[:-1])
        return padded([np.concatenate([steps[place] for place in order[-HELD_OUT:]]) for order in self.cells.orders])

    def tasks(self) -> dict[str, Task]:
        """Return what is to be done, by the names of files."""
        asked, setting = self.cells.asked, self.cells.setting
        every = candidates_of(setting, asked.networks, asked.updates)
        candidates = [one for one in every if one.name in (self.methods or [one.name])]
        found: dict[str, Task] = {}
        for places in alike(candidates):
            own = [candidates[place] for place in places]
            found[_file(own)] = partial(self._trained, own)
        on_device = isinstance(environments.get(setting.environment), JaxEnvironment)
        if on_device and LIVE in (self.methods or [LIVE]):
            found[LIVE] = lambda: best_checkpoints(self.cells)
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
