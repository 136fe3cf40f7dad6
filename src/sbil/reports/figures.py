"""Figures: return against the number of trajectories."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from sbil import files
from sbil.experiments.cell import Result
from sbil.reports.statistics import estimate
from sbil.reports.tables import setting_of

# Colours that stay apart for colour-blind readers (Okabe and Ito), and a marker each for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def against_size(results: Sequence[Result], names: Mapping[str, str] | None = None) -> Figure:
    """One panel a setting: the scaled score of each method against the number of trajectories.

    names: what to call the methods in the legend, where not by their own names.
    """
    settings = list(dict.fromkeys(setting_of(result) for result in results))
    methods = list(dict.fromkeys(str(result.cell.method) for result in results))
    figure = Figure(figsize=(1.4 + 3.8 * len(settings), 4.2), layout="constrained")
    panels = figure.subplots(1, len(settings), squeeze=False, sharey=True)[0]
    for panel, setting in zip(panels, settings, strict=True):
        here = [result for result in results if setting_of(result) == setting]
        _panel(panel, here, methods, names or {})
        panel.set_title(_two_lines(setting), fontsize=9)
    panels[0].set_ylabel("return (0 = random, 1 = demonstrator)")
    handles, labels = panels[0].get_legend_handles_labels()
    columns = min(len(methods), 4 * len(settings))
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=columns, fontsize=9)
    return figure


def _two_lines(setting: str) -> str:
    environment, rest = setting.split(", ", 1)
    return f"{environment}\n{rest}"


def _panel(
    panel: "matplotlib.axes.Axes", results: Sequence[Result], methods: list[str], names: Mapping[str, str]
) -> None:
    sizes = sorted({result.cell.size for result in results})
    panel.axhline(1, color="0.6", linewidth=1, linestyle=":")
    for index, method in enumerate(methods):
        mine = sorted((r for r in results if str(r.cell.method) == method), key=lambda r: r.cell.size)
        if not mine:
            continue
        values = [estimate(result.scores) for result in mine]
        # A small shift keeps intervals of different methods apart.
        places = [sizes.index(r.cell.size) + 0.08 * (index - (len(methods) - 1) / 2) for r in mine]
        means = [value.mean for value in values]
        # Where all runs score alike, rounding can put an end of the interval on the wrong side.
        below = [max(value.mean - value.low, 0.0) for value in values]
        above = [max(value.high - value.mean, 0.0) for value in values]
        panel.errorbar(
            places,
            means,
            yerr=[below, above],
            color=COLOURS[index % len(COLOURS)],
            marker=MARKERS[index % len(MARKERS)],
            markersize=5,
            linewidth=1.5,
            capsize=2,
            label=names.get(method, method),
        )
    panel.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    panel.set_xlabel("demonstrated trajectories")
    panel.set_ylim(min(-0.05, panel.get_ylim()[0]), 1.08)
    panel.spines[["top", "right"]].set_visible(False)


def write(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of `path`; equal figures give equal bytes."""
    content = io.BytesIO()
    kind = path.suffix.removeprefix(".")
    stamp = {"png": "Creation Time", "svg": "Date", "pdf": "CreationDate"}
    with matplotlib.rc_context({"svg.hashsalt": "sbil", "svg.fonttype": "none"}):
        figure.savefig(content, format=kind, dpi=160, metadata={stamp[kind]: None})
    files.write_bytes(path, content.getvalue())
