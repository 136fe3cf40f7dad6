"""What the study of choosing runs: in every cell the candidates of `auto`, their imagined measures and their returns.

The demonstrations alone give the measures. The returns are only compared with them.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import tyro

from sbil import environments, files
from sbil.choosing import Judges, judged, judges_of
from sbil.dataset import Dataset, Spec, capacity_for, make_dataset, spec_of
from sbil.errors import UserError
from sbil.evaluation import Policies, call, play
from sbil.experiments.environment import demonstrations_for
from sbil.keys import named
from sbil.portfolio import portfolio
from sbil.selection import Candidate, Job, select, trainings
from studies.choosing.choices import CELL, STORED

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
    """Run the cells that are not in the folder yet."""

    out: Path
    """Where each cell's file goes."""
    seed: int = 1
    """Of demonstrations, draws and networks. Measures and rules were chosen with seed 0."""
    first: int = 0
    """The number of the first draw. Draws may be run in several parts."""
    draws: int = 20
    """Draws per cell."""
    networks: int = 2
    """Initialisations per method and draw."""
    episodes: int = 300
    """Live episodes per policy; LunarLander plays 50 at most."""
    settings: tuple[str, ...] = SETTINGS
    """Environment, demonstrator, mode and thinning."""
    sizes: tuple[int, ...] = SIZES
    """Trajectories per draw."""
    updates: int | None = None
    """Updates of every candidate (default: those of its preset)."""


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

    @property
    def scale(self) -> tuple[float, float]:
        """The returns of a random network and of the demonstrator."""
        return environments.scale(self.environment, self.demonstrator, self.mode)


def run(asked: Run) -> None:
    """Run the cells one by one. A finished cell is not run again."""
    for text in asked.settings:
        for size in asked.sizes:
            setting = Setting.parse(text)
            path = asked.out / f"{text.replace(' ', '-')}-n{size}-seed{asked.seed}-draw{asked.first}.parquet"
            if path.exists():
                continue
            rows = cell(asked, setting, size)
            write(path, rows)
            print(f"{path.name}: {summary(rows)}", flush=True)


@dataclass(frozen=True, kw_only=True)
class Take:
    """Copy the finished cells of a folder into results/choosing/, one file per seed."""

    folder: tyro.conf.Positional[Path]
    """Where the runs are."""


def take(asked: Take) -> None:
    """Copy the finished cells; they take the place of all that was stored of their seed."""
    found = sorted(asked.folder.glob("*.parquet"))
    if not found:
        raise UserError(f"{asked.folder} holds no finished cell; run the study first.")
    for (seed,), rows in pl.concat(map(pl.read_parquet, found)).partition_by("seed", as_dict=True).items():
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


def cell(asked: Run, setting: Setting, size: int) -> pl.DataFrame:
    """Return one row per draw, method and network: its score, and what the draw alone says of it."""
    demonstrations = demonstrations_for(*setting[:3], asked.seed)
    numbers = range(asked.first, asked.first + asked.draws)
    draws = [demonstrations.draw(len(demonstrations), number + 1000 * asked.seed)[:size] for number in numbers]
    room = capacity_for(demonstrations, max(SIZES), setting.thin)  # one program for all sizes
    dataset = make_dataset(demonstrations, draws, thin=setting.thin, capacity=room)
    spec = spec_of(demonstrations)
    keys = jnp.stack([named("choosing", *setting, asked.seed, number) for number in numbers])
    candidates = portfolio(asked.networks, asked.updates)
    judges = judges_of(spec, dataset, keys)
    rows = list(_rows(asked, setting, spec, dataset, keys, candidates, judges))
    known = pl.DataFrame(rows).join(_crossvalidated(asked, spec, dataset, keys, candidates), on=["draw", "method"])
    known = known.join(_trust(judges), on="draw").with_columns(pl.col("draw") + asked.first)
    return known.with_columns(**_constants(asked, setting, size))


def _constants(asked: Run, setting: Setting, size: int) -> dict[str, Any]:
    return {name: pl.lit(value) for name, value in {**setting._asdict(), "size": size, "seed": asked.seed}.items()}


def _rows(
    asked: Run,
    setting: Setting,
    spec: Spec,
    dataset: Dataset,
    keys: Any,
    candidates: list[Candidate],
    judges: Judges,
) -> Iterator[dict[str, Any]]:
    """Train every candidate on every draw, let it act in the model, and play it."""
    environment = environments.get(setting.environment)
    episodes = min(asked.episodes, 50) if setting.environment.startswith("LunarLander") else asked.episodes
    low, high = setting.scale
    jobs = [Job(draw, number) for number in range(len(candidates)) for draw in range(asked.draws)]
    for program, trained in trainings(spec, candidates, dataset, keys, jobs):
        draws = np.array([job.run for job in program])
        measures = judged(judges, keys, trained, draws)
        networks = jax.device_get(trained.states.network)
        numbers = asked.first + draws
        starts = jnp.stack([named("evaluate", *setting[:3], asked.seed, number) for number in numbers.tolist()])
        scores = (play(environment, Policies(call, networks), starts, episodes).mean(axis=1) - low) / (high - low)
        for place, job in enumerate(program):
            own = jax.tree.map(lambda leaf, place=place: float(np.mean(leaf[place])), measures)
            yield {
                "draw": job.run,
                "method": candidates[job.candidate].name,
                "network": candidates[job.candidate].network,
                "score": float(scores[place]),
                "diverged": bool(trained.diverged[place]),
                "distance": float(measures.distance[place]),
                **own._asdict(),
            }


def _crossvalidated(asked: Run, spec: Spec, dataset: Dataset, keys: Any, candidates: list[Candidate]) -> pl.DataFrame:
    """The held-out log-loss and error of every method on every draw, for its first network."""
    first = [candidate for candidate in candidates if candidate.network == 0]
    found = select(spec, first, dataset, keys)
    return pl.DataFrame(
        [
            {
                "draw": draw,
                "method": one.name,
                "log_loss": found.losses[draw, place],
                "error": found.errors[draw, place],
            }
            for draw in range(asked.draws)
            for place, one in enumerate(first)
        ]
    )


def _trust(judges: Judges) -> pl.DataFrame:
    after = np.asarray(judges.trust.r2_after)
    return pl.DataFrame(
        {
            "draw": range(len(judges.horizons)),
            "horizon": judges.horizons,
            "r2_step": np.asarray(judges.trust.step, np.float64),
            "r2_next": after[:, 0].astype(np.float64),
            "model_disagreement": np.asarray(judges.trust.disagreement, np.float64),
        }
    )
