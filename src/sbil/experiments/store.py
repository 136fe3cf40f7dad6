"""The store of results: one Parquet file per cell, written whole or not at all, found again by its fingerprint."""

import glob
import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from sbil import files
from sbil.checkpoint import Checkpoint
from sbil.errors import UserError, naming
from sbil.experiments.result import CELL_COLUMNS, RUN_COLUMNS, Result, results_in
from sbil.experiments.task import Cell, Task

FORMAT = "sbil-runs-1"
DAMAGED = "delete it and run the command again"
MARK, UNSIGNED = "sbil-sha256:", "0" * 64  # the checksum is taken with zeros in its own place


@dataclass(frozen=True)
class Store:
    """A folder of finished cells. A cell is done when its file is there and its fingerprint matches.

    Files of several machines are brought together by copying them into one folder.
    """

    folder: Path

    def __post_init__(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise UserError(f"{self.folder} is a file; give a folder for the results.")

    def path(self, cell: Cell) -> Path:
        """Where the result of a cell lies."""
        return self.folder / cell.task.place / f"{cell.task.file_name(cell)}.{cell.fingerprint}.parquet"

    def holds(self, cell: Cell) -> bool:
        """Whether a file of that cell is there."""
        return self.path(cell).exists()

    def load(self, cell: Cell) -> Result | None:
        """The stored result, or nothing if the cell has not been run."""
        path = self.path(cell)
        if not path.exists():
            return None
        found = list(read(path))
        if len(found) != 1 or (found[0].cell, found[0].fingerprint) != (cell, cell.fingerprint):
            raise UserError(f"{path}: holds another cell than its name says; delete it and run the command again.")
        return found[0]

    def load_all(self, cells: Sequence[Cell]) -> list[Result]:
        """The stored results of cells if all are there, else none."""
        whole = all(map(self.holds, cells))
        return [result for cell in cells if (result := self.load(cell))] if whole else []

    def save(self, result: Result) -> None:
        """Write a result, and delete the state of its training."""
        result = replace(result, fingerprint=result.cell.fingerprint)
        write(self.path(result.cell), [result])
        target = self._private(result.cell)
        for checkpoint in target.parent.glob(f".{glob.escape(target.name)}.*.checkpoint"):
            checkpoint.unlink(missing_ok=True)

    def checkpoint(self, cells: Sequence[Cell], members: np.ndarray) -> Checkpoint:
        """Where some of the runs of a group of cells keep the state of their training."""
        identity = {"cells": [cell.fingerprint for cell in cells], "runs": members.tolist()}
        return Checkpoint.beside(self._private(cells[0]), identity)

    def _private(self, cell: Cell) -> Path:
        return self.folder / cell.task.private / self.path(cell).name


def write(path: Path, results: Iterable[Result]) -> None:
    """Write cells into one file, one row per run: under a temporary name, synced, then renamed."""
    files.write_bytes(path, packed(results))


def packed(results: Iterable[Result]) -> bytes:
    """Cells as a Parquet file that holds a checksum of itself, so that no damaged byte reaches the parser."""
    return sealed(pl.concat([result.table() for result in results], how="diagonal"))


def sealed(table: pl.DataFrame) -> bytes:
    """Return the bytes of a Parquet file that holds a table and a checksum of the file."""
    content = io.BytesIO()
    notes = {"format": FORMAT, "checksum": MARK + UNSIGNED}
    table.write_parquet(content, compression="zstd", compression_level=19, data_page_size=2**24, metadata=notes)
    whole = content.getvalue()
    return whole.replace((MARK + UNSIGNED).encode(), (MARK + hashlib.sha256(whole).hexdigest()).encode())


def unpacked(content: bytes) -> pl.DataFrame:
    """The table of a file; ValueError if it is not as it was written."""
    stamp = re.search(rb"%b([0-9a-f]{64})" % MARK.encode(), content)
    if not stamp:
        raise UserError("not a file of sbil's results; leave it out.")
    blank = content[: stamp.start(1)] + UNSIGNED.encode() + content[stamp.end(1) :]
    if hashlib.sha256(blank).hexdigest().encode() != stamp[1]:
        raise ValueError("another checksum")
    written_in = pl.read_parquet_metadata(io.BytesIO(content))["format"]
    if written_in != FORMAT:
        raise UserError(f"written in format {written_in}, this sbil reads {FORMAT}.")
    return pl.read_parquet(io.BytesIO(content))


def read(path: Path) -> Iterator[Result]:
    """The cells of a file."""
    with naming(path, DAMAGED):
        table = unpacked(path.read_bytes())
        missing = [name for name in (*CELL_COLUMNS, *RUN_COLUMNS) if name not in table.columns]
        if missing:
            raise UserError(f"not a file of results, it has no column {missing[0]}.")
        yield from results_in(table)


def files_in(folder: Path) -> list[Path]:
    """The files of results in a folder, and in the folders that tasks have within it."""
    places = sorted({kind.place for kind in Task.__subclasses__()})
    return [path for place in places for path in sorted((folder / place).glob("*.parquet"))]


def read_all(paths: Iterable[Path], episodes: bool = True) -> list[Result]:
    """The cells of several files or folders of files; a cell that is there twice counts once.

    episodes: whether to keep the return of every episode, or one mean per run.
    """
    found: dict[object, Result] = {}
    for file in (file for path in paths for file in _files(path)):
        for result in read(file):
            kept = result if episodes else result.without_episodes()
            found.setdefault((result.cell, result.fingerprint), kept)
    if not found:
        raise UserError("there is no run in these files; give others.")
    return list(found.values())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    inside = files_in(path)
    if not inside:
        raise UserError(f"{path}: no results here; `sbil reproduce --out {path}` writes some.")
    return inside
