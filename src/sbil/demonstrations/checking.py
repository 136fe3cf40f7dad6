"""What a table holds, what is wrong with it, and the command that follows: before anything is trained."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sbil.demonstrations.reader_process import asked
from sbil.demonstrations.reading import roles_of, whole
from sbil.demonstrations.roles import Roles
from sbil.demonstrations.schema import Missing, Schema
from sbil.demonstrations.trajectory import Demonstrations
from sbil.errors import UserError

SMALL = 10  # counts below are not shown
FORMER = {"stops": 0, "harms": 1, "note": 2}
FILL = "--missing mean, last or drop"  # the one thing that stops and that the command mends
FILLED = {
    "mean": "filled with the mean of the column",
    "last": "filled with the last one of the episode, or the mean of the column where there is none before",
    "drop": "such rows are left out",
}


@dataclass(frozen=True)
class Problem:
    """One thing about a table: it stops training, it harms what is learned, or it is good to know."""

    severity: Literal["stops", "harms", "note"]
    where: str
    what: str
    fix: str


@dataclass(frozen=True)
class ColumnFacts:
    """One column of a table."""

    name: str
    role: str  # episode, time, action, terminal, group, observation, category, one-hot or left out
    type: str  # number, whole number or text
    missing: int
    missing_share: float
    distinct: int | None  # None: more than 1,000 in a batch of rows, not counted
    min: float | None
    mean: float | None
    max: float | None
    levels: tuple[str, ...]  # of the action and of categories


@dataclass(frozen=True)
class Checked:
    """What `check` found, in plain values."""

    source: str
    description: str  # how the file is written
    rows: int
    roles: Mapping[str, str | None]
    guessed: tuple[str, ...]  # the roles that nobody gave
    columns: tuple[ColumnFacts, ...]
    episodes: Mapping[str, Any] | None  # count, shortest, median, longest, of one step
    actions: Mapping[str, int | str]  # rows by action; small counts as "< 10"
    problems: tuple[Problem, ...]  # the most harmful first
    command: str = ""  # what to type next

    @property
    def blocked(self) -> bool:
        """Whether something has to be mended before the command can run."""
        return any(problem.severity == "stops" and problem.fix != FILL for problem in self.problems)

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "blocked": self.blocked}


def check(
    source: Any,
    *,
    episode: str | None = None,
    time: str | None = None,
    action: str | None = None,
    observations: Sequence[str] = (),
    terminal: str | None = None,
    group: str | None = None,
    categories: Sequence[str] = (),
    one_hot: Sequence[str] = (),
    units: Mapping[str, str] | None = None,
    missing: Missing | None = None,
    schema: Schema | str | Path | None = None,
    exclude: Sequence[str] = (),
) -> Checked:
    """Look through a table as `read` would, guess the roles that are not given, and list what is wrong.

    Bad cells are counted, not refused; a file that is no table is still a UserError. The episodes named in `exclude`
    are not looked at.
    """
    roles = roles_of(
        **{"episode": episode, "time": time, "action": action, "terminal": terminal, "group": group},
        **{"observations": observations, "categories": categories, "one_hot": one_hot},
        **{"units": units, "missing": missing, "schema": schema},
    )
    name = str(source) if isinstance(source, str | Path) else "the data frame"
    if loaded := whole(source, roles, exclude):
        source, roles = _frame(loaded, name), roles_of(episode="episode", time="step", action="action")
    with asked(source, {"task": "check", "roles": roles.as_json(), "exclude": list(exclude)}) as (_, facts):
        found = _checked(name, facts, roles)
    words = ["sbil", "train", "edm", "--data", name]
    if not loaded:
        words += _options(found, roles, schema if isinstance(schema, str | Path) else None)
    return replace(found, command=shlex.join([*words, "--out", "policy/"]))


def _frame(demonstrations: Demonstrations, name: str) -> Any:
    """Demonstrations that are no table, as one."""
    import polars as pl

    if len(demonstrations.observation_shape) != 1:
        raise UserError(f"{name}: its observations are images; check is for tables of numbers.")
    steps = demonstrations.flat()
    columns = {c: steps.observation[:, i] for i, c in enumerate(demonstrations.observation_names)}
    names = np.array(demonstrations.action_names, dtype=object)[steps.action].tolist()
    return pl.DataFrame({"episode": steps.trajectory, "step": steps.time, "action": names, **columns})


def _checked(name: str, facts: dict[str, Any], roles: Roles) -> Checked:
    kinds = {
        **dict.fromkeys(roles.categories, "category"),
        **dict.fromkeys(roles.one_hot, "one-hot"),
        **({c.name: c.kind for c in roles.schema.columns if c.kind != "number"} if roles.schema else {}),
    }
    chosen = _chosen(roles)
    role_of = {column: role for role, column in facts["roles"].items() if column}
    columns = tuple(_column(column, facts, _role(column, role_of, kinds, chosen)) for column in facts["columns"])
    problems = [*_role_problems(facts), *_action_problems(facts), *_episode_problems(facts), *_copy_problems(facts)]
    for column, raw in zip(columns, facts["columns"], strict=True):
        problems += _column_problems(column, raw, facts, roles.rule)
    episodes = facts["episodes"]
    if episodes:
        episodes = {key: episodes[key] for key in ("count", "shortest", "median", "longest", "of one step")}
    return Checked(
        name,
        facts["description"],
        facts["rows"],
        facts["roles"],
        tuple(facts["guessed"]),
        columns,
        episodes,
        {action: count if count >= SMALL else f"< {SMALL}" for action, count in (facts["actions"] or {}).items()},
        tuple(sorted(problems, key=lambda problem: FORMER[problem.severity])),
    )


def _chosen(roles: Roles) -> Sequence[str]:
    return roles.observations or (tuple(c.name for c in roles.schema.columns) if roles.schema else ())


def _role(column: dict[str, Any], roles: dict[str, str], kinds: dict[str, str], chosen: Sequence[str]) -> str:
    name = column["name"]
    if name in roles:
        return roles[name]
    if name in kinds:
        return kinds[name]
    observed = name in chosen if chosen else column["type"] != "text"
    return "observation" if observed else "left out"


def _column(column: dict[str, Any], facts: dict[str, Any], role: str) -> ColumnFacts:
    low, mean, high = (
        column[key] if role in ("observation", "left out", "terminal", "time") else None
        for key in ("min", "mean", "max")
    )
    levels = column["levels"] if role in ("action", "category", "one-hot") else None
    return ColumnFacts(
        column["name"],
        role,
        column["type"],
        column["missing"],
        column["missing"] / facts["rows"],
        column["distinct"],
        low,
        mean,
        high,
        tuple(level for level, count in (levels or {}).items() if count >= SMALL),
    )


def _role_problems(facts: dict[str, Any]) -> list[Problem]:
    roles, problems = facts["roles"], []
    if not roles["action"]:
        problems.append(Problem("stops", "action", "no column looks like the decision", "name it with --action"))
    if not roles["episode"]:
        problems.append(
            Problem("harms", "episode", "no column says which rows belong together", "name it with --episode")
        )
    elif not roles["time"]:
        problems.append(Problem("note", "time", "no column orders the rows", "name it with --time, if there is one"))
    for role in facts["guessed"]:
        problems.append(
            Problem(
                "note", f"column '{roles[role]}'", f"taken for the {role} by its name", f"give --{role} if it is not"
            )
        )
    if facts["bad times"]:
        problems.append(
            Problem(
                "stops",
                f"column '{roles['time']}'",
                _cells(facts["bad times"], "no time like the others"),
                "write one format",
            )
        )
    if facts["bad ends"]:
        problems.append(
            Problem(
                "stops", f"column '{roles['terminal']}'", _cells(facts["bad ends"], "neither 0 nor 1"), "write 0 or 1"
            )
        )
    return problems


def _cells(count: int, what: str) -> str:
    return f"{count:,} cell{'s are' if count > 1 else ' is'} {what}"


def _action_problems(facts: dict[str, Any]) -> list[Problem]:
    if not facts["roles"]["action"]:
        return []
    where, counts = f"column '{facts['roles']['action']}'", facts["actions"]
    if counts is None:
        return [
            Problem("stops", where, "more than 1,000 different actions", "cut it into a few ranges, or name another")
        ]
    if facts["fractions"]:
        return [Problem("stops", where, "the actions have fractions", "cut the number into a few ranges")]
    problems = []
    if len(counts) == 1:
        problems.append(
            Problem("harms", where, "only one action was ever taken", "there is nothing to choose; check it")
        )
    rare = [action for action, count in counts.items() if count < SMALL]
    if rare and len(counts) > 1:
        shown = ", ".join(f"'{action[:40]}'" for action in rare[:5])
        problems.append(
            Problem(
                "harms", where, f"taken fewer than {SMALL} times: {shown}", "collect more, or merge it with another"
            )
        )
    return problems


def _episode_problems(facts: dict[str, Any]) -> list[Problem]:
    episodes, roles = facts["episodes"], facts["roles"]
    if not episodes:
        return []
    problems = []
    if episodes["twice"]:
        one, other = episodes["twice at"]
        what = f"{episodes['twice']:,} times twice in one episode, first in {one} and {other}"
        problems.append(
            Problem("stops", f"column '{roles['time']}'", what, "keep one row of each, or record finer times")
        )
    if episodes["after the end"]:
        what = f"{episodes['after the end']:,} rows follow the end of their episode"
        problems.append(
            Problem("stops", f"column '{roles['terminal']}'", what, "only the last row of an episode is its end")
        )
    if episodes["torn groups"]:
        problems.append(
            Problem("stops", f"column '{roles['group']}'", "changes within episodes", "name another --group")
        )
    if episodes["of one step"] * 2 > episodes["count"]:
        what = f"{episodes['of one step']:,} of {episodes['count']:,} episodes have one row"
        problems.append(Problem("harms", f"column '{roles['episode']}'", what, "is this the column of the episode?"))
    if episodes["out of order"]:
        what = f"{episodes['out of order']:,} rows are out of order"
        problems.append(Problem("note", f"column '{roles['time']}'", what, "none needed: they are sorted when read"))
    elif episodes["apart"]:
        what = "the rows of an episode are not together"
        problems.append(
            Problem("note", f"column '{roles['episode']}'", what, "none needed: they are grouped when read")
        )
    return problems


def _copy_problems(facts: dict[str, Any]) -> list[Problem]:
    """Rows that are the same in every column; where there is a time, two rows at one time say it already."""
    if not facts["copies"] or facts["copies"]["count"] == 0:
        return []
    count, first = facts["copies"]["count"], facts["copies"]["first"]
    if count is None:
        return [Problem("note", "rows", "too many to look for copies among them", "look for them yourself")]
    what = f"{count:,} {'is' if count == 1 else 'are'} the same as an earlier one in every column, first {first}"
    if facts["roles"]["episode"]:  # equal states follow one another, and no split tears an episode apart
        return [Problem("note", "rows", what, "if they are copies remove them: they count twice")]
    return [Problem("harms", "rows", what, "if they are copies remove them: copies leak into what is held out")]


def _column_problems(column: ColumnFacts, raw: dict[str, Any], facts: dict[str, Any], missing: str) -> list[Problem]:
    where, problems, names = f"column '{column.name}'", [], ("category", "one-hot", "action", "episode", "group")
    if column.role == "left out":
        if column.type == "text" and raw["missing"] != facts["rows"]:
            problems.append(Problem("note", where, "text, left out", "observe it with --categories or --one-hot"))
        return problems
    if column.missing:
        what = f"{column.missing:,} missing ({column.missing_share:.1%}), first in {raw['places']['missing']}"
        if column.missing == facts["rows"]:
            problems.append(Problem("stops", where, "holds no value at all", "leave it out of the observations"))
        elif missing == "drop" or (missing in ("mean", "last") and column.role == "observation"):
            problems.append(Problem("note", where, what, FILLED[missing]))
        elif missing == "last" and column.role in names[:2]:
            fix = "the last one of the episode stands there; where there is none before, write a level of its own"
            problems.append(Problem("harms", where, what, fix))
        else:
            problems.append(
                Problem("stops", where, what, FILL if column.role == "observation" else "fill it in, or --missing drop")
            )
    if column.role == "observation":
        problems += _number_problems(column, raw, where)
    if column.role in ("observation", *names[:2]) and _identifies(column, facts):
        fix = "name what is observed without it (--observations), or give it as --group"
        problems.append(Problem("harms", where, "looks like an identifier", fix))
    if column.distinct == 1 and column.role in ("observation", *names[:2]):
        problems.append(Problem("note", where, "the same value in every row", "leave it out; it teaches nothing"))
    return problems


def _number_problems(column: ColumnFacts, raw: dict[str, Any], where: str) -> list[Problem]:
    problems = []
    if raw["foreign"]:
        words = "written with another decimal sign than the file's, or with thousands separators"
        what = f"{_cells(raw['foreign'], words)}, first in {raw['places']['foreign']}"
        fix = "write one sign throughout; codes are observed with --categories, or left out with --observations"
        problems.append(Problem("stops", where, what, fix))
    if raw["text"]:
        what = f"{_cells(raw['text'], 'no number')}, first in {raw['places']['text']}"
        problems.append(Problem("stops", where, what, "mend them, write NA, or observe it with --categories"))
    if raw["huge"]:
        what = f"{_cells(raw['huge'], 'infinite or too large')}, first in {raw['places']['huge']}"
        problems.append(Problem("stops", where, what, "mend them, or write NA"))
    if raw["sentinels"]:
        what = f"{_cells(raw['sentinels'], 'a number such as -9 or 999 far from all others')}"
        problems.append(Problem("harms", where, what, "if it stands for a missing value, write NA"))
    if raw["coarse"]:
        what = "varies by less than float32 can tell at its size"
        problems.append(Problem("harms", where, what, "subtract an offset, the smallest value say"))
    return problems


def _identifies(column: ColumnFacts, facts: dict[str, Any]) -> bool:
    """Whether a column of whole numbers or names has a value of its own in nearly every episode, patient or row.

    With a name such as mrn or hadm_id many different values are enough.
    """
    if column.type == "number":
        return False
    low = column.name.lower()
    called = low in ("id", "mrn") or low.endswith(("_id", " id", "number", "_no", "_mrn")) or low.startswith("id_")
    if found := facts["identifiers"].get(column.name):
        return bool(found["own"] or (called and found["many"]))
    if column.distinct is None:
        return called
    alone = not facts["roles"]["episode"] and column.distinct >= max(100, 0.95 * facts["rows"])
    return alone or (called and column.distinct >= max(20, facts["rows"] // 10))


def _options(found: Checked, roles: Roles, file: str | Path | None) -> list[str]:
    """The options of the training that follows from what was found; what a file of a schema says is not said again."""
    known = roles.schema if file else None
    words = ["--schema", str(file)] if file else []
    for role in ("episode", "time", "action", "terminal", "group"):
        column = found.roles[role]
        if (column or role == "action") and not (known and column == getattr(known, role)):
            words += [f"--{role}", column or "COLUMN"]
    if chosen := roles.observations if known else _chosen(roles):
        words += ["--observations", *chosen]
    for option, said, role in (("categories", roles.categories, "category"), ("one-hot", roles.one_hot, "one-hot")):
        if named := said if known else [column.name for column in found.columns if column.role == role]:
            words += [f"--{option}", *named]
    gaps = any(column.missing for column in found.columns if column.role == "observation")
    rule = "mean" if gaps and roles.rule == "refuse" else roles.rule
    if rule != (known.missing if known else "refuse"):
        words += ["--missing", rule]
    return words
