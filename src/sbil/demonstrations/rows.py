"""The rows of a table as the arrays of demonstrations, on the disk.

Rows that come grouped by episode and in order stay where they are. Only other rows, and tables with categories or with
gaps to fill, are written once more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbil.demonstrations import history, rules, values
from sbil.demonstrations.columns import Gathered, numeric_columns
from sbil.demonstrations.problems import Problems
from sbil.demonstrations.roles import Roles
from sbil.demonstrations.schema import Column, Schema
from sbil.demonstrations.table import Batch, Table
from sbil.errors import UserError

BLOCK = 100_000  # rows written at a time


class Order(NamedTuple):
    """Which rows are used, in which order, and where the episodes lie among them."""

    chosen: np.ndarray | None  # [n] rows of the table; None where all are used as they stand
    starts: np.ndarray  # [episodes] by name of the episode
    ends: np.ndarray
    moved: bool

    def of(self, column: np.ndarray) -> np.ndarray:
        """The values of the table's rows, in this order."""
        return column if self.chosen is None else column[self.chosen]

    def row(self, place: int | np.integer) -> int:
        """The row of the table at a place of this order."""
        return int(place if self.chosen is None else self.chosen[place])

    def first(self, length: int) -> np.ndarray:
        """[n] where the episode of each place begins."""
        begins = np.sort(self.starts)
        return np.repeat(begins, np.diff(begins, append=length))

    def carried(self, missing: np.ndarray) -> np.ndarray:
        """[n] the nearest place at or before each where nothing is missing, -1 if there is none in the episode."""
        last = np.maximum.accumulate(np.where(missing, -1, np.arange(len(missing))))
        return np.where(last >= self.first(len(missing)), last, -1)


def ordered(read: Gathered, schema: Schema, kept: np.ndarray | None) -> Order:
    """Rows grouped by episode and sorted by time; rows that already are stay where they are.

    kept: the rows to use; None for all.
    """
    length = len(read) if kept is None else len(kept)
    if not (schema.episode and schema.episode in read.codes):
        starts = np.arange(length)
        return Order(kept, starts, starts + 1, False)
    rank = _of(read.ranks(schema.episode), kept)
    time = None if read.time is None else _of(read.time, kept)
    moved = not _in_order(rank, time)
    if moved:
        by = np.argsort(rank, kind="stable") if time is None else np.lexsort((time, rank))
        kept, rank = by if kept is None else kept[by], rank[by]
    begins = _begins(rank)
    ends = np.append(begins[1:], length)
    by_name = np.argsort(rank[begins], kind="stable")
    return Order(kept, begins[by_name], ends[by_name], moved)


def _of(column: np.ndarray, kept: np.ndarray | None) -> np.ndarray:
    return column if kept is None else column[kept]


def _in_order(rank: np.ndarray, time: np.ndarray | None) -> bool:
    begins = _begins(rank)
    if len(np.unique(rank[begins])) < len(begins):
        return False
    return time is None or not bool(((time[1:] < time[:-1]) & (rank[1:] == rank[:-1])).any())


def _begins(rank: np.ndarray) -> np.ndarray:
    return np.append(0, np.flatnonzero(rank[1:] != rank[:-1]) + 1)


def wanted(
    batches: Iterator[Batch], episode: str | None, roles: Roles, gone: dict[str, int] | None = None
) -> Iterator[Batch]:
    """Yield the batches without the episodes to exclude, and with the episodes to keep only, if a person named any.

    gone: receives the counts of rows that were left out.
    """
    left = _picked(batches, episode, roles.exclude, False, gone)
    return _picked(left, episode, roles.only, True, gone)


def _picked(
    batches: Iterator[Batch], episode: str | None, names: Sequence[str], keep: bool, gone: dict[str, int] | None
) -> Iterator[Batch]:
    """Yield the rows of these episodes, or all others. Refuse, at the end, episodes that the table does not have."""
    if not names:
        yield from batches
        return
    if episode is None:
        verb = "kept" if keep else "excluded"
        raise UserError(f"episodes are {verb} by name, and these data have none; name their column (--episode).")
    meant = {*names[1:]} if names[0] == episode else {*names}
    levels, left, rows = values.Levels(episode), 0, 0
    for batch in batches:
        if values.has_no_text(batch.frame[episode]):
            raise UserError(f"column '{episode}': holds lists, objects or durations; save plain values.")
        codes = levels.codes(batch.frame[episode], batch.decimal)
        chosen = np.isin(codes, [number for name, number in levels.index.items() if name in meant]) == keep
        left, rows = left + int(chosen.sum()), rows + len(chosen)
        if chosen.any():
            yield batch._replace(frame=batch.frame.filter(chosen), rows=batch.rows[chosen])
    _must_be_there(meant, levels, keep)
    if not left:
        raise UserError("no episode is named that is kept." if keep else "every episode is excluded; none is left.")
    if gone is not None:
        gone |= (
            {"kept episodes": len(meant)} if keep else {"excluded episodes": len(meant), "excluded rows": rows - left}
        )


