"""What the study of choosing runs: in every cell the candidates of `auto`, their imagined measures and their returns.

The demonstrations alone give the measures. The returns are only compared with them.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import tyro

from sbil import demonstrators, environments, files
from sbil.choosing import Judges, judged, judges_of
from sbil.dataset import Dataset, Spec, capacity_for, make_dataset, spec_of
from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.evaluation import Policies, call, play
from sbil.experiments.environment import demonstrations_for
from sbil.keys import named
from sbil.policy import Policy
from sbil.portfolio import NETWORKS, portfolio
from sbil.selection import Candidate, Job, select, trainings
from sbil.training import stack
from studies.choosing import ensembles
from studies.choosing.choices import CELL, STORED
from studies.choosing.horizons import HORIZONS, measures_by_horizon

Networks = dict[tuple[int, str, int], Any]  # by run, method and number

SIZES = (1, 3, 7, 15)
SETTINGS = (
    "CartPole-v1 dqn greedy 20",
    "CartPole-v1 ppo sampled 20",
    "Acrobot-v1 ppo sampled 1",
    "Acrobot-v1 ppo sampled 5",
    "Acrobot-v1 ppo sampled 20",
    "LunarLander-v3 ppo greedy 1",
    "LunarLander-v3 ppo greedy 5",
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Run the settings that are not in the folder yet."""

    out: Path
    """Where each setting's file goes."""
    seed: int = 1
    """Of demonstrations, draws and networks. Measures and rules were chosen with seed 0."""
    first: int = 0
    """The number of the first draw. Draws may be run in several parts."""
    draws: int = 20
    """Draws per cell."""
    networks: int = NETWORKS
    """Initialisations per method and draw."""
    episodes: int = 300
    """Live episodes per policy; LunarLander plays 50 at most."""
    settings: tuple[str, ...] = SETTINGS
    """Environment, demonstrator, mode and thinning."""
    sizes: tuple[int, ...] = SIZES
    """Trajectories per draw."""
    updates: int | None = None
    """Updates of every candidate (default: those of its preset)."""
    agents: Path | None = None
    """A folder of policies that demonstrate instead of those that ship."""
    pilot: bool = False
    """Measure what the rules were chosen from: rollouts over many horizons, and ensembles. Nothing is held out."""


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

    asked: Run
    setting: Setting

    @cached_property
    def units(self) -> list[Unit]:
        """What each run learns from."""
        draws = range(self.asked.first, self.asked.first + self.asked.draws)
        return [Unit(size, draw) for size in self.asked.sizes for draw in draws]

    @cached_property
    def collected(self) -> tuple[Demonstrations, tuple[float, float]]:
        """Demonstrations, and the returns of a random network and of the demonstrator: scores 0 and 1."""
        environment, demonstrator, mode, _ = self.setting
        if not self.asked.agents:
            found = demonstrations_for(environment, demonstrator, mode, self.asked.seed)
            return found, environments.scale(environment, demonstrator, mode)
        agent, task = Policy.load(self.asked.agents / demonstrator), environments.get(environment)
        how: dict[str, Any] = {"greedy": mode == "greedy", "provenance": {"demonstrator": demonstrator}}
        found, returns = demonstrators.collect(task, agent, task.demonstrations, self.asked.seed, **how)
        return found, (environments.returns()[environment]["random network"]["mean"], float(returns.mean()))

    @cached_property
    def dataset(self) -> Dataset:
        """The runs' data. Sizes and thinnings share their shapes, and so their programs."""
        demonstrations, shift = self.collected[0], 1000 * self.asked.seed
        draws = [demonstrations.draw(len(demonstrations), unit.draw + shift)[: unit.size] for unit in self.units]
        room = capacity_for(demonstrations, max(SIZES), self.setting.thin)
        return make_dataset(demonstrations, draws, thin=self.setting.thin, capacity=room)

    @cached_property
    def spec(self) -> Spec:
        """The shape of the task."""
        return spec_of(self.collected[0])

    def keys(self, use: str) -> jax.Array:
        """One key per run; sizes share it."""
        return jnp.stack([named(use, *self.setting, self.asked.seed, unit.draw) for unit in self.units])


def run(asked: Run) -> None:
    """Run the settings one by one. A finished one is not run again."""
    for text in asked.settings:
        path = asked.out / f"{text.replace(' ', '-')}-seed{asked.seed}-draw{asked.first}.parquet"
        if path.exists():
            continue
        rows = measured(Cells(asked, Setting.parse(text)))
        write(path, rows)
        for (size,), part in rows.partition_by("size", as_dict=True, maintain_order=True).items():
            print(f"{text}, n={size}: {summary(part)}", flush=True)


@dataclass(frozen=True, kw_only=True)
class Take:
    """Copy the finished settings of a folder into results/choosing/, one file per seed."""

    folder: tyro.conf.Positional[Path]
    """Where the runs are."""


def take(asked: Take) -> None:
    """Copy the finished settings; they take the place of all that was stored of their seed."""
    found = sorted(asked.folder.glob("*.parquet"))
    if not found:
        raise UserError(f"{asked.folder} holds no finished setting; run the study first.")
    runs = pl.concat(map(pl.read_parquet, found), how="diagonal")
    for (seed,), rows in runs.partition_by("seed", as_dict=True).items():
        write(STORED / f"seed{seed}.parquet", rows.sort(*CELL, "draw", "method", "network"))


