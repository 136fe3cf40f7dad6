"""Columns that give the action or the outcome away, for `check`: one function per rule.

Such a column was written with the decision or after it, so a policy that observes it learns nothing else. Every rule
looks at one column alone: at its name, or at its values in a sample of the table. A new rule is a function here, its
name in the list at the end, and a test.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from sbil.demonstrations.checking import ColumnFacts
from sbil.demonstrations.inspected import OBSERVED, Inspected
from sbil.demonstrations.problems import Problem, Severity
from sbil.demonstrations.roles import consequence, words_in
from sbil.demonstrations.sample import Sampled, numbered

PERFECT = 0.9995  # an AUC that is 1.000 when it is printed
NEARLY = 0.95  # the share of an action's rows that a near copy tells
RUNS = 10  # stretches with the action, and without it, below which chance separates them
SWITCHES = 3  # of a shallow rule: at most four ranges of a column, by turns with the action and without it
MOST_ACTIONS = 10  # the frequent ones; all others are taken together
FEW = 20  # values of a near copy
PAIRS = 20  # rows with a next row, to compare a column with the next row of another
MANY = 100  # values of a number that may be an identifier
VALUES = 5  # different ones in such a column
EARLIER, LATER = {"prev", "previous", "last", "lag", "lagged", "before", "old"}, {"next", "future", "lead", "after"}
OUTCOMES = {"outcome", "died", "dead", "death", "deceased", "mortality", "survived", "survival", "expire", "expired"}
LEAVE_OUT = "leave it out (--drop), unless it was known before the decision"


class ColumnRows(NamedTuple):
    """Values of a column beside actions; the rows stand in order, episode by episode."""

    values: np.ndarray  # [n]
    action: np.ndarray  # [n]
    starts: np.ndarray  # [n] whether the row is the first of its episode

    @property
    def begins(self) -> np.ndarray:
        """[n] whether a stretch of one action begins here."""
        return self.starts | _changes(self.action)


def _changes(values: np.ndarray) -> np.ndarray:
    return np.append(True, values[1:] != values[:-1])


def told(rows: ColumnRows, named: bool) -> int | None:
    """The first action that a shallow rule on the values separates from all others; None if there is none.

    named: whether the values are names, which have no order: the rule may then list them.
    Rows that repeat the value and the action of the row before count once. A column that only repeats
    the last action is not reported.
    """
    begins = np.bincount(rows.action[rows.begins])
    frequent = np.argsort(-begins, kind="stable")[:MOST_ACTIONS]
    single = rows.begins | _changes(rows.values)
    values, action = rows.values[single], rows.action[single]
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    if named and len(counts) * 10 > len(values):
        return None
    for one in sorted(frequent.tolist()):
        runs = min(begins[one], begins.sum() - begins[one])
        if runs < RUNS:
            continue
        own = np.bincount(place[action == one], minlength=len(counts))
        ranked = np.argsort(own / counts, kind="stable") if named else np.arange(len(counts))
        if _perfect(own[ranked], counts[ranked]) or (runs >= 2 * RUNS and _ranges(own, counts)):
            return one
    return None


def _perfect(own: np.ndarray, counts: np.ndarray) -> bool:
    """Whether the order of values separates the rows with an action from the others.

    own, counts: [values] rows with the action, and all rows.
    """
    other = counts - own
    below = np.cumsum(other) - other / 2
    auc = float((own * below).sum()) / (int(own.sum()) * int(other.sum()))
    return max(auc, 1 - auc) >= PERFECT


def _ranges(own: np.ndarray, counts: np.ndarray) -> bool:
    """Whether a few ranges of the values hold all rows with an action and no others."""
    there = own > 0
    return not (there & (own < counts)).any() and int((there[1:] != there[:-1]).sum()) <= SWITCHES


def copied(rows: ColumnRows) -> int | None:
    """The most frequent action if the values are nearly a copy of the actions, also where the action changes."""
    names, place = np.unique(rows.values, return_inverse=True)
    begins = rows.begins
    often = np.flatnonzero(np.bincount(rows.action[begins]) >= RUNS)
    if not 1 < len(names) <= FEW or not 1 < len(often) <= FEW:
        return None
    counts = np.bincount(place * (rows.action.max() + 1) + rows.action, minlength=len(names) * (rows.action.max() + 1))
    meant = counts.reshape(len(names), -1).argmax(axis=1)
    right = meant[place] == rows.action
    for one in often:
        own = rows.action == one
        if min(right[own].mean(), right[own & begins].mean()) < NEARLY:
            return None
    return int(often[0]) if right.mean() >= 0.99 else None


def scheduled(sample: Sampled) -> bool:
    """Whether decisions follow a schedule: the last action and how long it lasted determine the next one."""
    later = np.flatnonzero(~sample.starts)
    if not len(later):
        return False
    begins = np.flatnonzero(sample.starts | _changes(sample.action))
    place = np.arange(len(sample))
    lasted = place - begins[np.searchsorted(begins, place, side="right") - 1]
    values = sample.action.astype(np.int64) * len(sample) + lasted
    return told(ColumnRows(values[later - 1], sample.action[later], sample.starts[later - 1]), named=True) is not None


def _itself(sample: Sampled, column: ColumnFacts) -> int | None:
    """The action that a column separates from the others, or that it is nearly a copy of."""
    rows = ColumnRows(sample.numbers(column.name), sample.action, sample.starts)
    one = told(rows, named=sample.is_text(column.name))
    return copied(rows) if one is None else one


def _part(sample: Sampled, column: ColumnFacts) -> int | None:
    """The action that a part of an identifier gives away: its first letters, its last character, or its last digit."""
    if sample.is_text(column.name):
        texts = sample.frame[column.name].str.strip_chars()
        parts = [numbered(part.to_list()) for part in (texts.str.extract(r"^([A-Za-z]+)", 1), texts.str.slice(-1))]
    elif column.type == "whole number" and (column.distinct is None or column.distinct >= MANY):
        parts = [np.mod(np.nan_to_num(sample.numbers(column.name), neginf=-1), 10)]
    else:
        return None
    found = (told(ColumnRows(part, sample.action, sample.starts), named=True) for part in parts)
    return next((one for one in found if one is not None), None)


def _step(sample: Sampled, column: ColumnFacts) -> int | None:
    """The action with which a running count or sum changes."""
    later = np.flatnonzero(~sample.starts)
    if sample.is_text(column.name) or not len(later):
        return None
    values = sample.numbers(column.name)
    with np.errstate(invalid="ignore"):
        step = np.nan_to_num(values[later] - values[later - 1], nan=-np.inf)
    return told(ColumnRows(step, sample.action[later], sample.starts[later - 1]), named=False)


def _ahead(sample: Sampled, column: ColumnFacts) -> int | None:
    """The action of the next row that a column tells."""
    rows = np.flatnonzero(~sample.ends)
    if not len(rows):
        return None
    ahead = ColumnRows(sample.numbers(column.name)[rows], sample.action[rows + 1], sample.starts[rows])
    one = told(ahead, named=sample.is_text(column.name))
    return copied(ahead) if one is None else one


WAYS: dict[str, tuple[str, Callable[[Sampled, ColumnFacts], int | None]]] = {
    "gives the action away": ("it alone tells {} from others", _itself),
    "part gives the action away": ("its first letters or its last character alone tell {} from others", _part),
    "steps with the action": ("its change from the row before alone tells {} from others", _step),
    "gives the next action away": ("it alone tells after which rows {} follows", _ahead),
}


def gives_away(table: Inspected) -> Iterator[Problem]:
    """Columns that tell the action of their row or of the next one; the first way in which a column does is said."""
    if table.sample is None:
        return
    ways = {rule: found for rule, found in WAYS.items() if found[1] in (_itself, _part) or not scheduled(table.sample)}
    for column, severity, remedy in _columns(table):
        for rule, (words, way) in ways.items():
            one = way(table.sample, column)
            if one is not None:
                what = "gives the next action away" if way is _ahead else "gives the action away"
                message = f"{what}: {words.format(repr(table.sample.actions[one][:40]))}"
                yield Problem(rule, severity, message, remedy, column.name)
                break


def _columns(table: Inspected) -> Iterator[tuple[ColumnFacts, Severity, str]]:
    """The columns to look at, how bad it is that one gives the action away, and what to do."""
    for column in table.found.columns:
        if column.distinct == 1:
            continue
        if column.role in OBSERVED:
            yield column, "harms", LEAVE_OUT
        elif column.role == "left out" and column.type == "text" and not consequence(column.name):
            yield column, "note", "it is left out; do not name it in categories or one_hot"


def later_values(table: Inspected) -> Iterator[Problem]:
    """A column with the value that another column has one row later."""
    sample = table.sample
    rows = np.flatnonzero(~sample.ends) if sample else np.zeros(0, int)
    if sample is None or len(rows) < PAIRS:
        return
    names = [
        column.name for column in table.found.columns if column.role in OBSERVED and not sample.is_text(column.name)
    ]
    values = {name: sample.numbers(name) for name in names}
    names = [name for name in names if _varies(values[name], rows)]
    later = {_print(values[name][rows + 1]): name for name in names}
    for name in names:
        other = later.get(_print(values[name][rows]))
        severity = other and other != name and _lead(sample, (values[other], other), (values[name], name))
        if severity:
            message = f"holds the value that column '{other}' has one row later"
            yield Problem("later value", severity, message, LEAVE_OUT, name)


def _varies(values: np.ndarray, rows: np.ndarray) -> bool:
    """Whether a column changes from row to row, and not by the same amount each time as a clock does."""
    both = rows[np.isfinite(values[rows]) & np.isfinite(values[rows + 1])]
    steps = (values[both + 1] - values[both]).astype(np.float32)
    return len(np.unique(values[both])) >= VALUES and len(np.unique(steps)) > 2


def _print(values: np.ndarray) -> bytes:
    """The same for equal columns."""
    return values.astype(np.float32).tobytes()


def _lead(sample: Sampled, one: tuple[np.ndarray, str], two: tuple[np.ndarray, str]) -> Severity | None:
    """How bad it is that column `two` holds the values that column `one` has one row later.

    Nothing is wrong if `one` holds earlier values of `two`. Within an episode both cases look alike. So the names and
    the ends of episodes decide: what is filled in or missing there was made from the other column.
    """
    (lag, name), (lead, other) = one, two
    before, after = set(words_in(name)) & EARLIER, set(words_in(other)) & LATER
    if before or after:
        return "harms" if after else None
    first, last = _made_up(lag[sample.starts], lead[sample.starts]), _made_up(lead[sample.ends], lag[sample.ends])
    if first == last:
        return "note"
    return "harms" if last else None


def _made_up(values: np.ndarray, beside: np.ndarray) -> bool:
    """Whether values at the ends of episodes are nearly all equal, missing, or copies of those beside them."""
    most = int(np.unique(values, return_counts=True)[1].max())
    return max(most, int((values == beside).sum())) >= 0.9 * len(values) > 1


def outcomes(table: Inspected) -> Iterator[Problem]:
    """Observed columns that became known after the decision, judged by their names."""
    for column in table.found.columns:
        if column.role not in OBSERVED:
            continue
        words = [word for word in words_in(column.name) if word in OUTCOMES]
        what = consequence(column.name) or (f"an outcome ('{words[0]}')" if words else None)
        if what:
            message = f"looks like {what}, which became known after the decision"
            remedy = "leave it out (--drop), unless it was known before"
            yield Problem("observed outcome", "harms", message, remedy, column.name)


def copies_of_outcomes(table: Inspected) -> Iterator[Problem]:
    """An observed column that is a copy of a reward, a return, a next state or of how the episode ended."""
    if table.sample is None:
        return
    known: dict[bytes, str] = {}
    for name in filter(consequence, table.sample.frame.columns):
        known[_shape(table.sample.numbers(name))] = f"column '{name}'"
    if (ends := _ends(table, table.sample)) is not None:
        known[_shape(ends)] = "how its episode ended"
    for column in table.found.columns:
        if column.role in OBSERVED and not consequence(column.name) and column.distinct != 1:
            what = known.get(_shape(table.sample.numbers(column.name)) or b"-")
            if what:
                message = f"says the same as {what}, which became known only after the decision"
                yield Problem("copy of an outcome", "harms", message, LEAVE_OUT, column.name)


def _ends(table: Inspected, sample: Sampled) -> np.ndarray | None:
    """[n] whether the process itself ended the episode of a row; None if hardly any or nearly all episodes do so."""
    flags = table.read.flags.get("terminal") if table.read else None
    if flags is None:
        return None
    ended = flags.all()[sample.rows][sample.ends] > 0
    few = min(int(ended.sum()), int((~ended).sum())) < RUNS
    return None if few else ended[sample.episode].astype(float)


def _shape(values: np.ndarray) -> bytes:
    """The same for columns that differ by a factor and an offset only."""
    finite = np.isfinite(values)
    plain = values[finite]
    if not len(plain) or plain.std() == 0:
        return b""
    scaled = (plain - plain.mean()) / plain.std()
    scaled *= np.sign(scaled[np.argmax(np.abs(scaled) > 1e-3)]) or 1
    return finite.tobytes() + np.round(scaled, 3).astype(np.float32).tobytes()


RULES = (outcomes, gives_away, later_values, copies_of_outcomes)
