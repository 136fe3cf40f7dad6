"""Counts in print. Those from 1 to 9 could point at single patients, so they are hidden, also from subtraction."""

from collections.abc import Sequence
from typing import NamedTuple

SMALL = 10


class Count(NamedTuple):
    """A count, and how it is printed."""

    value: int
    least: int | None = None  # if given, only this lower bound is printed

    def __str__(self) -> str:
        return shown(self.value) if self.least is None else f"≥ {max(self.least, 1):,}"


def shown(count: int) -> str:
    """How a count is printed if no other count is beside it."""
    return f"< {SMALL}" if _small(count) else f"{count:,}"


def parts(total: Count, counts: Sequence[int]) -> list[Count]:
    """The parts of a total that is printed too.

    If a part is small, or the total is printed as a bound, the largest part is printed as a bound: the least it can be
    while every small part has its largest value. Then the small parts and the total do not follow from the others.
    """
    if total.least is None and (_small(total.value) or not any(map(_small, counts))):
        return [Count(count) for count in counts]
    largest = max(range(len(counts)), key=lambda place: counts[place])
    others = sum(SMALL - 1 if _small(count) else count for place, count in enumerate(counts) if place != largest)
    least = (total.value if total.least is None else total.least) - others
    return [Count(count, least if place == largest else None) for place, count in enumerate(counts)]


def chain(total: Count, left: Sequence[int]) -> list[tuple[Count, Count]]:
    """For each of several steps: what it removes from a printed total, and what it leaves."""
    steps = []
    for after in left:
        removed, total = parts(total, (total.value - after, after))
        steps.append((removed, total))
    return steps


def within(total: Count, counts: Sequence[int]) -> list[Count]:
    """What remains of a printed total after each step, if the removed counts are not printed.

    A count is printed as a bound if fewer than 10 were removed since the last exact one.
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
