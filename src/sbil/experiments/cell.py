"""A cell: all runs of one task, method and size."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from sbil.algorithms import settings_of
from sbil.experiments.methods import Method
from sbil.experiments.task import Task, at_least
from sbil.version import MADE_BY


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
    def fingerprint(self) -> str:
        """A name that changes with everything that was asked for; what cannot be run is refused here.

        The device and the versions of libraries are recorded with the result instead. They change bits, not what was
        measured, and results of several machines may lie in one folder.
        """
        surroundings = self.task.surroundings(self)
        own = {name: getattr(self, name) for name in ("size", "draws", "initialisations", "updates")}
        asked = {**self.task.asked, "method": asdict(self.method), **own}
        settings = [settings_of(config) for config in self.candidates.values()]
        content = [MADE_BY, asked, settings, *surroundings]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
