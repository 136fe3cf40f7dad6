"""The cells that a table or figure shows: their settings, their groups, and their scores as arrays for statistics."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from sbil.errors import UserError
from sbil.experiments import Cell, Result
from sbil.experiments.environment import played

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def setting_of(result: Result) -> str:
    """Name the setting of a table: environment, demonstrator and thinning, and the seed if it is not 0."""
    task = played(result.cell)
    thinning = "every step" if task.thin == 1 else f"every {task.thin}th step"
    seed = f", seed {task.seed}" if task.seed else ""
    return f"{task.environment}, {task.demonstrator} demonstrator ({task.mode}), {thinning}{seed}"


def method_of(result: Result) -> str:
    """Name the method of a cell."""
    return str(result.cell.method)


def two_lines(setting: str) -> list[str]:
    """Split the name of a setting into the environment and the rest."""
    return setting.split(", ", 1)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items (results, rows) by their key, in the order in which they come."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def distinct(results: Sequence[Result]) -> list[Result]:
    """Return the same cells. Refuse two cells that would stand in one place of a table or figure."""
    for name, same in grouped(results, lambda result: str(result.cell)).items():
        if len(same) > 1:
            raise UserError(f"{name} is there twice, run in different ways; bring one grid at a time.")
    return list(results)


def is_ordinary(cell: Cell) -> bool:
    """Return whether a method saw its decisions and no further states."""
    return not (cell.task.unlabelled or cell.task.every_state)


def ordinary(results: Sequence[Result]) -> list[Result]:
    """Return the cells without further states, one per setting, method and size."""
    return distinct([result for result in results if is_ordinary(result.cell)])


def decisions_of(cell: Cell) -> tuple[str, int, int]:
    """Return what determines the decisions that a cell learns from."""
    return cell.setting, cell.task.seed, cell.size


def strata(
    results: Sequence[Result], values: Callable[[Result], np.ndarray] = lambda result: result.scores
) -> list[np.ndarray]:
    """Return scores (or other values) of cells as strata for statistics: [cells, draws, initialisations] each.

    The draws of all settings and sizes of an environment have the same seeds, initial weights and live episodes. They
    are not independent, so they form one stratum. Another seed, or another number of runs, makes another stratum.
    """
    ordered = sorted(results, key=lambda result: decisions_of(result.cell))

    def stratum_of(result: Result) -> tuple[Hashable, ...]:
        return played(result.cell).environment, result.cell.task.seed, values(result).shape

    groups = grouped(ordered, stratum_of)
    return [np.stack([values(result) for result in stratum]) for stratum in groups.values()]
