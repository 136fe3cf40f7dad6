"""What stops training on a table: one function per rule. `read` raises what they find, and `check` lists it.

Rules of cells look at one column of one batch (`Seen`). Rules of columns look at the table after its last batch
(`Gathered`). Rules of rows look at it once its rows are in order (`Order`). A new rule is a function here, its name in
one of the lists below, and a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sbil.demonstrations import values
from sbil.demonstrations.formats.dialect import SIGNS
from sbil.demonstrations.problems import Problem, Severity
from sbil.demonstrations.roles import listed
from sbil.demonstrations.schema import Schema
from sbil.demonstrations.table import Batch
from sbil.demonstrations.values import Values

if TYPE_CHECKING:
    import polars as pl

    from sbil.demonstrations.columns import Gathered
    from sbil.demonstrations.rows import Order

NAMED = 10  # columns in a message about missing values
DROP = "choose drop for missing values (--missing drop), which leaves such rows out"


# Cells


class Seen(NamedTuple):
    """The cells of one column in one batch, and the values that were read from them."""

    column: str
    cells: pl.Series
    values: Values
    batch: Batch

    def problem(self, rule: str, wrong: np.ndarray, message: str, remedy: str) -> Problem | None:
        """The problem that some of the cells are wrong, if there are any."""
        if not wrong.any():
            return None
        place, count = self.batch.at(np.argmax(wrong)), int(wrong.sum())
        return Problem(rule, "stops", message, remedy, self.column, count=count, **place)


def other_notation(seen: Seen) -> Problem | None:
    """Numbers with another decimal sign than the file has, or with thousands separators."""
    sign = SIGNS[seen.batch.decimal]
    return seen.problem(
        "other notation",
        values.foreign(seen.cells, seen.values.wrong),
        f"a number in another notation; the file is read with a {sign} and without thousands separators",
        "write it in that notation; if it is a code, use the column as a category (--categories) or leave it out",
    )


def row_of_units(seen: Seen) -> Problem | None:
    """Text in the first row of a text file, above numbers only."""
    wrong, batch = seen.values.wrong, seen.batch
    above = batch.numbering == "line" and batch.rows[0] <= 3 and wrong[0] and wrong.sum() == 1 < len(wrong)
    found = wrong if above and not values.foreign(seen.cells, wrong)[0] else np.zeros(len(wrong), bool)
    remedy = "if this is a row of units, remove it; a schema can hold units"
    return seen.problem("row of units", found, "text above numbers", remedy)


def not_a_number(seen: Seen) -> Problem | None:
    """Text in a column of numbers."""
    wrong = seen.values.wrong
    if not wrong.any() or row_of_units(seen):
        return None
    return seen.problem(
        "not a number",
        wrong & ~values.foreign(seen.cells, wrong),
        "not a number",
        "correct the cell, write NA for a missing value, or use the column as a category (--categories)",
    )


def too_large(seen: Seen) -> Problem | None:
    """Numbers that float32 cannot hold."""
    message = "the number is infinite or too large for float32"
    return seen.problem("too large", seen.values.huge, message, "correct it, or write NA if it is unknown")


def not_a_time(seen: Seen) -> Problem | None:
    """Times that cannot be ordered among the others."""
    return seen.problem(
        "not a time",
        seen.values.wrong,
        "not a time like the others",
        "write numbers throughout, or timestamps such as 2020-01-31 13:45:00, all with or all without a time zone",
    )


def not_a_flag(seen: Seen) -> Problem | None:
    """Ends of episodes that are neither true nor false."""
    message = "the end of an episode is 0 or 1, false or true"
    return seen.problem("not a flag", seen.values.wrong, message, "correct the cell, or name another column")


def no_text(seen: Seen) -> Problem | None:
    """Names that have no text."""
    nested = np.full(len(seen.cells), values.has_no_text(seen.cells))
    return seen.problem("no text", nested, "holds lists, objects or durations", "save plain values")


CellRule = Callable[[Seen], Problem | None]
OF_NUMBERS: tuple[CellRule, ...] = (other_notation, row_of_units, not_a_number, too_large)
OF_TIMES: tuple[CellRule, ...] = (not_a_time,)
OF_FLAGS: tuple[CellRule, ...] = (not_a_flag,)
OF_NAMES: tuple[CellRule, ...] = (no_text,)


def of_cells(rules: Iterable[CellRule], seen: Seen) -> list[Problem]:
    """What some rules find in some cells, in the order of the rows."""
    found = [problem for rule in rules if (problem := rule(seen))]
    return sorted(found, key=lambda problem: problem.row or 0)


def too_many_names(levels: values.Levels) -> Problem | None:
    """A column of an action or a category that has too many names."""
    if not levels.too_many:
        return None
    message = f"more than {levels.most:,} different values; an action or a category is one of a few"
    return Problem(
        "too many names", "stops", message, "cut a number into a few ranges, or name another column", levels.column
    )


# Columns


def empty_columns(read: Gathered, schema: Schema) -> Iterator[Problem]:
    """Columns of numbers without any number, unless the schema knows what to fill in."""
    for column in schema.columns:
        filled = schema.missing in ("mean", "last") and column.fill is not None
        if not filled and read.missing.get(column.name) == len(read):
            yield Problem(
                "empty column", "stops", "has no value in any row", "leave it out of the observations", column.name
            )


def missing_values(read: Gathered, schema: Schema) -> Iterator[Problem]:
    """Missing values; what they are depends on the column and on the schema's rule for them. The first comes first."""
    empty = {problem.column for problem in empty_columns(read, schema)}
    counts = {name: count for name, count in read.missing.items() if name not in empty}
    judged = {name: _judged(name, schema) for name in counts}
    stopping = {name: count for name, count in counts.items() if judged[name][0] == "stops"}
    many = sorted(stopping.items(), key=lambda item: -item[1])
    by_column = ", ".join(f"'{name}' {count:,}" for name, count in many[:NAMED])
    more = f" and {len(many) - NAMED} more columns" if len(many) > NAMED else ""
    elsewhere = f", {sum(stopping.values()):,} in all ({by_column}{more})"
    for name in sorted(counts, key=lambda name: read.firsts[name]):
        severity, remedy, mended = judged[name]
        place = read.at(read.firsts[name])
        yield Problem(
            *("missing value", severity, "missing value", remedy, name),
            **{**place, "count": counts[name], "elsewhere": elsewhere, "mended": mended},
        )


