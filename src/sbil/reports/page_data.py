"""The data that the script of the page draws: every cell with its runs and curves, as plain values."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from sbil import statistics
from sbil.experiments import Result
from sbil.reports import paper_numbers
from sbil.reports.cells import grouped, is_ordinary, method_of, setting_of, two_lines
from sbil.reports.differences import FEWEST_DRAWS
from sbil.reports.labels import PROTOCOL, protocol_of
from sbil.reports.names import MAIN, name_of, place_of

COLOURS = (6, 0, 2, 5, 7, 1, 4, 3)  # of the main methods: numbers in page.css
MARKERS = 8  # how many page.js has
PROFILE = np.array([*range(0, 95, 5), *range(95, 100)]) / 100  # the scores at which profiles are computed


def data(results: Sequence[Result], facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return methods, settings, profiles and cells; `facts` are the `cell_rows` of the results."""
    methods = sorted({row["method"] for row in facts}, key=place_of)
    settings = list(dict.fromkeys(row["setting"] for row in facts))
    texts = sorted({result.settings[0] for result in results if result.settings})
    cells = []
    for result, row in zip(results, facts, strict=True):
        place = {"setting": settings.index(row["setting"]), "method": methods.index(row["method"])}
        text = {"text": texts.index(result.settings[0])} if result.settings else {}
        cells.append({**place, **_cell(result, row), **text})
    return {
        "methods": _methods(methods),
        "settings": [two_lines(setting) for setting in settings],
        "scores": PROFILE.tolist(),
        "fewest": FEWEST_DRAWS,
        "profiles": _profiles(results, methods, settings),
        "texts": texts,
        "cells": cells,
    }


def _methods(methods: Sequence[str]) -> list[dict[str, Any]]:
    """Return names, colours and markers of methods. A main method always has the same ones."""
    styles = {method: {"colour": COLOURS[place], "marker": place} for place, method in enumerate(MAIN)}
    kinds, printed = range(len(COLOURS)), paper_numbers.COUNTERPARTS.get
    free = [{"colour": colour, "marker": (colour + turn) % MARKERS} for turn in kinds for colour in kinds]
    free = [style for style in free if style not in styles.values()]
    others = [method for method in methods if method not in MAIN]
    styles |= {method: free[place % len(free)] for place, method in enumerate(others)}
    first = set(MAIN) & set(methods) or set(methods[: len(MAIN)])
    return [
        {"id": method, "name": name_of(method), "shown": method in first, **styles[method], "printed": printed(method)}
        for method in methods
    ]


def _cell(result: Result, row: dict[str, Any]) -> dict[str, Any]:
    cell = result.cell
    content = {
        "size": cell.size,
        "unlabelled": cell.task.unlabelled,
        **dict(zip(PROTOCOL, protocol_of(cell), strict=True)),
        "mean": [row["mean"], row["low"], row["high"]],
        "error": row["standard_error"],
        "iqm": [row["iqm"], row["iqm_low"], row["iqm_high"]],
        "scores": result.scores.ravel(),
        "seconds": {name: value for name, value in result.seconds.items() if value > 0},
    }
    if cell.task.every_state:
        content["every"] = True
    if row["difference"] is not None:
        content["difference"] = [row["difference"], row["difference_low"], row["difference_high"]]
        content["verdict"] = row["verdict"]
    if row["printed_mean"] is not None:
        content["printed"] = [row["printed_mean"], row["printed_standard_error"]]
        content["differs"] = beyond(row)
    if result.diverged:
        content["diverged"] = result.diverged_at.tolist()
    if any(result.chosen):
        content["chosen"] = Counter(result.chosen).most_common()
    if result.curves and len(result.points):
        content["points"] = result.points.tolist()
        content["curves"] = {name: _curve(values) for name, values in sorted(result.curves.items())}
    if len(set(result.settings)) > 1:
        content["varied"] = True
    return content


def _curve(values: np.ndarray) -> list[list[float]]:
    """Return lower quartile, median and upper quartile of runs [runs, points] at each point, in four digits."""
    return [[float(f"{value:.4g}") for value in quartile] for quartile in statistics.quartiles(values)]


def _profiles(results: Sequence[Result], methods: Sequence[str], settings: Sequence[str]) -> list[dict[str, Any]]:
    """Return the performance profile of each method in each setting, over all its sizes."""
    shown = [result for result in results if is_ordinary(result.cell)]
    groups = grouped(shown, lambda result: (settings.index(setting_of(result)), methods.index(method_of(result))))
    profiles = {key: statistics.profile([np.stack([r.scores for r in mine])], PROFILE) for key, mine in groups.items()}
    return [{"setting": key[0], "method": key[1], **found._asdict()} for key, found in profiles.items()]


def plain(value: Any) -> Any:
    """Round numbers to six decimals, or to six digits if they are large or small; NaN and infinity become None.

    The page shows three digits. The further digits keep it from rounding a rounded number to something else.
    """
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = round(value, 6) if 0.01 <= abs(value) < 100 else float(f"{value:.6g}")
        return int(short) if short == int(short) and abs(short) < 1e15 else short
    return value


def beyond(row: dict[str, Any]) -> str:
    """Say on which side of the paper's number a cell lies that differs from it."""
    return "" if not row["differs"] else "above" if row["mean"] > row["printed_mean"] else "below"
