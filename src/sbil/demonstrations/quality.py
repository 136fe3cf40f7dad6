"""What harms training or is good to know although reading does not stop: one function per rule, for `check` only.

A new rule is a function here, its name in the list at the end, and a test.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from sbil.demonstrations.checking import SMALL, Check, ColumnFacts
from sbil.demonstrations.columns import Gathered
from sbil.demonstrations.problems import Problem, Severity
from sbil.demonstrations.roles import END, consequence
from sbil.demonstrations.sample import Sampled
from sbil.demonstrations.survey import Survey

OBSERVED = ("observation", "category", "one-hot")
WANTED: dict[str, tuple[Severity, str]] = {  # roles: how bad it is without one, and what it is for
    "action": ("stops", ""),
    "episode": ("harms", ", which says which rows belong together"),
    "time": ("note", ", which orders the rows of an episode"),
}


class Look(NamedTuple):
    """A whole table as `check` saw it."""

    found: Check  # without problems
    survey: Survey
    read: Gathered | None  # None if the roles contradict each other
    sample: Sampled | None = None  # None if the rows have no order, or no known action

    @property
    def roles(self) -> Mapping[str, str | None]:
        """The column of each role."""
        return self.found.roles

    def codes(self, role: str) -> np.ndarray | None:
        """[n] the number of the episode or group of each row."""
        name = self.roles[role]
        return None if self.read is None or name not in self.read.codes else self.read.codes[name].all()


def roles_without_column(look: Look) -> Iterator[Problem]:
    """No column is the action, says which rows belong together, or orders the rows of an episode."""
    for role, (severity, meaning) in WANTED.items():
        if not look.roles[role] and (role != "time" or look.roles["episode"]):
            remedy = f"name its column as {role} (--{role})" + (", if there is one" if role == "time" else "")
            yield Problem(f"no {role}", severity, f"no column looks like the {role}{meaning}", remedy)


def guessed_roles(look: Look) -> Iterator[Problem]:
    """Roles that nobody gave."""
    for role in look.found.guessed:
        message = f"taken as the column {role} by its name"
        remedy = f"if it is not, give the right one as {role} (--{role})"
        yield Problem(f"guessed {role}", "note", message, remedy, look.roles[role])


def one_action(look: Look) -> Iterator[Problem]:
    """The same action in every row."""
    if len(look.found.actions) == 1:
        message = "only one action was ever taken"
        remedy = "check the column; there is nothing to learn"
        yield Problem("one action", "harms", message, remedy, look.roles["action"])


def rare_actions(look: Look) -> Iterator[Problem]:
    """Actions with hardly any rows."""
    rare = [action for action, count in look.found.actions.items() if isinstance(count, str)]
    if rare and len(look.found.actions) > 1:
        shown = ", ".join(f"'{action[:40]}'" for action in sorted(rare)[:5])
        message = f"taken fewer than {SMALL} times: {shown}"
        remedy = "collect more rows, or merge the action with another one"
        yield Problem("rare action", "harms", message, remedy, look.roles["action"])


def single_rows(look: Look) -> Iterator[Problem]:
    """Episodes of one row each."""
    episodes = look.found.episodes
    if episodes and 2 * episodes.single > episodes.count:
        message = f"{episodes.single:,} of {episodes.count:,} episodes have one row"
        remedy = "check that this is the column of the episode"
        yield Problem("single rows", "harms", message, remedy, look.roles["episode"])


def out_of_order(look: Look) -> Iterator[Problem]:
    """Rows of an episode that are not in the order of time, or not together."""
    episode = look.codes("episode")
    if episode is None or look.read is None:
        return
    late = 0
    if look.read.time is not None:
        order = np.argsort(episode, kind="stable")
        time, ranked = look.read.time[order], episode[order]
        late = int(((time[1:] < time[:-1]) & (ranked[1:] == ranked[:-1])).sum())
    if late:
        message, remedy = "rows are not in the order of their times", "do nothing: reading sorts them"
        yield Problem("out of order", "note", message, remedy, look.roles["time"], count=late, noun="row")
    elif int((np.diff(episode) != 0).sum()) + 1 > len(np.unique(episode)):
        message, remedy = "the rows of an episode are not together", "do nothing: reading groups them"
        yield Problem("rows apart", "note", message, remedy, look.roles["episode"])


def copies(look: Look) -> Iterator[Problem]:
    """Rows that are the same in every column. Where there is a time, two rows at one time are a rule of their own."""
    if not look.survey.copies:
        return
    found = look.survey.copies.found()
    if found is None:
        yield Problem("copies", "note", "too many rows to look for copies among them", "look for them yourself")
    elif found[0]:
        count, first = found
        place = {} if look.read is None else look.read.at(first)
        message = "rows are the same as an earlier row in every column"
        # Equal states may follow each other in an episode, and no split divides an episode.
        together = look.roles["episode"]
        harm = "they count twice" if together else "copies leak into the held-out part"
        remedy = f"if they are copies remove them: {harm}"
        yield Problem("copies", "note" if together else "harms", message, remedy, count=count, noun="row", **place)


def sentinels(look: Look) -> Iterator[Problem]:
    """Numbers such as -9 or 999 that may stand for a missing value."""
    for column in look.found.columns:
        if column.role == "observation" and (count := look.survey.tallies[column.name].strange):
            message, remedy = "a number such as -9 or 999, far from all others", "if it means missing, write NA"
            yield Problem("sentinel", "harms", message, remedy, column.name, count=count)


def coarse(look: Look) -> Iterator[Problem]:
    """Numbers that float32 cannot distinguish."""
    for column in look.found.columns:
        if column.role == "observation" and column.type != "text" and look.survey.tallies[column.name].coarse:
            message = "varies by less than float32 can tell at its size"
            yield Problem("coarse", "harms", message, "subtract an offset such as the smallest value", column.name)


def identifiers(look: Look) -> Iterator[Problem]:
    """Columns that name the episode, the patient or the row."""
    for column in look.found.columns:
        if column.role in OBSERVED and column.type != "number" and _identifies(column, look):
            remedy = "leave it out of the observations (--observations), or give it as group (--group)"
            yield Problem("identifier", "harms", "looks like an identifier", remedy, column.name)


def _identifies(column: ColumnFacts, look: Look) -> bool:
    """Whether nearly every episode, patient or row has its own value; with a name such as mrn, many are enough."""
    called = _called_identifier(column.name.lower())
    judged = look.survey.identifiers.judged(column.name, _groups(look))
    if judged is not None:
        own, many = judged
        return own or (called and many)
    if column.distinct is None:
        return called
    alone = not look.roles["episode"] and column.distinct >= max(100, 0.95 * look.found.rows)
    return alone or (called and column.distinct >= max(20, look.found.rows // 10))


def _called_identifier(name: str) -> bool:
    return name in ("id", "mrn") or name.endswith(("_id", " id", "number", "_no", "_mrn")) or name.startswith("id_")


def _groups(look: Look) -> np.ndarray | None:
    """[episodes] the number of the group of each."""
    episode, group = look.codes("episode"), look.codes("group")
    if episode is None or group is None:
        return None
    groups, there = np.zeros(len(look.survey.identifiers.known), np.int64), episode >= 0
    groups[episode[there]] = group[there]
    return groups


def constant(look: Look) -> Iterator[Problem]:
    """Columns with one value."""
    for column in look.found.columns:
        if column.role in OBSERVED and column.distinct == 1:
            remedy = "leave it out; it teaches nothing"
            yield Problem("constant", "note", "the same value in every row", remedy, column.name)


def left_out(look: Look) -> Iterator[Problem]:
    """Columns that are not observed: text, and values that became known only after the decision."""
    for column in look.found.columns:
        if column.role != "left out" or column.missing == look.found.rows:
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
    *(sentinels, coarse, identifiers, constant, left_out),
)
