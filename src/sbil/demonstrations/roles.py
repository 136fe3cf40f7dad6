"""The roles that a person gives to columns. With the columns of a table they become a schema."""

import csv
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

from sbil.demonstrations.schema import FILLING, MOST_BINS, ROLES, Column, Dates, Kind, Missing, Schema, Unseen
from sbil.errors import UserError, flag, unknown, whole

END = "the end of an episode"
SHOWN = 20  # names of columns in a message
FILES = ("schema", "exclude", "only")  # keywords that may name a file
LISTS = ("observations", "categories", "one_hot", "drop")


class Columns(TypedDict, total=False):
    """What the columns of a table mean: the keywords of `read`, which explains them, and of `check`."""

    episode: str | None
    time: str | None
    action: str | None
    observations: Sequence[str]
    terminal: str | None
    truncated: str | None
    group: str | None
    weights: str | None
    balance: bool | None
    categories: Sequence[str]
    one_hot: Sequence[str]
    drop: Sequence[str]
    unseen: Unseen | None
    units: Mapping[str, str] | None
    bins: Mapping[str, int] | None
    missing: Missing | None
    schema: Schema | Mapping[str, Any] | str | Path | None
    dates: Dates | None
    previous_action: bool | None
    history: int | None
    since_last: bool | None
    exclude: Sequence[str] | str | Path
    only: Sequence[str] | str | Path


@dataclass(frozen=True)
class Roles:
    """What a person said about the columns; the rest comes from the schema, if there is one."""

    episode: str | None = None
    time: str | None = None
    action: str | None = None
    observations: tuple[str, ...] = ()
    terminal: str | None = None
    group: str | None = None
    categories: tuple[str, ...] = ()
    one_hot: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    missing: Missing | None = None  # None: the rule of the schema, or refuse
    schema: Schema | None = None
    truncated: str | None = None
    exclude: tuple[str, ...] = ()  # names of episodes
    only: tuple[str, ...] = ()  # names of episodes; none: all
    dates: Dates | None = None  # None: what the schema says
    previous_action: bool | None = None  # None: what the schema says, or no
    history: int | None = None  # None: what the schema says, or 0
    drop: tuple[str, ...] = ()
    bins: Mapping[str, int] = field(default_factory=dict)
    weights: str | None = None
    balance: bool | None = None  # None: what the schema says, or no
    unseen: Unseen | None = None  # None: the rule of the schema, or refuse
    since_last: bool | None = None  # None: what the schema says, or no

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> "Roles":
        """Check `Columns` that a person gave."""
        for name, value in columns.items():
            if name == "columns":
                raise UserError(
                    "what columns mean are keywords of their own here, as in read(table, action='treatment')."
                )
            if name not in Columns.__annotations__:
                raise unknown("name in columns", name, Columns.__annotations__)
            if name in LISTS and isinstance(value, str):
                raise UserError(f"{name} is a list. Got the text '{value}'; write ['{value}'].")
        given: dict[str, Any] = {**columns, **{name: tuple(columns.get(name, ())) for name in LISTS}}
        for name in ("previous_action", "since_last", "balance"):
            if given.get(name) is not None:
                given[name] = flag(name, given[name])
        if given.get("history") is not None:
            given["history"] = whole("history", given["history"])
        given["units"], given["bins"] = dict(columns.get("units") or {}), _counts(columns.get("bins"))
        given["schema"] = Schema.of(columns["schema"]) if columns.get("schema") else None
        return cls(**{**given, **{option: _episodes(option, columns.get(option)) for option in ("exclude", "only")}})

    def said(self, role: str) -> str | None:
        """The column of a role, as the person said or as the schema says."""
        name: str | None = getattr(self, role) or (getattr(self.schema, role) if self.schema else None)
        return name

    @property
    def observed(self) -> list[str]:
        """The columns that a person or the schema names as observations."""
        return [*self.observations, *self.categories, *self.one_hot, *([] if self.observations else self._kept)]

    @property
    def _kept(self) -> list[str]:
        """The columns that the schema observes and nobody drops."""
        columns = self.schema.columns if self.schema else ()
        return [column.name for column in columns if column.name not in self.drop]

    @property
    def dropped(self) -> tuple[str, ...]:
        """The columns that a person or the schema says are never observed."""
        return self.drop or (self.schema.drop if self.schema else ())

    @property
    def rule(self) -> Missing:
        """What to do where a value is missing."""
        return self.missing or (self.schema.missing if self.schema else "refuse")

    @property
    def rules(self) -> dict[str, Any]:
        """What is said about the whole table, as entries of the schema."""
        known = self.schema or Schema("", ())
        return {
            "missing": self.rule,
            "dates": self.dates or known.dates,
            "drop": self.dropped,
            "balance": known.balance if self.balance is None else self.balance,
            "unseen": self.unseen or known.unseen,
        }

    @property
    def before(self) -> dict[str, Any]:
        """What a row observes of the rows before it, as entries of the schema."""
        given = {name: getattr(self, name) for name in ("previous_action", "history", "since_last")}
        told = {name: getattr(self.schema, name) for name in given} if self.schema else {}
        return told | {name: value for name, value in given.items() if value is not None}

    def plan(self, names: Sequence[str], numeric: Mapping[str, bool]) -> Schema:
        """The schema for a table with the columns `names`; `numeric` says which columns hold numbers."""
        roles = {role: self.said(role) for role in ROLES}
        if roles["action"] is None:
            raise UserError(f"which column holds the action? Give action (--action); there are {listed(names)}.")
        if roles["time"] and not roles["episode"]:
            raise UserError("a time is given without an episode; name its column (--episode), or leave out the time.")
        for role, name in roles.items():
            require(name, names, role)
        if not (self.schema and self.schema.columns and not self.drop):  # else the table may be a later one
            for name in self.dropped:
                require(name, names, "drop")
        columns = self._columns(names, numeric, {*filter(None, roles.values()), *self.dropped})
        actions = self.schema.actions if self.schema else ()
        made = Schema(columns=columns, actions=actions, **self.rules, **roles)  # type: ignore[arg-type]
        return _with_gaps(replace(made, **self.before))

    def _columns(self, names: Sequence[str], numeric: Mapping[str, bool], taken: set[str]) -> tuple[Column, ...]:
        kinds = self._kinds()
        known = {column.name: column for column in self.schema.columns} if self.schema else {}
        if named := [*(self.observations or self._kept)]:
            chosen = [*named, *(name for name in kinds if name not in named)]
        else:
            free = _free(names, numeric, taken)
            chosen = [name for name in names if name in kinds or name in free]
        for name in (*chosen, *kinds, *self.units, *self.bins):
            require(name, names, "observation")
        _must_be_observed(self.bins, chosen)
        if not chosen:
            raise UserError(f"no column of numbers is left to observe; there are {listed(names)}.")
        return tuple(self._column(known.get(name, Column(name)), kinds.get(name)) for name in chosen)

    def _kinds(self) -> dict[str, Kind]:
        both = sorted(set(self.categories) & set(self.one_hot))
        if both:
            raise UserError(f"column '{both[0]}' is given as a category and as one-hot; choose one.")
        return {**dict.fromkeys(self.categories, "category"), **dict.fromkeys(self.one_hot, "one-hot")}

    def _column(self, column: Column, kind: Kind | None) -> Column:
        changed = replace(column, unit=self.units.get(column.name, column.unit))
        changed = replace(changed, kind=kind, fill=None) if kind else changed
        if column.name not in self.bins:
            return changed
        if changed.kind != "number":
            raise UserError(f"column '{column.name}' is a category and cannot be cut into ranges; leave out bins.")
        return replace(changed, bins=self.bins[column.name], edges=None)


