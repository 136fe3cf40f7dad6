"""What a table holds, what is wrong with it, and the command that follows: before anything is trained."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from sbil.demonstrations.problems import Problem
from sbil.demonstrations.reader_process import asked
from sbil.demonstrations.reading import described_by_itself
from sbil.demonstrations.roles import Columns, Roles
from sbil.demonstrations.schema import Schema
from sbil.demonstrations.trajectory import Demonstrations
from sbil.errors import UserError

SMALL = 10  # smaller counts are not shown


@dataclass(frozen=True)
class ColumnFacts:
    """One column of a table."""

    name: str
    role: str  # a role such as episode or action, observation, category, one-hot, dropped, or left out
    type: str  # number, whole number or text
    missing: int
    missing_share: float
    distinct: int | None  # None: more than 1,000 in a batch of rows, not counted
    min: float | None
    mean: float | None
    max: float | None
    levels: tuple[str, ...]  # of the action and of categories


@dataclass(frozen=True)
class EpisodeFacts:
    """How long the episodes of a table are, in rows."""

    count: int
    shortest: int
    median: float
    longest: int
    single: int  # how many have one row


@dataclass(frozen=True)
class Check:
    """What `check` found."""

    source: str
    description: str  # how the file is written
    rows: int
    roles: Mapping[str, str | None]
    guessed: tuple[str, ...]  # the roles that nobody gave
    columns: tuple[ColumnFacts, ...]
    episodes: EpisodeFacts | None
    actions: Mapping[str, int | str]  # rows by action; small counts as "< 10"
    problems: tuple[Problem, ...]  # the worst first
    command: str = ""  # what to type next
    added: tuple[str, ...] = ()  # the numbers of earlier rows that each row observes too

    @property
    def blocked(self) -> bool:
        """Whether something must be corrected before the command can run."""
        return any(problem.severity == "stops" and not problem.mended for problem in self.problems)

    def having(self, role: str) -> list[ColumnFacts]:
        """The columns that have a role."""
        return [column for column in self.columns if column.role == role]

    def as_json(self) -> dict[str, Any]:
        problems = [problem.as_json() for problem in self.problems]
        return {**asdict(self), "problems": problems, "blocked": self.blocked}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Check":
        """From the plain values of `dataclasses.asdict`, as they come from the reader process."""
        columns = [{**column, "levels": tuple(column["levels"])} for column in content["columns"]]
        return replace(
            cls(**content),
            guessed=tuple(content["guessed"]),
            added=tuple(content["added"]),
            columns=tuple(ColumnFacts(**column) for column in columns),
            episodes=content["episodes"] and EpisodeFacts(**content["episodes"]),
            problems=tuple(Problem(**problem) for problem in content["problems"]),
        )


def check(source: Any, **columns: Unpack[Columns]) -> Check:
    """Look through a table as `read` would, guess the roles that are not given, and list what is wrong.

    source: whatever `read` reads, or Demonstrations. The keywords are those of `read`.
    Everything that `read` would refuse is listed and stops nothing here. A file that is no table, and the name of a
    column that is not there, are UserErrors here as well. Only the episodes that reading keeps (`exclude`, `only`) are
    looked at.
    """
    roles = Roles.of(columns)
    kind = "the demonstrations" if isinstance(source, Demonstrations) else "the data frame"
    name = str(source) if isinstance(source, str | Path) else kind
    loaded = source if isinstance(source, Demonstrations) else described_by_itself(source, roles)
    if loaded is not None:
        source, roles = _as_table(loaded, name)
    with asked(source, {"task": "check", "roles": asdict(roles)}) as (_, result):
        found = replace(Check.from_json(result["check"]), source=name)
    schema, exclude, only = (
        [f"--{one}", str(file)] if isinstance(file := columns.get(one), str | Path) else []
        for one in ("schema", "exclude", "only")
    )
    options = _options(found, roles, schema) if loaded is None else []
    words = ["sbil", "train", "edm", "--data", name, *options, "--out", "policy/", *exclude, *only]
    return replace(found, command=shlex.join(words))


def _as_table(demonstrations: Demonstrations, name: str) -> tuple[Any, Roles]:
    """Demonstrations as a data frame, and the roles of its columns."""
    import polars as pl

    if len(demonstrations.observation_shape) != 1:
        raise UserError(f"{name}: its observations are images; check is for tables of numbers.")
    steps = demonstrations.flat()
    columns = {c: steps.observation[:, i] for i, c in enumerate(demonstrations.observation_names)}
    actions = np.array(demonstrations.action_names, dtype=object)[steps.action].tolist()
    frame = pl.DataFrame({"(episode)": steps.trajectory, "(step)": steps.time, "(action)": actions, **columns})
    return frame, Roles("(episode)", "(step)", "(action)", tuple(columns))  # names that no observation has


def _options(found: Check, roles: Roles, schema: list[str]) -> list[str]:
    """The options of the training that follows. `schema` names the file of one; what it says is not said again."""
    action = found.roles["action"] or "COLUMN"
    wanted: dict[str, Sequence[str | None]] = {role: [name] for role, name in {**found.roles, "action": action}.items()}
    known = _said(roles.schema) if roles.schema else {}
    implied = known if schema else {"missing": ["refuse"]}
    wanted["observations"] = [*roles.observations] or known.get("observations", [])
    wanted["categories"] = [column.name for column in found.having("category")]
    wanted["one-hot"] = [column.name for column in found.having("one-hot")]
    wanted["drop"] = [*roles.drop]
    wanted["missing"] = [_rule(found, roles)]
    wanted["dates"], wanted["unseen"] = [roles.dates], [roles.unseen]
    words = [*schema, *_rows_before(roles, roles.schema if schema else None), *["--balance"] * bool(roles.balance)]
    wanted["bins"] = [f"{name}={count}" for name, count in roles.bins.items()]
    for option, names in wanted.items():
        if any(names) and names != implied.get(option):
            words += [f"--{option}", *map(str, names)]
    return words


def _rule(found: Check, roles: Roles) -> str:
    """What to do where a value is missing; gaps that reading would refuse are filled with the mean."""
    gaps = any(column.missing for column in found.having("observation"))
    return "mean" if gaps and roles.rule == "refuse" else roles.rule


def _rows_before(roles: Roles, said: Schema | None) -> list[str]:
    """The options of what a row observes of the rows before it, without those that a schema says already."""
    words = {"previous_action": ["--previous-action"], "history": ["--history", str(roles.before.get("history"))]}
    words["since_last"] = ["--since-last"]
    new = {name for name, value in roles.before.items() if value and value != getattr(said, name, None)}
    return [word for name in words if name in new for word in words[name]]


def _said(schema: Schema) -> dict[str, Sequence[str | None]]:
    """The options that a schema stands for."""
    kinds = {"observations": None, "categories": "category", "one-hot": "one-hot"}
    columns = {o: [c.name for c in schema.columns if kind in (None, c.kind)] for o, kind in kinds.items()}
    return {**{role: [column] for role, column in schema.roles.items()}, **columns, "missing": [schema.missing]}
