"""JSON lines: one JSON object per row, whose keys are the names of the columns.

An object that lacks a key has a missing value there. Lines are parsed by Python, which names the line of an error.
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sbil.demonstrations.formats import Format
from sbil.demonstrations.table import Batch, Table, checked_names, of_values
from sbil.errors import UserError
from sbil.files import unique_keys

ROWS = 50_000  # of a batch


def table(path: Path) -> Table:
    """The rows of a file; every row is looked at for the names of the columns."""
    known: dict[str, None] = {}
    for _, row in _rows(path):
        known.update(dict.fromkeys(row))
    if not known:
        raise UserError("holds no JSON object with a key; nothing to read.")
    names = checked_names([*known])

    def batches() -> Iterator[Batch]:
        rows = _rows(path)
        while part := list(islice(rows, ROWS)):
            frame = pl.DataFrame([of_values(name, [row.get(name) for _, row in part]) for name in names])
            yield Batch(frame, np.array([line for line, _ in part]), str(path), numbering="line")

    return Table(names, batches, "JSON lines")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every object with its line; empty lines are skipped."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _object(number, line)


def _object(number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig"), object_pairs_hook=unique_keys)
    except UnicodeDecodeError:
        raise UserError(f"line {number} is not UTF-8 text; save the file as UTF-8.") from None
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, UserError) else "is not JSON; damaged or incomplete"
        raise UserError(f"line {number} {what}.") from None
    if not isinstance(row, dict):
        raise UserError(f"line {number} is no JSON object; write one object per line.")
    return row


FORMAT = Format("JSON lines", (".jsonl", ".ndjson"), table=table)
