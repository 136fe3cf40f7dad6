"""The facts about a table that a person wants to know before training, in one pass and in bounded memory.

Nothing here refuses a cell: what is wrong is counted, and where it begins is kept. What it means is for `checking`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from sbil.demonstrations import cells
from sbil.demonstrations.cells import Levels, Times
from sbil.demonstrations.convert import begin, is_fraction, looks_numeric
from sbil.demonstrations.gathering import MOST_LEVELS
from sbil.demonstrations.roles import Roles, require
from sbil.demonstrations.table import Batch, Table

# What columns of a role are called, the likeliest first.
NAMES = {
    "episode": "episode stay icustay trajectory traj admission hadm encounter visit session case patient subject id",
    "time": "time timestamp datetime charttime step timestep date hour hours day minute t",
    "action": "action treatment treat decision choice label target act class y a",
    "terminal": "terminal terminated done ended end last",
    "group": "patient subject person user",
}
SENTINELS = (-9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0)
FEW = 50  # different actions, for a column to be taken for one
SHOWN_LEVELS = 12


class Tally:
    """What is counted of one column."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = self.missing = self.wrong = self.huge = self.unnamed = 0
        self.sentinels: Counter[float] = Counter()
        self.places: dict[str, str] = {}
        self.counts: Counter[str] | None = Counter()
        self.total, self.low, self.high = 0.0, np.inf, -np.inf
        self.plain_low, self.plain_high = np.inf, -np.inf
        self.whole = True

    def add(self, batch: Batch, table: Table) -> None:
        column = batch.frame[self.name]
        values = cells.numbers(column, table.decimal)
        self.rows += len(column)
        for what in ("missing", "wrong", "huge"):
            mask = getattr(values, what)
            if mask.any():
                self.places.setdefault(what, f"{table.row} {batch.rows[np.argmax(mask)]}")
                setattr(self, what, getattr(self, what) + int(mask.sum()))
        if cells.is_text(column) and values.missing.any():
            gone = np.flatnonzero(values.missing)
            gone = gone[[cells.label(cell) is None for cell in column.cast(pl.String).gather(gone).to_list()]]
            self.unnamed += len(gone)
            if len(gone):
                self.places.setdefault("unnamed", f"{table.row} {batch.rows[gone[0]]}")
        good = values.values[~(values.missing | values.wrong | values.huge)]
        if len(good):
            self.total += float(good.sum())
            self.low, self.high = min(self.low, float(good.min())), max(self.high, float(good.max()))
            self.whole = self.whole and bool((good == np.floor(good)).all())
            special = np.isin(good, SENTINELS)
            self.sentinels.update(good[special].tolist())
            plain = good[~special] if special.any() else good
            if len(plain):
                self.plain_low = min(self.plain_low, float(plain.min()))
                self.plain_high = max(self.plain_high, float(plain.max()))
        self._count(column, table.decimal)

    def _count(self, column: pl.Series, decimal: str) -> None:
        if self.counts is None or cells.has_no_text(column):
            self.counts = None
            return
        counted = column.cast(pl.String).value_counts(name="n")
        if len(counted) > MOST_LEVELS:
            self.counts = None
            return
        for cell, count in counted.iter_rows():
            if (name := cells.label(cell, decimal)) is not None:
                self.counts[name] += count
        self.counts = self.counts if len(self.counts) <= MOST_LEVELS else None

    def facts(self) -> dict[str, Any]:
        """As plain values; `distinct` is nothing where there are too many to count."""
        there = self.rows - self.missing
        numeric = self.wrong * 2 <= there
        known = there - self.wrong - self.huge
        seen = numeric and known > 0
        return {
            "name": self.name,
            "type": ("whole number" if self.whole else "number") if numeric else "text",
            "missing": self.missing if numeric else self.unnamed,
            "wrong": self.wrong,
            "huge": self.huge,
            "places": self.places if numeric else {**self.places, "missing": self.places.get("unnamed")},
            "distinct": None if self.counts is None else len(self.counts),
            "min": self.low if seen else None,
            "mean": self.total / known if seen else None,
            "max": self.high if seen else None,
            "sentinels": sum(count for number, count in self.sentinels.items() if self._strange(number)),
            "levels": dict(sorted(self.counts.items())) if self.counts and len(self.counts) <= SHOWN_LEVELS else None,
        }

    def _strange(self, number: float) -> bool:
        """Whether a number such as -9 or 999 stands apart from all the others."""
        if not np.isfinite(self.plain_low):
            return False
        return self.plain_low >= 0 if number < 0 else number > 2 * max(self.plain_high, 0)


