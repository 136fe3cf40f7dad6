"""The cells of a study in environments: what each run learns from, how policies play, and what a model says of them."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from sbil import demonstrators, environments, files
from sbil.choosing import CLONING, Judges, judged
from sbil.clinical import icu_sepsis
from sbil.dataset import Dataset, Spec, capacity_for, features_of, make_dataset, spec_of
from sbil.demonstrations import Demonstrations
from sbil.environments.base import HostEnvironment
from sbil.environments.icu_sepsis import NAME as SEPSIS
from sbil.evaluation import Policies, call, play
from sbil.experiments.environment import demonstrations_for
from sbil.keys import named
from sbil.policy import Policy
from sbil.portfolio import NETWORKS
from sbil.selection import Candidate, select

LARGEST = 15  # trajectories per draw: all sizes up to this share their shapes, and so their programs


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Which cells to run, and how."""

    out: Path
    """Where each setting's file goes."""
    seed: int = 3
    """Of demonstrations, draws and networks. Measures, rules and candidates were chosen with seeds 0 to 2."""
    first: int = 0
    """The number of the first draw. Draws may be run in several parts."""
    draws: int = 20
    """Draws per cell."""
    networks: int = NETWORKS
    """Initialisations per method and draw."""
    episodes: int = 300
    """Live episodes per policy."""
    host_episodes: int = 50
    """Live episodes at most, where the environment runs outside of JAX (LunarLander)."""
    settings: tuple[str, ...] = ()
    """Environment, demonstrator, mode and thinning."""
    sizes: tuple[int, ...] = (1, 3, 7, 15)
    """Trajectories per draw."""
    updates: int | None = None
    """Updates of every candidate (default: those of its preset)."""
    agents: Path | None = None
    """A folder of policies that demonstrate instead of those that ship."""


class Setting(NamedTuple):
    """An environment, who demonstrates it, and which steps are shown."""

    environment: str
    demonstrator: str
    mode: str
    thin: int

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """From "CartPole-v1 dqn greedy 20"."""
        environment, demonstrator, mode, thin = text.split()
        return cls(environment, demonstrator, mode, int(thin))


class Unit(NamedTuple):
    """A draw of a size."""

    size: int
    draw: int


