"""The figures of docs/peers.md."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sbil.statistics import estimate
from studies.choosing.choices import Key
from studies.choosing.tables import setting_of
from studies.peers.methods import BY_NAME
from studies.peers.stored import AUTO, Scores, cells
from studies.peers.tables import BC, DECAY, TITLES, mean_difference

COLOURS = ("#999999", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
COLUMNS = 4


def drawings() -> dict[str, Figure]:
    """Return the figures of docs/peers.md by name."""
    found = cells()
    return {"peers": differences(found), "peers_by_size": by_size(found)}


def differences(found: dict[Key, Scores]) -> Figure:
    """Draw what each method scores more or less than BC with weight decay 1, over all its cells."""
    names = [name for name in TITLES if name != DECAY and any(name in scores for scores in found.values())]
    sheet, axis = plt.subplots(figsize=(7.5, 0.22 * len(names) + 1), layout="constrained")
    groups = list(dict.fromkeys(_group(name) for name in names))
    for place, name in enumerate(names):
        between = mean_difference(found, [key for key, scores in found.items() if name in scores], name, DECAY)
        colour = COLOURS[groups.index(_group(name))]
        axis.plot([between.low, between.high], [place, place], color=colour, lw=2)
        axis.plot(between.value, place, "o", color=colour, ms=5)
    axis.axvline(0, color="black", lw=0.8)
    axis.set_yticks(range(len(names)), [TITLES[name].replace("`", "") for name in names], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("score minus that of BC with weight decay 1: mean over cells, 95 % interval")
    axis.grid(alpha=0.3, axis="x")
    return sheet


def _group(name: str) -> str:
    return BY_NAME[name].group if name in BY_NAME else ""


SHOWN: dict[str, str] = {BC: "#999999", DECAY: "#000000", AUTO: "#0072b2"}  # and a colour per peer


def by_size(found: dict[Key, Scores]) -> Figure:
    """Draw the scores of the peers, of BC and of `auto` against the number of trajectories, a panel per setting."""
    settings = list(dict.fromkeys(key[:-1] for key in found))
    lines = -(-len(settings) // COLUMNS)
    sheet, axes = plt.subplots(
        lines, COLUMNS, figsize=(3.2 * COLUMNS, 2.7 * lines), layout="constrained", squeeze=False, sharey=True
    )
    for axis, setting in zip(axes.flat, settings, strict=False):
        _panel(axis, {key[-1]: scores for key, scores in found.items() if key[:-1] == setting})
        axis.set_title(setting_of((*setting, 1)), fontsize=8)
    for axis in axes.flat[len(settings) :]:
        axis.axis("off")
    handles = [Line2D([], [], color=colour, marker="o", ms=4, label=TITLES[name]) for name, colour in SHOWN.items()]
    sheet.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
    return sheet


def _panel(axis: Axes, by_size: dict[int, Scores]) -> None:
    """Draw one line per method: the mean over draws and its interval."""
    for name, colour in SHOWN.items():
        sizes = [size for size, scores in by_size.items() if name in scores]
        if sizes:
            found = [estimate(by_size[size][name][:, None]) for size in sizes]
            axis.plot(sizes, [one.mean for one in found], "-o", color=colour, ms=3, lw=1.2)
            axis.fill_between(sizes, [one.low for one in found], [one.high for one in found], color=colour, alpha=0.12)
    axis.set_xscale("log")
    axis.set_xticks(list(by_size), list(map(str, by_size)), fontsize=7)
    axis.set_xticks([], minor=True)
    axis.set_ylim(-0.2, 1.1)
    axis.set_yticks(np.linspace(0, 1, 5))
    axis.grid(alpha=0.3)