def _must_be_there(meant: set[str], levels: values.Levels, keep: bool) -> None:
    strangers = sorted(meant - levels.index.keys())
    if strangers:
        example = f"for example '{strangers[0][:60]}'; correct the list"
        verb = "keep" if keep else "exclude"
        raise UserError(f"{len(strangers)} of the episodes to {verb} are not in the data, {example}.")


def begin(table: Table) -> tuple[Batch, Iterator[Batch]]:
    """The first batch, and all of them; a table without rows is refused."""
    batches = table.batches()
    first = next(batches, None)
    if first is None:
        raise UserError("there are no rows under the header; nothing to read.")
    return first, chain([first], batches)


def looks_numeric(batch: Batch, name: str) -> bool:
    """Whether at least half of the cells that hold something hold a number, also one in another notation.

    A laboratory value with a decimal comma among points is no text to leave out: reading refuses it.
    """
    column = batch.frame[name]
    read = values.numbers(column, batch.decimal)
    text = int((read.wrong & ~values.foreign(column, read.wrong)).sum())
    return text * 2 <= int((~read.missing).sum())


def demonstrations(table: Table, roles: Roles, folder: Path, notes: bool = False) -> dict[str, Any]:
    """Write the arrays of demonstrations into `folder`; returns what else is to be said about them.

    notes: also write the times as they stand in the table, and which numbers were filled in.
    """
    first, batches = begin(table)
    schema = roles.plan(table.names, {name: looks_numeric(first, name) for name in table.names})
    gone: dict[str, int] = {}
    problems = Problems(raising=True)
    batches = wanted(batches, schema.episode, roles, gone)
    texts = (schema.time,) if notes and schema.time else ()
    read = Gathered(schema, folder, problems, texts=texts).add_all(batches)
    problems.apply(rules.OF_COLUMNS, read, schema)
    order = ordered(read, schema, complete(read) if schema.missing == "drop" else None)
    problems.apply(rules.OF_ROWS, read, schema, order)
    schema = learned(read, schema)
    name = observations(read, order, schema, folder)
    _write_roles(read, order, schema, folder)
    dropped = schema.missing == "drop"
    return {
        "observations": name,
        **(_write_notes(read, order, schema, folder) if notes else {}),
        "schema": schema.as_json(),
        "ids": _ids(read, order, schema.episode) if schema.episode else None,
        "provenance": {
            "rows": len(read) if order.chosen is None else len(order.chosen),
            "rows in file": len(read),
            "dropped rows": read.missing if dropped else {},
            "filled values": {} if dropped else read.missing,
            "left out columns": [column for column in table.names if column not in set(schema.needed)],
            "sorted rows": order.moved,
            **gone,
        },
    }


def complete(read: Gathered) -> np.ndarray | None:
    """The rows without a missing value; None for all."""
    incomplete = read.incomplete.all()
    return np.flatnonzero(~incomplete) if incomplete.any() else None


def learned(read: Gathered, schema: Schema) -> Schema:
    """The schema with the actions, levels and means of the table, where it does not have its own.

    The means are kept whatever is done about gaps here, so that gaps in later tables can be filled with them.
    """
    places = numeric_columns(schema)

    def completed(column: Column) -> Column:
        if column.kind != "number":
            return replace(column, levels=column.levels or tuple(read.levels[column.name].in_order))
        return column if column.fill is not None else replace(column, fill=float(read.means[places[column.name]]))

    actions = schema.actions or tuple(read.levels[schema.action].in_order)
    return replace(schema, actions=actions, columns=tuple(map(completed, schema.columns)))