@dataclass(frozen=True)
class Cells:
    """The cells of one setting: their runs share programs."""

    asked: Grid
    setting: Setting

    @property
    def name(self) -> str:
        """What files of the setting are called."""
        return f"{'-'.join(map(str, self.setting))}-seed{self.asked.seed}-draw{self.asked.first}"

    @cached_property
    def units(self) -> list[Unit]:
        """What each run learns from."""
        draws = range(self.asked.first, self.asked.first + self.asked.draws)
        return [Unit(size, draw) for size in self.asked.sizes for draw in draws]

    @cached_property
    def collected(self) -> tuple[Demonstrations, tuple[float, float]]:
        """Demonstrations, and the returns of a random network and of the demonstrator: scores 0 and 1."""
        environment, demonstrator, mode, _ = self.setting
        if environment == SEPSIS:
            return icu_sepsis.record(LARGEST * 10, self.asked.seed), (0.0, 1.0)
        if not self.asked.agents:
            found = demonstrations_for(environment, demonstrator, mode, self.asked.seed)
            return found, environments.scale(environment, demonstrator, mode)
        agent, task = Policy.load(self.asked.agents / demonstrator), environments.get(environment)
        how: dict[str, Any] = {"greedy": mode == "greedy", "provenance": {"demonstrator": demonstrator}}
        found, returns = demonstrators.collect(task, agent, task.demonstrations, self.asked.seed, **how)
        return found, (environments.returns()[environment]["random network"]["mean"], float(returns.mean()))

    @cached_property
    def orders(self) -> list[np.ndarray]:
        """The order in which each run draws trajectories."""
        demonstrations, shift = self.collected[0], 1000 * self.asked.seed
        return [demonstrations.draw(len(demonstrations), unit.draw + shift) for unit in self.units]

    @cached_property
    def dataset(self) -> Dataset:
        """The runs' data. Sizes and thinnings share their shapes, and so their programs."""
        demonstrations, thin = self.collected[0], self.setting.thin
        draws = [order[: unit.size] for order, unit in zip(self.orders, self.units, strict=True)]
        return make_dataset(demonstrations, draws, thin=thin, capacity=capacity_for(demonstrations, LARGEST, thin))

    @cached_property
    def spec(self) -> Spec:
        """The shape of the task."""
        return spec_of(self.collected[0])

    def keys(self, use: str) -> jax.Array:
        """One key per run; sizes share it."""
        return jnp.stack([named(use, *self.setting, self.asked.seed, unit.draw) for unit in self.units])

    def identified(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with the setting, the seed, the size and the draw instead of the number of the run."""
        units = pl.DataFrame(self.units, schema=Unit._fields, orient="row").with_row_index("run")
        constants = {**self.setting._asdict(), "seed": self.asked.seed}
        joined = rows.join(units.cast({"run": pl.Int64}), on="run", maintain_order="left").drop("run")
        return joined.with_columns(**{name: pl.lit(value) for name, value in constants.items()})


def write(path: Path, into: Callable[[io.BytesIO], Any]) -> None:
    """Write a whole file, or nothing."""
    content = io.BytesIO()
    into(content)
    files.write_bytes(path, content.getvalue())


def played(cells: Cells, stacked: Any, runs: np.ndarray) -> dict[str, np.ndarray]:
    """Let policies act in the environment: mean return, mean score, and the score of every other episode.

    In ICU-Sepsis the probability of survival is known exactly.
    """
    if cells.setting.environment == SEPSIS:
        tables = np.asarray(jax.vmap(lambda network: network(jnp.eye(features_of(cells.spec))))(stacked))
        survived = np.array([icu_sepsis.survival(icu_sepsis.likeliest(table)) for table in tables])
        return {"return": survived, "score": survived, "score_even": survived, "score_odd": survived}
    environment, keys = environments.get(cells.setting.environment), cells.keys("evaluate")
    on_host = isinstance(environment, HostEnvironment)
    episodes = min(cells.asked.episodes, cells.asked.host_episodes) if on_host else cells.asked.episodes
    returns = play(environment, Policies(call, stacked), keys[runs], episodes)
    low, high = cells.collected[1]
    scores = (returns - low) / (high - low)
    halves = {"score_even": scores[:, ::2].mean(axis=1), "score_odd": scores[:, 1::2].mean(axis=1)}
    return {"return": returns.mean(axis=1), "score": scores.mean(axis=1), **halves}


def acted(cells: Cells, judges: Judges, stacked: Any, runs: np.ndarray) -> dict[str, np.ndarray]:
    """Let policies act in the models of their runs."""
    found = judged(judges, cells.keys("choosing"), stacked, runs)
    means = {name: leaf.reshape(len(runs), -1).mean(axis=1) for name, leaf in found._asdict().items()}
    return {"distance": found.distance, **means}


def crossvalidated(cells: Cells, candidates: list[Candidate]) -> pl.DataFrame:
    """The held-out log-loss and error of every setting of BC on every draw, for its first network."""
    first = [candidate for candidate in candidates if candidate.network == 0 and candidate.algorithm == CLONING]
    found = select(cells.spec, first, cells.dataset, cells.keys("choosing"))
    return pl.DataFrame(
        [
            {
                "run": run,
                "method": one.name,
                "log_loss": found.losses[run, place],
                "error": found.errors[run, place],
            }
            for run in range(len(cells.units))
            for place, one in enumerate(first)
        ]
    )


def trust(judges: Judges) -> pl.DataFrame:
    """How far the model of each run is trusted."""
    after = np.asarray(judges.trust.after, np.float64)
    return pl.DataFrame(
        {
            "run": range(len(judges.horizons)),
            "horizon": judges.horizons,
            "r2_step": np.asarray(judges.trust.step, np.float64),
            "r2_median": np.nanmedian(np.asarray(judges.trust.r2, np.float64), axis=1),
            "r2_next": after[:, 0],
            "r2_after_10": after[:, 9],
            "r2_after_50": after[:, 49],
            "model_disagreement": np.asarray(judges.trust.disagreement, np.float64),
            "length": np.asarray(judges.views.length, np.float64),
        }
    )
