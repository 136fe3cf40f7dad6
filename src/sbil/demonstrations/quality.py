"""What harms training or is good to know although reading does not stop: one function per rule, for `check` only.

A new rule is a function here, its name in the list at the end, and a test.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from sbil.demonstrations.checking import SMALL, ColumnFacts
from sbil.demonstrations.inspected import OBSERVED, Inspected
from sbil.demonstrations.problems import Problem, Severity
from sbil.demonstrations.roles import END, consequence

MOSTLY = 0.5  # share of missing values
ROWS = 100  # below, rising or distinct numbers say little
CROWDED = 10.0  # pairs of equal numbers that chance would give among so many in such a range
WANTED: dict[str, tuple[Severity, str]] = {  # roles: how bad it is without one, and what it is for
    "action": ("stops", ""),
    "episode": ("harms", ", which says which rows belong together"),
    "time": ("note", ", which orders the rows of an episode"),
}


def roles_without_column(table: Inspected) -> Iterator[Problem]:
    """No column is the action, says which rows belong together, or orders the rows of an episode."""
    for role, (severity, meaning) in WANTED.items():
        if not table.roles[role] and (role != "time" or table.roles["episode"]):
            remedy = f"name its column as {role} (--{role})" + (", if there is one" if role == "time" else "")
            yield Problem(f"no {role}", severity, f"no column looks like the {role}{meaning}", remedy)


def guessed_roles(table: Inspected) -> Iterator[Problem]:
    """Roles that nobody gave."""
    for role in table.found.guessed:
        message = f"taken as the column {role} by its name"
        remedy = f"if it is not, give the right one as {role} (--{role})"
        yield Problem(f"guessed {role}", "note", message, remedy, table.roles[role])


def one_action(table: Inspected) -> Iterator[Problem]:
    """The same action in every row."""
    if len(table.found.actions) == 1:
        message = "only one action was ever taken"
        remedy = "check the column; there is nothing to learn"
        yield Problem("one action", "harms", message, remedy, table.roles["action"])


def rare_actions(table: Inspected) -> Iterator[Problem]:
    """Actions with hardly any rows."""
    rare = [action for action, count in table.found.actions.items() if isinstance(count, str)]
    if rare and len(table.found.actions) > 1:
        shown = ", ".join(f"'{action[:40]}'" for action in sorted(rare)[:5])
        message = f"taken fewer than {SMALL} times: {shown}"
        remedy = "collect more rows, or merge the action with another one"
        yield Problem("rare action", "harms", message, remedy, table.roles["action"])


def single_rows(table: Inspected) -> Iterator[Problem]:
    """Episodes of one row each."""
    episodes = table.found.episodes
    if episodes and 2 * episodes.single > episodes.count:
        message = f"{episodes.single:,} of {episodes.count:,} episodes have one row"
        remedy = "check that this is the column of the episode"
        yield Problem("single rows", "harms", message, remedy, table.roles["episode"])


def out_of_order(table: Inspected) -> Iterator[Problem]:
    """Rows of an episode that are not in the order of time, or not together."""
    episode = table.codes("episode")
    if episode is None or table.read is None:
        return
    late = 0
    if table.read.time is not None:
        order = np.argsort(episode, kind="stable")
        time, ranked = table.read.time[order], episode[order]
        late = int(((time[1:] < time[:-1]) & (ranked[1:] == ranked[:-1])).sum())
    if late:
        message, remedy = "rows are not in the order of their times", "do nothing: reading sorts them"
        yield Problem("out of order", "note", message, remedy, table.roles["time"], count=late, noun="row")
    elif int((np.diff(episode) != 0).sum()) + 1 > len(np.unique(episode)):
        message, remedy = "the rows of an episode are not together", "do nothing: reading groups them"
        yield Problem("rows apart", "note", message, remedy, table.roles["episode"])


def copies(table: Inspected) -> Iterator[Problem]:
    """Rows that are the same in every column. Where there is a time, two rows at one time are a rule of their own."""
    if not table.counts.copies:
        return
    found = table.counts.copies.found()
    if found is None:
        yield Problem("copies", "note", "too many rows to look for copies among them", "look for them yourself")
    elif found[0]:
        count, first = found
        place = {} if table.read is None else table.read.at(first)
        message = "rows are the same as an earlier row in every column"
        # Equal states may follow each other in an episode, and no split divides an episode.
        together = table.roles["episode"]
        harm = "they count twice" if together else "copies leak into the held-out part"
        remedy = f"if they are copies remove them: {harm}"
        yield Problem("copies", "note" if together else "harms", message, remedy, count=count, noun="row", **place)


def sentinels(table: Inspected) -> Iterator[Problem]:
    """Numbers such as -9 or 999 that may stand for a missing value."""
    for column in table.found.columns:
        if column.role == "observation" and (count := table.counts.tallies[column.name].strange):
            message, remedy = "a number such as -9 or 999, far from all others", "if it means missing, write NA"
            yield Problem("sentinel", "harms", message, remedy, column.name, count=count)


def coarse(table: Inspected) -> Iterator[Problem]:
    """Numbers that float32 cannot distinguish."""
    for column in table.found.columns:
        if column.role == "observation" and column.type != "text" and table.counts.tallies[column.name].coarse:
            message = "varies by less than float32 can tell at its size"
            yield Problem("coarse", "harms", message, "subtract an offset such as the smallest value", column.name)


def identifiers(table: Inspected) -> Iterator[Problem]:
    """Columns that name the episode, the patient or the row."""
    for column in table.found.columns:
        if column.role in OBSERVED and column.type != "number" and _identifies(column, table):
            remedy = "leave it out (--drop), or give it as group (--group)"
            yield Problem("identifier", "harms", "looks like an identifier", remedy, column.name)


def _identifies(column: ColumnFacts, table: Inspected) -> bool:
    """Whether nearly every episode, patient or row has its own value; with a name such as mrn, many are enough."""
    called = _called_identifier(column.name.lower())
    judged = table.counts.identifiers.judged(column.name, _groups(table))
    if judged is not None:
        own, many = judged
        return own or (called and many)
    if column.distinct is None:
        return called
    alone = not table.roles["episode"] and column.distinct >= max(100, 0.95 * table.found.rows)
    return alone or (called and column.distinct >= max(20, table.found.rows // 10))


def _called_identifier(name: str) -> bool:
    return name in ("id", "mrn") or name.endswith(("_id", " id", "number", "_no", "_mrn")) or name.startswith("id_")


def _groups(table: Inspected) -> np.ndarray | None:
    """[episodes] the number of the group of each."""
    episode, group = table.codes("episode"), table.codes("group")
    if episode is None or group is None:
        return None
    groups, there = np.zeros(len(table.counts.identifiers.known), np.int64), episode >= 0
    groups[episode[there]] = group[there]
    return groups


def constant(table: Inspected) -> Iterator[Problem]:
    """Columns with one value."""
    for column in table.found.columns:
        if column.role in OBSERVED and column.distinct == 1:
            remedy = "leave it out (--drop); it teaches nothing"
            yield Problem("constant", "note", "the same value in every row", remedy, column.name)


def no_header(table: Inspected) -> Iterator[Problem]:
    """A first row with names that are numbers or values of their columns."""
    columns = table.found.columns
    numbers = [column.name for column in columns if _number(column.name) is not None]
    values = [column.name for column in columns if _is_own_value(column, table)]
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


def _is_own_value(column: ColumnFacts, table: Inspected) -> bool:
    """Whether the name of a column of text is also one of its values."""
    counts = table.counts.tallies[column.name].counts
    return column.type == "text" and bool(counts) and column.name in counts  # type: ignore[operator]


def mostly_missing(table: Inspected) -> Iterator[Problem]:
    """Columns with hardly any values."""
    for column in table.found.columns:
        if column.role in OBSERVED and MOSTLY <= column.missing_share < 1:
            message = f"{math.floor(1000 * column.missing_share) / 1000:.1%} of its values are missing"
            remedy = "leave it out (--drop), or let a number say where it is missing (--missing indicator)"
            yield Problem("mostly missing", "note", message, remedy, column.name)


def numbered_rows(table: Inspected) -> Iterator[Problem]:
    """Whole numbers that rise from row to row through all episodes, or that are different in every row."""
    sample = table.sample
    if sample is None or len(sample) < ROWS:
        return
    rows = np.argsort(sample.rows)
    for column in table.found.columns:
        if column.role != "observation" or column.type != "whole number":
            continue
        values = sample.numbers(column.name)[rows]
        if not np.isfinite(values).all() or len(np.unique(values)) < len(values):
            continue
        rising = bool((np.diff(values) > 0).all()) and int(sample.starts.sum()) > 1
        if rising or _crowded(values):
            how = "rises from row to row through the whole table" if rising else "differs in every row"
            message = f"a whole number that {how}, as the number of a row or a clock does"
            remedy = "leave it out (--drop); it is new in every later row"
            yield Problem("numbered rows", "harms", message, remedy, column.name)


def _crowded(values: np.ndarray) -> bool:
    """Whether chance would have made some of these numbers equal."""
    return len(values) ** 2 / (2 * float(np.ptp(values) + 1)) >= CROWDED


def left_out(table: Inspected) -> Iterator[Problem]:
    """Columns that are not observed: text, and values that became known only after the decision."""
    for column in table.found.columns:
        if column.role != "left out" or column.missing == table.found.rows:
            continue
        if what := consequence(column.name):
            end = "give it as terminal or truncated (--terminal, --truncated), or " if what == END else ""
            remedy = f"{end}name it in observations (--observations) to use it"
            yield Problem("left out", "note", f"looks like {what}: left out", remedy, column.name)
        elif column.type == "text":
            remedy = "if it matters, name it in categories or one_hot (--categories, --one-hot)"
            yield Problem("text left out", "note", "text: left out", remedy, column.name)


RULES = (
    *(roles_without_column, guessed_roles, one_action, rare_actions, single_rows, out_of_order, copies),
    *(sentinels, coarse, identifiers, numbered_rows, no_header, mostly_missing, constant, left_out),
)
