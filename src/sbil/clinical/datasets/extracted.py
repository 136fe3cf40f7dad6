"""Datasets that are extracted from files once and kept.

What was extracted serves the next call, unless the source then holds other files, or sbil or its rules have changed.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbil import demonstrations, files
from sbil.clinical.datasets import Asked, Opened
from sbil.errors import UserError
from sbil.experiments import TableTask
from sbil.version import __version__

# What a table is called, and so are its files, if the source is not the whole of MIMIC-III v1.4.
MARKS = {
    "v1.4": "",
    "demo of v1.4": ", a demo of 100 patients, not a result",
    "incomplete or changed": ", tables incomplete or changed, not a result",
}
Flow = dict[str, Any]  # the counts beside a table


@dataclass(frozen=True)
class Extracted:
    """How a dataset is extracted and kept. Call it to open the dataset."""

    name: str
    title: str
    check: Callable[[Sequence[Path]], None]  # refuses a source that is not there
    extract: Callable[[Path, Asked], str]  # writes the table; returns who was left out
    rules: Callable[[], str]  # a digest of the rules of today
    same: Callable[[Flow, Sequence[Path]], bool]  # whether a table was made from this source

    def __call__(self, asked: Asked) -> Opened:
        table = asked.folder / f"{self.name}.parquet"
        self.check(asked.source)
        account = ""
        if table.exists():
            self._must_be_ours(table, asked.source)
        elif asked.source:
            files.write_text(asked.folder / ".gitignore", "*\n")  # nobody commits by accident what is there
            account = self.extract(table, asked)
        else:
            raise UserError(f"{self.name} needs data: give the source, the files as they come from PhysioNet.")
        found = demonstrations.read(table, schema=table.with_suffix(".schema.json"))
        edition = _flow(table).get("edition", "v1.4")
        title = self.title + MARKS.get(edition, f", {edition}")
        return TableTask.of(self.name, found, title=title, notes=(f"{found.steps:,} decisions.",)), account

    def _must_be_ours(self, table: Path, source: Sequence[Path]) -> None:
        """Refuse a table that another sbil made, or this one with other rules, or from other files."""
        flow = _flow(table)
        if (flow.get("sbil"), flow.get("rules")) != (__version__, self.rules()):
            raise UserError(
                f"{table} was made by another version of sbil or by other rules; delete it and give the source again, "
                "or choose another folder for the results."
            )
        if source and not self.same(flow, source):
            raise UserError(
                f"{table} was made from other files than the source holds; choose another folder for the results, "
                f"or delete {table.parent}."
            )


def _flow(table: Path) -> Flow:
    path = table.with_suffix(".flow.json")
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError
    except (OSError, ValueError):
        raise UserError(f"{path} is missing or damaged; delete {table} and run the command again.") from None
    return content
