"""What the engine asks of a task: the data of runs, and the scores of what they learned. A cell is what it runs.

`EnvironmentTask` plays policies, `TableTask` compares them with recorded decisions. Another kind of task is one more
class like these. Another environment or dataset is one more instance.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl
from jaxtyping import PRNGKeyArray

from sbil.algorithms import settings_of
from sbil.dataset import Dataset, Spec
from sbil.errors import whole
from sbil.experiments.methods import Method
from sbil.version import MADE_BY

NUMBERS = ("size", "draws", "initialisations", "updates")  # of a cell
KINDS: dict[Any, Any] = {str: pl.String, int: pl.Int32, float: pl.Float64, bool: pl.Boolean}


class Run(NamedTuple):
    """One run of a cell: a draw of the data, and an initialisation of the networks."""

    cell: Cell
    draw: int
    initialisation: int


Scores = dict[str, np.ndarray]  # by name: one entry per run, [runs]; "returns" has one per episode, [runs, episodes]


class Prepared(NamedTuple):
    """What the runs of one program learn from, and how what they learned is scored."""

    spec: Spec
    dataset: Dataset
    keys: PRNGKeyArray  # [runs]
    score: Callable[[Any, np.ndarray, np.ndarray], Scores]  # (stacked networks, the numbers of their runs, diverged)


class Task(ABC):
    """One kind of task. Subclasses are frozen dataclasses; equal tasks give equal data."""

    place: ClassVar[str] = ""  # the folder within a store where results lie
    private: ClassVar[str] = ""  # the folder within a store for files that may hold rows of the data
    # Tables and figures of any task group by these.
    unlabelled: int = 0
    every_state: bool = False
    seed: int = 0

    @property
    @abstractmethod
    def setting(self) -> str:
        """What tells the task from others, in words that also make a file name."""

    @property
    @abstractmethod
    def asked(self) -> dict[str, Any]:
        """The fields that fingerprints depend on."""

    @property
    def scale(self) -> tuple[float, float]:
        """The returns of a random network and of the demonstrator, if policies play."""
        return float("nan"), float("nan")

    @abstractmethod
    def check(self, cell: Cell) -> None:
        """Refuse numbers that no cell of this task can have."""

    def baseline(self, method: Method) -> Callable[[Run], Scores] | None:
        """Return how a run is scored if the method is no algorithm but a baseline of this task."""
        return None

    @abstractmethod
    def surroundings(self, cell: Cell) -> list[Any]:
        """Refuse what cannot be run; return what else fingerprints depend on."""

    @abstractmethod
    def require(self, methods: Sequence[Method]) -> None:
        """Refuse, before any run, what this machine or these data cannot do."""

    @abstractmethod
    def program(self, cell: Cell) -> tuple[Any, ...]:
        """Return what cells of one compiled program have in common."""

    @abstractmethod
    def prepare(self, runs: Sequence[Run]) -> Prepared:
        """Return the data of the runs of one program."""

    def words(self, size: int) -> str:
        """Return the size of a cell as it stands in the cell's name."""
        return f"n={size}"

    @abstractmethod
    def file_name(self, cell: Cell) -> str:
        """Return the beginning of the name of a cell's file."""

    @classmethod
    def columns(cls) -> dict[str, Any]:
        """The fields that tell tasks apart, and their types in result files. The first is never null."""
        told = [field for field in fields(cls) if field.compare]  # type: ignore[arg-type]
        return {field.name: KINDS.get(field.type, pl.String) for field in told}

    def as_row(self) -> dict[str, Any]:
        """Return the fields as a file has them: a tuple as JSON."""
        values = {name: getattr(self, name) for name in self.columns()}
        return {name: json.dumps(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Task:
        """Return the task of a row of a file; a field that an older file lacks has its default."""
        return cls(**{name: row[name] for name in cls.columns() if row.get(name) is not None})


@dataclass(frozen=True)
class Cell:
    """What to run: the runs are every draw of the task's data with every initialisation."""

    task: Task
    method: Method
    size: int
    draws: int = 10
    initialisations: int = 5
    updates: int = 10_000

    def __post_init__(self) -> None:
        at_least(1, draws=self.draws, initialisations=self.initialisations)
        self.task.check(self)

    def __str__(self) -> str:
        return f"{self.setting} {self.method} {self.task.words(self.size)}".rstrip()

    @property
    def setting(self) -> str:
        """What tells the task from others, in words that also make a file name."""
        return self.task.setting

    @property
    def runs(self) -> list[tuple[int, int]]:
        """(draw, initialisation) of each run."""
        return [(draw, i) for draw in range(self.draws) for i in range(self.initialisations)]

    @property
    def candidates(self) -> dict[str, Any]:
        """The settings of the method, by name; if there are several, every run chooses. A baseline has none."""
        return {} if self.task.baseline(self.method) else self.method.candidates

    @property
    def numbers(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in NUMBERS}

    @property
    def fingerprint(self) -> str:
        """A name that changes with everything that was asked for; what cannot be run is refused here.

        The device and the versions of libraries are recorded with the result instead. They change bits, not what was
        measured, and results of several machines may lie in one folder.
        """
        surroundings = self.task.surroundings(self)
        asked = {**self.task.asked, "method": asdict(self.method), **self.numbers}
        settings = [settings_of(config) for config in self.candidates.values()]
        return mark([MADE_BY, asked, settings, *surroundings])


def mark(content: Any) -> str:
    """Return a short name of plain values."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def at_least(low: int, **numbers: int) -> None:
    """Refuse numbers below `low`, by name."""
    for name, value in numbers.items():
        whole(name, value, low)
