"""A table to the arrays of demonstrations, batch by batch, on the disk.

What is read is appended to plain NumPy files. Rows that come grouped by episode and in order stay where they are; only
others, and tables with categories or gaps to fill, are written once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbil.demonstrations import values as cells
from sbil.demonstrations.columns import Gathered, Wanted, gather, numeric_columns
from sbil.demonstrations.excluding import without
from sbil.demonstrations.roles import Roles, listed, require
from sbil.demonstrations.schema import Column, Schema
from sbil.demonstrations.table import Batch, Table
from sbil.errors import UserError

BLOCK = 100_000  # rows written at a time
NAMED = 10  # columns in a message about missing values


class Order(NamedTuple):
    """Which rows are used, in which order, and where the episodes lie among them."""

    chosen: np.ndarray | None  # [n] rows of the table; None where all are used as they stand
    starts: np.ndarray  # [episodes] by name of the episode
    ends: np.ndarray
    moved: bool

    def of(self, values: np.ndarray) -> np.ndarray:
        """Values of the table's rows, in this order."""
        return values if self.chosen is None else values[self.chosen]

    def row(self, place: int | np.integer) -> int:
        """The row of the table at a place of this order."""
        return int(place if self.chosen is None else self.chosen[place])

    def first(self, length: int) -> np.ndarray:
        """[n] where the episode of each place begins."""
        begins = np.sort(self.starts)
        return np.repeat(begins, np.diff(begins, append=length))


def ordered(read: Gathered, schema: Schema, drop: bool) -> Order:
    """Rows grouped by episode and sorted by time; those that already are stay where they are."""
    index = np.flatnonzero(~read.incomplete) if drop and read.incomplete.any() else None
    length = len(read) if index is None else len(index)
    if not length:
        raise UserError("every row has a missing value; nothing is left of the table.")
    if not (schema.episode and schema.episode in read.codes):
        starts = np.arange(length)
        return Order(index, starts, starts + 1, False)
    levels = read.levels[schema.episode]
    episodes = read.codes[schema.episode] if index is None else read.codes[schema.episode][index]
    rank = levels.ranks(levels.in_order())[episodes]
    time = read.time if index is None or read.time is None else read.time[index]
    begins = _begins(rank)
    same = rank[1:] == rank[:-1]
    grouped = len(np.unique(rank[begins])) == len(begins)
    moved = not grouped or (time is not None and bool(((time[1:] < time[:-1]) & same).any()))
    if moved:
        by = np.argsort(rank, kind="stable") if time is None else np.lexsort((time, rank))
        index = by if index is None else index[by]
        rank, time = rank[by], None if time is None else time[by]
        begins, same = _begins(rank), rank[1:] == rank[:-1]
    ends = np.append(begins[1:], length)
    by_name = np.argsort(rank[begins], kind="stable")
    return Order(index, begins[by_name], ends[by_name], moved)


def _refuse_twice(read: Gathered, order: Order, schema: Schema) -> None:
    """Refuse two rows of an episode at the same time."""
    if read.time is None:
        return
    time = order.of(read.time)
    twice = time[1:] == time[:-1]
    twice[order.starts[order.starts > 0] - 1] = False
    if twice.any():
        place = int(np.argmax(twice))
        one, other = sorted((order.row(place), order.row(place + 1)))
        raise UserError(
            f"{read.where(other)}, column '{schema.time}': the same time as in {read.where(one)}, in one episode "
            f"({int(twice.sum()):,} such in all); keep one of them, or record finer times."
        )


def _begins(rank: np.ndarray) -> np.ndarray:
    return np.append(0, np.flatnonzero(rank[1:] != rank[:-1]) + 1)


def refuse_missing(read: Gathered, schema: Schema, columns: set[str]) -> None:
    """Refuse what is missing in `columns`: say where it begins, how much it is and what can be done."""
    counts = {name: count for name, count in read.missing.items() if name in columns}
    if not counts:
        return
    name = min(counts, key=lambda column: read.firsts[column])
    many = sorted(counts.items(), key=lambda item: -item[1])[:NAMED]
    by_column = ", ".join(f"'{column}' {count:,}" for column, count in many)
    more = f" and {len(counts) - NAMED} more columns" if len(counts) > NAMED else ""
    roles = {schema.episode, schema.time, schema.action, schema.terminal, schema.group}
    if name in roles and schema.missing != "drop":
        advice = "fill it in, or choose drop for missing values, which leaves such rows out"
    elif schema.missing == "refuse":
        advice = "fill them in, or choose mean, last or drop for missing values"
    else:
        advice = "a missing category has no mean: write a level of its own there, or choose drop for missing values"
    raise UserError(
        f"{read.where(read.firsts[name])}, column '{name}': missing value, {sum(counts.values()):,} in all "
        f"({by_column}{more}); {advice}."
    )


