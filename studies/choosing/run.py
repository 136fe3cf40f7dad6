"""What the study of choosing runs: in every cell the candidates of `auto`, their returns and their imagined measures.

`run` trains and plays, `measure` lets the same networks act in models. The demonstrations alone give the measures; the
returns are only compared with them.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import tyro

from sbil.algorithms.base import written
from sbil.choosing import Judges, judges_of
from sbil.dataset import features_of
from sbil.ensembles import ensemble, widened
from sbil.environments.icu_sepsis import NAME as SEPSIS
from sbil.errors import UserError
from sbil.networks import policy_network
from sbil.portfolio import portfolio
from sbil.selection import Job, trainings
from sbil.training import stack
from studies.cells import Cells, Grid, Setting, acted, crossvalidated, played, trust, write
from studies.choosing.choices import CELL, STORED, TOGETHER
from studies.choosing.horizons import HORIZONS, measures_by_horizon

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
class Run(Grid):
    """Run the settings that are not in the folder yet."""

    settings: tuple[str, ...] = SETTINGS
    """Environment, demonstrator, mode and thinning."""
    hold_out: bool = True
    """Score every setting of BC by cross-validation, too."""


@dataclass(frozen=True, kw_only=True)
class Measure(Run):
    """Let the networks of finished settings act in models. Give the same words as for their run."""

    pilot: bool = False
    """Measure rollouts over many horizons, too: what the rules were chosen from."""


@dataclass(frozen=True)
class Kept(Cells):
    """Cells whose networks are kept for measures."""

    asked: Run

    @property
    def path(self) -> Path:
        """The file of the trained networks' scores."""
        return self.asked.out / f"{self.name}.parquet"

    def networks(self, hidden: str) -> Path:
        """The file of the trained networks with some hidden layers."""
        return self.path.with_suffix(f".{hidden}")

    def read(self, hidden: str, count: int) -> Any:
        """Return the stacked networks of such a file."""
        sizes = () if hidden == written(()) else tuple(map(int, hidden.split("x")))
        like = policy_network(jax.random.key(0), self.spec, sizes)
        like = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), like)
        return jax.device_get(eqx.tree_deserialise_leaves(self.networks(hidden), like))


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


def _settings(asked: Run) -> Iterator[Kept]:
    return (Kept(asked, Setting.parse(text)) for text in asked.settings)


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


def summary(rows: pl.DataFrame) -> str:
    """Return the mean scores of BC, of the policies that imagined rollouts choose, and of the best per draw."""
    scores = {
        "bc": rows.filter(pl.col("method") == "bc"),
        "by imagined rollouts": rows.sort("distance").group_by("draw").first(),
        "best": rows.group_by("draw").agg(pl.col("score").max()),
    }
    return ", ".join(f"{name} {part['score'].to_numpy().mean():.3f}" for name, part in scores.items())


def trained(cells: Kept) -> tuple[pl.DataFrame, dict[str, Any]]:
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
        rows.append(pl.DataFrame(made | played(cells, stacked, runs)))
    known = pl.concat(rows)
    if cells.asked.hold_out:
        known = known.join(crossvalidated(cells, candidates), on=["run", "method"], how="left", maintain_order="left")
    return known, {hidden: _joined(parts) for hidden, parts in networks.items()}


def measured(cells: Kept, pilot: bool) -> pl.DataFrame:
    """Return the rows of trained networks with what the draws alone say of them."""
    one_hot = [range(features_of(cells.spec))] if cells.setting.environment == SEPSIS else []
    judges = judges_of(cells.spec, cells.dataset, cells.keys("choosing"), one_hot=one_hot)
    parts = []
    for (hidden,), rows in pl.read_parquet(cells.path).partition_by("hidden", as_dict=True).items():
        networks = cells.read(hidden, len(rows))
        parts.append((rows.hstack(_acted(cells, judges, networks, rows["run"].to_numpy(), pilot)), networks))
    known = pl.concat([*(rows for rows, _ in parts), *_ensembles(cells, judges, parts)], how="diagonal_relaxed")
    return cells.identified(known.join(trust(judges), on="run").drop("hidden"))


def _joined(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)


def _acted(cells: Cells, judges: Judges, stacked: Any, runs: np.ndarray, pilot: bool) -> pl.DataFrame:
    """Let policies act in the models of their runs; in a pilot, over many horizons."""
    more = measures_by_horizon(judges, cells.keys("choosing"), stacked, runs) if pilot else {}
    by_horizon = {
        f"{name}_{h}": column for name, values in more.items() for h, column in zip(HORIZONS, values.T, strict=True)
    }
    return pl.DataFrame(acted(cells, judges, stacked, runs) | by_horizon)


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
        yield pl.DataFrame(made | played(cells, stacked, runs)).hstack(_acted(cells, judges, stacked, runs, False))


def _alike(nearest: list[Any]) -> list[Any]:
    """Keep the policies that have as many layers as the first."""
    return [one for one in nearest if one[1].depth == nearest[0][1].depth]
