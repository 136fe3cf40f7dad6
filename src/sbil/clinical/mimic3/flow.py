"""Who and what was left out, step by step, with counts; small counts are not printed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sbil.clinical.counts import shown


def as_text(flow: dict[str, Any]) -> str:
    """The flow chart for a terminal."""
    return "\n".join([*_stays(flow), "", *_days(flow), "", *_covariates(flow)])


def _stays(flow: dict[str, Any]) -> Iterable[str]:
    yield f"{'':58} {'removed':>9} {'stays':>9} {'patients':>9}"
    for step in flow["stays"]:
        removed = shown(step["removed"]) if step["removed"] is not None else ""
        yield f"{step['step']:58} {removed:>9} {shown(step['left']):>9} {shown(step['patients']):>9}"


def _days(flow: dict[str, Any]) -> Iterable[str]:
    days = flow["days"]
    kept, beyond = shown(days["kept"]), shown(days["beyond"])
    yield f"days (decisions): {kept}; {beyond} after day {days['most']} of a stay left out"
    yield "action of the day: " + ", ".join(f"{name} {shown(count)}" for name, count in days["actions"].items())
    prescriptions = flow["prescriptions"]
    yield (
        f"antibiotics prescribed: {shown(prescriptions['rows'])} rows; {shown(prescriptions['not systemic'])} by a "
        f"route that is not systemic and {shown(prescriptions['no dates'])} without sound dates left out"
    )


def _covariates(flow: dict[str, Any]) -> Iterable[str]:
    columns = ("marked wrong", "empty", "not a number", "implausible", "unit mended", "repeated", "used")
    of_days = ("measured", "carried forward", "cohort mean")
    yield f"{'':24} " + " ".join(f"{name:>15}" for name in (*columns, *(f"days {name}"[:15] for name in of_days)))
    for row in flow["covariates"]:
        yield f"{row['covariate']:24} " + " ".join(f"{shown(row[name]):>15}" for name in (*columns, *of_days))
