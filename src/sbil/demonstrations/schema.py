"""What the columns of a table mean: which columns are the episode, the time and the action, and what is observed.

A schema is made when a table is read, or given. The demonstrations carry it into the policy that is trained on
them. It turns later tables into the same numbers in the same order. It is written as JSON: in a file of its own
(`--schema`), and inside policy.json.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from sbil.errors import UserError, flag, naming, unknown, whole
from sbil.files import json_object

Kind = Literal["number", "category", "one-hot"]
Missing = Literal["refuse", "mean", "last", "drop", "indicator"]
Dates = Literal["day-first", "month-first"]
Unseen = Literal["refuse", "other"]
OTHER = "other"  # the action that stands for actions that were not seen in training
ROLES = ("episode", "time", "action", "terminal", "truncated", "weights", "group")  # each is one column
ENDS = ("terminal", "truncated")
MOST_BINS = 100  # ranges of a number
MOST_HISTORY = 100  # rows before a row that it can observe
FILLING = ("mean", "last", "indicator")  # rules for missing values that keep the row
LARGEST = 3.4028234663852886e38  # of the numbers that float32 can hold


@dataclass(frozen=True)
class Column:
    """One column of a table and the numbers it becomes.

    number: one number. category: one number, the place of its value in `levels`. one-hot: 0 or 1 per level.
    """

    name: str
    kind: Kind = "number"
    levels: tuple[str, ...] = ()
    unit: str = ""
    fill: float | None = None  # replaces a missing number: the mean of the table that was read for training
    indicator: bool | None = None  # whether one more number says where the value is missing; None: not yet known
    since: bool | None = None  # whether two more say how long ago it was last recorded; None: not yet known
    bins: int | None = None  # into how many ranges the number is cut, at most
    edges: tuple[float, ...] | None = None  # where it is cut; each range is a number, of which one is 1; none: it stays

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the column's numbers, with their unit."""
        if self.kind == "one-hot":
            return (*(f"{self.name}={level}" for level in self.levels), *self.added)
        name = f"{self.name} [{self.unit}]" if self.unit else self.name
        return (*(_ranges(name, self.edges) if self.edges else (name,)), *self.added)

    @property
    def chosen(self) -> int:
        """Of how many of its first numbers one is 1: levels, and a missing one; or ranges. 0 if this is not so."""
        levels = len(self.levels) + bool(self.indicator) if self.kind == "one-hot" else 0
        return len(self.edges) + 1 if self.edges else levels

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the numbers that do not stand in the table; they are the last ones."""
        indicator = (f"{self.name} missing",) if self.indicator else ()
        return (*indicator, f"time since {self.name}", f"no {self.name} yet") if self.since else indicator

    def as_json(self) -> dict[str, Any]:
        """As plain values, without what is not known and what older versions did not know."""
        new = ("indicator", "since", "bins", "edges")
        own = {name: value for name, value in vars(self).items() if name not in new or value is not None}
        lists = {name: list(value) for name, value in own.items() if isinstance(value, tuple)}
        return own | lists

    @property
    def codes(self) -> tuple[int, ...]:
        """For each of its numbers, how many codes it can be: 0 to one less. 0 for a column of numbers."""
        many = len(self.edges) + 1 if self.edges else len(self.levels)
        one_of_many = self.kind == "one-hot" or self.edges
        own = (2,) * many if one_of_many else (0,) if self.kind == "number" else (many,)
        return own + (2,) * bool(self.indicator) + (0, 2) * bool(self.since)


@dataclass(frozen=True)
class Schema:
    """The meaning of a table's columns."""

    action: str
    columns: tuple[Column, ...]  # what is observed, in order
    actions: tuple[str, ...] = ()  # the actions by number; empty until a table was read
    episode: str | None = None  # without, every row is an episode of its own
    time: str | None = None  # without, the rows of an episode are in order
    terminal: str | None = None  # 1 or true in the row with which the process itself ended
    group: str | None = None  # what a split keeps together, for example the patient of several stays
    missing: Missing = "refuse"
    truncated: str | None = None  # 1 or true in the row with which the recording was cut although the process went on
    dates: Dates | None = None  # what 03/04/2026 means in the column of the time; None: nobody said
    previous_action: bool = False  # whether a row also observes the action of the row before in its episode
    drop: tuple[str, ...] = ()  # columns that are never observed
    weights: str | None = None  # how much the decision of a row counts in training; without, all count the same
    balance: bool = False  # whether every action counts the same in training, however often it was taken
    unseen: Unseen = "refuse"  # what to do with levels and actions that are not listed here
    history: int = 0  # of how many rows before in its episode a row also observes the numbers
    since_last: bool = False  # whether a row also observes how long ago values that can be missing were recorded

    def __post_init__(self) -> None:
        twice = _repeated(name for name in self.roles.values() if name)
        for name in (name for name in twice if name != self.group):
            raise UserError(f"column '{name}' has two roles; a column is one of {', '.join(ROLES[:-1])}.")
        self._check_observed()
        self._check_history()
        flag("balance", self.balance)
        clash = _repeated(self.observation_names)
        if clash:
            raise UserError(f"two columns become a number called '{clash[0]}'; rename one of them.")
        if self.missing not in get_args(Missing):
            raise unknown("rule for missing values", self.missing, get_args(Missing))
        if self.unseen not in get_args(Unseen):
            raise unknown("rule for unseen values", self.unseen, get_args(Unseen))
        if self.dates not in (None, *get_args(Dates)):
            raise unknown("order of dates", self.dates, get_args(Dates))

    def _check_observed(self) -> None:
        for name in (column.name for column in self.columns):
            if name in (self.action, self.terminal, self.truncated, self.weights):
                raise UserError(f"column '{name}' is the action, the end or the weight and cannot be observed as well.")
            if name in self.drop:
                raise UserError(f"column '{name}' is both observed and dropped; choose one.")
        twice = _repeated(column.name for column in self.columns)
        if twice:
            raise UserError(f"column '{twice[0]}' is listed twice among the observations.")

    def _check_history(self) -> None:
        object.__setattr__(self, "history", whole("history", self.history))
        if self.history > MOST_HISTORY:
            raise UserError(f"history must be a whole number from 0 to {MOST_HISTORY}. Got {self.history}.")
        for option in ("previous_action", "since_last"):
            flag(option, getattr(self, option))
        for option in ("previous_action", "history", "since_last"):
            if getattr(self, option) and not self.episode:
                raise UserError(f"{option} needs episodes; name their column (--episode), or leave out {option}.")

    @property
    def names_of_row(self) -> tuple[str, ...]:
        """The names of the numbers that a policy sees of the row itself."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def names_of_history(self) -> tuple[str, ...]:
        """The names of the numbers that a policy sees of the rows before."""
        rows = [f"{back} {'row' if back == 1 else 'rows'} before" for back in range(1, self.history + 1)]
        earlier = tuple(f"{name}, {row}" for row in rows for name in self.names_of_row)
        previous = ("no previous action", *(f"previous action: {name}" for name in self.actions))
        return earlier + previous if self.previous_action else earlier

    @property
    def observation_names(self) -> tuple[str, ...]:
        """The names of the numbers that a policy sees."""
        return self.names_of_row + self.names_of_history

    @property
    def observed(self) -> tuple[Column, ...]:
        """The columns whose numbers a policy sees, in order: of the row, of the rows before, the previous action."""
        previous = Column("previous action", "one-hot", ("none before", *self.actions))
        return self.columns * (1 + self.history) + (previous,) * self.previous_action

    @property
    def one_hot(self) -> list[list[int]]:
        """The places of the numbers of each one-hot column, of which one is 1, if only for a missing value."""
        ends = accumulate(len(column.names) for column in self.observed)
        places = [list(range(end - len(column.names), end)) for end, column in zip(ends, self.observed, strict=True)]
        return [own[: column.chosen] for own, column in zip(places, self.observed, strict=True) if column.chosen]

    @property
    def codes(self) -> list[int]:
        """For each number that a policy sees, how many codes it can be: 0 to one less. 0 for a column of numbers."""
        return [count for column in self.observed for count in column.codes]

    @property
    def adds(self) -> bool:
        """Whether a policy sees numbers that do not stand in the row of the table."""
        return self.previous_action or self.history > 0 or any(column.added or column.edges for column in self.columns)

    @property
    def linked(self) -> bool:
        """Whether what is observed of a row depends on the rows before it in its episode."""
        carried = self.missing == "last" and self.episode is not None
        return bool(self.previous_action or self.history or carried or any(column.since for column in self.columns))

    @property
    def added(self) -> tuple[str, ...]:
        """The names of these numbers."""
        return (*(name for column in self.columns for name in column.added), *self.names_of_history)

    @property
    def roles(self) -> dict[str, str | None]:
        """The column of each role."""
        return {role: getattr(self, role) for role in ROLES}

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of each column that holds names."""
        return {column.name: column.levels for column in self.columns if column.kind != "number"}

    @property
    def needed(self) -> tuple[str, ...]:
        """Return every column that is read from a table with decisions."""
        roles = [name for name in self.roles.values() if name]
        return tuple(dict.fromkeys([*roles, *(column.name for column in self.columns)]))

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        roles = {role: name for role, name in self.roles.items() if name or role not in ("truncated", "weights")}
        return {
            **roles,  # without `truncated` and others if they are not set: older versions did not know them
            "missing": self.missing,
            **({"dates": self.dates} if self.dates else {}),
            **({"drop": list(self.drop)} if self.drop else {}),
            **({"balance": True} if self.balance else {}),
            **({"unseen": self.unseen} if self.unseen != "refuse" else {}),
            **({"previous_action": True} if self.previous_action else {}),
            **({"history": self.history} if self.history else {}),
            **({"since_last": True} if self.since_last else {}),
            "actions": list(self.actions),
            "columns": [column.as_json() for column in self.columns],
        }

    @classmethod
    def from_json(cls, content: Any) -> "Schema":
        """Check plain values and return the schema; the name of a column alone means a column of numbers."""
        if not isinstance(content, Mapping):
            raise UserError("a schema is a JSON object with 'action' and 'columns'.")
        _only(content, cls, "entry of a schema")
        for role in ROLES:
            name = content.get(role)
            if not (isinstance(name, str) and name) and not (name is None and role != "action"):
                raise UserError(f"'{role}' of a schema must be the name of a column.")
        columns = tuple(map(_column, _list(content.get("columns", []), "columns")))
        lists = {name: _words(content.get(name, []), name) for name in ("actions", "drop")}
        return cls(**{**content, "columns": columns, **lists})

    @classmethod
    def of(cls, given: "Schema | Mapping[str, Any] | str | Path") -> "Schema":
        """Return a schema that is given as it is, as plain values or as a file."""
        if isinstance(given, str | Path):
            return cls.load(given)
        return cls.from_json(given) if isinstance(given, Mapping) else given

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Read a schema file."""
        with naming(path):
            return cls.from_json(json_object(Path(path).read_bytes(), "the schema", "the file", finite=False))


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _column(content: Any) -> Column:
    if isinstance(content, str):
        content = {"name": content}
    if not isinstance(content, Mapping) or not isinstance(content.get("name"), str) or not content["name"]:
        entries = ", ".join(f"'{field.name}'" for field in fields(Column))
        raise UserError(f"a column of a schema is a name, or an object with {entries}.")
    name = f"column '{content['name']}'"
    _only(content, Column, f"entry of {name}")
    edges = content.get("edges")
    told = {"edges": None if edges is None else tuple(_list(edges, f"edges of {name}"))}
    column = Column(**{**content, **told, "levels": _words(content.get("levels", []), f"levels of {name}")})
    if column.kind not in get_args(Kind):
        raise unknown(f"kind of {name}", column.kind, get_args(Kind))
    if not isinstance(column.unit, str):
        raise UserError(f"the unit of {name} must be text.")
    number = isinstance(column.fill, int | float) and type(column.fill) is not bool and abs(column.fill) <= LARGEST
    if not (column.fill is None or number):
        raise UserError(f"the fill of {name} must be a number that float32 can hold.")
    _check_added(column, name)
    _check_ranges(column, name)
    return column


def _ranges(name: str, edges: tuple[float, ...]) -> tuple[str, ...]:
    """The names of the ranges between edges."""
    between = (f"{name} {low:g} to {high:g}" for low, high in pairwise(edges))
    return (f"{name} below {edges[0]:g}", *between, f"{name} from {edges[-1]:g}")


def _check_ranges(column: Column, name: str) -> None:
    """Refuse wrong entries about ranges."""
    if column.bins is not None:
        whole(f"bins of {name}", column.bins, 2)
    if column.bins is not None and column.bins > MOST_BINS:
        raise UserError(f"bins of {name} must be a whole number from 2 to {MOST_BINS}. Got {column.bins}.")
    if (column.bins or column.edges is not None) and column.kind != "number":
        raise UserError(f"{name} is a category and cannot be cut into ranges; leave out bins.")
    edges = () if column.edges is None else column.edges
    numbers = all(isinstance(edge, int | float) and type(edge) is not bool and abs(edge) <= LARGEST for edge in edges)
    if not numbers or any(low >= high for low, high in pairwise(edges)):
        raise UserError(f"the edges of {name} must be a list of numbers, each larger than the one before.")


def _check_added(column: Column, name: str) -> None:
    """Refuse wrong entries about the numbers that are added to a column."""
    for entry in ("indicator", "since"):
        if getattr(column, entry) is not None:
            flag(f"the entry '{entry}' of {name}", getattr(column, entry))
    if column.indicator and column.kind == "category":
        raise UserError(f"{name} is a category and has no indicator; make it one-hot.")


def _only(content: Mapping[str, Any], kind: type[Any], what: str) -> None:
    """Refuse an entry that a dataclass does not have."""
    known = [field.name for field in fields(kind)]
    for key in content:
        if key not in known:
            raise unknown(what, key, known)


def _list(content: Any, what: str) -> list[Any]:
    if not isinstance(content, list | tuple):
        raise UserError(f"the {what} of a schema must be a list.")
    return list(content)


def _words(content: Any, what: str) -> tuple[str, ...]:
    words = _list(content, what)
    if not all(isinstance(word, str) for word in words) or len(set(words)) != len(words):
        raise UserError(f"the {what} must be a list of different texts.")
    return tuple(words)
