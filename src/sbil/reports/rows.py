"""Results as rows of plain values: one row per run, per cell, or per method over many cells."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from sbil import statistics
from sbil.experiments import Result
from sbil.reports import paper_numbers
from sbil.reports.cells import grouped, method_of, ordinary, setting_of, strata
from sbil.reports.differences import difference, pairs_of, verdict
from sbil.reports.names import place_of
from sbil.statistics import Interval, estimate


def run_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return one row per run with everything that a statistic over runs needs."""
    rare = _rare(results, "every_state", "seed")
    return [
        {
            **{name: getattr(result.cell.task, name) for name in ("environment", "demonstrator", "mode", "thin")},
            "method": method_of(result),
            "size": result.cell.size,
            **{name: getattr(result.cell.task, name) for name in ("unlabelled", *rare)},
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
    """Return the fields that some cell here uses. Tables of ordinary cells have no column for them."""
    return [name for name in names if any(getattr(result.cell.task, name) for result in results)]


def cell_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return one row per cell: its statistics, the difference from BC, and the paper's number.

    A cell with further states is compared with BC on the same decisions and no further states.
    """
    others = {id(result): other for result, other in pairs_of(results, results)}
    rare = _rare(results, "every_state")  # another seed is in the setting
    return [_cell_row(result, others.get(id(result)), rare) for result in results]


def _cell_row(result: Result, other: Result | None, rare: Sequence[str]) -> dict[str, Any]:
    apart = difference(result.scores - other.scores) if other else {}
    interval = Interval(apart["mean"], apart["low"], apart["high"]) if apart else None
    printed = paper_numbers.counterpart(result)
    row = {
        "setting": setting_of(result),
        "method": method_of(result),
        "size": result.cell.size,
        **{name: getattr(result.cell.task, name) for name in ("unlabelled", *rare)},
        "runs": len(result.cell.runs),
        "diverged": result.diverged,
        **estimate(result.scores)._asdict(),
        **_columns("iqm", statistics.aggregate([result.scores[None]])),
        **_columns("difference", interval),
        "p": apart.get("p"),
        "verdict": verdict(apart) if apart else None,
        "printed_mean": printed.mean if printed else None,
        "printed_standard_error": printed.standard_error if printed else None,
        "differs": paper_numbers.differs(result) if printed else None,
    }
    return {name: _tidy(value) for name, value in row.items()}


def _tidy(value: Any) -> Any:
    """Round numbers to six decimals; NaN and infinity become None."""
    if not isinstance(value, float):
        return value
    return round(value, 6) if math.isfinite(value) else None


def aggregates(results: Sequence[Result], by: Callable[[Result], str] = setting_of) -> list[dict[str, Any]]:
    """Return one row per setting (or other group `by`) and method, over all its cells.

    The comparison with BC uses the cells that both have: the mean difference, the probability that a run beats a run
    of BC, and the number of cells in which the method is clearly above or below BC.
    """
    return [
        {"group": group, "method": method, **_aggregate(mine, results)}
        for group, here in grouped(ordinary(results), by).items()
        for method, mine in sorted(grouped(here, method_of).items(), key=lambda entry: place_of(entry[0]))
    ]


def _aggregate(mine: Sequence[Result], every: Sequence[Result]) -> dict[str, Any]:
    pairs = pairs_of(mine, every)
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
