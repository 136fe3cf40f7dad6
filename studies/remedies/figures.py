"""The figures of the study: diagnostics along training, and the final table as a picture."""

import re
from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sbil.statistics import estimate
from studies.remedies.final import JUDGED
from studies.remedies.stored import COLUMNS, DIAGNOSED, DQN, FINAL, STUDY, Cells, beyond, load, side
from studies.remedies.study import SIZES

ROWS = {
    "policy_loss": "log-loss of the decisions",
    "energy_gap": "energy gap, seen - sampled",
    "chain_size": "largest coordinate of a chain",
    "share": "state term's share of the gradient",
}
FOLLOWED = ((DQN, 3), ("LunarLander-v3-ppo-greedy-thin1", 3))
DRAWN = {"bc:decay": "#d55e00", "edm_robust+weight=0": "#999999", "edm:released": "black", "edm_robust": "#0072b2"}
FILLED = {"grey": "clearly above or below BC", "white": "not clear"}


def drawings() -> dict[str, Figure]:
    """Return the figures of docs/understanding_edm.md that are made from stored runs."""
    found = load()
    return {"remedies": along_training(found[STUDY]), "final": differences(found[FINAL])}


def along_training(cells: Cells) -> Figure:
    """Draw diagnostics of three forms of EDM along training."""
    sheet, axes = plt.subplots(len(ROWS), len(FOLLOWED), figsize=(9, 11), sharex=True, layout="constrained")
    for column, key in zip(axes.T, FOLLOWED, strict=True):
        column[0].set_title(COLUMNS[key[0]] + f", {key[1]} trajectories", fontsize=10)
        for colour, (method, name) in enumerate(DIAGNOSED.items()):
            result = cells[method][key]
            for axis, what in zip(column, ROWS, strict=True):
                low, middle, high = np.nanquantile(_values(result.curves, what), [0.25, 0.5, 0.75], axis=0)
                axis.plot(result.points, middle, color=f"C{colour}", label=name)
                axis.fill_between(result.points, low, high, color=f"C{colour}", alpha=0.2, lw=0)
    for row, (what, label) in zip(axes, ROWS.items(), strict=True):
        row[0].set_ylabel(label)
        for axis in row:
            _scale(axis, what)
    for axis in axes[-1]:
        axis.set_xlabel("updates")
    axes[0, 0].legend(fontsize=8, loc="upper left")
    return sheet


def _values(curves: Mapping[str, np.ndarray], what: str) -> np.ndarray:
    if what != "share":
        return curves[what]
    pull = curves["state_gradient"]
    return pull / (pull + curves["policy_gradient"])


def _scale(axis: Axes, what: str) -> None:
    axis.grid(alpha=0.3)
    if what == "energy_gap":
        axis.set_yscale("symlog", linthresh=1)
        axis.set_ylim(-1e11, 2)
        axis.set_yticks([0, -1e2, -1e4, -1e6, -1e8, -1e10])
        axis.axhline(-0.5, color="black", lw=0.8, ls=":")
    if what in ("chain_size", "policy_loss"):
        axis.set_yscale("log")


def differences(cells: Cells) -> Figure:
    """Draw what methods add to BC's score, by setting and size. A filled mark is a clear difference."""
    sheet, axes = plt.subplots(2, 4, figsize=(13, 6), layout="constrained")
    for axis, (setting, title) in zip(axes.flat, COLUMNS.items(), strict=False):
        _panel(axis, cells, setting)
        axis.set_title(re.sub(r"(\d+th)", r"every \1 step", title), fontsize=10)
    for axis in axes[:, 0]:
        axis.set_ylabel("score minus BC's")
    last = axes.flat[-1]
    last.axis("off")
    marks = [Line2D([], [], marker="o", color=colour, label=JUDGED[name]) for name, colour in DRAWN.items()]
    marks += [Line2D([], [], marker="o", ls="", color="grey", mfc=c, label=t) for c, t in FILLED.items()]
    last.legend(handles=marks, loc="center", fontsize=9, frameon=False, title="mean and 95 % interval over 20 draws")
    sheet.supxlabel("trajectories (score of BC); every panel has its own scale", fontsize=10)
    return sheet


def _panel(axis: Axes, cells: Cells, setting: str) -> None:
    """Draw one setting: the differences of each method, side by side at each size."""
    bc = cells["bc"]
    for place, (name, colour) in enumerate(DRAWN.items()):
        for number, size in enumerate(SIZES):
            mine, base = cells[name][setting, size], bc[setting, size]
            found = estimate(beyond(mine, base))
            across = number + 0.17 * (place - (len(DRAWN) - 1) / 2)
            reach = [[found.mean - found.low], [found.high - found.mean]]
            fill = colour if side(mine, base) in ("above", "below") else "white"
            axis.errorbar(across, found.mean, reach, fmt="o", ms=5, lw=1.3, color=colour, mfc=fill)
    axis.set_xticks(range(len(SIZES)), [f"{size}\n({bc[setting, size].scores.mean():.2f})" for size in SIZES])
    axis.axhline(0, color="black", lw=0.8)
    axis.grid(axis="y", alpha=0.3)
