"""Parquet files: tables whose columns have types."""

from pathlib import Path

import polars as pl

from sbil.demonstrations.formats import Format
from sbil.demonstrations.table import Table, of_frame
from sbil.errors import UserError


def table(path: Path) -> Table:
    """The rows of a file, read part by part."""
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            raise UserError("is not a Parquet file, or it is damaged; the name of a text file ends in .csv.")
    return of_frame(pl.scan_parquet(path, hive_partitioning=False), str(path), "Parquet")


FORMAT = Format("Parquet", (".parquet", ".pq"), table=table)
