"""What cells say beside each other: rows of statistics, paired differences from a baseline, and many cells at once."""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from sbil.errors import UserError
from sbil.experiments import Result
from sbil.reports import paper, statistics
from sbil.reports.names import place_of
from sbil.reports.statistics import Interval, estimate, sign_flip

FEWEST_DRAWS = 6  # with fewer the signs of no difference give p < 0.05
Key = TypeVar("Key", bound=Hashable)


def setting_of(result: Result) -> str:
    """What a table is about: environment, demonstrator and thinning."""
    cell = result.cell
    thinning = "every step" if cell.thin == 1 else f"every {cell.thin}th step"
    return f"{cell.environment}, {cell.demonstrator} demonstrator ({cell.mode}), {thinning}"


def two_lines(setting: str) -> list[str]:
    """The environment of a setting, and the rest of it."""
    return setting.split(", ", 1)


def grouped(results: Sequence[Result], key: Callable[[Result], Key]) -> dict[Key, list[Result]]:
    """Results by what `key` says of them, in the order in which they come."""
    groups: dict[Key, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def distinct(results: Sequence[Result]) -> list[Result]:
    """The same cells; refused if two would stand in one place of a table or figure."""
    seen = set()
    for cell in (result.cell for result in results):
        if str(cell) in seen:
            raise UserError(f"{cell} is there twice, run in different ways; bring one grid at a time.")
        seen.add(str(cell))
    return list(results)


def ordinary(results: Sequence[Result]) -> list[Result]:
    """The cells without unlabelled states, one for each setting, method and size."""
    return distinct([result for result in results if not (result.cell.unlabelled or result.cell.every_state)])


def differences(results: Sequence[Result], baseline: str = "bc") -> list[dict[str, Any]]:
    """Score minus the baseline's, run by run (same draw, same initialisation), with its interval."""
    return [
        {
            "setting": setting_of(result),
            "method": str(result.cell.method),
            "size": result.cell.size,
            **_difference(result, other),
        }
        for result, other in _pairs(ordinary(results), results, baseline)
    ]


def _pairs(results: Sequence[Result], every: Sequence[Result], baseline: str) -> list[tuple[Result, Result]]:
    """Each cell with the ordinary cell of the baseline that has the same setting, size and runs, where there is one."""
    base = {(r.cell.setting, r.cell.size): r for r in ordinary(every) if str(r.cell.method) == baseline}
    pairs = [(result, base.get((result.cell.setting, result.cell.size))) for result in results]
    return [(r, other) for r, other in pairs if other and other is not r and other.scores.shape == r.scores.shape]


def _difference(result: Result, other: Result) -> dict[str, Any]:
    values = result.scores - other.scores
    return {"draws": len(values), **estimate(values)._asdict(), "p": sign_flip(values.mean(axis=1))}


def verdict(row: dict[str, Any]) -> str:
    """A difference from the baseline in words: clear if its interval and random signs both say so."""
    if row["draws"] < FEWEST_DRAWS:
        return f"too few draws to tell ({row['draws']})"
    if row["p"] >= 0.05:
        return "no clear difference"
    return "above" if row["low"] > 0 else "below" if row["high"] < 0 else "no clear difference"


def run_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row a run: everything that a statistic over runs needs."""
    return [
        {
            "environment": result.cell.environment,
            "demonstrator": result.cell.demonstrator,
            "mode": result.cell.mode,
            "thin": result.cell.thin,
            "method": str(result.cell.method),
            "size": result.cell.size,
            "unlabelled": result.cell.unlabelled,
            "draw": draw,
            "initialisation": initialisation,
            "return": round(float(result.returns[i].mean()), 3),
            "score": round(float(result.scores[draw, initialisation]), 5),
            "diverged_at": int(result.diverged_at[i]),
            "chosen": result.chosen[i] if result.chosen else "",
        }
        for result in results
        for i, (draw, initialisation) in enumerate(result.cell.runs)
    ]


def cell_rows(results: Sequence[Result], baseline: str = "bc") -> list[dict[str, Any]]:
    """One row a cell, whole: its statistics, the difference from the baseline, and what the paper prints.

    With unlabelled trajectories the difference is from the baseline that has the same decisions and nothing else.
    """
    others = {id(result): other for result, other in _pairs(results, results, baseline)}
    return [_cell_row(result, others.get(id(result))) for result in results]


def _cell_row(result: Result, other: Result | None) -> dict[str, Any]:
    difference = _difference(result, other) if other else {}
    printed = paper.counterpart(result)
    row = {
        "setting": setting_of(result),
        "method": str(result.cell.method),
        "size": result.cell.size,
        "unlabelled": result.cell.unlabelled,
        "runs": len(result.cell.runs),
        "diverged": result.diverged,
        **estimate(result.scores)._asdict(),
        **_columns("iqm", statistics.aggregate([result.scores[None]])),
        "difference": difference.get("mean"),
        "difference_low": difference.get("low"),
        "difference_high": difference.get("high"),
        "p": difference.get("p"),
        "verdict": verdict(difference) if difference else None,
        "printed_mean": printed.mean if printed else None,
        "printed_standard_error": printed.standard_error if printed else None,
        "differs": paper.differs(result) if printed else None,
    }
    return {name: _tidy(value) for name, value in row.items()}


def _tidy(value: Any) -> Any:
    """Numbers with six decimals, and nothing for those that are not there."""
    if not isinstance(value, float):
        return value
    return round(value, 6) if math.isfinite(value) else None


def strata(results: Sequence[Result]) -> list[np.ndarray]:
    """Scores of cells as statistics take them: [cells, draws, initialisations] for each environment.

    There the draws of all settings and sizes have the same seeds, initial weights and live episodes, so they are not
    independent. Cells with another number of runs are strata of their own.
    """
    groups: dict[tuple[str, tuple[int, ...]], list[np.ndarray]] = {}
    for result in sorted(results, key=lambda result: (result.cell.setting, result.cell.size)):
        groups.setdefault((result.cell.environment, result.scores.shape), []).append(result.scores)
    return [np.stack(scores) for scores in groups.values()]


def aggregates(
    results: Sequence[Result], baseline: str = "bc", by: Callable[[Result], str] = setting_of
) -> list[dict[str, Any]]:
    """One row a setting (or whatever `by` gives) and method, over all its cells.

    Compared with the baseline are the cells that both have: the mean difference, the probability that a run beats one
    of the baseline's, and the number of cells in which the method is clearly above or below it.
    """
    found: dict[tuple[str, str], list[Result]] = {}
    for result in ordinary(results):
        found.setdefault((by(result), str(result.cell.method)), []).append(result)
    places = {group: place for place, (group, _) in enumerate(found)}
    keys = sorted(found, key=lambda key: (places[key[0]], place_of(key[1])))
    return [{"group": key[0], "method": key[1], **_aggregate(found[key], results, baseline)} for key in keys]


def _aggregate(mine: Sequence[Result], every: Sequence[Result], baseline: str) -> dict[str, Any]:
    pairs = _pairs(mine, every, baseline)
    ours, theirs = strata([result for result, _ in pairs]), strata([other for _, other in pairs])
    verdicts = [verdict(_difference(result, other)) for result, other in pairs]
    return {
        "cells": len(mine),
        "runs": sum(len(result.cell.runs) for result in mine),
        "diverged": sum(result.diverged for result in mine),
        **_columns("iqm", statistics.aggregate(strata(mine))),
        **_columns("mean", statistics.aggregate(strata(mine), statistics.mean)),
        "compared": len(pairs),
        **_columns("difference", statistics.difference(ours, theirs) if pairs else None),
        **_columns("improvement", statistics.improvement(ours, theirs) if pairs else None),
        "above": verdicts.count("above"),
        "below": verdicts.count("below"),
    }


def _columns(name: str, interval: Interval | None) -> dict[str, float | None]:
    value, low, high = interval or (None, None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}
