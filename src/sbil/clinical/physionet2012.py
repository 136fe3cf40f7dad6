"""Mechanical ventilation in the PhysioNet/Computing in Cardiology Challenge 2012: records of ICU stays to a table.

A record is a text of lines "HH:MM,parameter,value" over the first 48 hours of a stay. Its hours are cut into windows of
equal length, each one decision:

    action:  ventilated, if mechanical ventilation was charted (MechVent) within the window, else not ventilated.
    state:   what was charted before the window began: for each of 36 series the last value and the hours since then;
             and age, sex, height and the kind of the ICU as noted on admission.

The windows of a stay end with its last entry. A value outside the limits of physionet2012.csv is removed. Until a
series is charted, its value is the normal one of that file, a constant, and its hours are 48. So no stay influences
another, and a split of the table into training and held-out stays is clean.
"""

import csv
import hashlib
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from sbil import files
from sbil.clinical.cohort import Cohort, must_be_free, write
from sbil.clinical.disclosure import Count, parts, within
from sbil.clinical.records import digest, must_exist, records
from sbil.demonstrations import Column, Schema
from sbil.errors import UserError
from sbil.version import __version__

HOURS = 48
ACTIONS = ("not ventilated", "ventilated")
VENTILATION, BEFORE = "MechVent", "ventilated before"
IMPLAUSIBLE = "implausible"
REASONS = ("that are no records", "without the kind of the ICU", "without any measurement")  # why stays are left out
ADMISSION = ("Age", "Gender", "Height", "ICUType")
UNITS = ("coronary", "cardiac surgery", "medical", "surgical")  # the kinds of ICU, from 1
HEADER = "Time,Parameter,Value"
TIME = re.compile(r"([0-9]{1,4}):([0-5][0-9])")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


class Parameter(NamedTuple):
    """What is known of a parameter: its unit, the limits of what is plausible, and a normal value."""

    unit: str
    low: float
    high: float
    normal: float


class Record(NamedTuple):
    """What was charted in one stay, in order of time."""

    admission: dict[str, float]
    series: dict[str, tuple[np.ndarray, np.ndarray]]  # minutes and values, MechVent too
    last: int  # the minute of the last entry, or -1


class Windows(NamedTuple):
    """The decisions of one stay."""

    values: np.ndarray  # [windows, series]
    since: np.ndarray  # [windows, series] hours; 48 if never charted
    ventilated: np.ndarray  # [windows] 0 or 1


def chart(flow: dict[str, Any]) -> str:
    """The flow, for a terminal."""
    lines = []
    for title, counts in _printed(flow).items():
        lines += [title, *(f"{count!s:>12}  {what}" for what, count in counts.items()), ""]
    return "\n".join(lines).rstrip()


def _printed(flow: dict[str, Any]) -> dict[str, dict[str, Count]]:
    """The counts of the flow, so that no small count follows from those beside it.

    The number of windows left out is in the file only. Together with the windows kept it would give the number of stays
    kept, since each has 48 hours.
    """
    stays, windows, cells = flow["stays"], flow["windows"], flow["cells of the series"]
    *removed, kept = parts(Count(stays["read"]), [*(stays[reason] for reason in REASONS), stays["kept"]])
    [ever] = within(kept, [stays["ever ventilated"]])
    [ventilated] = within(Count(windows["kept"]), [windows["ventilated"]])
    apart = "not ventilated between two that are"
    filled = parts(Count(windows["kept"] * len(series())), list(cells.values()))
    return {
        "stays": {
            "read": Count(stays["read"]),
            **dict(zip(REASONS, removed, strict=True)),
            "kept": kept,
            "ever ventilated": ever,
        },
        "windows": {"kept": Count(windows["kept"]), "ventilated": ventilated, apart: Count(windows[apart])},
        "cells of the series": dict(zip(cells, filled, strict=True)),
        **{
            title: {what: Count(count) for what, count in flow[title].items()}
            for title in ("left out", "implausible values removed")
        },
    }


def _rules() -> str:
    return resources.files("sbil.clinical").joinpath("physionet2012.csv").read_text(encoding="utf-8")


def rules_digest() -> str:
    """The SHA-256 of the limits and normal values."""
    return hashlib.sha256(_rules().encode()).hexdigest()


@cache
def parameters() -> dict[str, Parameter]:
    """The parameters that are read, by name: the 36 series in the order of the state, then those on admission."""
    rows = csv.DictReader(_rules().splitlines())
    return {
        row["parameter"]: Parameter(row["unit"], *(float(row[name] or "nan") for name in ("low", "high", "normal")))
        for row in rows
    }


@cache
def series() -> tuple[str, ...]:
    """The names of the 36 series."""
    return tuple(name for name in parameters() if name not in ADMISSION)


