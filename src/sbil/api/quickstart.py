"""BC and EDM on CartPole, as a table and a figure: what `sbil quickstart` does."""

from pathlib import Path

from sbil import files
from sbil.api.reproduce import Reproduced, Watcher, reproduce
from sbil.experiments import Experiment, Method
from sbil.reports import figures, tables


def quickstart(
    out: str | Path = "quickstart",
    *,
    runs: int = 10,
    updates: int = 10_000,
    episodes: int = 300,
    watcher: Watcher | None = None,
) -> Reproduced:
    """Train BC and EDM from 1, 3 and 7 thinned demonstrations; write cells/, table.md and figure.png into a folder."""
    small = Experiment(
        "CartPole-v1",
        (("ppo", "sampled"),),
        (Method("bc"), Method("edm")),
        thin=20,
        sizes=(1, 3, 7),
        draws=runs,
        initialisations=1,
        updates=updates,
        episodes=episodes,
    )
    out = Path(out)
    found = reproduce(out / "cells", [small], watcher=watcher, report=False)
    files.write_text(out / "table.md", tables.markdown(found.played, tables.with_interval))
    figures.write(figures.against_size(found.played), out / "figure.png")
    return found