def _judged(name: str, schema: Schema) -> tuple[Severity, str, bool]:
    """(how bad a missing value in a column is, what to do, whether the command of `check` does it)."""
    column = next((column for column in schema.columns if column.name == name), None)
    rule = schema.missing
    if rule == "drop":
        return "note", "such rows are left out", False
    if column is None or name in schema.roles.values():
        return "stops", f"fill it in, or {DROP}", False
    if rule == "refuse":
        return (
            "stops",
            "fill it in, or choose mean, last or drop for missing values (--missing)",
            column.kind == "number",
        )
    if column.kind == "number":
        last = "the last value of the episode, or the mean of the column where there is none before"
        return "note", f"filled with {'the mean of the column' if rule == 'mean' else last}", False
    if rule == "last":
        return "harms", "filled with the last value of the episode; a level of its own may say more", False
    return "stops", f"a category has no mean: write a level of its own, or {DROP}", False


def nothing_left(read: Gathered, schema: Schema) -> Iterator[Problem]:
    """Every row misses a value, and such rows are dropped."""
    if schema.missing == "drop" and bool(np.asarray(read.incomplete).all()):
        remedy = "leave out the columns that have most of the gaps"
        yield Problem("nothing left", "stops", "every row has a missing value; nothing is left of the table", remedy)


def inexact_times(read: Gathered, schema: Schema) -> Iterator[Problem]:
    """Fractions among whole numbers so large that a float would round them."""
    if read.inexact_times:
        message = "fractions stand beside whole numbers that are too large for them"
        yield Problem("inexact times", "stops", message, "write whole numbers throughout", schema.time)


def fractions(read: Gathered, schema: Schema) -> Iterator[Problem]:
    """Actions that are numbers with fractions, unless the schema lists them."""
    if schema.actions or not schema.action:
        return
    levels = read.levels[schema.action]
    wrong = [number for number, name in enumerate(levels.names) if is_fraction(name)]
    if wrong and not levels.too_many:
        codes = np.asarray(read.codes[schema.action])
        message = "the action is a number with a fraction; actions are a few choices: whole numbers or words"
        remedy = "cut a dose into ranges first"
        yield _named_rows(read, "fraction", np.isin(codes, wrong), message, remedy, schema.action)


def unknown_action(read: Gathered, schema: Schema) -> Iterator[Problem]:
    """Actions that the schema does not list."""
    if schema.actions and schema.action:
        yield from _unknown(read, schema.action, schema.actions, "action")


def unknown_levels(read: Gathered, schema: Schema) -> Iterator[Problem]:
    """Levels of categories that the schema does not list."""
    for column in schema.columns:
        if column.kind != "number" and column.levels:
            yield from _unknown(read, column.name, column.levels, "level")


def _unknown(read: Gathered, column: str, known: tuple[str, ...], what: str) -> Iterator[Problem]:
    ranks = read.levels[column].ranks(list(known))
    if not (ranks < 0).any():
        return
    codes = np.asarray(read.codes[column])
    strange = (codes >= 0) & (ranks < 0)[codes]
    name = read.levels[column].names[codes[np.argmax(strange)]]
    message = f"the {what} '{name[:60]}' is not in the schema; it has {listed(known)}"
    remedy = "correct the table, or train again on data that has it"
    yield _named_rows(read, f"unknown {what}", strange, message, remedy, column)


def no_mean(read: Gathered, schema: Schema) -> Iterator[Problem]:
    """Gaps in a later table that only a mean of training could fill, where the schema has none."""
    for column in schema.columns:
        filled = column.kind == "number" and schema.missing in ("mean", "last")
        if filled and column.fill is None and column.name in read.missing:
            message = "missing value, and the schema has no mean of training for it"
            remedy = "fill it in, choose drop for missing values, or train again"
            place = read.at(read.firsts[column.name])
            yield Problem("no mean", "stops", message, remedy, column.name, **place)


