"""The numbers that a policy sees of each row of a table, on the disk.

Rows that come grouped by episode and in order stay where they are. Only other rows, and tables with categories, with
gaps to fill or with numbers to add, are written once more.
"""

from pathlib import Path

import numpy as np

from sbil.demonstrations import history
from sbil.demonstrations.columns import MISSING, UNSEEN, Gathered, numeric_columns
from sbil.demonstrations.order import Order
from sbil.demonstrations.schema import FILLING, LARGEST, OTHER, Column, Schema

BLOCK = 100_000  # rows written at a time


def _to_fill(read: Gathered, schema: Schema) -> bool:
    """Whether an observed value is missing, and is to be filled in."""
    return schema.missing in FILLING and any(column.name in read.missing for column in schema.columns)


def newly_missing(read: Gathered, schema: Schema) -> dict[str, int]:
    """Missing values by column, of columns that had none in training, where the schema says so."""
    complete = [column.name for column in schema.columns if False in (column.indicator, column.since)]
    return {name: read.missing[name] for name in complete if name in read.missing}


def observations(read: Gathered, order: Order, schema: Schema, folder: Path) -> str:
    """Write the numbers that a policy sees, in order; returns the name of their file."""
    filled = _to_fill(read, schema)
    if order.chosen is None and not (schema.levels or schema.adds or filled):
        return "numbers.npy"
    length = len(order.chosen) if order.chosen is not None else len(read)
    shape = (length, len(schema.observation_names))
    out = np.lib.format.open_memmap(folder / "observations.npy", mode="w+", dtype=np.float32, shape=shape)
    _write_row(out, read, order, schema)
    if any(column.since for column in schema.columns):
        _add_since(out, read, order, schema)
    if filled:
        _fill(out, read, order, schema)
    _cut(out, schema)
    if schema.names_of_history:
        _add_history(out, read, order, schema)
    out.flush()
    return "observations.npy"


def _write_row(out: np.ndarray, read: Gathered, order: Order, schema: Schema) -> None:
    """Write the numbers that stand in each row, NaN where missing, and whether they are missing."""
    codes = {column.name: _places(read, order, column, schema) for column in schema.columns if column.kind != "number"}
    place, length = numeric_columns(schema), len(out)
    kept = read.numbers.all()
    for start in range(0, length, BLOCK):
        part = slice(start, min(start + BLOCK, length))
        numbers, at = kept[part if order.chosen is None else order.chosen[part]], 0
        for column in schema.columns:
            end = at + len(column.names)
            if column.kind == "number":
                out[part, at] = numbers[:, place[column.name]]
                if column.indicator:
                    out[part, end - len(column.added)] = np.isnan(out[part, at])
            else:
                block = _name(column, codes[column.name][part])
                out[part, at : at + block.shape[1]] = block
            at = end


def _cut(out: np.ndarray, schema: Schema) -> None:
    """Replace numbers by 0 and 1 per range, once no number is missing."""
    at = 0
    for column in schema.columns:
        if column.edges:
            place = np.searchsorted(np.array(column.edges, np.float32), out[:, at], side="right")
            for number in range(len(column.edges) + 1):
                out[:, at + number] = place == number
        at += len(column.names)


def _name(column: Column, places: np.ndarray) -> np.ndarray:
    """[n, numbers] the places of names as numbers: the place itself, or 0 and 1 per level.

    A name that was not seen in training has the place after the last one, or no 1.
    """
    if column.kind == "category":
        return np.where(places == UNSEEN, len(column.levels), places)[:, None]
    levels = [*range(len(column.levels)), *([MISSING] if column.indicator else [])]
    return np.equal.outer(places, levels)


def _add_since(out: np.ndarray, read: Gathered, order: Order, schema: Schema) -> None:
    """Write how long ago the last recorded value was, or the first row if there was none, and whether there was none.

    This must be before gaps are filled.
    """
    first, at = order.first(len(out)), 0
    for column in schema.columns:
        if column.since:
            named = column.kind != "number"
            gone = order.of(read.codes[column.name].all()) < 0 if named else np.isnan(out[:, at])
            last = order.carried(gone)
            end = at + len(column.names)
            out[:, end - 2] = _since(read, order, np.where(last < 0, first, last))
            out[:, end - 1] = last < 0
        at += len(column.names)


def _since(read: Gathered, order: Order, earlier: np.ndarray) -> np.ndarray:
    """[n] the time from the row at `earlier` to each row, in the unit of the table, in hours or in rows."""
    if read.time is None or read.times is None:
        return np.arange(len(earlier)) - earlier
    time = order.of(read.time)
    past = time - time[earlier]
    if past.dtype == np.int64:
        past = past.view(np.uint64)  # never negative, and right even if the difference is beyond int64
    return np.minimum(past / read.times.hour, LARGEST)


def _add_history(out: np.ndarray, read: Gathered, order: Order, schema: Schema) -> None:
    first = order.first(len(out))
    history.add_rows(out, first, schema)
    if schema.previous_action:
        history.add_actions(out, first, order.of(actions_of(read, schema)), len(schema.actions))


def actions_of(read: Gathered, schema: Schema) -> np.ndarray:
    """[n] the number of each row's action; that of "other", if the schema has it, for an action it does not list."""
    found = read.ranks(schema.action, schema.actions)
    return np.where(found == UNSEEN, schema.actions.index(OTHER), found) if OTHER in schema.actions else found


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
