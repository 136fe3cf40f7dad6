"""The figures of docs/choosing.md."""

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sbil.text import counted
from studies.choosing.choices import OURS, SINGLE, Key, by_cell, scores_of, single, stored
from studies.choosing.tables import SEED, setting_of

SHOWN: tuple[Key, ...] = (
    ("CartPole-v1", "dqn", "greedy", 20, 7),
    ("LunarLander-v3", "ppo", "greedy", 1, 1),
)
MEASURES = {"distance": "imagined distance", "log_loss": "held-out log-loss", "error": "held-out errors"}
DRAWS = 10  # that are shown: as many as there are colours
COLOURS = {"BC": "#999999", "by log-loss": "#d55e00", "by errors": "#e69f00", "auto": "#0072b2"}


def drawings() -> dict[str, Figure]:
    """Return the figures of docs/choosing.md by name."""
    cells = by_cell(single(stored(SEED).filter(OURS)))
    return {"choosing": measures({key: cells[key] for key in SHOWN}), "choices": choices(cells)}


def measures(cells: dict[Key, pl.DataFrame]) -> Figure:
    """Draw the score of every policy against each measure that the demonstrations alone give."""
    size = (3.4 * len(MEASURES), 3.1 * len(cells))
    sheet, axes = plt.subplots(
        len(cells), len(MEASURES), figsize=size, sharey=True, layout="constrained", squeeze=False
    )
    for row, (key, runs) in zip(axes, cells.items(), strict=True):
        for axis, (measure, words) in zip(row, MEASURES.items(), strict=True):
            _scatter(axis, runs, measure)
            axis.set_xlabel(words)
        row[0].set_ylabel(f"{setting_of(key)}\n{counted(key[-1], 'trajectory')}\nscore in the environment", fontsize=9)
    return sheet


def _scatter(axis: Axes, runs: pl.DataFrame, measure: str) -> None:
    """One point per policy, one colour per draw; a ring around the policy that the measure chooses in a draw."""
    for place, draw in enumerate(runs.partition_by("draw", maintain_order=True)[:DRAWS]):
        rows = draw.filter(pl.col(measure).is_finite()).sort(measure)
        axis.scatter(rows[measure], rows["score"], s=12, color=f"C{place}", alpha=0.6, lw=0)
        axis.scatter(rows[measure][:1], rows["score"][:1], s=60, facecolors="none", edgecolors=f"C{place}", lw=1.5)
    axis.grid(alpha=0.3)


def choices(cells: dict[Key, pl.DataFrame]) -> Figure:
    """Draw what each way of choosing scores in every cell, between the worst single method and the best of the draw."""
    sheet, axis = plt.subplots(figsize=(8, 0.24 * len(cells) + 1), layout="constrained")
    names = []
    for place, (key, runs) in enumerate(cells.items()):
        scores = {name: values.mean() for name, values in scores_of(runs).items()}
        worst = min(scores[name] for name in SINGLE.values())
        axis.plot([worst, scores["best of the draw"]], [place, place], color="#dddddd", lw=5, zorder=0)
        for name, colour in COLOURS.items():
            axis.plot(
                scores[name],
                place,
                "o",
                color=colour,
                ms=6 if name == "auto" else 4.5,
                label=name if not place else None,
            )
        names.append(f"{setting_of(key)}, n={key[-1]}")
    axis.set_yticks(np.arange(len(names)), names, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("score (0: random network, 1: demonstrator)")
    axis.legend(fontsize=8, loc="lower left")
    axis.grid(alpha=0.3, axis="x")
    return sheet
