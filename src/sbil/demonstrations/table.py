"""Tables from files and data frames, a batch of rows at a time, each row with the number that a person finds it by.

CSV cells come as text, checked for structure before Polars splits them: every row has as many cells as the header,
every quote is closed. The files may be large; no more than a few batches are held at once.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl

from sbil.demonstrations.dialect import PARQUET, SAMPLE, Dialect, encoding_of, sniff
from sbil.errors import UserError

BLOCK = 1 << 22  # bytes of text at a time
CELLS = 4_000_000  # cells of a Parquet batch
LONGEST_ROW = 1 << 26


class Batch(NamedTuple):
    """Some rows, in order."""

    frame: pl.DataFrame
    rows: np.ndarray  # [n] the line of a text file, or the row from 1
    name: str  # of the file
    decimal: str = "."  # the sign of its file


@dataclass(frozen=True)
class Table:
    """Named columns and a way to read them from the beginning, batch by batch."""

    names: tuple[str, ...]
    batches: Callable[[], Iterator[Batch]]
    row: str  # what a row number counts: lines of text, or rows
    description: str = ""
    files: int = 1


def of_frame(frame: Any, name: str) -> Table:
    """The table of a Polars or Pandas data frame."""
    polars = frame if isinstance(frame, pl.DataFrame) else _from_pandas(frame)
    names = _checked_names(polars.columns)

    def batches() -> Iterator[Batch]:
        step = max(CELLS // len(names), 1)
        for start in range(0, polars.height, step):
            part = polars.slice(start, step)
            yield Batch(part, np.arange(start + 1, start + 1 + part.height), name)

    return Table(names, batches, "row", description="data frame")


def of_files(paths: Sequence[Path]) -> Table:
    """One table of the rows of several files with the same columns, one file after the other."""
    with _naming(paths[0]):
        first = _of_file(paths[0])

    def batches() -> Iterator[Batch]:
        for path in paths:
            with _naming(path):
                table = _of_file(path)
                _same_columns(first.names, table.names, paths[0].name)
                for batch in table.batches():
                    yield batch._replace(frame=batch.frame.select(first.names))

    several = f"{len(paths)} files, the first " if len(paths) > 1 else ""
    return Table(first.names, batches, first.row, several + first.description, len(paths))


def sha256(paths: Sequence[Path]) -> str:
    """Of the content of the files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


class _naming:
    """What goes wrong while a file is read becomes one line that begins with its name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, UserError):
            raise UserError(f"{self.path}: {error}") from None
        if isinstance(error, FileNotFoundError):
            raise UserError(f"{self.path}: there is no such file, or it vanished while it was read.") from None
        if isinstance(error, MemoryError):
            raise error
        if isinstance(error, gzip.BadGzipFile | EOFError | zlib.error):
            raise UserError(f"{self.path}: the gzip file is damaged or incomplete; copy it again.") from None
        if isinstance(error, OSError) and error.strerror:
            raise UserError(f"{self.path}: cannot be read ({error.strerror}).") from None
        if isinstance(error, Exception | pl.exceptions.PanicException) and not isinstance(error, GeneratorExit):
            what = type(error).__name__
            raise UserError(f"{self.path}: not a readable table; damaged or incomplete ({what}).") from None


def _of_file(path: Path) -> Table:
    if not stat.S_ISREG(path.stat().st_mode):
        raise UserError("is a pipe or a device, not a file; save the table as a file first.")
    return _of_parquet(path) if path.name.lower().endswith(PARQUET) else _of_text(path)


def _checked_names(names: Sequence[str]) -> tuple[str, ...]:
    for place, name in enumerate(names, 1):
        if not name:
            raise UserError(
                f"column {place} has no name in the header; name it or remove it (Pandas: to_csv(..., index=False))."
            )
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice:
        raise UserError(f"two columns are called '{twice}'; rename one of them.")
    if not names:
        raise UserError("the table has no columns.")
    return tuple(names)


def _same_columns(first: Sequence[str], names: Sequence[str], name: str) -> None:
    odd = sorted(set(first) ^ set(names))
    if odd:
        has = "has no column" if odd[0] in first else "has a column more,"
        raise UserError(f"{has} '{odd[0]}', unlike {name}; the files of one table must have the same columns.")


def _from_pandas(frame: Any) -> pl.DataFrame:
    """Column by column, so that PyArrow is not needed; what is neither number nor date is text."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    names = _checked_names([str(name) for name in frame.columns])
    return pl.DataFrame([_series(name, frame.iloc[:, place]) for place, name in enumerate(names)])