ColumnRule = Callable[["Gathered", Schema], Iterator[Problem]]
OF_COLUMNS: tuple[ColumnRule, ...] = (
    *(missing_values, empty_columns, nothing_left, inexact_times, fractions, unknown_action, unknown_levels),
)
OF_STATES: tuple[ColumnRule, ...] = (
    missing_values,
    nothing_left,
    unknown_levels,
    no_mean,
)  # of tables without decisions


def of_columns(rules: Iterable[ColumnRule], read: Gathered, schema: Schema) -> Iterator[Problem]:
    """What some rules find in a table."""
    for rule in rules:
        yield from rule(read, schema)


# Rows


def same_time(read: Gathered, schema: Schema, order: Order) -> Iterator[Problem]:
    """Two rows of an episode at the same time."""
    if read.time is None:
        return
    time = order.of(read.time)
    twice = time[1:] == time[:-1]
    twice[order.starts[order.starts > 0] - 1] = False
    if twice.any():
        place = int(np.argmax(twice))
        one, other = sorted((order.row(place), order.row(place + 1)))
        first = read.at(one)
        message = f"the same time as in {first['numbering']} {first['row']}, in one episode"
        remedy = "keep one of the two rows, or record finer times"
        count = int(twice.sum())
        yield Problem(
            *("same time", "stops", message, remedy, schema.time),
            **read.at(other),
            count=count,
            noun="row",
            elsewhere=f" ({count:,} such in all)",
        )


def early_ends(read: Gathered, schema: Schema, order: Order) -> Iterator[Problem]:
    """Rows that end their episode before its last row."""
    for role, flags in read.flags.items():
        early = order.of(np.asarray(flags)) > 0
        early[order.ends - 1] = False
        message = "the episode ends here and more of its rows follow"
        remedy = "only the last row of an episode can be its end"
        yield from _ordered_rows(read, order, f"early {role}", early, message, remedy, schema.roles[role])


def two_ends(read: Gathered, schema: Schema, order: Order) -> Iterator[Problem]:
    """Rows where the process ended and where the recording was cut although the process went on."""
    if {"terminal", "truncated"} <= read.flags.keys():
        both = (order.of(np.asarray(read.flags["terminal"])) > 0) & (order.of(np.asarray(read.flags["truncated"])) > 0)
        message = f"the row is truncated and terminal ('{schema.terminal}') at once"
        remedy = "an episode either ended by itself or was cut; set one of the two to 0"
        yield from _ordered_rows(read, order, "two ends", both, message, remedy, schema.truncated)


def torn_groups(read: Gathered, schema: Schema, order: Order) -> Iterator[Problem]:
    """Episodes with rows of several groups."""
    if schema.group:
        codes = order.of(np.asarray(read.codes[schema.group]))
        torn = codes != codes[order.first(len(codes))]
        message = "the group changes within an episode; every row of an episode must have the same group"
        yield from _ordered_rows(
            read, order, "torn group", torn, message, "correct the cells, or name another group", schema.group
        )


def gaps_at_the_start(read: Gathered, schema: Schema, order: Order) -> Iterator[Problem]:
    """Missing categories before the first value of an episode, where the last value is to be carried on."""
    for column in schema.columns if schema.missing == "last" else ():
        if column.kind != "number" and column.name in read.missing:
            missing = order.of(np.asarray(read.codes[column.name])) < 0
            lost = order.carried(missing) < 0
            message = "missing category with none before it in the episode"
            remedy = f"write a level of its own there, or {DROP}"
            yield from _ordered_rows(read, order, "gap at the start", lost, message, remedy, column.name)


RowRule = Callable[["Gathered", Schema, "Order"], Iterator[Problem]]
OF_ROWS: tuple[RowRule, ...] = (same_time, early_ends, two_ends, torn_groups, gaps_at_the_start)


def of_rows(read: Gathered, schema: Schema, order: Order) -> Iterator[Problem]:
    """What the rules of rows find in a table."""
    for rule in OF_ROWS:
        yield from rule(read, schema, order)


def _ordered_rows(
    read: Gathered, order: Order, rule: str, wrong: np.ndarray, message: str, remedy: str, column: str | None
) -> Iterator[Problem]:
    """The problem of some rows in the order of episodes, if there are any."""
    if wrong.any():
        place = read.at(order.row(int(np.argmax(wrong))))
        yield Problem(rule, "stops", message, remedy, column, **place, count=int(wrong.sum()), noun="row")


def _named_rows(read: Gathered, rule: str, wrong: np.ndarray, message: str, remedy: str, column: str) -> Problem:
    """The problem of some rows of the table."""
    return Problem(
        rule, "stops", message, remedy, column, **read.at(int(np.argmax(wrong))), count=int(wrong.sum()), noun="row"
    )


def is_fraction(name: str) -> bool:
    """Whether a name is a number with a fraction."""
    try:
        return not float(name.replace(",", ".")).is_integer()
    except (ValueError, OverflowError):
        return False
