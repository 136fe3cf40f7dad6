"""Does training on states visited in a learned model help more than choosing by that model?

    python -m studies.imagined --out pilot/ --seed 0 --draws 3 --sizes 1 3 --updates 1000     every weight
    python -m studies.imagined --out final/                      the weights that the pilot chose, on new demonstrations
    python -m studies.imagined --out final/ --take pilot/        copy both to results/choosing/imagined.parquet

`edm_imagined` learns from states that the policy visits in its own model of the dynamics. Here it also learns with the
true dynamics in the model's place. This oracle breaks the rule of strictly batch learning: it only shows what better
models could give. BC with several weight decays and networks is trained beside it, and every policy gets its imagined
distance in the model of `auto`, so that training on imagined states can be compared with choosing by them. What is
finished is not run again.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import tyro
from jaxtyping import Array, PRNGKeyArray

from sbil import algorithms, environments, files
from sbil.algorithms.edm_imagined import OfStates, edm_imagined
from sbil.choosing import judged, judges_of
from sbil.dataset import capacity_for, make_dataset, spec_of
from sbil.environments.base import JaxEnvironment
from sbil.errors import UserError, program
from sbil.evaluation import Policies, call, play
from sbil.experiments.environment import demonstrations_for
from sbil.keys import named
from sbil.reports.differences import difference, verdict
from sbil.text import counted, markdown_table
from sbil.training import train_many
from studies.choosing.choices import CELL, by_cell
from studies.choosing.tables import setting_of
from studies.pages import RESULTS, bold

SETTINGS = ("CartPole-v1 dqn greedy 20", "CartPole-v1 ppo sampled 20", "Acrobot-v1 ppo sampled 20")
SIZES = (1, 3, 7)
DECAYS = (0.0, 0.1, 0.3, 1.0, 3.0)
NETWORKS = 2  # of each decay
HORIZONS, WEIGHTS = (1, 5, 20), (0.1, 1.0, 10.0)
CHOSEN = {
    ("learned", 1): 0.1,
    ("learned", 5): 1.0,
    ("learned", 20): 1.0,
    ("oracle", 1): 0.1,
    ("oracle", 5): 1.0,
    ("oracle", 20): 1.0,
}
PILOT = 0  # the seed of the pilot
STORED = RESULTS / "choosing" / "imagined.parquet"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to run."""

    out: Path
    """The folder of finished settings."""
    seed: int = 1
    """Of demonstrations, draws and networks. With 0 every weight is tried, with another the chosen ones."""
    draws: int = 8
    """Draws per cell."""
    updates: int = 2000
    """Updates of every method."""
    episodes: int = 100
    """Live episodes per policy."""
    settings: tuple[str, ...] = SETTINGS
    """Environment, demonstrator, mode and thinning."""
    sizes: tuple[int, ...] = SIZES
    """Trajectories per draw."""
    take: Path | None = None
    """Copy what is finished in `out` and in this folder to results/ instead."""


class Unit(NamedTuple):
    """A draw of a size."""

    size: int
    draw: int


class Part(NamedTuple):
    """Runs of one program: a maker, its settings with one weight (or decay) per run, and what each run is."""

    make: Any
    config: Any
    runs: np.ndarray  # the unit of each
    method: list[str]
    network: np.ndarray


@cache
def true_dynamics(name: str) -> OfStates:
    """Return what truly follows each action in a plain state. No algorithm may know this: it is the oracle."""
    environment = environments.get(name)
    assert isinstance(environment, JaxEnvironment)
    actions = jnp.arange(environment.spec.actions)

    def state_of(seen: Array) -> Array:
        if name != "Acrobot-v1":
            return seen
        cosine1, sine1, cosine2, sine2, *speeds = seen
        return jnp.stack([jnp.arctan2(sine1, cosine1), jnp.arctan2(sine2, cosine2), *speeds])

    def after(seen: Array, action: Array) -> Array:
        return environment.observe(environment.step(state_of(seen), action)[0])

    each: OfStates = jnp.vectorize(lambda seen: jax.vmap(after, (None, 0))(seen, actions), signature="(i)->(a,i)")
    return each


@cache
def oracle(name: str) -> Any:
    """Return the algorithm with the true dynamics of an environment."""
    return partial(edm_imagined, follow=true_dynamics(name))


def parts_of(environment: str, units: int, pilot: bool) -> Iterator[Part]:
    """Yield what is trained in a setting."""
    decays, networks, runs = (
        axis.ravel() for axis in np.meshgrid(DECAYS, range(NETWORKS), range(units), indexing="ij")
    )
    config = algorithms.configure("bc")
    yield Part(
        algorithms.get("bc").make,
        _with(config, weight_decay=decays),
        runs,
        [f"bc {decay:g}" for decay in decays],
        networks,
    )
    for kind, make in (("learned", algorithms.get("edm_imagined").make), ("oracle", oracle(environment))):
        for horizon in HORIZONS:
            tried = WEIGHTS if pilot else (CHOSEN[kind, horizon],)
            weights, runs = (axis.ravel() for axis in np.meshgrid(tried, range(units), indexing="ij"))
            config = algorithms.configure("edm_imagined", "default", {"horizon": horizon})
            names = [f"{kind} {horizon} {weight:g}" for weight in weights]
            yield Part(make, _with(config, weight=weights), runs, names, np.zeros(len(runs), int))


