"""Guess the role of each column by its name and its cells."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from sbil.demonstrations import values
from sbil.demonstrations.roles import words_in
from sbil.demonstrations.rules import is_fraction
from sbil.demonstrations.table import Batch

FEW = 50  # the largest number of different actions
# Words in the names of columns of each role, the most likely first. The roles are guessed in this order.
WORDS = {
    "action": "action treatment treat decision choice label target act class y a",
    "episode": "episode stay icustay trajectory traj admission hadm encounter visit session case patient subject id",
    "time": "time timestamp datetime charttime step timestep date hour hours day minute t",
    "truncated": "truncated truncation",
    "terminal": "terminal terminated done ended end last",
    "group": "patient subject person user",
}
# These words mean the end of an episode only beside such words: last_dose and end_tidal_co2 are no ends.
AMBIGUOUS, BESIDE = {"end", "last"}, {"is", "end", "last", "of", "episode", "row", "step", "stay", "flag"}
ONLY_TERMINAL = "terminal terminated"  # if a table has `truncated`, `done` often means either end


def guess(said: Mapping[str, str | None], batch: Batch, observed: Sequence[str]) -> dict[str, str | None]:
    """The roles that a person gave; for each other role the column whose name and cells fit best, if there is one.

    observed: the columns that a person names as observations, which can be neither the action nor an end.
    """
    found = dict(said)
    for role, words in WORDS.items():
        if found[role] is None:
            taken = {name for name in found.values() if name}
            taken |= {*observed} if role in ("action", "terminal", "truncated") else set()
            free = [name for name in batch.frame.columns if name not in taken]
            words = ONLY_TERMINAL if role == "terminal" and found["truncated"] else words
            found[role] = next((name for name in _called(words, free) if _fits(role, name, batch)), None)
    if not found["episode"]:
        found["time"] = said["time"]
    return found


def _may_be_end(name: str) -> bool:
    words = {*words_in(name)}
    return not words & AMBIGUOUS or words <= BESIDE


def _called(words: str, names: Sequence[str]) -> Iterator[str]:
    """Return the columns with one of these words in their names; for each word, short names come first."""
    parts = {name: words_in(name) for name in names}
    for word in words.split():
        yield from sorted((name for name in names if word in parts[name]), key=lambda name: len(parts[name]))


def _fits(role: str, name: str, batch: Batch) -> bool:
    column = batch.frame[name]
    if values.has_no_text(column):
        return False
    if role in ("terminal", "truncated"):
        if not _may_be_end(name):
            return False
        return not values.flags(column, batch.decimal).wrong.any()
    if role == "time":
        return not values.Times(name).add(column, batch.decimal).wrong.any()
    distinct = [values.label(cell, batch.decimal) for cell in column.cast(pl.String).unique().to_list()]
    known = [cell for cell in distinct if cell is not None]
    enough = len(known) <= FEW if role == "action" else len(known) < len(column)
    return enough and not any(map(is_fraction, known))