def profile(table: Table, roles: Roles) -> dict[str, Any]:
    """The facts about a table; roles that were not given are guessed."""
    first, batches = begin(table)
    said = {role: roles.said(role) for role in NAMES}
    for role, name in said.items():
        require(name, table.names, role)
    found = guess(said, first, table)
    tallies = [Tally(name) for name in table.names]
    keys = {role: Levels(name) for role in ("episode", "group") if (name := found[role])}
    codes: dict[str, list[np.ndarray]] = {role: [] for role in keys}
    times = Times(found["time"]) if found["time"] else None
    bad_times, ends, bad_ends, rows = 0, [], 0, []
    for batch in batches:
        for tally in tallies:
            tally.add(batch, table)
        for role, levels in keys.items():
            codes[role].append(levels.codes(batch.frame[levels.column], table.decimal))
        if times:
            bad_times += int(times.add(batch.frame[times.column], table.decimal).wrong.sum())
        if found["terminal"]:
            flags = cells.flags(batch.frame[found["terminal"]], table.decimal)
            bad_ends += int(flags.wrong.sum())
            ends.append(flags.values > 0)
        rows.append(batch.rows)
    joined = {role: np.concatenate(parts) for role, parts in codes.items()}
    numeric = {name: looks_numeric(first, name, table.decimal) for name in table.names}
    action = next((tally for tally in tallies if tally.name == found["action"]), None)
    return {
        "description": table.description,
        "row": table.row,
        "rows": tallies[0].rows,
        "roles": found,
        "guessed": [role for role, name in found.items() if name and not said[role]],
        "columns": [tally.facts() for tally in tallies],
        "left out": [n for n in table.names if not numeric[n] and n not in found.values()],
        "actions": None if action is None or action.counts is None else _balance(action.counts),
        "fractions": bool(action and action.counts and any(map(is_fraction, action.counts))),
        "bad times": bad_times,
        "bad ends": bad_ends,
        "episodes": _episodes(joined, None if bad_times or not times else times.all(), ends, np.concatenate(rows)),
    }


def _balance(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in cells.in_order(dict(counts))}


def _episodes(
    codes: dict[str, np.ndarray], time: np.ndarray | None, ends: Sequence[np.ndarray], rows: np.ndarray
) -> dict[str, Any] | None:
    """Lengths of the episodes, and whether their rows are together, in order and at different times."""
    if "episode" not in codes:
        return None
    episode = codes["episode"]
    lengths = np.bincount(episode[episode >= 0])
    if not len(lengths):
        return None
    facts: dict[str, Any] = {
        "count": len(lengths),
        "shortest": int(lengths.min()),
        "median": float(np.median(lengths)),
        "longest": int(lengths.max()),
        "of one step": int((lengths == 1).sum()),
        "apart": bool((np.diff(episode) != 0).sum() + 1 > len(np.unique(episode))),
        **{"out of order": 0, "twice": 0, "after the end": 0, "torn groups": 0},
    }
    order = np.argsort(episode, kind="stable")
    if time is not None:
        late, same = time[order], episode[order][1:] == episode[order][:-1]
        facts["out of order"] = int(((late[1:] < late[:-1]) & same).sum())
        order = np.lexsort((time, episode))
        sorted_time, same = time[order], episode[order][1:] == episode[order][:-1]
        twice = (sorted_time[1:] == sorted_time[:-1]) & same
        facts["twice"] = int(twice.sum())
        if twice.any():
            place = int(np.argmax(twice))
            facts["twice at"] = sorted(int(rows[order[place + k]]) for k in (0, 1))
    same = episode[order][1:] == episode[order][:-1]
    if len(ends):
        facts["after the end"] = int((np.concatenate(ends)[order][:-1] & same).sum())
    if "group" in codes:
        group = codes["group"][order]
        facts["torn groups"] = int(((group[1:] != group[:-1]) & same).sum())
    return facts


def guess(said: dict[str, str | None], batch: Batch, table: Table) -> dict[str, str | None]:
    """The roles that were said, and for the rest the column whose name and content fit best, if any."""
    found = dict(said)
    for role in ("action", "episode", "time", "terminal", "group"):
        if found[role] is None:
            taken = {name for name in found.values() if name}
            free = [name for name in table.names if name not in taken]
            found[role] = next(
                (n for word in NAMES[role].split() for n in _called(word, free) if _fits(role, n, batch, table)), None
            )
    if not found["episode"]:
        found["time"] = said["time"]
    return found


def _called(word: str, names: Sequence[str]) -> list[str]:
    """The columns in whose name a word stands; those that are the word come first."""
    parts = {name: re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) for name in names}
    return sorted((name for name in names if word in parts[name]), key=lambda name: len(parts[name]))


def _fits(role: str, name: str, batch: Batch, table: Table) -> bool:
    column = batch.frame[name]
    if cells.has_no_text(column):
        return False
    distinct = [cells.label(cell, table.decimal) for cell in column.cast(pl.String).unique().to_list()]
    known = [cell for cell in distinct if cell is not None]
    if role == "terminal":
        return not cells.flags(column, table.decimal).wrong.any()
    if role == "time":
        return not Times(name).add(column, table.decimal).wrong.any()
    if role == "action":
        return len(known) <= FEW and not any(map(is_fraction, known))
    return len(known) < len(column) and not any(map(is_fraction, known))
