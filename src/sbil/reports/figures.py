"""Figures: return against size, profiles, unlabelled trajectories, diagnostics of training, imagined trajectories.

A method has one colour and marker in all panels of a figure. Up to eight methods have different ones.
"""

import io
import math
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sbil import files, statistics
from sbil.errors import UserError
from sbil.evaluation.imagined import Imagined
from sbil.experiments import Result
from sbil.experiments.environment import played
from sbil.reports import paper_numbers
from sbil.reports.cells import distinct, grouped, is_ordinary, ordinary, setting_of, strata, two_lines
from sbil.reports.names import MAIN, NAMES
from sbil.statistics import estimate

# Colours that colour-blind readers can tell apart (Okabe and Ito, with grey for their yellow), and markers for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "-.")  # for the first eight methods, and for the next
SCORE = "return (0 = random, 1 = demonstrator)"
LEVELS = np.arange(-10, 111) / 100  # the scores at which profiles are drawn
WIDE = 100  # an axis is logarithmic if the ratio of large to small values of a diagnostic is larger
HUGE = 1000  # an axis of values of both signs is logarithmic if the largest is larger
EVERY_STATE = ", every state"  # after the name of a method that saw the states of thinned decisions
STAMPS = {"png": "Creation Time", "svg": "Date", "pdf": "CreationDate"}  # the entry of a file that would hold the date


class Style(NamedTuple):
    """How a method is drawn."""

    colour: str
    marker: str
    line: str
    label: str


def against_size(results: Sequence[Result], printed: bool = False) -> Figure:
    """Draw one panel per setting: the scaled score of each method against the number of trajectories, with intervals.

    printed: also draw, faintly, what the paper prints for its methods.
    """
    results = ordinary(results)
    groups, styles = grouped(results, setting_of), _styles(results)
    shifts = _shifts(list(styles))
    figure, panels = _panels(list(map(_heading, groups)))
    for panel, here in zip(panels, groups.values(), strict=True):
        sizes = sorted({result.cell.size for result in here})
        for method, mine in grouped(here, _method).items():
            mine.sort(key=lambda result: result.cell.size)
            places = {size: place + shifts[method] for place, size in enumerate(sizes)}
            if printed and method in paper_numbers.METHODS:
                _printed(panel, played(mine[0].cell).environment, method, places, styles[method])
            _curve(panel, mine, [places[result.cell.size] for result in mine], styles[method])
        panel.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        panel.set_xlabel("demonstrated trajectories")
    _score_axes(panels)
    faint = Line2D([], [], color="0.5", linestyle="--", marker="o", markerfacecolor="white", markersize=5)
    faint.set_label("printed in the paper")
    _legend(figure, panels, styles, [faint] if printed else [])
    return figure


def profile(results: Sequence[Result]) -> Figure:
    """Draw one panel per setting: the share of a method's runs, over all sizes, that score above a level."""
    results = ordinary(results)
    groups, styles = grouped(results, setting_of), _styles(results)
    figure, panels = _panels(list(map(_heading, groups)))
    for panel, here in zip(panels, groups.values(), strict=True):
        for method, mine in grouped(here, _method).items():
            found, style = statistics.profile(strata(mine), LEVELS), styles[method]
            (line,) = panel.plot(LEVELS, found.share, style.line, color=style.colour, label=style.label)
            line.set_drawstyle("steps-post")
            panel.fill_between(LEVELS, found.low, found.high, step="post", color=style.colour, alpha=0.12, linewidth=0)
        panel.set_xlabel(SCORE)
        panel.set_ylim(-0.02, 1.02)
        _on_the_left(panel, "share of runs above that return")
    _legend(figure, panels, styles)
    return figure


