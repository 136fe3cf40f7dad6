"""A cohort on the disk: a table of decisions, what its columns mean, and who was left out."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbil import files
from sbil.demonstrations import Schema
from sbil.errors import UserError


@dataclass(frozen=True)
class Cohort:
    """What was written: the table, its schema, and the flow: how many stays, decisions and values were kept."""

    path: Path
    schema: Schema
    flow: dict[str, Any]
    chart: str  # the flow in words, without small counts

    def __str__(self) -> str:
        return self.chart


def _beside(out: Path) -> tuple[Path, Path]:
    return out.with_suffix(".schema.json"), out.with_suffix(".flow.json")


def must_be_free(out: Path, overwrite: bool, stopped: bool = False) -> None:
    """Refuse a table that cannot be written, or that exists.

    stopped: an earlier run was stopped. It wrote the schema and the flow first, so these may exist without the table.
    """
    if out.suffix != ".parquet":
        raise UserError(f"{out}: the table is written as Parquet; choose a name that ends with .parquet.")
    for path in (out, *_beside(out)):
        if path.is_dir():
            raise UserError(f"{path} is a folder; name a file.")
        left_over = stopped and path != out and not out.exists()
        if path.exists() and not overwrite and not left_over:
            raise files.exists_already(path)


def write(out: Path, content: bytes, schema: Schema, flow: dict[str, Any], chart: str) -> Cohort:
    """Write the schema and the flow, and the table last: if the table exists, everything does."""
    for path, values in zip(_beside(out), (schema.as_json(), flow), strict=True):
        files.write_text(path, json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    files.write_bytes(out, content)
    return Cohort(out, schema, flow, chart)
