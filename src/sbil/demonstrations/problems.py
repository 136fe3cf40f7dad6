"""What is wrong with a table: `read` raises the first problem that stops training, `check` lists every problem."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sbil.errors import UserError
from sbil.text import counted

Severity = Literal["stops", "harms", "note"]
ORDER: tuple[Severity, ...] = ("stops", "harms", "note")


@dataclass(frozen=True)
class Problem:
    """One problem of a table: it stops training, it harms training, or it is good to know."""

    rule: str  # the name of the function that found it, in words
    severity: Severity
    message: str  # what is wrong
    remedy: str  # what to do
    column: str | None = None
    file: str | None = None
    row: int | None = None  # the first one
    numbering: str = "row"  # what `row` counts: "line" or "row"
    count: int | None = None  # how many cells or rows
    noun: str = "cell"  # what `count` counts
    elsewhere: str = ""  # the counts of other columns, for a reader who sees this problem only
    mended: bool = False  # whether the command that `check` prints corrects it

    @property
    def where(self) -> str:
        """The column, or the table."""
        return "the table" if self.column is None else f"column '{self.column}'"

    @property
    def what(self) -> str:
        """Return the message, the number of its cells or rows, and the first of them."""
        facts = [] if self.count is None else [counted(self.count, self.noun)]
        if self.file is not None:
            facts.append(f"first in {Path(self.file).name}, {self.numbering} {self.row}")
        return f"{self.message} ({', '.join(facts)})" if facts else self.message

    @property
    def line(self) -> str:
        """The whole problem in one line: where, what, and what to do."""
        place = [] if self.file is None else [f"{self.file}, {self.numbering} {self.row}"]
        column = [] if self.column is None else [self.where]
        where = ", ".join([*place, *column])
        return f"{where}{': ' if where else ''}{self.message}{self.elsewhere}; {self.remedy}."

    def as_json(self) -> dict[str, Any]:
        words = {"where": self.where, "what": self.what, "fix": self.remedy}
        facts = {name: getattr(self, name) for name in ("column", "file", "row", "count")}
        return {"rule": self.rule, "severity": self.severity, **words, **facts}


class Problems:
    """The problems of one table.

    raising: `add` raises the first problem that stops training. Otherwise all problems are kept, one per rule and
        column: what a rule finds in several batches is counted together.
    """

    def __init__(self, raising: bool) -> None:
        self.raising = raising
        self.found: dict[tuple[str, str | None], Problem] = {}

    def add(self, found: Iterable[Problem | None]) -> None:
        """Take what a rule found."""
        for problem in found:
            if problem is None:
                continue
            if self.raising and problem.severity == "stops":
                raise UserError(problem.line)
            key = (problem.rule, problem.column)
            before = self.found.get(key)
            if before is not None:
                both = (before.count, problem.count)
                problem = replace(before, count=None if None in both else sum(map(int, both)))  # type: ignore[arg-type]
            self.found[key] = problem

    def apply(self, rules: Iterable[Callable[..., Iterable[Problem | None]]], *seen: Any) -> None:
        for rule in rules:
            self.add(rule(*seen))

    def sorted(self) -> tuple[Problem, ...]:
        """The worst first."""
        return tuple(sorted(self.found.values(), key=lambda problem: ORDER.index(problem.severity)))
