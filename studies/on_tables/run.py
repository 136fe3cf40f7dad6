"""Tables: `auto` beside what people usually learn tables with, on held-out hospitals, patients and stays.

    python -m studies.on_tables.run --shared ../shared/data                     # everything
    python -m studies.on_tables.run --shared ../shared/data --cells insulin --seeds 0

Each line of the file is a method on a cell with a seed: the seed draws what is held out and trains. What is finished
is not run again. The lines hold means over all held-out decisions, and nothing of a row. At the end the tables are
printed.
"""

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sbil
from sbil.demonstrations import Demonstrations
from sbil.errors import program
from sbil.evaluation.baselines import PREVIOUS, Baselines
from sbil.evaluation.decided import Decided, decided, units
from sbil.evaluation.matching import scores_of_methods
from sbil.files import write_text
from studies.on_tables.data import SOURCES, decisions
from studies.on_tables.tables import COLUMNS, LEARNERS, METHODS, SHARE, rows, table

SHORT = 1000  # updates of BC and EDM, also within auto
LEARNED, JUDGED = 1000, 1000  # stays, at most: larger tables are drawn from


@dataclass(frozen=True, kw_only=True)
class Command:
    """Run what is missing."""

    shared: Path
    """The folder with eicu-demo, insulin, physionet-2012 and physionet-2019."""
    cells: tuple[str, ...] = tuple(SOURCES)
    seeds: tuple[int, ...] = tuple(range(5))
    methods: tuple[str, ...] = METHODS
    out: Path = Path("on_tables.csv")
    """The file of what is finished."""


def main(command: Command) -> None:
    """Run what is missing, write the file after each method, and print the tables."""
    for cell in command.cells:
        data = None
        for seed in command.seeds:
            done = {(row["cell"], int(row["seed"]), row["method"]) for row in rows(command.out)}
            missing = [method for method in command.methods if (cell, seed, method) not in done]
            if missing:
                data = data or decisions(cell, command.shared)
                training, held_out = split(cell, data, seed)
                for method in missing:
                    keep(command.out, cell, seed, method, judged(method, training, held_out, seed))
    for metric in ("log_loss", "auc", "ece"):
        print(f"\n{metric}\n\n{table(rows(command.out), metric)}")


def split(cell: str, data: Demonstrations, seed: int) -> tuple[Demonstrations, Demonstrations]:
    """Return what is learned from and what is held out: whole hospitals, patients, or stays; or set a and set b."""
    if cell == "physionet-2012":
        assert data.groups is not None
        parts = [data.select(np.flatnonzero(data.groups == number)) for number in (0, 1)]
        training, held_out = (replace(part, groups=None) for part in parts)
    else:
        training, held_out = data.split(SHARE, seed)
    return few(training, LEARNED, seed), few(held_out, JUDGED, seed)


def few(data: Demonstrations, most: int, seed: int) -> Demonstrations:
    """Return at most so many episodes, drawn; a table with groups keeps all."""
    return data if data.groups is not None or len(data) <= most else data.select(data.draw(most, seed))


def judged(method: str, training: Demonstrations, held_out: Demonstrations, seed: int) -> Decided:
    """Train a method, and return what it predicts for held-out decisions."""
    if method == PREVIOUS:
        return Baselines.from_demonstrations(training).decided(held_out)[PREVIOUS]
    if method in LEARNERS:
        updates = SHORT if method in ("auto", "bc", "edm") else None
        return decided(sbil.fit(method, training, seed=seed, updates=updates, pad=True), held_out)
    model = HistGradientBoostingClassifier(random_state=seed)
    if method == "regression":
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    steps, asked = training.flat(), held_out.flat()
    model.fit(steps.observation, steps.action)
    chances = np.full((len(asked.action), len(training.action_names)), 1e-12)
    chances[:, model.classes_] = model.predict_proba(asked.observation)
    return Decided(chances, asked.action, units(held_out, held_out.decisions().trajectory))


def keep(out: Path, cell: str, seed: int, method: str, found: Decided) -> None:
    """Add a line to the file."""
    [scores] = scores_of_methods({method: found})
    numbers = {name: f"{scores.metrics[name].value:.5f}" for name in ("log_loss", "auc", "ece")}
    line = {"cell": cell, "seed": str(seed), "method": method, **numbers, "decisions": str(len(found.actions))}
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows([*rows(out), line])
    write_text(out, text.getvalue())
    print(cell, seed, method, *numbers.values(), flush=True)


if __name__ == "__main__":
    command = tyro.cli(Command, prog="python -m studies.on_tables.run")
    program("studies.on_tables.run", lambda: main(command))
