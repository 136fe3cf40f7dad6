"""DuckDB files: one table or view of a database, FILE::TABLE. The database is opened for reading only."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sbil.demonstrations.formats import Format, chosen, file_and_table
from sbil.demonstrations.table import CELLS, Batch, Table, checked_names
from sbil.errors import UserError

# A view must not read other files, and nothing is loaded from the network.
CLOSED = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "threads": "2",
}
NAMES = """
    select case when table_schema = 'main' then table_name else table_schema || '.' || table_name end, table_schema,
    table_name from information_schema.tables where table_catalog = current_database() order by 1
"""
# Other types, such as intervals, lists and GUIDs, are read as text.
PLAIN = {
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE"),
    *("BOOLEAN", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
}


def table(path: Path) -> Table:
    """The rows of a table, read part by part in the order in which they were inserted."""
    file = file_and_table(path)[0]
    with closing(_opened(file)) as database:
        places = {row[0]: row[1:] for row in database.execute(NAMES).fetchall()}
        name = chosen(path, list(places))
        place = ".".join(map(_quoted, places[name]))
        described = database.execute(f"describe {place}").fetchall()
    names = checked_names([column[0] for column in described])
    select = ", ".join(_cell(*column[:2]) for column in described)
    step = max(CELLS // len(names), 1)

    def batches() -> Iterator[Batch]:
        done, height = 0, step
        with closing(_opened(file)) as database:
            while height == step:
                frame = pl.DataFrame(database.sql(f"select {select} from {place} limit {step} offset {done}"))
                height = frame.height
                if height:
                    yield Batch(frame, done + np.arange(1, height + 1), str(path))
                done += height

    return Table(names, batches, f"DuckDB, table '{name}'")


def _opened(file: Path) -> Any:
    try:
        import duckdb
    except ImportError:
        raise UserError("DuckDB files need DuckDB; install it with: pip install 'sbil[duckdb]'") from None
    try:
        return duckdb.connect(str(file), read_only=True, config=CLOSED)
    except duckdb.Error as error:
        if "Could not set lock" in str(error):
            raise UserError("another program has it open; close that program first.") from None
        raise UserError("is not a DuckDB file, or it is damaged, or another version wrote it.") from None


def _cell(name: str, type_: str) -> str:
    """A column as its own type, or as text; exact numbers become floats."""
    quoted = _quoted(name)
    if type_.startswith(("DECIMAL", "HUGEINT", "UHUGEINT")):
        return f"cast({quoted} as double) as {quoted}"
    return quoted if type_ in PLAIN else f"cast({quoted} as varchar) as {quoted}"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


FORMAT = Format("DuckDB", (".duckdb", ".ddb"), table=table, several=True)
