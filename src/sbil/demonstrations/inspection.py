"""What the reader process does for `check`: one pass over a table, every rule, and the facts that a person sees."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sbil.demonstrations import leaks, quality, rules, units_and_codes
from sbil.demonstrations.checking import SMALL, Check, ColumnFacts, EpisodeFacts
from sbil.demonstrations.columns import Gathered
from sbil.demonstrations.counting import READ_AS_NAMES, TableCounts
from sbil.demonstrations.guessing import guess
from sbil.demonstrations.inspected import Inspected
from sbil.demonstrations.order import ordered
from sbil.demonstrations.problems import Problem, Problems
from sbil.demonstrations.roles import Roles, require
from sbil.demonstrations.rows import begin, complete, looks_numeric, wanted, with_added
from sbil.demonstrations.sample import Sample
from sbil.demonstrations.schema import ROLES, Schema
from sbil.demonstrations.table import Batch, Table
from sbil.demonstrations.values import in_order
from sbil.errors import UserError

RULES = (*quality.RULES, *units_and_codes.RULES, *leaks.RULES)
UNSOUND = (
    "not a time",
    "ambiguous dates",
    "no text",
    "too many names",
)  # where these are found, the order of the rows is not known


def inspect(table: Table, roles: Roles, folder: Path) -> Check:
    """Look through a table; roles that were not given are guessed."""
    first, batches = begin(table)
    free = first._replace(frame=first.frame.drop(roles.dropped, strict=False))
    found = guess(_said(roles, table.names), free, roles.observed)
    problems = Problems(raising=False)
    numeric = {name: looks_numeric(first, name) for name in table.names}
    schema = _planned(roles, found, numeric, problems)
    counts = TableCounts(table.names, found, _known(roles.schema, found["action"]))
    sample = _sample(found, schema, numeric)
    read = Gathered(schema, folder, problems, keep_numbers=False) if schema else None
    for batch in wanted(batches, found["episode"], roles):
        _add(batch, read, counts, sample)
    if read is not None and schema:
        _judge(read, schema, problems)
    tally = counts.tallies.get(found["action"] or "")
    seen = Check(
        source="",
        description=table.description,
        rows=counts.rows,
        roles=found,
        guessed=tuple(role for role, name in found.items() if name and not roles.said(role)),
        columns=tuple(_columns(counts, found, schema, read, numeric)),
        episodes=_episodes(read, found["episode"]),
        actions=_balance(tally.counts or {}) if tally else {},
        problems=(),
        added=_added(schema, read, counts, problems),
    )
    sound = read if not _unsound(problems) else None
    drawn = None if sound is None else sample.ordered(sound, found["action"], found["episode"])
    problems.apply(RULES, Inspected(seen, counts, read, drawn))
    return replace(seen, problems=problems.sorted())


def _added(schema: Schema | None, read: Gathered | None, counts: TableCounts, problems: Problems) -> tuple[str, ...]:
    """The numbers that each row observes too and that do not stand in it."""
    if schema is None or read is None:
        return ()

    def names(column: str) -> tuple[str, ...]:
        return tuple(in_order(counts.tallies[column].counts or {}))

    schema = with_added(schema, read)
    if not schema.adds:
        return ()
    columns = tuple(
        one if one.kind == "number" or one.levels else replace(one, levels=names(one.name)) for one in schema.columns
    )
    try:
        return replace(schema, columns=columns, actions=schema.actions or names(schema.action)).added
    except UserError as error:
        problems.add([_contradiction(error)])
        return ()


def _said(roles: Roles, names: Sequence[str]) -> dict[str, str | None]:
    """The columns that were named, by role. Each must be a column of the table."""
    said = {role: roles.said(role) for role in ROLES}
    for role, name in said.items():
        require(name, names, role)
    return said


def _planned(
    roles: Roles, found: Mapping[str, str | None], numeric: Mapping[str, bool], problems: Problems
) -> Schema | None:
    """The schema that reading would use; None if the roles contradict one another, which is a problem."""
    columns: dict[str, Any] = {**found, "action": found["action"] or ""}
    try:
        return replace(roles, **columns).plan(tuple(numeric), numeric)
    except UserError as error:
        problems.add([_contradiction(error)])
        return None


def _contradiction(error: UserError) -> Problem:
    """The problem that the roles of columns contradict one another."""
    message, _, remedy = str(error).rstrip(".").partition("; ")
    return Problem("roles", "stops", message, remedy or "give other columns")


def _known(schema: Schema | None, action: str | None) -> dict[str, tuple[str, ...]]:
    """The names that a schema lists, by column: they are not missing, whatever they look like."""
    return {**schema.levels, action or "": schema.actions} if schema else {}


def _add(batch: Batch, read: Gathered | None, counts: TableCounts, sample: Sample) -> None:
    codes, numbers = ({}, {}) if read is None else read.add(batch)
    counts.add(batch, codes, numbers)
    sample.add(batch, codes.get(counts.episode or ""), numbers)


def _sample(found: Mapping[str, str | None], schema: Schema | None, numeric: Mapping[str, bool]) -> Sample:
    """An empty sample of the columns that have no role."""
    names = schema.levels if schema else {}
    return Sample({name: one and name not in names for name, one in numeric.items() if name not in found.values()})


def _unsound(problems: Problems) -> bool:
    """Whether the order of the rows is not known."""
    return any(rule in UNSOUND for rule, _ in problems.found)


def _judge(read: Gathered, schema: Schema, problems: Problems) -> None:
    problems.apply(rules.OF_COLUMNS, read, schema)
    if _unsound(problems):
        return
    gaps = schema.missing == "drop" or any(name in read.missing for name in schema.roles.values())
    kept = complete(read) if gaps else None
    if kept is None or len(kept):
        problems.apply(rules.OF_ROWS, read, schema, ordered(read, schema, kept))


def _episodes(read: Gathered | None, episode: str | None) -> EpisodeFacts | None:
    if read is None or episode not in read.codes:
        return None
    codes = read.codes[episode].all()
    lengths = np.bincount(codes[codes >= 0])
    lengths = lengths[lengths > 0]
    if not len(lengths):
        return None
    single = int((lengths == 1).sum())
    return EpisodeFacts(len(lengths), int(lengths.min()), float(np.median(lengths)), int(lengths.max()), single)


def _columns(
    counts: TableCounts,
    found: Mapping[str, str | None],
    schema: Schema | None,
    read: Gathered | None,
    numeric: Mapping[str, bool],
) -> Iterator[ColumnFacts]:
    observed = schema.columns if schema else ()
    role_of = {column.name: "observation" if column.kind == "number" else str(column.kind) for column in observed}
    role_of |= dict.fromkeys(schema.drop if schema else (), "dropped")
    role_of |= {name: role for role, name in found.items() if name}
    for name, tally in counts.tallies.items():
        role = role_of.get(name, "left out")
        missing = read.missing.get(name, 0) if read is not None and name in role_of else None
        named = role in READ_AS_NAMES or (role in ("left out", "dropped") and not numeric[name])
        yield tally.facts(role, numeric[name], named, missing)


def _balance(actions: Mapping[str, int]) -> dict[str, Any]:
    """Rows by action, small counts without their number."""
    return {name: actions[name] if actions[name] >= SMALL else f"< {SMALL}" for name in in_order(dict(actions))}
