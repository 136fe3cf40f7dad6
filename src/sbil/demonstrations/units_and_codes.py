"""Numbers that are codes, and columns in two units, for `check`: one function per rule.

A new rule is a function here, its name in the list at the end, and a test.
"""

from collections.abc import Iterator

import numpy as np

from sbil.demonstrations.inspected import Inspected
from sbil.demonstrations.problems import Problem
from sbil.demonstrations.roles import words_in

CODES = {
    *("code", "codes", "cd", "type", "kind", "category", "class", "icd", "drg", "race", "ethnicity", "country"),
    *("ward", "unit", "site", "department", "hospital"),
}
MOST_CODES = 1_000
UNITS = 10  # episodes with one unit, and with the other
FACTORS = (2.54, 6.0, 7.5, 10.0, 17.1, 18.0, 38.7, 60.0, 88.4, 100.0, 1000.0)  # between units
DOMINANT = 0.25  # the largest share of one value in a group
CLOSE = 1.2  # a factor is found if the medians are so many times apart, times or divided by this


def codes(table: Inspected) -> Iterator[Problem]:
    """Codes that are read as numbers although they have no order."""
    for column in table.found.columns:
        whole = column.role == "observation" and column.type == "whole number"
        called = [word for word in words_in(column.name) if word.removesuffix("id") in CODES]
        if whole and called and column.distinct and 2 < column.distinct <= MOST_CODES:
            message = f"whole numbers that look like codes ('{called[0]}'); read as numbers they have an order"
            remedy = "name it in one_hot or categories (--one-hot, --categories), or leave it out (--drop)"
            yield Problem("codes", "harms", message, remedy, column.name)


def mixed_units(table: Inspected) -> Iterator[Problem]:
    """Numbers in two units: the medians of episodes lie in two groups, a usual factor apart."""
    if table.sample is None:
        return
    for column in table.found.columns:
        if column.role == "observation" and column.type != "text" and column.distinct != 1:
            factor = _two_units(table.sample.numbers(column.name), table.sample.episode)
            if factor:
                message = f"two groups of episodes about {factor:.3g} times apart, as with two units"
                remedy = "bring all values to one unit"
                yield Problem("mixed units", "harms", message, remedy, column.name)


def _two_units(values: np.ndarray, episode: np.ndarray) -> float | None:
    """How many times apart two groups of episodes are; None if there is one group, or no known factor."""
    there = np.isfinite(values)
    values, episode = values[there], episode[there]
    if len(values) < 2 * UNITS or values.min() <= 0:
        return None
    order = np.lexsort((values, episode))
    values, episode = np.log(values[order]), episode[order]
    begins = np.flatnonzero(np.append(True, np.diff(episode) != 0))
    lengths = np.diff(begins, append=len(values))
    medians = values[begins + lengths // 2]
    ranked = np.sort(medians)
    gaps = np.diff(ranked)
    cut = int(np.argmax(gaps)) + 1 if len(gaps) else 0
    low, high = ranked[:cut], ranked[cut:]
    if min(len(low), len(high)) < UNITS:
        return None
    factor = float(np.exp(np.median(high) - np.median(low)))
    bound = (low[-1] + high[0]) / 2
    below = np.repeat(medians < bound, lengths)
    alike = _alike(values[below], values[~below])
    apart = high[0] - low[-1] >= 0.3 * np.log(factor) and gaps.max() >= 5 * np.median(gaps[gaps > 0])
    known = any(abs(np.log(factor / one)) <= np.log(CLOSE) for one in FACTORS) or abs(factor - 2.65) < 0.06
    return factor if alike and apart and known else None


def _alike(low: np.ndarray, high: np.ndarray) -> bool:
    """Whether two groups of logarithms have about the same spread, and many values without a dominant one."""
    groups = (low, high)
    spreads = [float(np.subtract(*np.quantile(one, (0.9, 0.1)))) for one in groups]
    counts = [np.unique(one, return_counts=True)[1] for one in groups]
    varied = all(len(one) >= UNITS and one.max() <= DOMINANT * one.sum() for one in counts)
    return varied and max(spreads) <= 2.5 * min(spreads)


RULES = (codes, mixed_units)
