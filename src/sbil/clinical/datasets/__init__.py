"""The datasets that `sbil reproduce` knows by name: how each becomes a task, and what its table compares.

Each file of this folder that defines datasets holds them as DATASETS; `known` finds them.
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sbil.errors import UserError, unknown
from sbil.experiments import TableTask
from sbil.experiments.table import METHODS, Wanted, wanted

# The order of lists. A file that is not named here comes after these, by name.
ORDER = ("mimic3", "physionet2012", "icu_sepsis")
# What is read (a table, or the records), the share of it that is read, and how many rows or records when all are.
Progress = Callable[[str, float, int | None], None]
ON_STATES = ("edm_exact", "edm_metropolis")  # algorithms for finitely many states


def silently(what: str, share: float, rows: int | None) -> None:
    """Progress that nobody wants to see."""


class Asked(NamedTuple):
    """What a person says of the data.

    folder: where what was extracted is kept; it holds rows of patients.
    source: the files as they come from PhysioNet; not needed once they were extracted.
    accept_incomplete: take tables of MIMIC-III whose numbers of rows are not the official ones; the title says so.
    trajectories, episodes: of a process that is known, how many are recorded, and for how many a policy is played.
    progress: called with what is being read, and how far; MIMIC-III takes minutes to hours.
    """

    folder: Path
    source: Sequence[Path] = ()
    accept_incomplete: bool = False
    trajectories: int | None = None
    episodes: int | None = None
    progress: Progress = silently


Opened = tuple[TableTask, str]  # a dataset that was read; who was left out, if that was found out now


@dataclass(frozen=True)
class Known:
    """A dataset by name."""

    name: str
    open: Callable[[Asked], Opened]
    source: str = ""  # what --source has to hold; empty if the dataset needs none
    methods: tuple[str, ...] = METHODS  # of its table
    references: tuple[str, ...] = ()  # policies that its process brings
    states: bool = False  # whether it has finitely many states, as one-hot rows

    def wanted(self, methods: Sequence[str] | None, splits: int = 10, updates: int | None = None) -> list[Wanted]:
        """Read the methods of a table, or take the dataset's own; refuse what cannot be run before data are read."""
        found = wanted(methods or self.methods, splits, updates, self.references)
        for method, _, _ in found:
            if method.algorithm in ON_STATES and not self.states:
                raise UserError(f"{method} needs finitely many states, as ICU-Sepsis has; leave it out.")
        return found


@cache
def known() -> dict[str, Known]:
    """The datasets of this folder, by name."""
    files = {module.name for module in pkgutil.iter_modules(__path__)}
    modules = [importlib.import_module(f"{__name__}.{name}") for name in (*ORDER, *sorted(files - {*ORDER}))]
    return {dataset.name: dataset for module in modules for dataset in getattr(module, "DATASETS", ())}


def get(name: str) -> Known:
    """The dataset called `name`."""
    if name not in known():
        raise unknown("dataset", name, known())
    return known()[name]
