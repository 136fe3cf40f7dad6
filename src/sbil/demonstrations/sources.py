"""Find the files of a table, and read them as one table."""

import glob
import gzip
import hashlib
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from sbil.demonstrations import formats
from sbil.demonstrations.table import Batch, Table
from sbil.errors import UserError

BLOCK = 1 << 22  # bytes that are hashed at a time


def files_of(source: str | Path) -> list[Path]:
    """Return the files of a table by name: one file, the files of a folder, or the files that match a glob."""
    path, table = formats.file_and_table(source)
    if path.is_dir():
        lack, names = "there is no table in this folder", [*path.glob("[!._]*")]
    elif not os.path.lexists(path) and glob.has_magic(str(path)):
        lack, names = "no table matches", [Path(name) for name in glob.glob(str(path))]
    else:
        return [_single(path, Path(source))]
    found = sorted(filter(formats.is_table, names))
    if not found:
        raise UserError(f"{source}: {lack} ({formats.endings(tables=True)}).")
    kinds = sorted({format_.name for p in found if (format_ := formats.of_file(p))})
    if len(kinds) > 1:
        raise UserError(f"{source}: it holds both {' and '.join(kinds)} files; name one kind, as in '{path}/*.csv'.")
    return found if table is None else [Path(f"{one}{formats.MARK}{table}") for one in found]


def _single(path: Path, source: Path) -> Path:
    """Check that a file is there and is a table; return its source, which may name one of its tables."""
    if not os.path.lexists(path):
        raise UserError(f"{path}: there is no such file.")
    if not formats.is_table(path):
        excel = path.name.lower().endswith((".xls", ".xlsb", ".ods"))
        advice = "save it as .xlsx or CSV" if excel else f"the known endings are {formats.endings()}"
        raise UserError(f"{path}: this kind of file cannot be read; {advice}.")
    return source


def table_of(paths: Sequence[Path]) -> Table:
    """Return one table with the rows of several files with the same columns, file by file."""
    with _named(paths[0]):
        first = _opened(paths[0])

    def batches() -> Iterator[Batch]:
        for path in paths:
            with _named(path):
                table = _opened(path)
                _same_columns(first.names, table.names, paths[0].name)
                for batch in table.batches():
                    yield batch._replace(frame=batch.frame.select(first.names))

    several = f"{len(paths)} files, the first " if len(paths) > 1 else ""
    return Table(first.names, batches, several + first.description)


def sha256(paths: Sequence[Path]) -> str:
    """Return the hash of the content of the files, file by file."""
    digest = hashlib.sha256()
    for path in paths:
        with formats.file_and_table(path)[0].open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn every error while a file is read into one line that begins with its name."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (MemoryError, GeneratorExit):
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file, or it vanished while it was read.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path}: the gzip file is damaged or incomplete; copy it again.") from None
    except (Exception, pl.exceptions.PanicException) as error:
        if isinstance(error, OSError) and error.strerror:
            raise UserError(f"{path}: cannot be read ({error.strerror}).") from None
        what = type(error).__name__
        raise UserError(f"{path}: not a readable table; damaged or incomplete ({what}).") from None


def _opened(path: Path) -> Table:
    if not stat.S_ISREG(formats.file_and_table(path)[0].stat().st_mode):
        raise UserError("is a pipe or a device, not a file; save the table as a file first.")
    format_ = formats.of_file(path)
    assert format_ is not None
    assert format_.table is not None
    return format_.table(path)


def _same_columns(first: Sequence[str], names: Sequence[str], name: str) -> None:
    odd = sorted(set(first) ^ set(names))
    if odd:
        what = f"column '{odd[0]}' is missing, which" if odd[0] in first else f"has column '{odd[0]}', which"
        verb = "has" if odd[0] in first else "lacks"
        raise UserError(f"{what} {name} {verb}; the files of one table must have the same columns.")
