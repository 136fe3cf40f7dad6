"""What rounding does to a demonstrator: a GPU multiplies in TensorFloat-32 unless told otherwise, a CPU in float32.

python results/rounding.py --run    run some on a CPU, but with a demonstrator rounded as on a GPU: is it that?
python results/rounding.py          write the tables of docs/reproduction.md; the demonstrations are collected anew
python results/rounding.py --check  fail if the table of runs is not what they say
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import numpy as np
from publish import inserted
from remedies import CPU, STUDY, Values, errors, judged, lines_of, load, scores, spoken

from sbil import demonstrators
from sbil.experiments import Cell, EnvironmentTask, Method, Result
from sbil.experiments.environment import demonstrations_for
from sbil.experiments.run import run_grid
from sbil.experiments.store import Store, read, write
from sbil.networks import Dense
from sbil.statistics import estimate

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "reproduction.md"
RUNS = HERE / "remedies" / f"CartPole-v1{CPU}.parquet"
ROUNDED = RUNS.with_name("CartPole-v1-rounded.parquet")
PLAYERS = (
    ("CartPole-v1", "dqn", "greedy"),
    ("CartPole-v1", "ppo", "greedy"),
    ("CartPole-v1", "ppo", "sampled"),
    ("Acrobot-v1", "ppo", "sampled"),
)
METHODS = ("bc", "bc:decay", "edm", "edm:released", "edm_robust", "edm_robust+weight=0")


def tf32(values: np.ndarray | jax.Array) -> jax.Array:
    """float32 numbers with 10 bits of fraction in place of 23."""
    return jax.lax.reduce_precision(jnp.asarray(values, jnp.float32), exponent_bits=8, mantissa_bits=10)


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Networks whose products are rounded."""
    exact = Dense.__call__
    Dense.__call__ = lambda layer, x: tf32(x) @ tf32(layer.weight) + layer.bias
    try:
        yield
    finally:
        Dense.__call__ = exact


def run_rounded() -> None:
    """BC and EDM from the rounded demonstrator, all else in float32."""
    with as_on_a_gpu():
        demonstrations_for("CartPole-v1", "dqn", "greedy", 0)  # which keeps them: what follows learns from these
    cells = [
        Cell(EnvironmentTask("CartPole-v1", "dqn", "greedy", 20), Method(name), size)
        for name in ("bc", "edm")
        for size in (7, 15)
    ]
    with TemporaryDirectory() as folder:
        found = [result.summary() for result, _ in run_grid(cells, Store(Path(folder)))]
    write(ROUNDED, sorted(found, key=lambda result: str(result.cell)))


def preferences() -> str:
    """How often a demonstrator prefers another action if its products are rounded as a GPU rounds them."""
    rows = [["demonstrator", "states", "median gap of its two best actions", "another action preferred"]]
    for environment, name, mode in PLAYERS:
        network = demonstrators.get(f"{environment}-{name}").plain_network
        played = demonstrations_for(environment, name, mode).trajectories
        states = np.concatenate([np.asarray(one.observations)[: len(one.actions)] for one in played])
        exact = np.asarray(network(states))
        with as_on_a_gpu():
            rounded = np.asarray(network(states))
        best = np.sort(exact, axis=1)
        rows.append(
            [
                f"{environment}, {name}, {mode}",
                f"{len(states):,}",
                f"{np.median(best[:, -1] - best[:, -2]):.3f} of {np.abs(exact).mean():.1f}",
                f"{(exact.argmax(axis=1) != rounded.argmax(axis=1)).mean():.2%}",
            ]
        )
    return lines_of(rows)


def runs() -> str:
    """The same cells on a CPU and on the GPU that the published ones come from."""
    read_once = cache(lambda setting: {str(r.cell): r for r in read(HERE / f"{setting}.parquet")})
    ours = [r for r in read(RUNS) if (r.cell.demonstrator, r.cell.seed) == ("dqn", STUDY)]
    mine = [r for method in METHODS for r in ours if str(r.cell.method) == method]
    mine.sort(key=lambda r: (-r.cell.thin, METHODS.index(str(r.cell.method)), r.cell.size))
    study = {str(result.cell): result for of in load()[STUDY].values() for result in of.values()}
    base = {(r.cell.setting, r.cell.size): r for r in mine if str(r.cell.method) == "bc"}
    rounded = {str(result.cell): result for result in read(ROUNDED)}
    head = [f"{what}, {where}" for where in ("CPU", "CPU, rounded", "GPU") for what in ("score", "less BC's")]
    head += [f"errors, {where}" for where in ("CPU", "CPU, rounded", "GPU")]
    rows = [["steps", "method", "trajectories", *head]]
    for one in mine:
        cell, name = one.cell, str(one.cell)
        published = read_once(cell.setting)
        bc = str(base[cell.setting, cell.size].cell)
        # How unseen decisions were met was not kept with the published cells, and is with those of the study.
        places = ({str(r.cell): r for r in mine}, rounded, published if name in published else study)
        row = ["every" if cell.thin == 1 else f"every {cell.thin}th", spoken(str(cell.method)), str(cell.size)]
        for place in places:
            row += [shown(place.get(name), scores, ".2f"), judged(place[name], place[bc]) if name in place else ""]
            row[-1] = "" if name == bc else row[-1]
        rows.append([*row, *(shown(place.get(name), errors, ".1%") for place in (*places[:2], study))])
    return lines_of(rows)


def shown(result: Result | None, values: Values, form: str) -> str:
    """A mean with its interval over draws, where there is a result."""
    if result is None:
        return ""
    found = estimate(values(result))
    return f"{found.mean:{form}} [{found.low:{form}}, {found.high:{form}}]"


def main(words: Sequence[str]) -> None:
    """Take runs, write, or check."""
    if "--run" in words:
        run_rounded()
        return
    if "--check" in words:
        same = PAGE.read_text() == inserted(PAGE, ("cpu", runs()))
        sys.exit(0 if same else f"{PAGE.name} is not what the runs say; run python results/rounding.py")
    PAGE.write_text(inserted(PAGE, ("rounding", preferences()), ("cpu", runs())))


if __name__ == "__main__":
    main(sys.argv[1:])
