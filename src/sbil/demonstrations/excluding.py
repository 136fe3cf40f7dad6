"""Episodes that a person wants left out, by their names in a file: what `sbil view` saves."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sbil.demonstrations.table import Batch
from sbil.demonstrations.values import Levels
from sbil.errors import UserError


def listed_in(path: str | Path) -> list[str]:
    """The first cell of each line of a file; the first line may be a heading, the name of the episode's column."""
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            return [row[0].strip() for row in csv.reader(file) if row and row[0].strip()]
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise UserError(f"--exclude {path}: {why}; name a file with one episode a line.") from None
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"--exclude {path}: is no text; name a file with one episode a line.") from None


def without(
    batches: Iterator[Batch], episode: str | None, names: Sequence[str], gone: dict[str, int] | None = None
) -> Iterator[Batch]:
    """The batches without the rows of these episodes; names that are in none of them are refused at the end.

    gone: where it is counted what was left out.
    """
    if episode is None:
        raise UserError("episodes are excluded by name, and these data have none; name their column (--episode).")
    unwanted = {*names[1:]} if names[0] == episode else {*names}
    levels, left, rows = Levels(episode), 0, 0
    for batch in batches:
        codes = levels.codes(batch.frame[episode], batch.decimal)
        keep = ~np.isin(codes, [number for name, number in levels.index.items() if name in unwanted])
        left, rows = left + int(keep.sum()), rows + len(keep)
        if keep.all():
            yield batch
        elif keep.any():
            yield batch._replace(frame=batch.frame.filter(keep), rows=batch.rows[keep])
    strangers = sorted(unwanted - levels.index.keys())
    if strangers:
        raise UserError(
            f"{len(strangers)} of the episodes to exclude are not in the data, '{strangers[0][:60]}' say; "
            "correct the list."
        )
    if not left:
        raise UserError("every episode is excluded; none is left.")
    if gone is not None:
        gone |= {"excluded episodes": len(unwanted), "excluded rows": rows - left}
