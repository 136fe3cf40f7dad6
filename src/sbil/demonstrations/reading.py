"""Demonstrations from every format that people have; the folder `formats` lists them.

The reader process parses tables and leaves plain arrays in a temporary folder. They are mapped from there and the
folder is removed at once, so that a large table takes little memory and leaves nothing behind.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np

from sbil.demonstrations import formats
from sbil.demonstrations.reader_process import asked
from sbil.demonstrations.roles import Columns, Roles
from sbil.demonstrations.schema import Schema
from sbil.demonstrations.trajectory import Demonstrations, Trajectory
from sbil.errors import UserError


class States(NamedTuple):
    """Observations that a policy decides on, in the order of their file."""

    observations: np.ndarray  # [n, numbers] float32
    rows: np.ndarray  # [n] the line of a CSV file, or the row from 1
    episode: list[str] | None  # [n] as written in the file; empty where missing
    time: list[str] | None
    dropped: int  # rows left out because a value is missing
    filled: dict[str, int]  # values that were missing and filled in, by column
    new: dict[str, int]  # those of them whose column had none in training, as far as the schema knows
    unseen: dict[str, int]  # levels and actions that were not seen in training and count as other, by column


class Notes(NamedTuple):
    """What stands beside the numbers of demonstrations in their table, by trajectory."""

    times: list[list[str]] | None  # [decisions] as written in the table
    filled: list[np.ndarray]  # [decisions, numbers] whether the number was missing and filled in


def read(source: Any, **columns: Unpack[Columns]) -> Demonstrations:
    """Read demonstrations from any format; what cannot be used is refused with its row and column.

    source: a table (CSV, Parquet, JSON lines, Excel, SQLite, DuckDB; FILE::TABLE if a file holds several), a folder or
        a glob of tables, an NPZ file, `minari:NAME`, a Pandas or Polars frame.
        Only tables and frames have columns; the other formats say themselves what they hold.
    episode: the column that says which rows belong together; without it, every row is an episode of its own.
    time: the column that orders the rows of an episode; without it, they are in order.
    action: the column of the decision that was taken: a few whole numbers or words.
    observations: the columns that the decision was based on. By default: every other column of numbers (except
        rewards, returns, next states and ends of episodes, judged by their names), `categories` and `one_hot`.
    terminal: the column that is 1 where the process itself ended with a row.
    truncated: the column that is 1 where the recording was cut with a row although the process went on.
    group: the column of what a split keeps together.
    weights: the column that says how much the decision of a row counts in training: a number from 0.
    balance: every action counts the same in training, however often it was taken.
    categories: columns of text or codes that become the number of their level.
    one_hot: columns of text or codes that become 0 or 1 per level.
    drop: columns that are never observed, for example identifiers.
    unseen: refuse (default) or other: what to do with levels and actions that the schema does not list. An unseen level
        has the number after the last one, or of one_hot no 1; an unseen action is the action "other", which every
        schema has that was made with this rule.
    units: of observed columns, to show with their names.
    bins: into how many ranges a number is cut, by column: {"age": 5}. The ranges hold about as many rows each. Each
        range becomes 0 or 1.
    missing: refuse (default), mean (fill with the mean of the column), last (fill with the last value of the episode,
        or with the mean where there is none), indicator (fill with the mean, and let one more number per column with
        missing values say where one is missing), or drop (leave out the row). The schema keeps the means in any case,
        for gaps in later tables.
    dates: day-first or month-first: what 03/04/2026 means in the column of the time. It is needed only if no date there
        shows it, as 25/12/2026 does.
    previous_action: each row also observes the action of the row before in its episode: 0 or 1 per action, and per
        having no row before.
    history: each row also observes the numbers of this many rows before in its episode. Where the episode has fewer
        rows before, they are the numbers of its first row. Rows that are dropped do not count as rows.
    since_last: for each column with missing values, each row also observes the time since the last recorded value in
        its episode (in the unit of `time`, in hours if it holds dates, in rows if there is none), and whether there was
        none yet; then the time is that since the first row. It needs mean, last or indicator for missing values.
    schema: all of this, from a file or from an earlier table; arguments that are given beside it win. Only the levels
        and actions that it lists are allowed.
    exclude: the names of episodes to leave out, or a file with one per line, as the page of `sbil.view` saves it; their
        rows are not checked.
    only: the names of the episodes to keep, or such a file, for example the one that `write_held_out` of `sbil.train`
        writes.
    """
    roles = Roles.of(columns)
    if loaded := described_by_itself(source, roles):
        return loaded
    with asked(source, {"task": "read", "roles": asdict(roles)}) as (folder, result):
        return _assembled(folder, result)


def read_with_notes(source: Any, **columns: Unpack[Columns]) -> tuple[Demonstrations, Notes | None]:
    """Read demonstrations as `read` does, and what stands beside their numbers; None if the source is no table."""
    roles = Roles.of(columns)
    if loaded := described_by_itself(source, roles):
        return loaded, None
    with asked(source, {"task": "read", "roles": asdict(roles), "notes": True}) as (folder, result):
        bounds = list(zip(*(np.load(folder / f"{end}.npy").tolist() for end in ("starts", "stops")), strict=True))
        filled, texts = np.load(folder / "filled.npy"), None
        if result["times"] is not None:
            texts = _texts(folder, "times", result["times"])
        times = None if texts is None else [texts[start:stop] for start, stop in bounds]
        return _assembled(folder, result), Notes(times, [filled[start:stop] for start, stop in bounds])


def read_observations(source: Any, schema: Schema | str | Path) -> States:
    """Read the states that a policy decides on: the columns of its schema, in any order, with or without actions."""
    with asked(source, {"task": "observe", "schema": asdict(Schema.of(schema))}) as (folder, result):
        texts = {role: _texts(folder, role, names) for role, names in result["texts"].items()}
        kept = np.load(folder / "kept.npy")
        seen, dropped = _mapped(folder / result["observations"]), result["rows_in_file"] - len(kept)
        filled, new = result["filled_values"], result["newly_missing"]
        unseen = result["unseen_values"]
        return States(seen, kept, texts.get("episode"), texts.get("time"), dropped, filled, new, unseen)


def _texts(folder: Path, role: str, names: list[str]) -> list[str]:
    texts = [*names, ""]  # the last one is for -1, missing
    return [texts[code] for code in np.load(folder / f"{role}.npy").tolist()]


def described_by_itself(source: Any, roles: Roles) -> Demonstrations | None:
    """Demonstrations whose own files say what is what; None if the source is a table."""
    format_ = formats.of(source)
    if format_ is None or format_.demonstrations is None:
        return None
    if replace(roles, schema=None, exclude=(), only=()) != Roles():
        raise UserError(f"{source}: columns can be given for a table, not for this kind of data.")
    if roles.exclude or roles.only:
        raise UserError(f"{source}: episodes are excluded and kept by name, and these data have none.")
    return format_.demonstrations(source)


def _mapped(path: Path) -> np.ndarray:
    return np.asarray(np.load(path, mmap_mode="r"))


def _assembled(folder: Path, result: dict[str, Any]) -> Demonstrations:
    schema = Schema.from_json(result["schema"])
    seen, taken = _mapped(folder / result["observations"]), np.load(folder / "actions.npy")
    starts, stops = np.load(folder / "starts.npy"), np.load(folder / "stops.npy")
    no_end = np.zeros(len(starts), bool)
    ends = [np.load(folder / f"{role}.npy") if schema.roles[role] else no_end for role in ("terminal", "truncated")]
    bounds = zip(*(array.tolist() for array in (starts, stops, *ends)), strict=True)
    trajectories = tuple(Trajectory(seen[start:stop], taken[start:stop], *end) for start, stop, *end in bounds)
    if schema.weights:
        weights = np.load(folder / "weights.npy")
        parts = zip(trajectories, starts, stops, strict=True)
        trajectories = tuple(replace(one, weights=weights[start:stop]) for one, start, stop in parts)
    return Demonstrations(
        trajectories,
        schema.actions,
        schema.observation_names,
        {**result["provenance"], **result["origin"]},
        schema=schema,
        groups=np.load(folder / "groups.npy") if schema.group else None,
        ids=tuple(result["ids"]) if result["ids"] else None,
    )