def with_levels(read: Gathered, column: Column) -> Column:
    """A column with its levels: those of the schema, which must cover the table, or those of the table."""
    levels = list(column.levels) or read.levels[column.name].in_order()
    _refuse_unknown(read, column.name, levels, "level")
    return replace(column, levels=tuple(levels))


def _refuse_unknown(read: Gathered, column: str, levels: list[str], what: str) -> None:
    ranks = read.levels[column].ranks(levels)
    if (ranks < 0).any():
        codes = np.asarray(read.codes[column])
        strange = (codes >= 0) & (ranks < 0)[codes]
        place = int(np.argmax(strange))
        name = read.levels[column].names[codes[place]]
        raise UserError(
            f"{read.where(place)}, column '{column}': the {what} '{name[:60]}' is not in the schema; it has "
            f"{listed(levels)}. Correct the table, or train anew on data that has it."
        )


def with_fills(read: Gathered, schema: Schema) -> tuple[Column, ...]:
    """The columns with the number that stands for a missing one: that of the schema, or the mean of the rows.

    It is kept whatever the rule here, so that gaps in later tables can be filled with it.
    """
    places, fills = numeric_columns(schema), []
    for column in schema.columns:
        if column.kind == "number" and column.fill is None:
            mean = float(read.means[places[column.name]])
            if np.isnan(mean):
                raise UserError(f"column '{column.name}' has no value in any row; leave it out of the observations.")
            column = replace(column, fill=mean)
        fills.append(column)
    return tuple(fills)


def observations(read: Gathered, order: Order, schema: Schema, folder: Path) -> str:
    """Write the numbers that a policy sees, in order; returns the name of their file."""
    plain = all(column.kind == "number" for column in schema.columns)
    filled = schema.missing in ("mean", "last") and any(column.name in read.missing for column in schema.columns)
    if plain and order.chosen is None and not filled:
        return "numbers.npy"
    length = len(order.chosen) if order.chosen is not None else len(read)
    codes = {column.name: _places(read, order, column, schema) for column in schema.columns if column.kind != "number"}
    shape = (length, len(schema.observation_names))
    out = np.lib.format.open_memmap(folder / "observations.npy", mode="w+", dtype=np.float32, shape=shape)
    place = numeric_columns(schema)
    for start in range(0, length, BLOCK):
        stop = min(start + BLOCK, length)
        rows = slice(start, stop) if order.chosen is None else order.chosen[start:stop]
        numbers, at = read.numbers[rows], 0
        for column in schema.columns:
            if column.kind == "number":
                out[start:stop, at] = numbers[:, place[column.name]]
            elif column.kind == "category":
                out[start:stop, at] = codes[column.name][start:stop]
            else:
                out[start:stop, at : at + len(column.levels)] = np.equal.outer(
                    codes[column.name][start:stop], np.arange(len(column.levels))
                )
            at += len(column.names)
    if filled:
        _fill(out, read, order, schema)
    out.flush()
    return "observations.npy"


def _places(read: Gathered, order: Order, column: Column, schema: Schema) -> np.ndarray:
    """[n] the place of each row's level; the last one known of the episode where it is missing."""
    codes = order.of(np.asarray(read.codes[column.name]))
    missing = codes < 0
    places = read.levels[column.name].ranks(list(column.levels))[codes]
    if schema.missing == "last" and missing.any():
        source = carried(missing, order.first(len(codes)))
        if (source < 0).any():
            row = order.row(int(np.argmax(source < 0)))
            raise UserError(
                f"{read.where(row)}, column '{column.name}': missing category with none before it in the episode; "
                "write a level of its own there, or choose drop for missing values."
            )
        places = places[source]
    return places


def carried(missing: np.ndarray, first: np.ndarray) -> np.ndarray:
    """[n] the nearest place at or before each where nothing is missing, -1 if there is none in the episode."""
    last = np.maximum.accumulate(np.where(missing, -1, np.arange(len(missing))))
    return np.where(last >= first, last, -1)


