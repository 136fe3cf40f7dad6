"""Measures what rounding does to a demonstrator. A GPU multiplies in TensorFloat-32 by default, a CPU in float32.

    python -m studies.rounding          compare demonstrators with and without rounding (docs/reproduction.md)
    python -m studies.rounding --run    run some cells on a CPU, with a demonstrator that is rounded as on a GPU

`python -m studies.publish` writes the table of these runs.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from sbil import demonstrators
from sbil.experiments import Cell, EnvironmentTask, Method, Result
from sbil.experiments.environment import demonstrations_for, played
from sbil.experiments.run import run_grid
from sbil.experiments.store import Store, read, write
from sbil.networks import Dense
from sbil.reports.tables import bracketed
from sbil.statistics import estimate
from sbil.text import markdown_table
from studies import tables
from studies.pages import ROOT, inserted
from studies.remedies.stored import CPU, FOLDER, STUDY, Values, errors, judged, load, scores, spoken

PAGE = ROOT / "docs" / "reproduction.md"
RUNS = FOLDER / f"CartPole-v1{CPU}.parquet"
ROUNDED = FOLDER / "CartPole-v1-rounded.parquet"
PLAYERS = (
    ("CartPole-v1", "dqn", "greedy"),
    ("CartPole-v1", "ppo", "greedy"),
    ("CartPole-v1", "ppo", "sampled"),
    ("Acrobot-v1", "ppo", "sampled"),
)
METHODS = ("bc", "bc:decay", "edm", "edm:released", "edm_robust", "edm_robust+weight=0")


def tf32(values: np.ndarray | jax.Array) -> jax.Array:
    """Round float32 numbers to 10 bits of fraction in place of 23."""
    return jax.lax.reduce_precision(jnp.asarray(values, jnp.float32), exponent_bits=8, mantissa_bits=10)


def as_on_a_gpu() -> AbstractContextManager[object]:
    """Round the products of all networks inside a `with` block."""
    return patch.object(Dense, "__call__", lambda layer, x: tf32(x) @ tf32(layer.weight) + layer.bias)


def run_rounded() -> None:
    """Run BC and EDM on demonstrations of the rounded demonstrator; everything else is in float32."""
    with as_on_a_gpu():
        demonstrations_for("CartPole-v1", "dqn", "greedy", 0)  # cached: the cells below learn from these
    cells = [
        Cell(EnvironmentTask("CartPole-v1", "dqn", "greedy", 20), Method(name), size)
        for name in ("bc", "edm")
        for size in (7, 15)
    ]
    with TemporaryDirectory() as folder:
        found = [result.summary() for result, _ in run_grid(cells, Store(Path(folder)))]
    write(ROUNDED, sorted(found, key=lambda result: str(result.cell)))


def preferences() -> str:
    """Show how often a demonstrator prefers another action if its products are rounded as on a GPU."""
    rows = [["demonstrator", "states", "median gap of its two best actions", "another action preferred"]]
    for environment, name, mode in PLAYERS:
        network = demonstrators.get(f"{environment}-{name}").plain_network
        played = demonstrations_for(environment, name, mode).trajectories
        states = np.concatenate([np.asarray(one.observations)[: len(one.actions)] for one in played])
        exact = np.asarray(network(jnp.asarray(states)))
        with as_on_a_gpu():
            rounded = np.asarray(network(jnp.asarray(states)))
        best = np.sort(exact, axis=1)
        gap = f"{np.median(best[:, -1] - best[:, -2]):.3f} of {np.abs(exact).mean():.1f}"
        other = f"{(exact.argmax(axis=1) != rounded.argmax(axis=1)).mean():.2%}"
        rows.append([f"{environment}, {name}, {mode}", f"{len(states):,}", gap, other])
    return markdown_table(rows, numbers=True)


def runs() -> str:
    """Compare the same cells on a CPU, on a CPU with rounding, and on the GPU of the published runs."""
    mine, rounded = _named(_on_a_cpu()), _named(read(ROUNDED))
    study = _named(result for of in load()[STUDY].values() for result in of.values())
    published = _named(result for found in tables.runs().values() for result in found)
    bc = {(r.cell.setting, r.cell.size): name for name, r in mine.items() if str(r.cell.method) == "bc"}
    head = [f"{what}, {where}" for where in ("CPU", "CPU, rounded", "GPU") for what in ("score", "minus BC's")]
    head += [f"errors, {where}" for where in ("CPU", "CPU, rounded", "GPU")]
    rows = [["steps", "method", "trajectories", *head]]
    for name, one in mine.items():
        cell, base = one.cell, bc[one.cell.setting, one.cell.size]
        row = [
            "every" if played(cell).thin == 1 else f"every {played(cell).thin}th",
            spoken(str(cell.method)),
            str(cell.size),
        ]
        # The published cells do not say how unseen decisions were met; those of the study do.
        for place in (mine, rounded, published if name in published else study):
            row += [_shown(place.get(name), scores, ".2f"), _beside(place, name, base)]
        rows.append([*row, *(_shown(place.get(name), errors, ".1%") for place in (mine, rounded, study))])
    return markdown_table(rows, numbers=True)


def _named(results: Iterable[Result]) -> dict[str, Result]:
    return {str(result.cell): result for result in results}


def _on_a_cpu() -> list[Result]:
    """Return the cells of the DQN demonstrator that were run on a CPU, in the order of the table."""
    found = [
        result for result in read(RUNS) if (played(result.cell).demonstrator, result.cell.task.seed) == ("dqn", STUDY)
    ]
    found = [result for result in found if str(result.cell.method) in METHODS]
    return sorted(found, key=lambda r: (-played(r.cell).thin, METHODS.index(str(r.cell.method)), r.cell.size))


def _beside(place: Mapping[str, Result], name: str, bc: str) -> str:
    """Write the difference of a cell from BC's of the same place."""
    return judged(place[name], place[bc]) if name in place and name != bc else ""


def _shown(result: Result | None, values: Values, form: str) -> str:
    """Write a mean with its interval over draws."""
    return "" if result is None else bracketed(estimate(values(result)), form)


def main(run: bool = False) -> None:
    """Run the cells with rounding, or write the table of preferences."""
    if run:
        run_rounded()
    else:
        PAGE.write_text(inserted(PAGE, {"rounding": preferences()}))


if __name__ == "__main__":
    tyro.cli(main, prog="python -m studies.rounding")
