"""Which column says what, as a person gives it; together with the columns that a table has, a schema."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sbil.demonstrations.schema import Column, Kind, Missing, Schema
from sbil.errors import UserError

SHOWN = 20  # names of columns in a message


@dataclass(frozen=True)
class Roles:
    """What was said of the columns; what was not said comes from the schema, if there is one."""

    episode: str | None = None
    time: str | None = None
    action: str | None = None
    observations: tuple[str, ...] = ()
    terminal: str | None = None
    group: str | None = None
    categories: tuple[str, ...] = ()
    one_hot: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    missing: Missing | None = None  # not said: the schema's rule, or refuse
    schema: Schema | None = None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "units": dict(self.units), "schema": self.schema and self.schema.as_json()}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Roles:
        """From plain values written by `as_json`."""
        lists = {name: tuple(content[name]) for name in ("observations", "categories", "one_hot")}
        schema = Schema.from_json(content["schema"]) if content["schema"] else None
        return cls(**{**content, **lists, "schema": schema})

    def said(self, role: str) -> str | None:
        """The column of a role, by word or by schema."""
        name: str | None = getattr(self, role) or (getattr(self.schema, role) if self.schema else None)
        return name

    @property
    def rule(self) -> Missing:
        """What is done where a value is missing."""
        return self.missing or (self.schema.missing if self.schema else "refuse")

    def plan(self, names: Sequence[str], numeric: Mapping[str, bool]) -> Schema:
        """The schema for a table with the columns `names`, of which some are `numeric`."""
        roles = {role: self.said(role) for role in ("action", "episode", "time", "terminal", "group")}
        if not roles["action"]:
            raise UserError(f"which column holds the action? Give action (--action); there are {listed(names)}.")
        if roles["time"] and not roles["episode"]:
            raise UserError("a time is given and no episode; name the column of the episode (--episode), or give none.")
        for role, name in roles.items():
            require(name, names, role)
        missing = self.rule
        columns = self._columns(names, numeric, {name for name in roles.values() if name})
        actions = self.schema.actions if self.schema else ()
        return Schema(columns=columns, actions=actions, missing=missing, **roles)  # type: ignore[arg-type]

    def _columns(self, names: Sequence[str], numeric: Mapping[str, bool], taken: set[str]) -> tuple[Column, ...]:
        both = sorted(set(self.categories) & set(self.one_hot))
        if both:
            raise UserError(f"column '{both[0]}' is given as a category and as one-hot; choose one.")
        kinds: dict[str, Kind] = {
            **dict.fromkeys(self.categories, "category"),
            **dict.fromkeys(self.one_hot, "one-hot"),
        }
        known = {column.name: column for column in self.schema.columns} if self.schema else {}
        chosen = [*self.observations] or [*known]
        if chosen:
            chosen += [name for name in kinds if name not in chosen]
        else:
            for name in kinds:
                require(name, names, "observation")
            chosen = [name for name in names if name in kinds or (numeric[name] and name not in taken)]
        for name in (*chosen, *self.units):
            require(name, names, "observation")
        if not chosen:
            raise UserError(f"no column of numbers is left to observe; there are {listed(names)}.")
        return tuple(self._column(known.get(name, Column(name)), kinds.get(name)) for name in chosen)

    def _column(self, column: Column, kind: Kind | None) -> Column:
        changed = replace(column, unit=self.units.get(column.name, column.unit))
        return replace(changed, kind=kind, fill=None) if kind else changed


def require(name: str | None, names: Sequence[str], role: str) -> None:
    """Refuse a name that is no column of the table."""
    if name is None or name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {listed(names)}."
    alone = " Are the cells separated by something other than , ; tab or |?" if len(names) == 1 and not near else ""
    raise UserError(f"there is no column '{name}' ({role}); {hint}{alone}")


def listed(names: Sequence[str]) -> str:
    """Names of columns for a message."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"'{name[:60]}'" for name in names[:SHOWN]) + more