def _write_roles(read: Gathered, order: Order, schema: Schema, folder: Path) -> None:
    last = order.ends - 1
    arrays = {
        "actions": order.of(read.ranks(schema.action, schema.actions)),
        "starts": order.starts,
        "stops": order.ends,
        **{role: order.of(flags.all())[last] > 0 for role, flags in read.flags.items()},
    }
    if schema.group:
        arrays["groups"] = order.of(read.ranks(schema.group))[order.starts].astype(np.int64)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def _write_notes(read: Gathered, order: Order, schema: Schema, folder: Path) -> dict[str, Any]:
    """Write the time of each row as text, and which numbers of a policy are missing in the table."""
    place, numbers = numeric_columns(schema), read.numbers.all()
    gone = [
        np.isnan(numbers[:, place[column.name]]) if column.kind == "number" else read.codes[column.name].all() < 0
        for column in schema.columns
        for _ in column.names
    ]
    filled = np.zeros((len(order.of(gone[0])), len(schema.observation_names)), bool)
    filled[:, : len(gone)] = np.stack([order.of(column) for column in gone], axis=1)
    history.add_rows(filled, order.first(len(filled)), schema)
    np.save(folder / "filled.npy", filled)
    if schema.time is None:
        return {"times": None}
    np.save(folder / "times.npy", order.of(read.codes[schema.time].all()))
    return {"times": read.levels[schema.time].names}


def _ids(read: Gathered, order: Order, column: str) -> list[str]:
    """What each episode is called in the table."""
    names = read.levels[column].names
    return [names[code] for code in order.of(read.codes[column].all())[order.starts].tolist()]


def _to_fill(read: Gathered, schema: Schema) -> bool:
    """Whether an observed value is missing, and is to be filled in."""
    return schema.missing in ("mean", "last") and any(column.name in read.missing for column in schema.columns)


def observations(read: Gathered, order: Order, schema: Schema, folder: Path) -> str:
    """Write the numbers that a policy sees, in order; returns the name of their file."""
    filled = _to_fill(read, schema)
    if order.chosen is None and not (schema.levels or schema.names_of_history or filled):
        return "numbers.npy"
    length = len(order.chosen) if order.chosen is not None else len(read)
    shape = (length, len(schema.observation_names))
    out = np.lib.format.open_memmap(folder / "observations.npy", mode="w+", dtype=np.float32, shape=shape)
    codes = {column.name: _places(read, order, column, schema) for column in schema.columns if column.kind != "number"}
    place = numeric_columns(schema)
    kept = read.numbers.all()
    for start in range(0, length, BLOCK):
        part = slice(start, min(start + BLOCK, length))
        numbers, at = kept[part if order.chosen is None else order.chosen[part]], 0
        for column in schema.columns:
            if column.kind == "number":
                block = numbers[:, place[column.name], None]
            elif column.kind == "category":
                block = codes[column.name][part, None]
            else:
                block = np.equal.outer(codes[column.name][part], np.arange(len(column.levels)))
            out[part, at : at + len(column.names)] = block
            at += len(column.names)
    if filled:
        _fill(out, read, order, schema)
    if schema.names_of_history:
        _add_history(out, read, order, schema)
    out.flush()
    return "observations.npy"


def _add_history(out: np.ndarray, read: Gathered, order: Order, schema: Schema) -> None:
    first = order.first(len(out))
    history.add_rows(out, first, schema)
    if schema.previous_action:
        ranks = np.append(read.levels[schema.action].ranks(schema.actions), -1)  # the last one is for -1, missing
        actions = order.of(ranks[read.codes[schema.action].all()])
        history.add_actions(out, first, actions, len(schema.actions))


def _places(read: Gathered, order: Order, column: Column, schema: Schema) -> np.ndarray:
    """[n] the place of each row's level; the last one known of the episode where it is missing."""
    places = order.of(read.ranks(column.name, column.levels))
    if schema.missing == "last":
        places = places[order.carried(order.of(read.codes[column.name].all()) < 0)]
    return places


def _fill(out: np.ndarray, read: Gathered, order: Order, schema: Schema) -> None:
    at = 0
    for column in schema.columns:
        if column.kind == "number" and column.name in read.missing:
            numbers = np.array(out[:, at])
            if schema.missing == "last":
                source = order.carried(np.isnan(numbers))
                numbers = np.where(source >= 0, numbers[source], np.nan)
            out[:, at] = np.where(np.isnan(numbers), np.float32(column.fill), numbers)
        at += len(column.names)
