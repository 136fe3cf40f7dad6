"""Columns that may not mean what they seem to, for `check`: one function per rule.

A new rule is a function here, its name in the list at the end, and a test.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from sbil.demonstrations.checking import ColumnFacts
from sbil.demonstrations.problems import Problem
from sbil.demonstrations.quality import OBSERVED, Look
from sbil.demonstrations.roles import consequence, words_in

MOSTLY = 0.5  # share of missing values
ROWS = 100  # below, rising or distinct numbers say little
CROWDED = 10.0  # pairs of equal numbers that chance would give among so many in such a range
OUTCOMES = {"outcome", "died", "dead", "death", "deceased", "mortality", "survived", "survival", "expire", "expired"}
CODES = {
    *("code", "codes", "cd", "type", "kind", "category", "class", "icd", "drg", "race", "ethnicity", "country"),
    *("ward", "unit", "site", "department", "hospital"),
}
MOST_CODES = 1_000
UNITS = 10  # episodes with one unit, and with the other
FACTORS = (2.54, 6.0, 7.5, 10.0, 17.1, 18.0, 38.7, 60.0, 88.4, 100.0, 1000.0)  # between units
DOMINANT = 0.25  # the largest share of one value in a group
CLOSE = 1.2  # a factor is found if the medians are so many times apart, times or divided by this


def no_header(look: Look) -> Iterator[Problem]:
    """A first row with names that are numbers or values of their columns."""
    columns = look.found.columns
    numbers = [column.name for column in columns if _number(column.name) is not None]
    values = [column.name for column in columns if _is_own_value(column, look)]
    if len(numbers) * 2 > len(columns) and _counted(numbers):
        return
    if numbers and len(numbers) + len(values) > 1 and (values or not _counted(numbers)):
        message = "the first row is no header: names of columns are numbers or values"
        yield Problem("no header", "harms", message, "write the names of the columns above the rows", None)


def _number(name: str) -> float | None:
    try:
        return float(name)
    except ValueError:
        return None


def _counted(names: Sequence[str]) -> bool:
    """Whether names are whole numbers one after the other, as Pandas gives them."""
    numbers = [_number(name) for name in names]
    return all(one == number for number, one in enumerate(numbers, int(numbers[0] or 0))) if numbers else False


def _is_own_value(column: ColumnFacts, look: Look) -> bool:
    """Whether the name of a column of text is also one of its values."""
    counts = look.survey.tallies[column.name].counts
    return column.type == "text" and bool(counts) and column.name in counts  # type: ignore[operator]


def mostly_missing(look: Look) -> Iterator[Problem]:
    """Columns with hardly any values."""
    for column in look.found.columns:
        if column.role in OBSERVED and MOSTLY <= column.missing_share < 1:
            message = f"{math.floor(1000 * column.missing_share) / 1000:.1%} of its values are missing"
            remedy = "leave it out of the observations, or add a column that says whether it was measured"
            yield Problem("mostly missing", "note", message, remedy, column.name)


def numbered_rows(look: Look) -> Iterator[Problem]:
    """Whole numbers that rise from row to row through all episodes, or that are different in every row."""
    sample = look.sample
    if sample is None or len(sample) < ROWS:
        return
    rows = np.argsort(sample.rows)
    for column in look.found.columns:
        if column.role != "observation" or column.type != "whole number":
            continue
        values = sample.numbers(column.name)[rows]
        if not np.isfinite(values).all() or len(np.unique(values)) < len(values):
            continue
        rising = bool((np.diff(values) > 0).all()) and int(sample.starts.sum()) > 1
        if rising or _crowded(values):
            how = "rises from row to row through the whole table" if rising else "differs in every row"
            message = f"a whole number that {how}, as the number of a row or a clock does"
            remedy = "leave it out of the observations (--observations); it is new in every later row"
            yield Problem("numbered rows", "harms", message, remedy, column.name)


def _crowded(values: np.ndarray) -> bool:
    """Whether chance would have made some of these numbers equal."""
    return len(values) ** 2 / (2 * float(np.ptp(values) + 1)) >= CROWDED


def outcomes(look: Look) -> Iterator[Problem]:
    """Observed columns that became known after the decision, judged by their names."""
    for column in look.found.columns:
        if column.role not in OBSERVED:
            continue
        words = [word for word in words_in(column.name) if word in OUTCOMES]
        what = consequence(column.name) or (f"an outcome ('{words[0]}')" if words else None)
        if what:
            message = f"looks like {what}, which became known after the decision"
            remedy = "leave it out of the observations (--observations), unless it was known before"
            yield Problem("observed outcome", "harms", message, remedy, column.name)


def codes(look: Look) -> Iterator[Problem]:
    """Codes that are read as numbers although they have no order."""
    for column in look.found.columns:
        whole = column.role == "observation" and column.type == "whole number"
        called = [word for word in words_in(column.name) if word.removesuffix("id") in CODES]
        if whole and called and column.distinct and 2 < column.distinct <= MOST_CODES:
            message = f"whole numbers that look like codes ('{called[0]}'); read as numbers they have an order"
            remedy = "name it in one_hot or categories (--one-hot, --categories), or leave it out"
            yield Problem("codes", "harms", message, remedy, column.name)


def mixed_units(look: Look) -> Iterator[Problem]:
    """Numbers in two units: the medians of episodes lie in two groups, a usual factor apart."""
    if look.sample is None:
        return
    for column in look.found.columns:
        if column.role == "observation" and column.type != "text" and column.distinct != 1:
            factor = _two_units(look.sample.numbers(column.name), look.sample.episode)
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


RULES = (no_header, mostly_missing, numbered_rows, outcomes, codes, mixed_units)
