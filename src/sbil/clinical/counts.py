"""Counts as they are printed: those from 1 to 9 could point at single patients, and no subtraction tells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SMALL = 10


class Count(NamedTuple):
    """A count, and what is said of it."""

    value: int
    least: int | None = None  # no more is said than that there are so many at least; none where there is no need

    def __str__(self) -> str:
        return shown(self.value) if self.least is None else f"≥ {max(self.least, 1):,}"


def shown(count: int) -> str:
    """A count by itself."""
    return f"< {SMALL}" if _small(count) else f"{count:,}"


def parts(total: Count, counts: Sequence[int]) -> list[Count]:
    """The parts that add up to a total that is printed too.

    Where one of them is small, or the total is only bounded, the largest is printed as a bound: what can be said if
    every small one is the most that it can be. Then neither the small ones nor the total follow from the rest.
    """
    if total.least is None and (_small(total.value) or not any(map(_small, counts))):
        return [Count(count) for count in counts]
    largest = max(range(len(counts)), key=lambda place: counts[place])
    others = sum(SMALL - 1 if _small(count) else count for place, count in enumerate(counts) if place != largest)
    least = (total.value if total.least is None else total.least) - others
    return [Count(count, least if place == largest else None) for place, count in enumerate(counts)]


def chain(total: Count, left: Sequence[int]) -> list[tuple[Count, Count]]:
    """What each of several steps removes from a total that is printed, and what it leaves."""
    steps = []
    for after in left:
        removed, total = parts(total, (total.value - after, after))
        steps.append((removed, total))
    return steps


def within(total: Count, counts: Sequence[int]) -> list[Count]:
    """What remains of a total that is printed, again and again, where what goes is not printed.

    It is bounded where fewer than 10 are gone since it was last told exactly.
    """
    found = []
    for count in counts:
        gone = total.value - count
        found.append(parts(total, (gone, count))[1] if _small(gone) else Count(count))
        if found[-1].least is None:
            total = found[-1]
    return found


def _small(count: int) -> bool:
    return 0 < count < SMALL