def extract(
    sources: Sequence[Path],
    out: Path,
    *,
    window_hours: int = 4,
    with_previous: bool = False,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Cohort:
    """Write the decisions of all stays (Parquet); beside them their schema (.schema.json) and the flow (.flow.json).

    sources: archives (set-a.tar.gz), which are not unpacked to the disk, or folders of records (132539.txt).
    with_previous: show the action of the window before as part of the state.
    progress: called with the number of stays read so far.
    """
    out = Path(out)
    must_be_free(out, overwrite)
    if window_hours < 1 or HOURS % window_hours:
        raise UserError(f"window_hours must divide {HOURS} hours: 1, 2, 3, 4, 6, 8, 12, ... Got {window_hours}.")
    if not sources:
        raise UserError("no source is given; name set-a.tar.gz, or a folder of its records.")
    for source in sources:
        must_exist(Path(source))
    files.probe(out.parent)
    counts: Counter[str] = Counter()
    implausible: Counter[str] = Counter()
    stays = _read(sources, counts, implausible, progress or (lambda read: None))
    cut = {number: (record, windows(record, window_hours)) for number, record in stays.items()}
    schema = schema_for(with_previous)
    flow = _flow(sources, counts, implausible, [made for _, made in cut.values()], window_hours)
    table = io.BytesIO()
    _table(cut, schema).write_parquet(table, compression="zstd")
    return write(out, table.getvalue(), schema, flow, chart(flow))


def _read(
    sources: Sequence[Path], counts: Counter[str], implausible: Counter[str], progress: Callable[[int], None]
) -> dict[int, Record]:
    """The stays with measurements, by number; the others are counted."""
    stays: dict[int, Record] = {}
    seen: set[int] = set()
    for number, content in records(sources, counts):
        if number in seen:
            raise UserError(f"record {number}.txt is there twice; give every set once.")
        seen.add(number)
        counts["stays"] += 1
        record = parse(content, number, counts, implausible)
        if record is None:
            counts["stays that are no records"] += 1
        elif "ICUType" not in record.admission:
            counts["stays without the kind of the ICU"] += 1
        elif record.last < 0:
            counts["stays without any measurement"] += 1
        else:
            stays[number] = record
        progress(counts["stays"])
    if not stays:
        names = ", ".join(str(source) for source in sources)
        raise UserError(f"{names}: no record of a stay in it; records are called like 132539.txt.")
    return stays


def schema_for(with_previous: bool = False) -> Schema:
    """What the columns of the table mean."""
    columns = []
    for name in series():
        columns += [Column(name, unit=parameters()[name].unit), Column(f"{name} since", unit="h")]
    columns += [Column("Age", unit="years"), Column("male"), Column("Height", unit="cm")]
    columns += [Column("ICU", "one-hot", levels=UNITS)]
    columns += [Column(BEFORE)] * with_previous
    return Schema(action="ventilation", columns=tuple(columns), actions=ACTIONS, episode="record", time="window")


def parse(content: bytes, number: int, counts: Counter[str], implausible: Counter[str]) -> Record | None:
    """Return the record in a file, or None if the file is not one. Count what is left out of it.

    Lines may be in any order. If a parameter has several values at one minute, the last line counts. -1 means missing,
    as the challenge says.
    """
    lines = content.decode("utf-8", errors="replace").splitlines()
    if not lines or lines[0].strip().removeprefix("\ufeff") != HEADER:
        return None
    admission = dict[str, float]()
    charted: dict[str, dict[int, float]] = {}
    for line in lines[1:]:
        if not line.strip():
            continue
        time, name, value = _entry(line)
        if time is None or value is None:
            counts["rows without a readable time or number"] += 1
        elif name == "RecordID":
            if value != number:
                return None
        elif reason := _left_out(time, name, value):
            tally, key = (implausible, name) if reason == IMPLAUSIBLE else (counts, reason)
            tally[key] += 1
        elif name in ADMISSION:
            admission[name] = value
        else:
            values = charted.setdefault(name, {})
            counts["values that another at the same minute replaced"] += name != VENTILATION and time in values
            values[time] = value
    found = {name: _in_order(values) for name, values in charted.items()}
    return Record(admission, found, max((int(minutes[-1]) for minutes, _ in found.values()), default=-1))


def _entry(line: str) -> tuple[int | None, str, float | None]:
    """(minute, parameter, value) of a line; None for what cannot be read."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 3:
        return None, "", None
    return _minute(cells[0]), cells[1], _value(cells[2])


def _left_out(minute: int, name: str, value: float) -> str:
    """Why an entry is not used, or nothing."""
    known = parameters().get(name)
    if name != VENTILATION and known is None:
        return "rows of unknown parameters"
    if minute >= 60 * HOURS:
        return f"rows at or after hour {HOURS}"
    if value == -1:
        return "values of -1, missing"
    if known and not known.low <= value <= known.high:
        return IMPLAUSIBLE
    return "rows of admission after it" if name in ADMISSION and minute else ""


@lru_cache(maxsize=10_000)
def _minute(text: str) -> int | None:
    found = TIME.fullmatch(text)
    return 60 * int(found[1]) + int(found[2]) if found else None


@lru_cache(maxsize=100_000)
def _value(text: str) -> float | None:
    value = float(text) if len(text) < 40 and NUMBER.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


def _in_order(values: dict[int, float]) -> tuple[np.ndarray, np.ndarray]:
    minutes = sorted(values)
    return np.array(minutes), np.array([values[minute] for minute in minutes])


def windows(record: Record, window_hours: int) -> Windows:
    """Cut a stay into windows. The state of each is what was charted before it, the action what was charted in it."""
    length = 60 * window_hours
    starts = np.arange(0, record.last + 1, length)
    names, known = series(), parameters()
    values = np.tile(np.array([known[name].normal for name in names]), (len(starts), 1))
    since = np.full(values.shape, float(HOURS))
    for place, name in enumerate(names):
        if name in record.series:
            minutes, charted = record.series[name]
            latest = np.searchsorted(minutes, starts) - 1  # the last one strictly before
            there = latest >= 0
            values[there, place] = charted[latest[there]]
            since[there, place] = (starts - minutes[latest])[there] / 60
    ventilated = np.zeros(len(starts), int)
    minutes, charted = record.series.get(VENTILATION, (np.zeros(0, int), np.zeros(0)))
    ventilated[minutes[charted == 1] // length] = 1
    return Windows(values, since, ventilated)


def _table(stays: dict[int, tuple[Record, Windows]], schema: Schema) -> pl.DataFrame:
    """All stays by number, with one row per window."""
    known, numbers = parameters(), sorted(stays)
    made = [stays[number][1] for number in numbers]
    lengths = [len(each.ventilated) for each in made]
    noted = {
        name: np.array([stays[number][0].admission.get(name, known[name].normal) for number in numbers])
        for name in ADMISSION
    }
    kinds = np.array(UNITS)[noted["ICUType"].astype(int) - 1]
    values = np.concatenate([each.values for each in made]).astype(np.float32)
    since = np.concatenate([each.since for each in made]).astype(np.float32)
    columns: dict[str, Any] = {
        "record": np.repeat(numbers, lengths),
        "window": np.concatenate([np.arange(length) for length in lengths]),
    }
    for place, name in enumerate(series()):
        columns[name], columns[f"{name} since"] = values[:, place], since[:, place]
    for name, source in (("Age", "Age"), ("male", "Gender"), ("Height", "Height")):
        columns[name] = np.repeat(noted[source], lengths).astype(np.float32)
    columns["ICU"] = np.repeat(kinds, lengths)
    if any(column.name == BEFORE for column in schema.columns):
        columns[BEFORE] = np.concatenate([np.append(0, each.ventilated[:-1]) for each in made]).astype(np.float32)
    columns["ventilation"] = np.array(ACTIONS)[np.concatenate([each.ventilated for each in made])]
    return pl.DataFrame(columns)


def _flow(
    sources: Sequence[Path], counts: Counter[str], implausible: Counter[str], made: Sequence[Windows], window_hours: int
) -> dict[str, Any]:
    """How many stays, windows and values there were, and what was left out for which reason."""
    since = np.concatenate([each.since for each in made])
    actions = [each.ventilated for each in made]
    apart = sum(int(((a[:-2] == 1) & (a[1:-1] == 0) & (a[2:] == 1)).sum()) for a in actions)
    return {
        "sbil": __version__,
        "rules": rules_digest(),
        "sources": [{"name": Path(source).name, "sha256": digest(Path(source))} for source in sources],
        "window_hours": window_hours,
        "stays": {
            "read": counts["stays"],
            **{reason: counts[f"stays {reason}"] for reason in REASONS},
            "kept": len(made),
            "ever ventilated": sum(int(a.any()) for a in actions),
        },
        "windows": {
            "kept": sum(map(len, actions)),
            "ventilated": int(sum(a.sum() for a in actions)),
            "not ventilated between two that are": apart,
            "left out, after the last entry of a stay": len(made) * HOURS // window_hours - sum(map(len, actions)),
        },
        "left out": {
            name: counts[name]
            for name in (
                "files that are no records",
                "rows without a readable time or number",
                "rows of unknown parameters",
                f"rows at or after hour {HOURS}",
                "rows of admission after it",
                "values of -1, missing",
                "values that another at the same minute replaced",
            )
        },
        "implausible values removed": {name: implausible[name] for name in sorted(implausible)},
        "cells of the series": {
            "charted in the window before": int((since <= window_hours).sum()),
            "carried forward from earlier": int(((since > window_hours) & (since < HOURS)).sum()),
            "never charted, a normal value": int((since == HOURS).sum()),
        },
    }
