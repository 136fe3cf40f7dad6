"""What cells say beside each other: rows of statistics, paired differences from a baseline, and many cells at once."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from sbil import statistics
from sbil.errors import UserError
from sbil.experiments import Cell, Result
from sbil.reports import paper
from sbil.reports.names import place_of
from sbil.statistics import Interval, estimate, sign_flip

FEWEST_DRAWS = 6  # with fewer the signs of no difference give p < 0.05
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def setting_of(result: Result) -> str:
    """What a table is about: environment, demonstrator and thinning, and the seed where it is not the usual one."""
    cell = result.cell
    thinning = "every step" if cell.thin == 1 else f"every {cell.thin}th step"
    seed = f", seed {cell.seed}" if cell.seed else ""
    return f"{cell.environment}, {cell.demonstrator} demonstrator ({cell.mode}), {thinning}{seed}"


def two_lines(setting: str) -> list[str]:
    """The environment of a setting, and the rest of it."""
    return setting.split(", ", 1)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items (results, rows) by their key, in the order in which they come."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def distinct(results: Sequence[Result]) -> list[Result]:
    """The same cells; refused if two would stand in one place of a table or figure."""
    seen = set()
    for cell in (result.cell for result in results):
        if str(cell) in seen:
            raise UserError(f"{cell} is there twice, run in different ways; bring one grid at a time.")
        seen.add(str(cell))
    return list(results)


def is_ordinary(cell: Cell) -> bool:
    """Whether a method was shown its decisions and no further states."""
    return not (cell.unlabelled or cell.every_state)


def ordinary(results: Sequence[Result]) -> list[Result]:
    """The cells without further states, one for each setting, method and size."""
    return distinct([result for result in results if is_ordinary(result.cell)])


def few_draws(results: Sequence[Result]) -> str:
    """What to say beside intervals of cells that have too few draws for them; nothing where all have enough."""
    shown = [result for result in results if result.scores.size > 1]  # a single run has no interval
    few = sum(len(result.scores) < FEWEST_DRAWS for result in shown)
    if not few:
        return ""
    where = f" in {few} of {len(shown)} cells" if few < len(shown) else ""
    return f"Fewer than {FEWEST_DRAWS} draws{where}: there an interval is about the range seen, no 95 % interval."


def differences(results: Sequence[Result], baseline: str = "bc") -> list[dict[str, Any]]:
    """Score minus the baseline's, run by run (same draw, same initialisation), with its interval."""
    return [
        {
            "setting": setting_of(result),
            "method": str(result.cell.method),
            "size": result.cell.size,
            **difference(result.scores - other.scores),
        }
        for result, other in _pairs(ordinary(results), results, baseline)
    ]


def _pairs(results: Sequence[Result], every: Sequence[Result], baseline: str) -> list[tuple[Result, Result]]:
    """Each cell with the ordinary cell of the baseline that has the same setting, size and runs, where there is one."""
    base = {_decisions(result.cell): result for result in ordinary(every) if str(result.cell.method) == baseline}
    pairs = [(result, base.get(_decisions(result.cell))) for result in results]
    return [(r, other) for r, other in pairs if other and other is not r and other.scores.shape == r.scores.shape]


def _decisions(cell: Cell) -> tuple[str, int, int]:
    """What says which decisions a cell learns from."""
    return cell.setting, cell.seed, cell.size


def difference(values: np.ndarray) -> dict[str, Any]:
    """Paired differences [draws, initialisations] as a row that `verdict` can judge."""
    return {"draws": len(values), **estimate(values)._asdict(), "p": sign_flip(values.mean(axis=1))}


def verdict(row: dict[str, Any]) -> str:
    """A difference from the baseline in words: clear if its interval and random signs both say so.

    The one rule of what is clear; of differences that are no row yet, `verdict(difference(values))`.
    """
    if row["draws"] < FEWEST_DRAWS:
        return f"too few draws to tell ({row['draws']})"
    if row["p"] >= 0.05:
        return "no clear difference"
    return "above" if row["low"] > 0 else "below" if row["high"] < 0 else "no clear difference"


def run_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row a run: everything that a statistic over runs needs."""
    rare = _rare(results, "every_state", "seed")
    return [
        {
            "environment": result.cell.environment,
            "demonstrator": result.cell.demonstrator,
            "mode": result.cell.mode,
            "thin": result.cell.thin,
            "method": str(result.cell.method),
            "size": result.cell.size,
            "unlabelled": result.cell.unlabelled,
            **{name: getattr(result.cell, name) for name in rare},
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


def _rare(results: Sequence[Result], *names: str) -> list[str]:
    """Those fields of cells that some cell here has: tables of ordinary cells have no column for them."""
    return [name for name in names if any(getattr(result.cell, name) for result in results)]


def cell_rows(results: Sequence[Result], baseline: str = "bc") -> list[dict[str, Any]]:
    """One row a cell, whole: its statistics, the difference from the baseline, and what the paper prints.

    With further states the difference is from the baseline that has the same decisions and nothing else.
    """
    others = {id(result): other for result, other in _pairs(results, results, baseline)}
    rare = _rare(results, "every_state")  # another seed is in the setting
    return [_cell_row(result, others.get(id(result)), rare) for result in results]


def _cell_row(result: Result, other: Result | None, rare: Sequence[str]) -> dict[str, Any]:
    apart = difference(result.scores - other.scores) if other else {}
    printed = paper.counterpart(result)
    row = {
        "setting": setting_of(result),
        "method": str(result.cell.method),
        "size": result.cell.size,
        "unlabelled": result.cell.unlabelled,
        **{name: getattr(result.cell, name) for name in rare},
        "runs": len(result.cell.runs),
        "diverged": result.diverged,
        **estimate(result.scores)._asdict(),
        **_columns("iqm", statistics.aggregate([result.scores[None]])),
        "difference": apart.get("mean"),
        "difference_low": apart.get("low"),
        "difference_high": apart.get("high"),
        "p": apart.get("p"),
        "verdict": verdict(apart) if apart else None,
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


def strata(
    results: Sequence[Result], values: Callable[[Result], np.ndarray] = lambda result: result.scores
) -> list[np.ndarray]:
    """Scores (or other values) of cells as statistics take them: [cells, draws, initialisations] an environment.

    There the draws of all settings and sizes have the same seeds, initial weights and live episodes, so they are not
    independent. Cells with another seed, where all of that is new, or another number of runs are strata of their own.
    """
    groups: dict[tuple[str, int, tuple[int, ...]], list[np.ndarray]] = {}
    for result in sorted(results, key=lambda result: _decisions(result.cell)):
        found = values(result)
        groups.setdefault((result.cell.environment, result.cell.seed, found.shape), []).append(found)
    return [np.stack(stratum) for stratum in groups.values()]


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
    verdicts = [verdict(difference(result.scores - other.scores)) for result, other in pairs]
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