def semi_supervised(results: Sequence[Result]) -> Figure:
    """Draw one panel per setting and size: the score against the unlabelled trajectories per labelled one.

    Methods without unlabelled trajectories are level lines with their intervals. A method that saw every state of its
    own trajectories, also those of thinned decisions, counts as another method here.
    """
    groups = grouped(distinct(results), lambda result: (setting_of(result), result.cell.size))
    groups = {place: here for place, here in groups.items() if not all(is_ordinary(result.cell) for result in here)}
    if not groups:
        raise UserError("no cell has unlabelled trajectories; a semi-supervised figure needs some.")
    every = [result for here in groups.values() for result in here]
    styles, shifts = _styles(every), _shifts(list(grouped([r for r in every if r.cell.task.unlabelled], _method)))
    figure, panels = _panels([f"{_heading(setting)}, {size} labelled" for setting, size in groups])
    for panel, ((_, size), here) in zip(panels, groups.items(), strict=True):
        for method, mine in grouped(here, _method).items():
            mine.sort(key=lambda result: result.cell.task.unlabelled)
            if mine[-1].cell.task.unlabelled:
                _curve(panel, mine, [r.cell.task.unlabelled / size + shifts[method] for r in mine], styles[method])
            else:
                _level(panel, mine[0], styles[method])
        _unlabelled_axis(panel, here)
    _score_axes(panels)
    _legend(figure, panels, styles)
    return figure


def _unlabelled_axis(panel: Axes, results: Sequence[Result]) -> None:
    """Whole numbers of trajectories, or no axis if no result has unlabelled ones."""
    if any(result.cell.task.unlabelled for result in results):
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_xlabel("unlabelled trajectories for each labelled one")
    else:
        panel.set_xticks([])


def diagnostics(results: Sequence[Result], metrics: Sequence[str]) -> Figure:
    """Draw one row per metric and one column per setting and size: the metric along training, one line per method.

    The line is the median of the runs, the band their middle half. The axes fit the runs that stayed sound. Diverged
    runs leave the panel, and the title counts them.
    """
    results = [result for result in distinct(results) if set(metrics) & set(result.curves)]
    if not results:
        raise UserError(f"no cell has a diagnostic named {' or '.join(metrics)}.")
    groups, styles = grouped(results, _place), _styles(results)
    figure = Figure(figsize=(1.4 + 3.8 * len(groups), 0.9 + 2.3 * len(metrics)), layout="constrained")
    panels = figure.subplots(len(metrics), len(groups), squeeze=False, sharex="col")
    for column, (place, here) in zip(panels.T, groups.items(), strict=True):
        for panel, metric in zip(column, metrics, strict=True):
            shown = [result for result in here if metric in result.curves]
            for result in shown:
                _trace(panel, result, metric, styles[_method(result)])
            _fit(panel, shown, metric)
            panel.spines[["top", "right"]].set_visible(False)
        lost = [f"{styles[_method(r)].label}: {r.diverged} of {len(r.cell.runs)} diverged" for r in here if r.diverged]
        column[0].set_title("\n".join([place, *lost]), fontsize=9)
        column[-1].set_xlabel("updates")
    for panel, metric in zip(panels[:, 0], metrics, strict=True):
        panel.set_ylabel(metric.replace("_", " "))
    _legend(figure, list(panels.ravel()), styles)
    return figure


def fans(found: Imagined) -> Figure:
    """Draw one panel per column that drifts: imagined values over recorded ones, step by step, from first states.

    Bands hold the middle half and 90 % of the episodes, lines are medians. Beyond the dashed line the model is not
    trusted.
    """
    if not found.fans:
        raise UserError("no column is continuous, so there is nothing to draw.")
    figure = Figure(figsize=(1.4 + 3.8 * len(found.fans), 3.6), layout="constrained")
    looks = ("recorded", "0.45"), ("imagined", COLOURS[1])
    for panel, fan in zip(figure.subplots(1, len(found.fans), squeeze=False)[0], found.fans, strict=True):
        steps = np.arange(fan.recorded.shape[1])
        for (name, colour), (least, low, middle, high, most) in zip(looks, fan[2:], strict=True):
            for ends in ((least, most), (low, high)):
                panel.fill_between(steps, *ends, color=colour, alpha=0.22, linewidth=0)
            panel.plot(steps, middle, color=colour, linewidth=1.6, label=name)
        if found.horizon < steps[-1]:
            panel.axvspan(found.horizon, steps[-1], color="white", alpha=0.55, linewidth=0, zorder=2.5)
            panel.axvline(
                found.horizon, color="0.2", linestyle="--", linewidth=1, label="the model is trusted up to here"
            )
        panel.set_title(fan.column, fontsize=9)
        panel.set_xlabel("step")
        panel.margins(x=0)
        panel.spines[["top", "right"]].set_visible(False)
    handles, names = panel.get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, loc="outside lower center", ncols=3, fontsize=9)
    return figure


