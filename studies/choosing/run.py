"""What the study of choosing runs: in every cell the candidates of `auto`, their returns and their imagined measures.

`run` trains and plays, `measure` lets the same networks act in models. The demonstrations alone give the measures; the
returns are only compared with them.
"""

import io
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import tyro

from sbil import demonstrators, environments, files
from sbil.algorithms.base import written
from sbil.choosing import CLONING, Judges, judged, judges_of
from sbil.clinical import icu_sepsis
from sbil.dataset import Dataset, Spec, capacity_for, features_of, make_dataset, spec_of
from sbil.demonstrations import Demonstrations
from sbil.ensembles import ensemble, widened
from sbil.environments.icu_sepsis import NAME as SEPSIS
from sbil.errors import UserError
from sbil.evaluation import Policies, call, play
from sbil.experiments.environment import demonstrations_for
from sbil.keys import named
from sbil.networks import policy_network
from sbil.policy import Policy
from sbil.portfolio import NETWORKS, portfolio
from sbil.selection import Candidate, Job, select, trainings
from sbil.training import stack
from studies.choosing.choices import CELL, STORED, TOGETHER
from studies.choosing.horizons import HORIZONS, measures_by_horizon

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
    seed: int = 2
    """Of demonstrations, draws and networks. Measures, rules and candidates were chosen with seed 0."""
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
    hold_out: bool = True
    """Score every setting of BC by cross-validation, too."""


@dataclass(frozen=True, kw_only=True)
class Measure(Run):
    """Let the networks of finished settings act in models. Give the same words as for their run."""

    pilot: bool = False
    """Measure what the rules were chosen from: rollouts over many horizons, and ensembles of the nearest."""


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
        if environment == SEPSIS:
            return icu_sepsis.record(max(SIZES) * 10, self.asked.seed), (0.0, 1.0)
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

    @property
    def path(self) -> Path:
        """The file of the trained networks' scores."""
        return (
            self.asked.out / f"{'-'.join(map(str, self.setting))}-seed{self.asked.seed}-draw{self.asked.first}.parquet"
        )

    def networks(self, hidden: str) -> Path:
        """The file of the trained networks with some hidden layers."""
        return self.path.with_suffix(f".{hidden}")

    def read(self, hidden: str, count: int) -> Any:
        """Return the stacked networks of such a file."""
        sizes = () if hidden == written(()) else tuple(map(int, hidden.split("x")))
        like = policy_network(jax.random.key(0), self.spec, sizes)
        like = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), like)
        return jax.device_get(eqx.tree_deserialise_leaves(self.networks(hidden), like))

    def keys(self, use: str) -> jax.Array:
        """One key per run; sizes share it."""
        return jnp.stack([named(use, *self.setting, self.asked.seed, unit.draw) for unit in self.units])


def run(asked: Run) -> None:
    """Train and play the settings one by one. A finished one is not run again."""
    for cells in _settings(asked):
        if not cells.path.exists():
            rows, networks = trained(cells)
            for hidden, stacked in networks.items():
                write(cells.networks(hidden), partial(eqx.tree_serialise_leaves, pytree=stacked))
            write(cells.path, rows.write_parquet)
            print(f"{cells.path.stem}: trained", flush=True)


def measure(asked: Measure) -> None:
    """Measure the settings one by one, and write them into the folder `measured`."""
    for cells in _settings(asked):
        path = asked.out / "measured" / cells.path.name
        if not path.exists():
            rows = measured(cells, asked.pilot)
            write(path, rows.write_parquet)
            for (size,), part in rows.partition_by("size", as_dict=True, maintain_order=True).items():
                print(f"{path.stem}, n={size}: {summary(part)}", flush=True)


def _settings(asked: Run) -> Iterator["Cells"]:
    return (Cells(asked, Setting.parse(text)) for text in asked.settings)


@dataclass(frozen=True, kw_only=True)
class Take:
    """Add the measured settings of a folder to results/choosing/, one file per seed."""

    folder: tyro.conf.Positional[Path]
    """Where the runs are."""


def take(asked: Take) -> None:
    """Copy the measured settings; their draws take the place of the same draws that were stored, or join them."""
    found = sorted((asked.folder / "measured").glob("*.parquet"))
    if not found:
        raise UserError(f"{asked.folder} holds no measured setting; run the study first.")
    runs = pl.concat(map(pl.read_parquet, found), how="diagonal_relaxed")
    for (seed,), rows in runs.partition_by("seed", as_dict=True).items():
        path = STORED / f"seed{seed}.parquet"
        if path.exists():
            kept = pl.read_parquet(path).join(rows, on=[*CELL, "draw"], how="anti")
            rows = pl.concat([kept, rows], how="diagonal_relaxed")
        write(path, rows.sort(*CELL, "draw", "method", "network").write_parquet)


def write(path: Path, into: Callable[[io.BytesIO], Any]) -> None:
    """Write a whole file, or nothing."""
    content = io.BytesIO()
    into(content)
    files.write_bytes(path, content.getvalue())


def summary(rows: pl.DataFrame) -> str:
    """Return the mean scores of BC, of the policies that imagined rollouts choose, and of the best per draw."""
    scores = {
        "bc": rows.filter(pl.col("method") == "bc"),
        "by imagined rollouts": rows.sort("distance").group_by("draw").first(),
        "best": rows.group_by("draw").agg(pl.col("score").max()),
    }
    return ", ".join(f"{name} {part['score'].to_numpy().mean():.3f}" for name, part in scores.items())