def _series(name: str, column: Any) -> pl.Series:
    kind = getattr(column.dtype, "kind", "O")
    if isinstance(column.dtype, np.dtype) and kind in "iufb":
        return pl.Series(name, column.to_numpy())
    if kind == "M":
        zone = getattr(column.dtype, "tz", None)
        plain = column.dt.tz_convert("UTC").dt.tz_localize(None) if zone else column
        series = pl.Series(name, plain.to_numpy().astype("datetime64[us]"))
        return series.dt.replace_time_zone("UTC") if zone else series
    gone = column.isna().to_numpy()
    values = [None if empty else str(value) for value, empty in zip(column.tolist(), gone, strict=True)]
    return pl.Series(name, values, dtype=pl.String)


def _of_parquet(path: Path) -> Table:
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            raise UserError("is not a Parquet file, or it is damaged; a table of text is named .csv.")
    lazy = pl.scan_parquet(path, hive_partitioning=False)
    names = _checked_names(lazy.collect_schema().names())

    def batches() -> Iterator[Batch]:
        height = lazy.select(pl.len()).collect().item()
        step = max(CELLS // len(names), 1)
        for start in range(0, height, step):
            part = lazy.slice(start, step).collect()
            yield Batch(part, np.arange(start + 1, start + 1 + part.height), str(path))

    return Table(names, batches, "row", description="Parquet")


def _of_text(path: Path) -> Table:
    with _opened(path) as file:
        sample = file.read(SAMPLE)
        dialect = sniff(sample, whole=len(sample) < SAMPLE)
    header = next(_blocks(path, dialect))
    names, _ = _header(header, dialect)

    def batches() -> Iterator[Batch]:
        line, first = 1, True
        for block in _blocks(path, dialect):
            lines = block.count(b"\n")
            if first:
                _, skip = _header(block, dialect)
                line, lines, block = line + block[:skip].count(b"\n"), lines - block[:skip].count(b"\n"), block[skip:]
                first = False
            frame, rows = _split(block, dialect.delimiter, names, line)
            if len(rows):
                yield Batch(frame, rows, str(path), dialect.decimal)
            line += lines

    return Table(names, batches, "line", dialect.words)


def _opened(path: Path) -> BinaryIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def _blocks(path: Path, dialect: Dialect) -> Iterator[bytes]:
    """UTF-8 text in blocks that end with the end of a row; line ends are single newlines."""
    rest, line = b"", 1
    with _opened(path) as file:
        for text in _transcoded(file, dialect.encoding):
            block = rest + text
            end = _last_end(block)
            if end:
                yield block[:end]
                line += block.count(b"\n", 0, end)
            elif len(block) > LONGEST_ROW:
                raise UserError(f"line {line}: a row of more than 64 MB; is a quote never closed?")
            rest = block[end:]
    if rest.strip():
        if rest.count(b'"') % 2:
            raise UserError(f"line {line}: a quote is opened in this row and never closed.")
        yield rest + b"\n"


def _last_end(block: bytes) -> int:
    """Where the last whole row ends: after the last newline that is in no quotes."""
    if b'"' not in block:
        return block.rfind(b"\n") + 1
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero((text == ord("\n")) & ~_quoted(text))
    return int(ends[-1]) + 1 if len(ends) else 0


def _quoted(text: np.ndarray) -> np.ndarray:
    """[n] whether each byte stands in quotes: after an odd number of them."""
    inside: np.ndarray = np.cumsum(text == ord('"'), dtype=np.int32) % 2 == 1
    return inside


def _transcoded(file: BinaryIO, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    plain, line, held = True, 1, ""
    while True:
        block = file.read(BLOCK)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError:
            # So far nothing but ASCII was there, which Latin-1 shares.
            if encoding != "utf-8" or not plain or encoding_of(block) != "cp1252":
                raise UserError(f"not all of the text is {encoding}; after line {line} it is something else.") from None
            encoding, decoder = "cp1252", codecs.getincrementaldecoder("cp1252")()
            text = decoder.decode(block)
        plain = plain and text.isascii()
        text, held = held + text, ""
        if text.endswith("\r") and block:
            text, held = text[:-1], "\r"
        if "\0" in text:
            raise UserError(f"line {line + text[: text.index(chr(0))].count(chr(10))} holds NUL bytes.")
        if "\r" in text:
            text = re.sub("\r\n?", "\n", text)
        line += text.count("\n")
        if text:
            yield text.encode()
        if not block:
            return


def _header(block: bytes, dialect: Dialect) -> tuple[tuple[str, ...], int]:
    """The names of the columns, and where the header ends."""
    start = len(block) - len(block.lstrip(b"\n"))
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero((text == ord("\n")) & ~_quoted(text))
    end = int(ends[np.searchsorted(ends, start)]) + 1
    line = block[start:end].decode().removeprefix("\ufeff")
    cells = [cell.strip() for cell in next(csv.reader(io.StringIO(line), delimiter=dialect.delimiter, strict=True))]
    if all(re.fullmatch(r"[+-]?[\d.,]+([eE][+-]?\d+)?", cell) for cell in cells):
        raise UserError("line 1 holds numbers; a header with the names of the columns is needed there.")
    return _checked_names(cells), end


def _split(block: bytes, delimiter: str, names: tuple[str, ...], line: int) -> tuple[pl.DataFrame, np.ndarray]:
    """The cells of a block as text, and the line of each row; `line` is that of its beginning."""
    text = np.frombuffer(block, np.uint8)
    quotes = b'"' in block
    newlines = np.flatnonzero(text == ord("\n"))
    inside = _quoted(text) if quotes else np.zeros(1, bool)
    ends = newlines[~inside[newlines]] if quotes else newlines
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    lines = line + np.searchsorted(newlines, starts)
    marks = np.flatnonzero(text == ord(delimiter))
    marks = marks[~inside[marks]] if quotes else marks
    counts = np.diff(np.searchsorted(marks, ends), prepend=0) + 1
    blank = ends == starts
    ragged = np.flatnonzero((counts != len(names)) & ~blank)
    if quotes:
        _check_quotes(text, inside, delimiter, lines, starts)
    if len(ragged):
        raise UserError(
            f"line {lines[ragged[0]]} has {counts[ragged[0]]} cells and the header {len(names)}; a cell that holds "
            "the delimiter must be in quotes."
        )
    if blank.any():
        keep = np.ones(len(text), bool)
        keep[ends[blank]] = False
        block, lines = text[keep].tobytes(), lines[~blank]
    if not len(lines):
        return pl.DataFrame(), lines
    frame = pl.read_csv(
        block,
        has_header=False,
        new_columns=list(names),
        separator=delimiter,
        infer_schema=False,
        quote_char='"' if quotes else None,
    )
    if frame.shape != (len(lines), len(names)):
        raise UserError(f"the rows from line {line} could not be told apart; save the table again.")
    return frame, lines


def _check_quotes(text: np.ndarray, inside: np.ndarray, delimiter: str, lines: np.ndarray, starts: np.ndarray) -> None:
    """A quote opens at the beginning of a cell and closes at its end; inside it is doubled."""
    places = np.flatnonzero(text == ord('"'))
    bounds = [ord(delimiter), ord("\n"), ord('"')]
    before = np.where(places > 0, text[places - 1], ord("\n"))
    after = text[np.minimum(places + 1, len(text) - 1)]
    wrong = np.where(inside[places], ~np.isin(before, bounds), ~np.isin(after, bounds))
    if wrong.any():
        row = np.searchsorted(starts, places[np.argmax(wrong)], side="right") - 1
        raise UserError(f"line {lines[row]}: a quote inside a cell; put the cell in quotes and write the quote twice.")
