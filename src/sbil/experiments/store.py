"""The store of results: one file a cell, written whole or not at all, found again by its fingerprint."""

import json
from dataclasses import dataclass
from pathlib import Path

from sbil import files
from sbil.errors import UserError
from sbil.experiments.cell import Cell, Result

FORMAT = "sbil-cell-2"


@dataclass(frozen=True)
class Store:
    """A folder of finished cells. A cell is done when its file is there and its fingerprint matches."""

    folder: Path

    def __post_init__(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise UserError(f"{self.folder} is a file; give a folder for the results.")

    def path(self, cell: Cell) -> Path:
        """Where the result of a cell lies."""
        return self.folder / f"{cell.environment}.{cell.method.algorithm}.n{cell.size}.{cell.fingerprint}.json"

    def load(self, cell: Cell) -> Result | None:
        """The stored result, or nothing if the cell has not been run."""
        path = self.path(cell)
        if not path.exists():
            return None
        result = _read(path, cell.fingerprint)
        if result.cell != cell:
            raise UserError(f"{path}: holds another cell than its name says; delete it and run the command again.")
        return result

    def save(self, result: Result) -> None:
        """Keep a result."""
        content = {"format": FORMAT, "fingerprint": result.cell.fingerprint, **result.as_json()}
        files.write_text(self.path(result.cell), json.dumps(content, sort_keys=True))


def _read(path: Path, fingerprint: str) -> Result:
    try:
        content = json.loads(path.read_bytes())
        if content["format"] != FORMAT:
            raise UserError(f"{path}: written in format {content['format']}, this sbil reads {FORMAT}.")
        if content["fingerprint"] != fingerprint:
            raise ValueError("another fingerprint")
        return Result.from_json(content)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a readable result; delete it and run the command again.") from None