def _with(config: Any, **values: np.ndarray) -> Any:
    """Return settings of which some have one value per run."""
    return replace(config, **{name: np.asarray(value, np.float32) for name, value in values.items()})


def ran(asked: Asked, text: str) -> pl.DataFrame:
    """Train, play and judge the policies of one setting; one row per policy."""
    environment, demonstrator, mode, thin = text.split()
    demonstrations = demonstrations_for(environment, demonstrator, mode, asked.seed)
    units = [Unit(size, draw) for size in asked.sizes for draw in range(asked.draws)]
    draws = [demonstrations.draw(len(demonstrations), u.draw + 1000 * asked.seed)[: u.size] for u in units]
    room = capacity_for(demonstrations, max(asked.sizes), int(thin))
    spec, dataset = spec_of(demonstrations), make_dataset(demonstrations, draws, thin=int(thin), capacity=room)
    keys = jnp.stack([named("imagined", *text.split(), asked.seed, unit.draw) for unit in units])
    judges = judges_of(spec, dataset, keys)
    low, high = environments.scale(environment, demonstrator, mode)
    parts = []
    for part in parts_of(environment, len(units), asked.seed == PILOT):
        own = _further(keys[part.runs], jnp.asarray(part.network))
        found = train_many(part.make, spec, part.config, dataset.runs(part.runs), own, asked.updates)
        networks = jax.device_get(found.states.network)
        returns = play(environments.get(environment), Policies(call, networks), keys[part.runs], asked.episodes)
        rows = {
            **{name: [getattr(units[run], name) for run in part.runs] for name in Unit._fields},
            **{"method": part.method, "network": part.network, "diverged": found.diverged},
            "score": (returns.mean(axis=1) - low) / (high - low),
            "distance": judged(judges, keys, networks, part.runs).distance,
            "prediction_loss": found.metrics.get("prediction_loss", np.full((1, len(part.runs)), np.nan))[-1],
        }
        parts.append(pl.DataFrame(rows))
        print(f"{text}: {part.method[0]}, {found.seconds:.0f} s", flush=True)
    constants = (environment, demonstrator, mode, int(thin), asked.seed)
    return pl.concat(parts, how="vertical_relaxed").with_columns(
        **{name: pl.lit(value) for name, value in zip((*CELL[:-1], "seed"), constants, strict=True)}
    )


@jax.jit
@jax.vmap
def _further(key: PRNGKeyArray, network: Array) -> PRNGKeyArray:
    """The first network of a run has the run's own key."""
    other = jax.random.key_data(jax.random.fold_in(jax.random.fold_in(key, 2**32 - 1), network))
    return jax.random.wrap_key_data(jnp.where(network == 0, jax.random.key_data(key), other))


def for_page() -> dict[str, str]:
    """Return the table of docs/choosing.md: training on imagined states beside choosing by them, on new demonstrations.

    Bold: clearly above or below the setting of BC that stays nearest in the model of each draw.
    """
    runs = pl.read_parquet(STORED).filter(pl.col("seed") != PILOT)
    trained = [f"{kind} {horizon} {weight:g}" for (kind, horizon), weight in CHOSEN.items()]
    heads = [f"{kind} model, {counted(horizon, 'step')}" for kind, horizon in CHOSEN]
    rows = [["setting", "trajectories", "BC", "BC, chosen by imagined distance", *heads]]
    for key, cell in by_cell(runs).items():
        draws = cell.sort("draw").partition_by("draw", maintain_order=True)
        chosen = np.array([draw.filter(_of_bc).sort("distance")["score"][0] for draw in draws])
        scores = [np.array([_mean(draw, method) for draw in draws]) for method in trained]
        shown = [bold(f"{values.mean():.3f}", _clear(values - chosen)) for values in scores]
        base = np.mean([_mean(draw, "bc 0") for draw in draws])
        rows.append([setting_of(key), str(key[-1]), f"{base:.3f}", f"{chosen.mean():.3f}", *shown])
    return {"imagined": markdown_table(rows, numbers=True)}


_of_bc = pl.col("method").str.starts_with("bc ")


def _mean(draw: pl.DataFrame, method: str) -> float:
    return float(draw.filter(pl.col("method") == method)["score"].to_numpy().mean())


def _clear(values: np.ndarray) -> bool:
    return verdict(difference(values[:, None])) in ("above", "below")


def write(path: Path, rows: pl.DataFrame) -> None:
    """Write a whole file, or nothing."""
    content = io.BytesIO()
    rows.write_parquet(content)
    files.write_bytes(path, content.getvalue())


def main(asked: Asked) -> None:
    """Run the settings that are not finished, or store what is."""
    if asked.take:
        found = [path for folder in (asked.out, asked.take) for path in sorted(folder.glob("*.parquet"))]
        if not found:
            raise UserError(f"{asked.out} and {asked.take} hold no finished setting; run the study first.")
        write(STORED, pl.concat(map(pl.read_parquet, found)))
        return
    for text in asked.settings:
        path = asked.out / f"{text.replace(' ', '-')}-seed{asked.seed}.parquet"
        if not path.exists():
            write(path, ran(asked, text))


if __name__ == "__main__":
    program("imagined", lambda: main(tyro.cli(Asked, prog="python -m studies.imagined")))
