"""What stops training on a table: one function per rule. `read` raises what they find, and `check` lists it.

Rules of cells look at one column of one batch (`Seen`). Rules of columns look at the table after its last batch
(`Gathered`). Rules of rows look at it once its rows are in order (`Order`). A new rule is a function here, its name in
one of the lists below, and a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from sbil.demonstrations import values
from sbil.demonstrations.formats.dialect import SIGNS
from sbil.demonstrations.problems import Problem, Severity
from sbil.demonstrations.roles import listed
from sbil.demonstrations.schema import FILLING, Schema
from sbil.demonstrations.table import Batch
from sbil.demonstrations.values import Values

if TYPE_CHECKING:
    from sbil.demonstrations.columns import Gathered
    from sbil.demonstrations.order import Order

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
    message = f"a number in another notation; the file is read with a {sign} and without thousands separators"
    remedy = "write it in that notation; if it is a code, make it a category (--categories) or leave it out (--drop)"
    return seen.problem("other notation", values.foreign(seen.cells, seen.values.wrong), message, remedy)


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
    remedy = "correct the cell, write NA for a missing value, or use the column as a category (--categories)"
    return seen.problem("not a number", wrong & ~values.foreign(seen.cells, wrong), "not a number", remedy)


def too_large(seen: Seen) -> Problem | None:
    """Numbers that float32 cannot hold."""
    message = "the number is infinite or too large for float32"
    return seen.problem("too large", seen.values.huge, message, "correct it, or write NA if it is unknown")


def not_a_time(seen: Seen) -> Problem | None:
    """Times that cannot be ordered among the others."""
    remedy = (
        "write numbers throughout, or one form of: 2020-01-31 13:45:00 (all with or all without a time zone), "
        "31.01.2020 13:45, 31/01/2020, 1/31/2020 1:45 PM, 31 Jan 2020; a time of day needs its date"
    )
    return seen.problem("not a time", seen.values.wrong, "not a time like the others", remedy)


def not_a_flag(seen: Seen) -> Problem | None:
    """Ends of episodes that are neither true nor false."""
    message = "the end of an episode is 0 or 1, false or true"
    return seen.problem("not a flag", seen.values.wrong, message, "correct the cell, or name another column")


def not_a_weight(seen: Seen) -> Problem | None:
    """Weights that are no numbers from 0."""
    message = "a weight is a number from 0"
    return seen.problem("not a weight", seen.values.wrong, message, "correct the cell, or name another column")


CellRule = Callable[[Seen], Problem | None]
OF_NUMBERS: tuple[CellRule, ...] = (other_notation, row_of_units, not_a_number, too_large)
OF_TIMES: tuple[CellRule, ...] = (not_a_time,)
OF_FLAGS: tuple[CellRule, ...] = (not_a_flag,)
OF_WEIGHTS: tuple[CellRule, ...] = (not_a_weight, too_large)


def no_text(name: str, batch: Batch) -> Problem:
    """Names that have no text."""
    facts = {**batch.at(0), "count": len(batch.rows)}
    return Problem("no text", "stops", "holds lists, objects or durations", "save plain values", name, **facts)


def too_many_names(levels: values.Levels) -> Problem | None:
    """A column of an action or a category that has too many names."""
    message = f"more than {levels.most or 0:,} different values; an action or a category is one of a few"
    remedy = "cut a number into a few ranges, or name another column"
    return Problem("too many names", "stops", message, remedy, levels.column) if levels.too_many else None


# Columns

Found = Iterator[Problem | None]


def missing_values(read: Gathered, schema: Schema) -> Found:
    """Missing values. How bad they are depends on the column and on the schema's rule for them."""
    judged = {name: _judged(name, schema) for name in read.missing if not _empty(name, read, schema)}
    stopping = [name for name, (severity, _, _) in judged.items() if severity == "stops"]
    many = sorted(stopping, key=lambda name: -read.missing[name])
    by_column = ", ".join(f"'{name}' {read.missing[name]:,}" for name in many[:NAMED])
    more = f" and {len(many) - NAMED} more columns" if len(many) > NAMED else ""
    elsewhere = f", {sum(read.missing[name] for name in stopping):,} in all ({by_column}{more})"
    for name in sorted(judged, key=lambda name: read.firsts[name]):
        severity, remedy, mended = judged[name]
        facts = {**read.at(read.firsts[name]), "count": read.missing[name], "mended": mended, "elsewhere": elsewhere}
        yield Problem("missing value", severity, "missing value", remedy, name, **facts)


