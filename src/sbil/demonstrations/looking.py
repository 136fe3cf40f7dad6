"""What the reader process does for `check`: one pass over a table, every rule, and the facts that a person sees."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sbil.demonstrations import quality, rules
from sbil.demonstrations.checking import SMALL, Check, ColumnFacts, EpisodeFacts
from sbil.demonstrations.columns import Gathered
from sbil.demonstrations.guessing import guess
from sbil.demonstrations.problems import Problem, Problems
from sbil.demonstrations.roles import Roles, require
from sbil.demonstrations.rows import begin, complete, looks_numeric, ordered, without
from sbil.demonstrations.schema import ROLES, Schema
from sbil.demonstrations.survey import READ_AS_NAMES, Survey
from sbil.demonstrations.table import Table
from sbil.demonstrations.values import in_order
from sbil.errors import UserError

UNSOUND = ("not a time", "no text", "too many names")  # where these are found, the order of the rows is not known


def look(table: Table, roles: Roles, folder: Path) -> Check:
    """Look through a table; roles that were not given are guessed."""
    first, batches = begin(table)
    found = guess(_said(roles, table.names), first, roles.observed)
    problems = Problems(raising=False)
    numeric = {name: looks_numeric(first, name) for name in table.names}
    schema = _planned(roles, found, numeric, problems)
    # A name that the schema lists is not missing, whatever it looks like.
    known = {**roles.schema.levels, found["action"] or "": roles.schema.actions} if roles.schema else {}
    survey = Survey(table.names, found, known)
    read = Gathered(schema, folder, problems, keep_numbers=False) if schema else None
    for batch in without(batches, found["episode"], roles.exclude):
        survey.add(batch, *(({}, {}) if read is None else read.add(batch)))
    if read is not None and schema:
        _judge(read, schema, problems)
    tally = survey.tallies.get(found["action"] or "")
    seen = Check(
        source="",
        description=table.description,
        rows=survey.rows,
        roles=found,
        guessed=tuple(role for role, name in found.items() if name and not roles.said(role)),
        columns=tuple(_columns(survey, found, schema, read, numeric)),
        episodes=_episodes(read, found["episode"]),
        actions=_balance(tally.counts or {}) if tally else {},
        problems=(),
    )
    problems.apply(quality.RULES, quality.Look(seen, survey, read))
    return replace(seen, problems=problems.sorted())


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
        message, _, remedy = str(error).rstrip(".").partition("; ")
        problems.add([Problem("roles", "stops", message, remedy or "give other columns")])
        return None


def _judge(read: Gathered, schema: Schema, problems: Problems) -> None:
    problems.apply(rules.OF_COLUMNS, read, schema)
    if any(rule in UNSOUND for rule, _ in problems.found):
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
    survey: Survey,
    found: Mapping[str, str | None],
    schema: Schema | None,
    read: Gathered | None,
    numeric: Mapping[str, bool],
) -> Iterator[ColumnFacts]:
    observed = schema.columns if schema else ()
    role_of = {column.name: "observation" if column.kind == "number" else str(column.kind) for column in observed}
    role_of |= {name: role for role, name in found.items() if name}
    for name, tally in survey.tallies.items():
        role = role_of.get(name, "left out")
        missing = read.missing.get(name, 0) if read is not None and name in role_of else None
        named = role in READ_AS_NAMES or (role == "left out" and not numeric[name])
        yield tally.facts(role, numeric[name], named, missing)


def _balance(actions: Mapping[str, int]) -> dict[str, Any]:
    """Rows by action, small counts without their number."""
    return {name: actions[name] if actions[name] >= SMALL else f"< {SMALL}" for name in in_order(dict(actions))}
