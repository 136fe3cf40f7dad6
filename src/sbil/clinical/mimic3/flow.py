"""Who and what was left out at each step. Small counts are not printed."""

from collections.abc import Iterable
from typing import Any

from sbil.clinical.disclosure import Count, chain, parts, shown, within

LEFT_OUT = ("marked wrong", "empty", "not a number", "implausible", "unit mended")
MEASUREMENTS = (*LEFT_OUT, "repeated", "used")
DAYS = {"measured": "days measured", "carried forward": "days carried forward", "cohort mean": "days at cohort mean"}
HEADS = (*MEASUREMENTS, *DAYS.values())
WIDTHS = [max(len(head), 9) for head in HEADS]


def as_text(flow: dict[str, Any]) -> str:
    """The flow chart for a terminal."""
    return "\n".join([*_stays(flow), "", *_days(flow), "", *_covariates(flow)])


def _stays(flow: dict[str, Any]) -> Iterable[str]:
    yield f"{'':58} {'removed':>9} {'stays':>9} {'patients':>9}"
    steps = flow["stays"]
    left, patients = ([step[name] for step in steps] for name in ("left", "patients"))
    stays = chain(Count(left[0] + steps[0]["removed"]), left)
    for step, (removed, stay), patient in zip(steps, stays, within(Count(patients[0]), patients), strict=True):
        yield f"{step['step']:58} {removed!s:>9} {stay!s:>9} {patient!s:>9}"


def _days(flow: dict[str, Any]) -> Iterable[str]:
    days = flow["days"]
    kept, beyond = shown(days["kept"]), shown(days["beyond"])
    yield f"days (decisions): {kept}; {beyond} after day {days['most']} of a stay left out"
    actions = zip(days["actions"], parts(Count(days["kept"]), list(days["actions"].values())), strict=True)
    yield "action of the day: " + ", ".join(f"{name} {count}" for name, count in actions)
    prescriptions = flow["prescriptions"]
    yield (
        f"antibiotics in PRESCRIPTIONS, of all patients: {shown(prescriptions['rows'])} rows; "
        f"{shown(prescriptions['not systemic'])} by a route that is not systemic and "
        f"{shown(prescriptions['no dates'])} without sound dates left out"
    )


def _covariates(flow: dict[str, Any]) -> Iterable[str]:
    whose = {"today": "today's", "before": "yesterday's"}[flow["settings"]["state"]]
    yield f"measurements on the days (decisions) above by what became of them, and these days by what {whose} number is"
    yield _line("", HEADS)
    for row in flow["covariates"]:
        of_days = parts(Count(flow["days"]["kept"]), [row[name] for name in DAYS])
        yield _line(row["covariate"], [*(shown(row[name]) for name in MEASUREMENTS), *map(str, of_days)])


def _line(name: str, cells: Iterable[str]) -> str:
    return f"{name:24} " + " ".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
