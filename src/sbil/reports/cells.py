"""The cells that a table or figure shows: their settings, groups of them, and their scores as statistics take them."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from sbil.errors import UserError
from sbil.experiments import Cell, Result

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def setting_of(result: Result) -> str:
    """What a table is about: environment, demonstrator and thinning, and the seed where it is not the usual one."""
    cell = result.cell
    thinning = "every step" if cell.thin == 1 else f"every {cell.thin}th step"
    seed = f", seed {cell.seed}" if cell.seed else ""
    return f"{cell.environment}, {cell.demonstrator} demonstrator ({cell.mode}), {thinning}{seed}"


def two_lines(setting: str) -> list[str]:
    """The environment of a setting, and the rest of it."""
    return setting.split(", ", 1)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items (results, rows) by their key, in the order in which they come."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def distinct(results: Sequence[Result]) -> list[Result]:
    """The same cells; refused if two would stand in one place of a table or figure."""
    seen = set()
    for cell in (result.cell for result in results):
        if str(cell) in seen:
            raise UserError(f"{cell} is there twice, run in different ways; bring one grid at a time.")
        seen.add(str(cell))
    return list(results)


def is_ordinary(cell: Cell) -> bool:
    """Whether a method was shown its decisions and no further states."""
    return not (cell.unlabelled or cell.every_state)


def ordinary(results: Sequence[Result]) -> list[Result]:
    """The cells without further states, one for each setting, method and size."""
    return distinct([result for result in results if is_ordinary(result.cell)])


def decisions_of(cell: Cell) -> tuple[str, int, int]:
    """What says which decisions a cell learns from."""
    return cell.setting, cell.seed, cell.size


def strata(
    results: Sequence[Result], values: Callable[[Result], np.ndarray] = lambda result: result.scores
) -> list[np.ndarray]:
    """Scores (or other values) of cells as statistics take them: [cells, draws, initialisations] an environment.

    There the draws of all settings and sizes have the same seeds, initial weights and live episodes, so they are not
    independent. Cells with another seed, where all of that is new, or another number of runs are strata of their own.
    """
    groups: dict[tuple[str, int, tuple[int, ...]], list[np.ndarray]] = {}
    for result in sorted(results, key=lambda result: decisions_of(result.cell)):
        found = values(result)
        groups.setdefault((result.cell.environment, result.cell.seed, found.shape), []).append(found)
    return [np.stack(stratum) for stratum in groups.values()]
