"""The rows of a table as the arrays of demonstrations, on the disk."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from sbil.demonstrations import history, ranges, rules, values
from sbil.demonstrations.columns import Gathered, numeric_columns
from sbil.demonstrations.observations import actions_of, newly_missing, observations
from sbil.demonstrations.order import Order, ordered
from sbil.demonstrations.problems import Problems
from sbil.demonstrations.roles import Roles
from sbil.demonstrations.schema import OTHER, Column, Schema
from sbil.demonstrations.table import Batch, Table
from sbil.errors import UserError


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
            {"kept_episodes": len(meant)} if keep else {"excluded_episodes": len(meant), "excluded_rows": rows - left}
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
            "rows_in_file": len(read),
            "dropped_rows": read.missing if dropped else {},
            "filled_values": {} if dropped else read.missing,
            **({"newly_missing": new} if (new := newly_missing(read, schema)) else {}),
            **({"unseen_values": unseen} if (unseen := read.unseen(schema)) else {}),
            "left_out_columns": [column for column in table.names if column not in set(schema.needed)],
            "sorted_rows": order.moved,
            **gone,
        },
    }


def complete(read: Gathered) -> np.ndarray | None:
    """The rows without a missing value; None for all."""
    incomplete = read.incomplete.all()
    return np.flatnonzero(~incomplete) if incomplete.any() else None


def learned(read: Gathered, schema: Schema) -> Schema:
    """The schema with the actions, levels, means and indicators of the table, where it does not have its own.

    If unseen actions count as other, this is an action too: of a schema that lists none yet, and if there are any.

    The means are kept whatever is done about gaps here, so that gaps in later tables can be filled with them.
    """
    places = numeric_columns(schema)

    def completed(column: Column) -> Column:
        if column.kind != "number":
            return replace(column, levels=column.levels or tuple(read.levels[column.name].in_order))
        column = column if column.fill is not None else replace(column, fill=float(read.means[places[column.name]]))
        return _with_edges(column, read.numbers.all()[:, places[column.name]])

    actions = schema.actions or tuple(read.levels[schema.action].in_order)
    if (
        schema.unseen == "other"
        and OTHER not in actions
        and (not schema.actions or schema.action in read.unseen(schema))
    ):
        actions = (*actions, OTHER)
    schema = with_added(schema, read)
    return replace(schema, actions=actions, columns=tuple(map(completed, schema.columns)))


def _with_edges(column: Column, numbers: np.ndarray) -> Column:
    """The column with the edges of its ranges, if it is to be cut and nobody said where; equal numbers have none."""
    if column.bins is None or column.edges is not None:
        return column
    return replace(column, edges=ranges.cuts(numbers, column.bins))


def with_added(schema: Schema, read: Gathered) -> Schema:
    """The schema that says which columns have numbers about missing values: those that miss some in this table.

    What it says already stays.
    """

    def said(column: Column) -> Column:
        gaps = column.name in read.missing
        if schema.missing == "indicator" and column.indicator is None:
            column = replace(column, indicator=gaps)
        return replace(column, since=gaps) if schema.since_last and column.since is None else column

    return replace(schema, columns=tuple(map(said, schema.columns)))


def _write_roles(read: Gathered, order: Order, schema: Schema, folder: Path) -> None:
    last = order.ends - 1
    arrays = {
        "actions": order.of(actions_of(read, schema)),
        "starts": order.starts,
        "stops": order.ends,
        **{role: order.of(flags.all())[last] > 0 for role, flags in read.flags.items()},
    }
    if schema.weights:
        arrays["weights"] = order.of(read.weights.all())
    if schema.group:
        arrays["groups"] = order.of(read.ranks(schema.group))[order.starts].astype(np.int64)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def _write_notes(read: Gathered, order: Order, schema: Schema, folder: Path) -> dict[str, Any]:
    """Write the time of each row as text, and which numbers of a policy are missing in the table."""
    place, numbers = numeric_columns(schema), read.numbers.all()
    nowhere = np.zeros(len(read), bool)
    gone = []
    for column in schema.columns:
        number = column.kind == "number"
        missing = np.isnan(numbers[:, place[column.name]]) if number else read.codes[column.name].all() < 0
        gone += [nowhere if name in column.added else missing for name in column.names]
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
