"""SQLite files: one table or view of a database, FILE::TABLE. The database is opened for reading only."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl

from sbil.demonstrations.formats import Format, chosen, file_and_table
from sbil.demonstrations.table import Batch, Table, checked_names, of_values
from sbil.errors import UserError

ROWS = 50_000  # of a batch
NAMES = "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite!_%' escape '!'"


def table(path: Path) -> Table:
    """The rows of a table, in the order in which the database gives them."""
    file = file_and_table(path)[0]
    _require_whole(file)
    with closing(_opened(file)) as database:
        name = chosen(path, [row[0] for row in database.execute(f"{NAMES} order by name")])
        cursor = database.execute(f"{_select(name)} limit 0")
        names = checked_names([column[0] for column in cursor.description])

    def batches() -> Iterator[Batch]:
        done = 0
        with closing(_opened(file)) as database:
            cursor = database.execute(_select(name))
            while rows := cursor.fetchmany(ROWS):
                columns = [of_values(*column) for column in zip(names, zip(*rows, strict=True), strict=True)]
                yield Batch(pl.DataFrame(columns), done + np.arange(1, len(rows) + 1), str(path))
                done += len(rows)

    return Table(names, batches, f"SQLite, table '{name}'")


def _require_whole(file: Path) -> None:
    with file.open("rb") as content:
        head = content.read(16)
    if head[8:12] == b"DUCK":
        raise UserError("is a DuckDB file; its name must end in .duckdb.")
    if not head.startswith(b"SQLite format 3\0"):
        raise UserError("is not a SQLite file, or it is damaged.")
    log = file.with_name(f"{file.name}-wal")
    if log.is_file() and log.stat().st_size:
        raise UserError(f"is still written by another program ({log.name} is beside it); close that program first.")


def _opened(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    database.execute("pragma trusted_schema = off")  # a view runs no functions of its own
    return database


def _select(name: str) -> str:
    quoted = name.replace('"', '""')
    return f'select * from "{quoted}"'


FORMAT = Format("SQLite", (".sqlite", ".sqlite3", ".db"), table=table, several=True)