def _judged(name: str, schema: Schema) -> tuple[Severity, str, bool]:
    """(how bad a missing value in a column is, what to do, whether the command of `check` does it)."""
    number = name not in schema.levels
    if schema.missing == "drop":
        return "note", "such rows are left out", False
    if name in schema.roles.values() or name not in [column.name for column in schema.columns]:
        return "stops", f"fill it in, or {DROP}", False
    if schema.missing == "refuse":
        return "stops", "fill it in, or choose mean, last, indicator or drop for missing values (--missing)", number
    if schema.missing == "last":
        first = "or the mean of the column where there is none before" if number else "a level of its own may say more"
        severity: Severity = "note" if number else "harms"
        return severity, f"filled with the last value of the episode, {first}", False
    said = ", and one more number says so" if schema.missing == "indicator" else ""
    if number:
        return "note", f"filled with the mean of the column{said}", False
    if said and name in [column.name for column in schema.columns if column.kind == "one-hot"]:
        return "note", "no level is 1 there, and one more number says so", False
    return "stops", f"a category has no mean: write a level of its own, or {DROP}", False


def _empty(name: str, read: Gathered, schema: Schema) -> bool:
    """Whether an observed column has no value, and the schema knows none to fill in."""
    column = next((column for column in schema.columns if column.name == name), None)
    if column is None or read.missing[name] < len(read):
        return False
    known = column.fill is not None or (schema.missing == "indicator" and bool(column.levels))
    return not (schema.missing in FILLING and known)


def empty_columns(read: Gathered, schema: Schema) -> Found:
    """Observed columns without any value."""
    for name in read.missing:
        if _empty(name, read, schema):
            remedy = "fill it in, or leave it out (--drop)"
            yield Problem("empty column", "stops", "has no value in any row", remedy, name)


def nothing_left(read: Gathered, schema: Schema) -> Found:
    """Every row misses a value, and such rows are dropped."""
    if schema.missing == "drop" and bool(read.incomplete.all().all()):
        remedy = "leave out the columns that have most of the gaps (--drop)"
        yield Problem("nothing left", "stops", "every row has a missing value; nothing is left of the table", remedy)


def no_weight(read: Gathered, schema: Schema) -> Found:
    """Weights of which none is above 0."""
    if schema.weights and not (read.weights.all() > 0).any():
        yield Problem("no weight", "stops", "no weight is above 0", "name another column", schema.weights)


def inexact_times(read: Gathered, schema: Schema) -> Found:
    """Fractions among whole numbers so large that a float would round them."""
    if read.times and read.times.inexact:
        message = "fractions stand beside whole numbers that are too large for them"
        yield Problem("inexact times", "stops", message, "write whole numbers throughout", schema.time)


def ambiguous_dates(read: Gathered, schema: Schema) -> Found:
    """Dates such as 03/04/2026, of which no other date in the column says whether the day or the month comes first."""
    if read.times and read.times.ambiguous:
        message = "dates such as 03/04/2026 may be of April 3 or of March 4"
        remedy = "say which with dates (--dates day-first, or --dates month-first), or write 2026-04-03"
        yield Problem("ambiguous dates", "stops", message, remedy, schema.time)


def fractions(read: Gathered, schema: Schema) -> Found:
    """Actions that are numbers with fractions, unless the schema lists them."""
    if schema.actions or not schema.action or read.levels[schema.action].too_many:
        return
    wrong = [number for number, name in enumerate(read.levels[schema.action].names) if is_fraction(name)]
    if wrong:
        message = "the action is a number with a fraction; actions are a few choices: whole numbers or words"
        mask = np.isin(read.codes[schema.action].all(), wrong)
        yield read.problem("fraction", mask, message, "cut a dose into ranges first", schema.action)


def unknown_names(read: Gathered, schema: Schema) -> Found:
    """Actions, and levels of categories, that the schema does not list."""
    for column, known in {**schema.levels, schema.action: schema.actions}.items():
        levels = read.levels.get(column)
        if known and levels and not levels.index.keys() <= set(known):
            what, codes = "action" if column == schema.action else "level", read.codes[column].all()
            strange = (codes >= 0) & (levels.ranks(known) < 0)[codes]
            name = levels.names[codes[np.argmax(strange)]]
            message = f"the {what} '{name[:60]}' is not in the schema; it has {listed(known)}"
            remedy = "correct the table, train again on data that has it, or let it count as other (--unseen other)"
            problem = read.problem("unknown name", strange, message, remedy, column)
            if problem and schema.unseen == "other":
                problem = replace(problem, severity="note", remedy="it counts as other")
            yield problem