def write(path: Path, rows: pl.DataFrame) -> None:
    """Write a whole file, or nothing."""
    content = io.BytesIO()
    rows.write_parquet(content, compression="zstd")
    files.write_bytes(path, content.getvalue())


def summary(rows: pl.DataFrame) -> str:
    """Return the mean scores of BC, of the policies that imagined rollouts choose, and of the best per draw."""
    scores = {
        "bc": rows.filter(pl.col("method") == "bc"),
        "by imagined rollouts": rows.sort("distance").group_by("draw").first(),
        "best": rows.group_by("draw").agg(pl.col("score").max()),
    }
    return ", ".join(f"{name} {part['score'].to_numpy().mean():.3f}" for name, part in scores.items())


def measured(cells: Cells) -> pl.DataFrame:
    """Return one row per run, method and network: its score, and what the run's draw alone says of it."""
    candidates = portfolio(cells.asked.networks, cells.asked.updates)
    judges = judges_of(cells.spec, cells.dataset, cells.keys("choosing"))
    networks: Networks = {}
    rows = list(_rows(cells, candidates, judges, networks))
    if cells.asked.pilot:
        rows += _ensembles(cells, judges, networks, rows)
        known = pl.DataFrame(rows)
    else:
        known = pl.DataFrame(rows).join(_crossvalidated(cells, candidates), on=["run", "method"])
    known = known.join(_trust(judges), on="run")
    units = pl.DataFrame(cells.units, schema=Unit._fields, orient="row").with_row_index("run")
    constants = {**cells.setting._asdict(), "seed": cells.asked.seed}
    return (
        known.join(units.cast({"run": pl.Int64}), on="run")
        .drop("run")
        .with_columns(**{name: pl.lit(value) for name, value in constants.items()})
    )


def _rows(cells: Cells, candidates: list[Candidate], judges: Judges, networks: Networks) -> Iterator[dict[str, Any]]:
    """Train every candidate on every draw, let it act in the model, and play it. Its network is kept in `networks`."""
    keys = cells.keys("choosing")
    jobs = [Job(run, number) for number in range(len(candidates)) for run in range(len(cells.units))]
    for program, trained in trainings(cells.spec, candidates, cells.dataset, keys, jobs):
        runs = np.array([job.run for job in program])
        stacked = jax.device_get(trained.states.network)
        for place, (job, found) in enumerate(zip(program, _acted(cells, judges, stacked, runs), strict=True)):
            name, network = candidates[job.candidate].name, candidates[job.candidate].network
            networks[job.run, name, network] = jax.tree.map(lambda leaf, place=place: leaf[place], stacked)
            yield {"method": name, "network": network, "diverged": bool(trained.diverged[place]), **found}


def _ensembles(
    cells: Cells, judges: Judges, networks: Networks, rows: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The same for ensembles of the nearest policies of each draw."""
    runs = np.arange(len(cells.units))
    width = max(len(network.layers[0].bias) for network in networks.values())
    ordered = sorted((row for row in rows if not row["diverged"]), key=lambda row: row["distance"])
    for size in ensembles.SIZES:
        nearest = [[row for row in ordered if row["run"] == run][:size] for run in runs]
        members = [[networks[run, row["method"], row["network"]] for row in own] for run, own in enumerate(nearest)]
        stacked = stack([ensembles.ensemble(own, width) for own in members])
        for found in _acted(cells, judges, jax.device_get(stacked), runs):
            yield {"method": f"nearest {size}", "network": 0, "diverged": False, **found}


def _acted(cells: Cells, judges: Judges, stacked: Any, runs: np.ndarray) -> Iterator[dict[str, Any]]:
    """Let policies act in the models of their runs, and in the environment."""
    asked, keys, starts = cells.asked, cells.keys("choosing"), cells.keys("evaluate")
    environment = environments.get(cells.setting.environment)
    episodes = min(asked.episodes, 50) if cells.setting.environment.startswith("LunarLander") else asked.episodes
    low, high = cells.collected[1]
    measures = judged(judges, keys, stacked, runs)
    more = measures_by_horizon(judges, keys, stacked, runs) if asked.pilot else {}
    returns = play(environment, Policies(call, stacked), starts[runs], episodes).mean(axis=1)
    for place, run in enumerate(runs):
        own = jax.tree.map(lambda leaf, place=place: float(np.mean(leaf[place])), measures)
        yield {
            "run": int(run),
            "return": float(returns[place]),
            "score": float((returns[place] - low) / (high - low)),
            "distance": float(measures.distance[place]),
            **own._asdict(),
            **{
                f"{name}_{horizon}": float(values[place, number])
                for name, values in more.items()
                for number, horizon in enumerate(HORIZONS)
            },
        }


def _crossvalidated(cells: Cells, candidates: list[Candidate]) -> pl.DataFrame:
    """The held-out log-loss and error of every method on every draw, for its first network."""
    first = [candidate for candidate in candidates if candidate.network == 0]
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


def _trust(judges: Judges) -> pl.DataFrame:
    after = np.asarray(judges.trust.r2_after, np.float64)
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
