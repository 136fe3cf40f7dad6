"""Labels that tell apart cells of one method that were run in several ways, for instance bc and bc+updates=1000."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sbil.experiments import Cell, Result
from sbil.experiments.environment import played
from sbil.reports.cells import is_ordinary
from sbil.reports.names import place_of

PROTOCOL = ("draws", "initialisations", "updates", "episodes")  # for the last, see `told_apart`


def told_apart(results: Sequence[Result]) -> list[Result]:
    """Return results in the order of tables. A method that was run in two ways gets two names.

    The way with most cells, then most draws, initialisations and updates, keeps the name of the method. Cells with and
    without further states belong together even if they played different numbers of episodes.
    """
    ways: dict[tuple[str, int, str], dict[bool, Counter[tuple[int, ...]]]] = {}
    for result in results:
        kinds = ways.setdefault(_series(result.cell), {True: Counter(), False: Counter()})
        kinds[is_ordinary(result.cell)][protocol_of(result.cell)] += 1
    named, seen = [], Counter[Cell]()
    for result in sorted(results, key=lambda result: (_place(result.cell), result.fingerprint)):
        cell = result.cell
        usual = _usual(ways[_series(cell)], is_ordinary(cell))
        marks = [f"{n}={v}" for n, v, u in zip(PROTOCOL, protocol_of(cell), usual, strict=True) if v != u]
        seen[cell] += 1
        marks += [f"copy={seen[cell]}"] if seen[cell] > 1 else []
        method = replace(cell.method, settings=(*cell.method.settings, *marks))
        named.append(replace(result, cell=replace(cell, method=method)))
    return sorted(named, key=lambda result: _place(result.cell))


def _usual(kinds: dict[bool, Counter[tuple[int, ...]]], kind: bool) -> tuple[int, ...]:
    """Return the way in which most cells were run; the episodes are those of most such cells of this kind."""

    def most(counts: Counter[tuple[int, ...]]) -> tuple[int, ...]:
        return max(counts, key=lambda way: (counts[way], way))

    usual = most(kinds[True] + kinds[False])
    same = Counter({way: count for way, count in kinds[kind].items() if way[:-1] == usual[:-1]})
    return most(same) if same else usual


def _series(cell: Cell) -> tuple[str, int, str]:
    return cell.setting, cell.task.seed, str(cell.method)


def protocol_of(cell: Cell) -> tuple[int, ...]:
    """Return how often a cell trains and plays, in the order of PROTOCOL."""
    return cell.draws, cell.initialisations, cell.updates, played(cell).episodes


def _place(cell: Cell) -> tuple[Any, ...]:
    states = cell.task.unlabelled, cell.task.every_state
    return cell.setting, cell.task.seed, place_of(str(cell.method)), cell.size, *states, protocol_of(cell)