def write(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of `path`. Equal figures give equal bytes."""
    content = io.BytesIO()
    kind = path.suffix.removeprefix(".")
    if kind not in STAMPS:
        raise UserError(f"{path}: a figure ends in .png, .svg or .pdf.")
    with matplotlib.rc_context({"svg.hashsalt": "sbil", "svg.fonttype": "none", "pdf.fonttype": 42}):
        figure.savefig(content, format=kind, dpi=160, metadata={STAMPS[kind]: None})
    files.write_bytes(path, content.getvalue())


def _method(result: Result) -> str:
    return str(result.cell.method) + (EVERY_STATE if result.cell.task.every_state else "")


def _place(result: Result) -> str:
    unlabelled = f", {result.cell.task.unlabelled} unlabelled" if result.cell.task.unlabelled else ""
    return f"{_heading(setting_of(result))}, n = {result.cell.size}{unlabelled}"


def _heading(setting: str) -> str:
    return "\n".join(two_lines(setting))


def _styles(results: Sequence[Result]) -> dict[str, Style]:
    """Choose styles: the main methods look the same in every figure; others take the styles that are free."""
    methods = list(grouped(results, _method))
    taken = {MAIN.index(method) for method in methods if method in MAIN}
    free = (place for place in count() if place not in taken)
    styles = {}
    for method in methods:
        place = MAIN.index(method) if method in MAIN else next(free)
        turn, kind = divmod(place, len(COLOURS))
        plain = method.removesuffix(EVERY_STATE)
        label = NAMES.get(plain, plain) + method[len(plain) :]
        styles[method] = Style(COLOURS[kind], MARKERS[kind], LINES[turn % len(LINES)], label)
    return styles


def _shifts(methods: Sequence[str]) -> dict[str, float]:
    """Return how far each method is moved aside, so that intervals do not cover each other."""
    step = min(0.08, 0.6 / max(len(methods), 1))
    return {method: step * (index - (len(methods) - 1) / 2) for index, method in enumerate(methods)}


def _panels(titles: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Make panels that share one vertical axis: up to four in a row, five to eight in two rows."""
    count = len(titles)
    rows = 1 if count <= 4 else max(2, math.ceil(count / 4))
    columns = math.ceil(count / rows)
    figure = Figure(figsize=(1.4 + 3.8 * columns, 0.9 + 3.3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for panel in panels[count:]:
        panel.remove()
    for panel, title in zip(panels[:count], titles, strict=True):
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_title(title, fontsize=9)
    return figure, list(panels[:count])


def _on_the_left(panel: Axes, label: str) -> None:
    place = panel.get_subplotspec()
    if place and place.is_first_col():
        panel.set_ylabel(label)


def _score_axes(panels: Sequence[Axes]) -> None:
    """Set the axis that all panels share after everything is drawn, so that no panel cuts off scores below 0."""
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(min(-0.05, low), max(1.08, high))
    for panel in panels:
        panel.axhline(1, color="0.6", linewidth=1, linestyle=":")
        _on_the_left(panel, SCORE)


def _curve(panel: Axes, results: Sequence[Result], places: Sequence[float], style: Style) -> None:
    """Draw means with their intervals."""
    values = [estimate(result.scores) for result in results]
    # If all runs score the same, rounding can put an end of the interval on the wrong side.
    below = [max(value.mean - value.low, 0.0) for value in values]
    above = [max(value.high - value.mean, 0.0) for value in values]
    means, look = [value.mean for value in values], f"{style.marker}{style.line}"
    bars: dict[str, Any] = {"yerr": [below, above], "elinewidth": 1, "capsize": 2}
    panel.errorbar(places, means, fmt=look, color=style.colour, markersize=5, linewidth=1.5, label=style.label, **bars)
    lost = [(place, value.mean) for place, value, r in zip(places, values, results, strict=True) if _mostly_lost(r)]
    if lost:  # hollow: most runs of these cells diverged
        (hollow,) = panel.plot(*zip(*lost, strict=True), style.marker, color=style.colour, markersize=5, zorder=3)
        hollow.set_markerfacecolor("white")


def _mostly_lost(result: Result) -> bool:
    return 2 * result.diverged > len(result.cell.runs)


def _printed(panel: Axes, environment: str, method: str, places: Mapping[int, float], style: Style) -> None:
    cells = {place: paper_numbers.printed(environment, size, method) for size, place in places.items()}
    found = {place: cell.mean for place, cell in cells.items() if cell}
    (line,) = panel.plot(list(found), list(found.values()), "--", color=style.colour, linewidth=1)
    line.set(alpha=0.45, zorder=1.5, marker=style.marker, markerfacecolor="white", markersize=5)


def _level(panel: Axes, result: Result, style: Style) -> None:
    value = estimate(result.scores)
    panel.axhline(value.mean, color=style.colour, linewidth=1.5, linestyle="--", label=style.label)
    panel.axhspan(value.low, value.high, color=style.colour, alpha=0.08, linewidth=0)


def _trace(panel: Axes, result: Result, metric: str, style: Style) -> None:
    lost = (result.diverged_at[:, None] >= 0) & (result.points > result.diverged_at[:, None])
    sound = lost.mean(axis=0) <= 0.5  # the line ends when most runs have diverged
    points = result.points[sound]
    low, middle, high = statistics.quartiles(result.curves[metric][:, sound])
    (line,) = panel.plot(points, middle, style.line, color=style.colour, linewidth=1.2, label=style.label)
    line.set(marker=style.marker, markersize=3)
    panel.fill_between(points, low, high, color=style.colour, alpha=0.15, linewidth=0)


def _fit(panel: Axes, results: Sequence[Result], metric: str) -> None:
    """Fit the axes to what is drawn of sound runs. Axes of values that are far apart are logarithmic."""
    values = _of_sound_runs(results, metric)
    if not len(values):
        return
    sizes = np.abs(values[values != 0])
    small = np.quantile(sizes, 0.1) if len(sizes) else 1.0
    if len(sizes) and sizes.max() > WIDE * small and (values.min() >= 0 or sizes.max() > HUGE):
        panel.set_yscale("symlog", linthresh=small)
    scale = panel.yaxis.get_transform()
    low, high = scale.transform(np.array([values.min(), values.max()]))
    margin = 0.08 * (high - low) or 0.5
    panel.set_ylim(*scale.inverted().transform(np.array([low - margin, high + margin])))
    ends = [result.points[-1] for result in results]
    if max(ends) > 5 * min(ends):
        panel.set_xscale("log")


def _of_sound_runs(results: Sequence[Result], metric: str) -> np.ndarray:
    """Return the finite quartiles of methods whose runs are mostly sound, or of all if no method is sound."""
    steady = [result for result in results if not _mostly_lost(result)] or results
    sound = [r.curves[metric][(r.diverged_at < 0) | (4 * r.diverged < len(r.cell.runs))] for r in steady]
    sound = [values for values in sound if len(values)] or [result.curves[metric] for result in results]
    quartiles = np.concatenate([statistics.quartiles(values).ravel() for values in sound] or [np.array([])])
    return quartiles[np.isfinite(quartiles)]


def _legend(figure: Figure, panels: Sequence[Axes], styles: Mapping[str, Style], more: Sequence[Artist] = ()) -> None:
    """Draw one legend below all panels: methods in their order, in as many columns as fit."""
    found = {label: handle for p in panels for handle, label in zip(*p.get_legend_handles_labels(), strict=True)}
    handles = [*(found[style.label] for style in styles.values() if style.label in found), *more]
    names = [str(handle.get_label()) for handle in handles]
    width = 0.6 + 0.07 * max(map(len, names))
    columns = max(1, min(len(names), int(figure.get_figwidth() / width)))
    figure.set_figheight(figure.get_figheight() + 0.2 * (math.ceil(len(names) / columns) - 1))
    figure.legend(handles, names, frameon=False, loc="outside lower center", ncols=columns, fontsize=9)