def _fill(out: np.ndarray, read: Gathered, order: Order, schema: Schema) -> None:
    first = order.first(len(out)) if schema.missing == "last" else None
    at = 0
    for column in schema.columns:
        if column.kind == "number" and column.name in read.missing:
            values = np.array(out[:, at])
            missing = np.isnan(values)
            if first is not None:
                source = carried(missing, first)
                values = np.where(source >= 0, values[source], np.nan)
            out[:, at] = np.where(np.isnan(values), np.float32(column.fill), values)
        at += len(column.names)


def begin(table: Table) -> tuple[Batch, Iterator[Batch]]:
    """The first batch, and all of them; a table without rows is refused."""
    batches = table.batches()
    first = next(batches, None)
    if first is None:
        raise UserError("there are no rows under the header; nothing to read.")
    return first, chain([first], batches)


def looks_numeric(batch: Batch, name: str) -> bool:
    """Whether at least half of the cells that hold something hold a number, be it one that cannot be read as it is.

    A laboratory value with a decimal comma among points is no text to leave out: it is refused when it is read.
    """
    column = batch.frame[name]
    values = cells.numbers(column, batch.decimal)
    text = int((values.wrong & ~cells.foreign(column, values.wrong)).sum())
    return text * 2 <= int((~values.missing).sum())


def demonstrations(table: Table, roles: Roles, folder: Path, exclude: Sequence[str] = ()) -> dict[str, Any]:
    """Write the arrays of demonstrations into `folder`; returns what else is to be said about them."""
    first, batches = begin(table)
    schema = roles.plan(table.names, {name: looks_numeric(first, name) for name in table.names})
    categories = {column.name for column in schema.columns if column.kind != "number"}
    names = [name for name in (schema.episode, schema.group, schema.action) if name]
    wanted = Wanted((*names, *sorted(categories)), schema.time, schema.terminal)
    gone: dict[str, int] = {}
    batches = without(batches, schema.episode, exclude, gone) if exclude else batches
    read = gather(table, batches, schema, wanted, folder)
    if schema.missing == "refuse":
        refuse_missing(read, schema, set(read.missing))
    elif schema.missing != "drop":
        roles_missing = {name for name in (*names, schema.time, schema.terminal) if name}
        refuse_missing(read, schema, roles_missing | (categories if schema.missing == "mean" else set()))
    _refuse_fractions(read, schema)
    actions = list(schema.actions) or read.levels[schema.action].in_order()
    _refuse_unknown(read, schema.action, actions, "action")
    schema = replace(
        schema,
        actions=tuple(actions),
        columns=tuple(c if c.kind == "number" else with_levels(read, c) for c in schema.columns),
    )
    order = ordered(read, schema, schema.missing == "drop")
    _refuse_twice(read, order, schema)
    schema = replace(schema, columns=with_fills(read, schema))
    name = observations(read, order, schema, folder)
    taken = read.levels[schema.action].ranks(actions)[order.of(np.asarray(read.codes[schema.action]))]
    np.save(folder / "actions.npy", taken)
    np.save(folder / "starts.npy", order.starts)
    np.save(folder / "stops.npy", order.ends)
    np.save(folder / "terminal.npy", _terminal(read, order, schema))
    if schema.group:
        np.save(folder / "groups.npy", _groups(read, order, schema))
    dropped = schema.missing == "drop"
    needed = set(schema.needed)
    return {
        "observations": name,
        "schema": schema.as_json(),
        "ids": _ids(read, order, schema.episode) if schema.episode else None,
        "provenance": {
            "rows": len(taken),
            "rows in file": len(read),
            "dropped rows": read.missing if dropped else {},
            "filled values": {} if dropped else read.missing,
            "left out columns": [column for column in table.names if column not in needed],
            "sorted rows": order.moved,
            **gone,
        },
    }


def _ids(read: Gathered, order: Order, column: str) -> list[str]:
    """What each episode is called in the table."""
    names = read.levels[column].names
    return [names[code] for code in order.of(np.asarray(read.codes[column]))[order.starts].tolist()]


def _refuse_fractions(read: Gathered, schema: Schema) -> None:
    names = read.levels[schema.action].names
    if schema.actions or not names:
        return
    fractions = [name for name in names if is_fraction(name)]
    if fractions:
        codes = np.asarray(read.codes[schema.action])
        place = int(np.argmax(np.isin(codes, [names.index(name) for name in fractions])))
        raise UserError(
            f"{read.where(place)}, column '{schema.action}': the action is a number with a fraction; actions are a few "
            "choices: whole numbers or words. Cut a dose into ranges first."
        )