def _must_be_observed(bins: Mapping[str, int], chosen: Sequence[str]) -> None:
    if left := [name for name in bins if name not in chosen]:
        raise UserError(f"column '{left[0]}' is not observed, so it cannot be cut into ranges; leave out bins.")


def _counts(bins: Any) -> dict[str, int]:
    """Check into how many ranges each column is to be cut."""
    if not isinstance(bins, Mapping | None):
        raise UserError(f'bins must be a dict, such as {{"age": 5}}. Got {bins!r}.')
    found = {name: whole(f"bins of '{name}'", count, 2) for name, count in (bins or {}).items()}
    for name, count in found.items():
        if count > MOST_BINS:
            raise UserError(f"bins of '{name}' must be a whole number from 2 to {MOST_BINS}. Got {count}.")
    return found


def _with_gaps(schema: Schema) -> Schema:
    """The schema; refused if it asks when values were last recorded, and does not allow gaps."""
    if schema.since_last and schema.missing not in FILLING and all(column.since is None for column in schema.columns):
        what = "since_last needs rows in which a value is missing"
        raise UserError(f"{what}; choose mean, last or indicator for missing values (--missing).")
    return schema


def _free(names: Sequence[str], numeric: Mapping[str, bool], taken: set[str]) -> set[str]:
    """The columns of numbers that have no role and were known before the decision."""
    return {name for name in names if numeric[name] and name not in taken and not consequence(name)}


def _episodes(option: str, given: Sequence[str] | str | Path | None) -> tuple[str, ...]:
    """The names of episodes; of a file the first cell of each line. The first may be the name of the column."""
    if not isinstance(given, str | Path):
        return tuple(given or ())
    try:
        with Path(given).open(encoding="utf-8-sig", newline="") as file:
            return tuple(row[0].strip() for row in csv.reader(file) if row and row[0].strip())
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise UserError(f"{option} (--{option}) {given}: {why}; name a file with one episode per line.") from None
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"{option} (--{option}) {given}: is not text; name a file with one episode per line.") from None


def words_in(name: str) -> list[str]:
    """The words in the name of a column, in lower case: next_state and nextState are two words each."""
    return [word for word in re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) if word]


def consequence(name: str) -> str | None:
    """What a column holds that became known only after the decision, judged by its name; None if nothing.

    Such a column is not observed unless a person names it.
    """
    words = words_in(name) or [""]
    if words[0] == "next" and len(words) > 1:
        return "a next state"
    if words[-1] in ("reward", "rewards"):
        return "a reward"
    if words[-1] in ("return", "returns") or words[-3:] == ["return", "to", "go"]:
        return "a return"
    return END if words in (["done"], ["terminal"], ["terminated"], ["truncated"]) else None


def require(name: str | None, names: Sequence[str], role: str) -> None:
    """Refuse a name that is no column of the table; no name is no mistake."""
    if not name or name in names:
        return
    if not isinstance(name, str):
        raise UserError(f"{role} must be the name of a column. Got {name!r}.")
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {listed(names)}."
    alone = " Are the cells separated by a character other than , ; tab or |?" if len(names) == 1 and not near else ""
    raise UserError(f"there is no column '{name}' ({role}); {hint}{alone}")


def listed(names: Sequence[str]) -> str:
    """Names of columns for a message."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"'{name[:60]}'" for name in names[:SHOWN]) + more
