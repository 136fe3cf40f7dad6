"""Paired differences from a baseline, and the one rule that says which are clear."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sbil.experiments import Result
from sbil.reports.cells import decisions_of, method_of, ordinary, setting_of
from sbil.statistics import estimate, sign_flip

FEWEST_DRAWS = 6  # with fewer draws the sign-flip test cannot give p < 0.05


def few_draws(results: Sequence[Result]) -> str:
    """Return a note for intervals of cells with too few draws, or "" if all have enough."""
    shown = [result for result in results if result.scores.size > 1]  # a single run has no interval
    few = sum(len(result.scores) < FEWEST_DRAWS for result in shown)
    if not few:
        return ""
    where = f" in {few} of {len(shown)} cells" if few < len(shown) else ""
    return f"Fewer than {FEWEST_DRAWS} draws{where}: there an interval is about the range seen, not a 95 % interval."


def differences(results: Sequence[Result], baseline: str = "bc") -> list[dict[str, Any]]:
    """Return one row per cell: score minus the baseline's, paired by draw and initialisation, with its interval."""
    return [
        {"setting": setting_of(result), "method": method_of(result), "size": result.cell.size}
        | difference(result.scores - other.scores)
        for result, other in pairs_of(ordinary(results), results, baseline)
    ]


def pairs_of(results: Sequence[Result], every: Sequence[Result], baseline: str = "bc") -> list[tuple[Result, Result]]:
    """Pair each cell with the ordinary cell of the baseline of the same setting, size and runs, if there is one."""
    base = {decisions_of(result.cell): result for result in ordinary(every) if method_of(result) == baseline}
    pairs = [(result, base.get(decisions_of(result.cell))) for result in results]
    return [(r, other) for r, other in pairs if other and other is not r and other.scores.shape == r.scores.shape]


def difference(values: np.ndarray) -> dict[str, Any]:
    """Summarise paired differences [draws, initialisations] as a row for `verdict`."""
    return {"draws": len(values), **estimate(values)._asdict(), "p": sign_flip(values.mean(axis=1))}


def verdict(row: dict[str, Any]) -> str:
    """Say on which side of the baseline a difference lies, if it is clear.

    A difference is clear if its interval leaves out 0 and the sign-flip test gives p < 0.05. This is the only rule.
    For differences that are not a row yet, call `verdict(difference(values))`.
    """
    if row["draws"] < FEWEST_DRAWS:
        return f"too few draws to tell ({row['draws']})"
    if row["p"] >= 0.05:
        return "no clear difference"
    return "above" if row["low"] > 0 else "below" if row["high"] < 0 else "no clear difference"