def no_mean(read: Gathered, schema: Schema) -> Found:
    """Gaps in a later table that only a mean of training could fill, where the schema has none."""
    for column in schema.columns if schema.missing in FILLING else ():
        if column.kind == "number" and column.fill is None and column.name in read.missing:
            message = "missing value, and the schema has no mean of training for it"
            remedy = "fill it in, choose drop for missing values, or train again"
            yield Problem("no mean", "stops", message, remedy, column.name, **read.at(read.firsts[column.name]))


ALWAYS = (missing_values, empty_columns, nothing_left, unknown_names)
OF_COLUMNS = (*ALWAYS, no_weight, inexact_times, ambiguous_dates, fractions)
OF_STATES = (no_mean, *ALWAYS, ambiguous_dates)  # of a table whose decisions may not be known


# Rows


def same_time(read: Gathered, schema: Schema, order: Order) -> Found:
    """Two rows of an episode at the same time."""
    if read.time is None:
        return
    time = order.of(read.time)
    twice = np.append(False, time[1:] == time[:-1])
    twice[order.starts] = False
    if twice.any():
        place = int(np.argmax(twice))
        earlier, later = sorted((order.row(place - 1), order.row(place)))
        one, count = read.at(earlier), int(twice.sum())
        message = f"the same time as in {one['file']}, {one['numbering']} {one['row']}, in one episode"
        facts = {**read.at(later), "count": count, "noun": "row", "elsewhere": f" ({count:,} such in all)"}
        remedy = "keep one of the two rows, or record finer times"
        yield Problem("same time", "stops", message, remedy, schema.time, **facts)


def early_ends(read: Gathered, schema: Schema, order: Order) -> Found:
    """Rows that end their episode before its last row."""
    for role, flags in read.flags.items():
        early = order.of(flags.all()) > 0
        early[order.ends - 1] = False
        message = "the episode ends here and more of its rows follow"
        remedy = "only the last row of an episode can be its end"
        yield read.problem(f"early {role}", early, message, remedy, schema.roles[role], order)


def two_ends(read: Gathered, schema: Schema, order: Order) -> Found:
    """Rows where the process ended and where the recording was cut although the process went on."""
    if len(read.flags) == 2:
        both = np.logical_and(*(order.of(flags.all()) > 0 for flags in read.flags.values()))
        message = f"the row is truncated and terminal ('{schema.terminal}') at once"
        remedy = "an episode either ended by itself or was cut; set one of the two to 0"
        yield read.problem("two ends", both, message, remedy, schema.truncated, order)


def torn_groups(read: Gathered, schema: Schema, order: Order) -> Found:
    """Episodes with rows of several groups."""
    if schema.group:
        codes = order.of(read.codes[schema.group].all())
        torn = codes != codes[order.first(len(codes))]
        message = "the group changes within an episode; every row of an episode must have the same group"
        remedy = "correct the cells, or name another group"
        yield read.problem("torn group", torn, message, remedy, schema.group, order)


def gaps_at_the_start(read: Gathered, schema: Schema, order: Order) -> Found:
    """Missing categories before the first value of an episode, where the last value is to be carried on."""
    for name in schema.levels if schema.missing == "last" else ():
        if name in read.missing:
            lost = order.carried(order.of(read.codes[name].all()) < 0) < 0
            message = "missing category with none before it in the episode"
            remedy = f"write a level of its own there, or {DROP}"
            yield read.problem("gap at the start", lost, message, remedy, name, order)


def unknown_previous_actions(read: Gathered, schema: Schema, order: Order) -> Found:
    """Missing actions in rows that are followed by another row, which observes them."""
    if schema.previous_action:
        unknown = order.of(read.codes[schema.action].all()) < 0
        unknown[order.ends - 1] = False
        message = "missing action, and the policy observes it in the next row of the episode"
        yield read.problem("unknown previous action", unknown, message, "fill it in", schema.action, order)


def same_time_before(read: Gathered, schema: Schema, order: Order) -> Found:
    """Two rows of an episode at the same time, where a policy observes the rows before or how long ago they were."""
    if schema.names_of_history or any(column.since for column in schema.columns):
        yield from same_time(read, schema, order)


OF_ROWS = (same_time, early_ends, two_ends, torn_groups, gaps_at_the_start)
OF_HISTORY = (same_time_before, gaps_at_the_start, unknown_previous_actions)  # of a table of states


def is_fraction(name: str) -> bool:
    """Whether a name is a number with a fraction."""
    try:
        return not float(name.replace(",", ".")).is_integer()
    except (ValueError, OverflowError):
        return False
