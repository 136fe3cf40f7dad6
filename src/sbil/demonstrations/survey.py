"""The facts about a table that a person wants to know before training, in one pass and in bounded memory.

Nothing here refuses a cell: what is wrong is counted, and where it begins is kept. What it means is for `checking`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sbil.demonstrations import values as cells
from sbil.demonstrations.columns import MOST_LEVELS
from sbil.demonstrations.excluding import without
from sbil.demonstrations.quality import Copies, Identifiers
from sbil.demonstrations.roles import Roles, require
from sbil.demonstrations.rows import begin, is_fraction, looks_numeric
from sbil.demonstrations.table import Batch, Table
from sbil.demonstrations.values import Levels, Times

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
LEVELS = 256  # that float32 must tell apart in what a column varies by


class Tally:
    """What is counted of one column."""

    def __init__(self, name: str, known: Collection[str] = ()) -> None:
        self.name, self.known = name, known
        self.rows = self.missing = self.wrong = self.huge = self.unnamed = self.foreign = self.text = 0
        self.sentinels: Counter[float] = Counter()
        self.places: dict[str, str] = {}
        self.counts: Counter[str] | None = Counter()
        self.total, self.low, self.high = 0.0, np.inf, -np.inf
        self.plain_low, self.plain_high = np.inf, -np.inf
        self.whole = True

    def add(self, batch: Batch, table: Table) -> None:
        column = batch.frame[self.name]
        values = cells.numbers(column, batch.decimal)
        self.rows += len(column)
        masks = {what: getattr(values, what) for what in ("missing", "wrong", "huge")}
        masks["unnamed"] = cells.unnamed(column, values.missing, self.known)
        masks["foreign"] = cells.foreign(column, values.wrong)
        masks["text"] = values.wrong & ~masks["foreign"]
        for what, mask in masks.items():
            if mask.any():
                self.places.setdefault(what, _place(table, batch.name, batch.rows[np.argmax(mask)]))
                setattr(self, what, getattr(self, what) + int(mask.sum()))
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
        self._count(column, batch.decimal)

    def _count(self, column: pl.Series, decimal: str) -> None:
        if self.counts is None or cells.has_no_text(column):
            self.counts = None
            return
        counted = column.cast(pl.String).value_counts(name="n")
        if len(counted) > MOST_LEVELS:
            self.counts = None
            return
        for cell, count in counted.iter_rows():
            if (name := cells.label(cell, decimal, self.known)) is not None:
                self.counts[name] += count
        self.counts = self.counts if len(self.counts) <= MOST_LEVELS else None

    def facts(self, numeric: bool, named: bool) -> dict[str, Any]:
        """As plain values; `distinct` is nothing where there are too many to count.

        numeric: whether reading takes it for numbers. named: whether its cells are read as names, of which "none" is
            one.
        """
        known = self.rows - self.missing - self.wrong - self.huge
        numeric = numeric and not (named and self.missing > self.unnamed)
        seen = numeric and known > 0
        whole = self.whole and not self.foreign
        return {
            "name": self.name,
            "type": ("whole number" if whole else "number") if numeric else "text",
            "missing": self.unnamed if named else self.missing,
            "text": self.text,
            "foreign": self.foreign,
            "huge": self.huge,
            "places": {**self.places, "missing": self.places.get("unnamed")} if named else self.places,
            "coarse": seen and bool(0 < self.high - self.low < LEVELS * self._step()),
            "distinct": None if self.counts is None else len(self.counts),
            "min": self.low if seen else None,
            "mean": self.total / known if seen else None,
            "max": self.high if seen else None,
            "sentinels": sum(count for number, count in self.sentinels.items() if self._strange(number)),
            "levels": dict(sorted(self.counts.items())) if self.counts and len(self.counts) <= SHOWN_LEVELS else None,
        }

    def _step(self) -> float:
        """How far apart neighbouring float32 numbers are at the size of these."""
        size = np.float32(max(abs(self.low), abs(self.high)))
        return float(size - np.nextafter(size, np.float32(0)))

    def _strange(self, number: float) -> bool:
        """Whether a number such as -9 or 999 stands apart from all the others."""
        if not np.isfinite(self.plain_low):
            return False
        return self.plain_low >= 0 if number < 0 else number > 2 * max(self.plain_high, 0)


def profile(table: Table, roles: Roles, exclude: Sequence[str] = ()) -> dict[str, Any]:
    """The facts about a table, without the episodes to `exclude`; roles that were not given are guessed."""
    first, batches = begin(table)
    said = {role: roles.said(role) for role in NAMES}
    for role, name in said.items():
        require(name, table.names, role)
    found = guess(said, first, table)
    listed = _listed(roles, found["action"])
    named = {found[role] for role in ("episode", "group", "action")} | {*roles.categories, *roles.one_hot, *listed}
    numeric = {name: looks_numeric(first, name) for name in table.names}
    tallies = [Tally(name, listed.get(name, ())) for name in table.names]
    free = [name for name in table.names if name not in found.values()]
    copies, identifiers = Copies(), Identifiers(free if found["episode"] else [])
    keys = {role: Levels(name) for role in ("episode", "group") if (name := found[role])}
    codes: dict[str, list[np.ndarray]] = {role: [] for role in keys}
    times = Times(found["time"]) if found["time"] else None
    bad_times, ends, bad_ends, rows = 0, [], 0, []
    files: list[tuple[int, str]] = []
    for batch in without(batches, found["episode"], exclude) if exclude else batches:
        if not files or files[-1][1] != batch.name:
            files.append((tallies[0].rows, batch.name))
        for tally in tallies:
            tally.add(batch, table)
        for role, levels in keys.items():
            codes[role].append(levels.codes(batch.frame[levels.column], batch.decimal))
        if found["episode"]:
            identifiers.add(batch.frame, codes["episode"][-1])
        if times:
            bad_times += int(times.add(batch.frame[times.column], batch.decimal).wrong.sum())
        else:
            copies.add(batch.frame)
        if found["terminal"]:
            flags = cells.flags(batch.frame[found["terminal"]], batch.decimal)
            bad_ends += int(flags.wrong.sum())
            ends.append(flags.values > 0)
        rows.append(batch.rows)
    joined = {role: np.concatenate(parts) for role, parts in codes.items()}
    lines = np.concatenate(rows)

    def where(index: int) -> str:
        return _place(table, next(name for start, name in reversed(files) if start <= index), lines[index])

    action = next((tally for tally in tallies if tally.name == found["action"]), None)
    return {
        "description": table.description,
        "row": table.row,
        "rows": tallies[0].rows,
        "roles": found,
        "guessed": [role for role, name in found.items() if name and not said[role]],
        "columns": [
            tally.facts(
                numeric[tally.name],
                tally.name in named or not (numeric[tally.name] or tally.name in (found["time"], found["terminal"])),
            )
            for tally in tallies
        ],
        "copies": None if times else _copies(copies, where),
        "identifiers": identifiers.found(_group_of(joined, len(identifiers.known))),
        "actions": None if action is None or action.counts is None else _balance(action.counts),
        "fractions": bool(action and action.counts and any(map(is_fraction, action.counts))),
        "bad times": bad_times,
        "bad ends": bad_ends,
        "episodes": _episodes(joined, None if bad_times or not times else times.all(), ends, where),
    }


def _place(table: Table, name: str, row: int) -> str:
    """Where a row stands; the file is named where there are several."""
    return f"{Path(name).name}, {table.row} {row}" if table.files > 1 else f"{table.row} {row}"


def _listed(roles: Roles, action: str | None) -> dict[str, tuple[str, ...]]:
    """The names that a schema lists, by column: what looks missing and is listed is not."""
    if not roles.schema:
        return {}
    levels = {column.name: column.levels for column in roles.schema.columns if column.kind != "number"}
    return {**levels, action: roles.schema.actions} if action else levels


def _copies(copies: Copies, where: Callable[[int], str]) -> dict[str, Any]:
    found = copies.found()
    return {"count": found and found[0], "first": where(found[1]) if found and found[0] else None}


def _group_of(codes: dict[str, np.ndarray], episodes: int) -> np.ndarray | None:
    """[episodes] the number of the group of each."""
    if "group" not in codes or "episode" not in codes:
        return None
    groups, there = np.zeros(episodes, np.int64), codes["episode"] >= 0
    groups[codes["episode"][there]] = codes["group"][there]
    return groups


def _balance(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in cells.in_order(dict(counts))}


def _episodes(
    codes: dict[str, np.ndarray], time: np.ndarray | None, ends: Sequence[np.ndarray], where: Callable[[int], str]
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
            facts["twice at"] = [where(row) for row in sorted((int(order[place]), int(order[place + 1])))]
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
    distinct = [cells.label(cell, batch.decimal) for cell in column.cast(pl.String).unique().to_list()]
    known = [cell for cell in distinct if cell is not None]
    if role == "terminal":
        return not cells.flags(column, batch.decimal).wrong.any()
    if role == "time":
        return not Times(name).add(column, batch.decimal).wrong.any()
    if role == "action":
        return len(known) <= FEW and not any(map(is_fraction, known))
    return len(known) < len(column) and not any(map(is_fraction, known))
