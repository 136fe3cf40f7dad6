"""The options that say what the columns of a table mean; every command that reads a table has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from sbil.errors import UserError

SHOWN = 30  # names in a line


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """What the columns of a table mean."""

    action: str | None = None
    """The column of the decisions (tables need it, or --schema)."""
    episode: str | None = None
    """The column that says which rows belong together; without it, every row is an episode of its own."""
    time: str | None = None
    """The column that orders the rows of an episode; without it, they are in order."""
    observations: tuple[str, ...] = ()
    """The columns that are observed (default: every other column of numbers, but no reward, return or next state)."""
    terminal: str | None = None
    """The column that is 1 or true in the row with which the process itself ended."""
    truncated: str | None = None
    """The column that is 1 or true in the row with which the recording was cut although the process went on."""
    group: str | None = None
    """The column of what a split keeps together, for example the patient of several stays."""
    weights: str | None = None
    """The column that says how much the decision of a row counts in training (bc, logistic and trees)."""
    balance: bool = False
    """Let every action count the same in training, however often it was taken (bc, logistic and trees)."""
    categories: tuple[str, ...] = ()
    """Columns of text or codes that become one number each."""
    one_hot: tuple[str, ...] = ()
    """Columns of text or codes that become 0 or 1 per value."""
    bins: tuple[str, ...] = ()
    """Columns of numbers to cut into ranges, as in age=5: each of five ranges becomes 0 or 1."""
    drop: tuple[str, ...] = ()
    """Columns that are never observed, for example identifiers and what became known after the decision."""
    missing: Literal["refuse", "mean", "last", "drop", "indicator"] | None = None
    """What to do if a value is missing: refuse (default), fill in the mean of the column, fill in the last value of the
    episode (or the mean if there is no earlier value), fill in the mean and let an indicator (0 or 1) say so, or drop
    the row."""
    unseen: Literal["refuse", "other"] | None = None
    """What to do with levels of categories and with actions that were not seen in training: refuse (default), or count
    them as other."""
    dates: Literal["day-first", "month-first"] | None = None
    """What 03/04/2026 means in the column of the time. Needed only if no date in the column shows it."""
    previous_action: bool = False
    """Each row also observes the action of the row before in its episode. Needs --episode."""
    history: int = 0
    """Each row also observes the numbers of this many rows before in its episode. Needs --episode."""
    since_last: bool = False
    """Each row also observes, per column with missing values, the time since its last recorded value in the episode.
    Needs --episode and --missing mean, last or indicator."""
    schema: Path | None = None
    """A JSON file that says all of this."""
    exclude: Path | None = None
    """A file with the episodes to leave out, one per line, as `sbil view` saves it."""
    only: Path | None = None
    """A file with the episodes to keep, one per line, as `sbil train --write-held-out` writes it."""

    def columns(self) -> dict[str, Any]:
        """What the person said, as keywords of `sbil.read`."""
        given = {name: value for name in COLUMNS if (value := getattr(self, name))}
        return {**given, "bins": dict(map(_bins, self.bins))} if self.bins else given


def _bins(word: str) -> tuple[str, int]:
    """The column and the count in age=5."""
    name, _, count = word.rpartition("=")
    if not (name and count.isdecimal()):
        raise UserError(f"--bins takes COLUMN=COUNT, as in --bins age=5. Got '{word}'.")
    return name, int(count)


COLUMNS = tuple(field.name for field in fields(ColumnOptions))


def tell(names: Sequence[str], made: Mapping[str, Any]) -> None:
    """Print which columns were observed, which were left out, and what became of missing values."""
    from sbil.demonstrations.roles import consequence

    if "rows_in_file" not in made:
        return
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    out = {name: consequence(name) for name in made.get("left_out_columns") or []}
    left = [f"{name} (looks like {what})" if what else name for name, what in out.items()]
    print(f"observed: {shown}" + (f"; left out: {', '.join(left[:SHOWN])}" if left else ""))
    dropped = made.get("rows_in_file", 0) - made.get("rows", 0)
    if dropped:
        print(f"{dropped:,} rows were dropped because a value is missing")
    tell_filled(made.get("filled_values") or {}, made.get("newly_missing") or {})
    tell_unseen(made.get("unseen_values") or {})


def tell_filled(filled: Mapping[str, int], new: Mapping[str, int]) -> None:
    """Print how many missing values were filled in, by column, and which columns had none in training."""
    if filled:
        words = ", ".join(f"{name} {count:,}" for name, count in list(filled.items())[:SHOWN])
        print(f"{sum(filled.values()):,} missing values were filled in ({words})")
    if new:
        words = ", ".join(f"{name} {count:,}" for name, count in list(new.items())[:SHOWN])
        count = f"of these, {sum(new.values()):,} are in columns that missed none in training"
        print(f"{count}, so no number marks them ({words})")


def tell_unseen(unseen: Mapping[str, int]) -> None:
    """Print how many levels and actions were not seen in training, by column."""
    if unseen:
        words = ", ".join(f"{name} {count:,}" for name, count in list(unseen.items())[:SHOWN])
        print(f"{sum(unseen.values()):,} values were not seen in training and count as other ({words})")