def is_fraction(name: str) -> bool:
    """Whether a name is a number with a fraction."""
    try:
        return not float(name.replace(",", ".")).is_integer()
    except (ValueError, OverflowError):
        return False


def _terminal(read: Gathered, order: Order, schema: Schema) -> np.ndarray:
    """[episodes] whether the process itself ended."""
    if read.terminal is None:
        return np.zeros(len(order.ends), bool)
    ends = order.of(np.asarray(read.terminal)) > 0
    early = ends.copy()
    early[order.ends - 1] = False
    if early.any():
        place = order.row(int(np.argmax(early)))
        raise UserError(
            f"{read.where(place)}, column '{schema.terminal}': the episode ends here and more of its rows follow; only "
            "the last row of an episode can be its end."
        )
    return ends[order.ends - 1]


def _groups(read: Gathered, order: Order, schema: Schema) -> np.ndarray:
    """[episodes] the number of the group of each."""
    levels = read.levels[str(schema.group)]
    rank = levels.ranks(levels.in_order())[order.of(np.asarray(read.codes[str(schema.group)]))]
    torn = rank != rank[order.first(len(rank))]
    if torn.any():
        place = order.row(int(np.argmax(torn)))
        raise UserError(
            f"{read.where(place)}, column '{schema.group}': the group changes within the episode; it belongs to one."
        )
    return rank[order.starts].astype(np.int64)


def rows(table: Table, schema: Schema, folder: Path) -> dict[str, Any]:
    """Write the observations of a table whose decisions may not be known, in the order of the file."""
    _, batches = begin(table)
    for column in schema.columns:
        require(column.name, table.names, "observation")
    categories = {column.name for column in schema.columns if column.kind != "number"}
    shown = {role: name for role in ("episode", "time") if (name := getattr(schema, role)) and name in table.names}
    carry = schema.missing == "last" and schema.episode is not None
    if carry:
        for role in ("episode", "time"):
            require(getattr(schema, role), table.names, role)
    wanted = Wanted((*shown.values(), *sorted(categories)), shown.get("time") if carry else None)
    read = gather(table, batches, schema, wanted, folder)
    _refuse_gaps(read, schema, categories, set(shown.values()) if carry else set())
    kept = _complete(read, schema) if schema.missing == "drop" else np.arange(len(read))
    if not len(kept):
        raise UserError("every row has a missing value; nothing is left of the table.")
    alone = np.arange(len(kept))
    order = Order(kept if len(kept) < len(read) else None, alone, alone + 1, False)
    if carry:
        order = ordered(read, schema, drop=False)
    name = observations(read, order, schema, folder)
    if carry and order.chosen is not None:
        back = np.argsort(order.chosen)
        np.save(folder / "back.npy", np.load(folder / name, mmap_mode="r")[back])
        name = "back.npy"
    np.save(folder / "kept.npy", np.asarray(read.rows)[kept])
    for role, column in shown.items():
        np.save(folder / f"{role}.npy", np.asarray(read.codes[column])[kept])
    return {
        "observations": name,
        "texts": {role: read.levels[column].names for role, column in shown.items()},
        "rows in file": len(read),
        "filled values": {} if schema.missing == "drop" else read.missing,
    }


def _refuse_gaps(read: Gathered, schema: Schema, categories: set[str], keys: set[str]) -> None:
    """Refuse what the schema's rule for missing values does not cover, and levels that it does not list."""
    if schema.missing == "refuse":
        refuse_missing(read, schema, {column.name for column in schema.columns})
    refuse_missing(read, schema, keys | (categories if schema.missing == "mean" else set()))
    for column in schema.columns:
        if column.kind != "number":
            with_levels(read, column)
        elif schema.missing in ("mean", "last") and column.fill is None and column.name in read.missing:
            raise UserError(
                f"{read.where(read.firsts[column.name])}, column '{column.name}': missing value, and the schema has no "
                "mean of training for it; fill it in, choose drop for missing values, or train anew."
            )


def _complete(read: Gathered, schema: Schema) -> np.ndarray:
    """The rows in which every observation is there."""
    whole = ~np.isnan(read.numbers).any(1)
    for column in schema.columns:
        if column.kind != "number":
            whole &= np.asarray(read.codes[column.name]) >= 0
    return np.flatnonzero(whole)