def trained(cells: Cells) -> tuple[pl.DataFrame, dict[str, Any]]:
    """(one row per network, with its score; the stacked networks by their hidden layers, in the order of the rows)."""
    candidates = portfolio(cells.asked.networks, cells.asked.updates)
    jobs = [Job(run, number) for number in range(len(candidates)) for run in range(len(cells.units))]
    rows, networks = [], defaultdict(list)
    for program, found in trainings(cells.spec, candidates, cells.dataset, cells.keys("choosing"), jobs):
        stacked = jax.device_get(found.states.network)
        runs, chosen = np.array([job.run for job in program]), [candidates[job.candidate] for job in program]
        hidden = written(chosen[0].config.hidden)
        networks[hidden].append(stacked)
        names = {"method": [one.name for one in chosen], "network": [one.network for one in chosen]}
        made = {"run": runs, **names, "hidden": hidden, "diverged": found.diverged}
        rows.append(pl.DataFrame(made | _played(cells, stacked, runs)))
    known = pl.concat(rows)
    if cells.asked.hold_out:
        known = known.join(_crossvalidated(cells, candidates), on=["run", "method"], how="left", maintain_order="left")
    return known, {hidden: _joined(parts) for hidden, parts in networks.items()}


def measured(cells: Cells, pilot: bool) -> pl.DataFrame:
    """Return the rows of trained networks with what the draws alone say of them."""
    one_hot = [range(features_of(cells.spec))] if cells.setting.environment == SEPSIS else []
    judges = judges_of(cells.spec, cells.dataset, cells.keys("choosing"), one_hot=one_hot)
    parts = []
    for (hidden,), rows in pl.read_parquet(cells.path).partition_by("hidden", as_dict=True).items():
        networks = cells.read(hidden, len(rows))
        parts.append((rows.hstack(_acted(cells, judges, networks, rows["run"].to_numpy(), pilot)), networks))
    known = pl.concat([rows for rows, _ in parts])
    if pilot:
        known = pl.concat([known, *_ensembles(cells, judges, parts)], how="diagonal_relaxed")
    units = pl.DataFrame(cells.units, schema=Unit._fields, orient="row").with_row_index("run")
    constants = {**cells.setting._asdict(), "seed": cells.asked.seed}
    return (
        known.join(_trust(judges), on="run")
        .join(units.cast({"run": pl.Int64}), on="run")
        .drop("run", "hidden")
        .with_columns(**{name: pl.lit(value) for name, value in constants.items()})
    )


def _joined(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)


def _played(cells: Cells, stacked: Any, runs: np.ndarray) -> dict[str, np.ndarray]:
    """Let policies act in the environment. In ICU-Sepsis the probability of survival is known exactly."""
    if cells.setting.environment == SEPSIS:
        tables = np.asarray(jax.vmap(lambda network: network(jnp.eye(features_of(cells.spec))))(stacked))
        survived = np.array([icu_sepsis.survival(icu_sepsis.likeliest(table)) for table in tables])
        return {"return": survived, "score": survived}
    environment, keys = environments.get(cells.setting.environment), cells.keys("evaluate")
    episodes = min(cells.asked.episodes, 50) if environment.name.startswith("LunarLander") else cells.asked.episodes
    returns = play(environment, Policies(call, stacked), keys[runs], episodes).mean(axis=1)
    low, high = cells.collected[1]
    return {"return": returns, "score": (returns - low) / (high - low)}


def _acted(cells: Cells, judges: Judges, stacked: Any, runs: np.ndarray, pilot: bool) -> pl.DataFrame:
    """Let policies act in the models of their runs."""
    keys = cells.keys("choosing")
    found = judged(judges, keys, stacked, runs)
    more = measures_by_horizon(judges, keys, stacked, runs) if pilot else {}
    return pl.DataFrame(
        {
            "distance": found.distance,
            **{name: leaf.reshape(len(runs), -1).mean(axis=1) for name, leaf in found._asdict().items()},
            **{
                f"{name}_{h}": column
                for name, values in more.items()
                for h, column in zip(HORIZONS, values.T, strict=True)
            },
        }
    )


def _ensembles(cells: Cells, judges: Judges, parts: list[tuple[pl.DataFrame, Any]]) -> Iterator[pl.DataFrame]:
    """Ensembles of the nearest policies of each draw that are as deep as the nearest: their scores and measures."""
    width = max(len(networks.layers[0].bias[0]) for _, networks in parts)
    known = [(row, networks, place) for rows, networks in parts for place, row in enumerate(rows.iter_rows(named=True))]
    known = sorted((one for one in known if not one[0]["diverged"]), key=lambda one: one[0]["distance"])
    nearest = [_alike([one for one in known if one[0]["run"] == run]) for run in range(len(cells.units))]
    depths = np.array([own[0][1].depth for own in nearest])
    for size, depth in product(TOGETHER, np.unique(depths)):
        runs = np.flatnonzero(depths == depth)
        members = [[jax.tree.map(itemgetter(place), net) for _, net, place in nearest[run][:size]] for run in runs]
        stacked = jax.device_get(stack([ensemble([widened(network, width) for network in own]) for own in members]))
        made = {"run": runs, "method": f"nearest {size}", "network": 0, "hidden": "", "diverged": False}
        yield pl.DataFrame(made | _played(cells, stacked, runs)).hstack(_acted(cells, judges, stacked, runs, False))


def _alike(nearest: list[Any]) -> list[Any]:
    """Keep the policies that have as many layers as the first."""
    return [one for one in nearest if one[1].depth == nearest[0][1].depth]


def _crossvalidated(cells: Cells, candidates: list[Candidate]) -> pl.DataFrame:
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


def _trust(judges: Judges) -> pl.DataFrame:
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
