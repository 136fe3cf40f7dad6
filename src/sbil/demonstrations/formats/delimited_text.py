"""Text with one line per row: CSV, with any of four delimiters, in any of the usual encodings, also gzipped.

The structure is checked before Polars splits the cells: every row has as many cells as the header, and every quote is
closed. The cells stay text. A file may be large, so only a few blocks are held at once.
"""

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from sbil.demonstrations.formats import Format
from sbil.demonstrations.formats.dialect import SAMPLE, Dialect, encoding_of, sniff
from sbil.demonstrations.table import Batch, Table, checked_names
from sbil.errors import UserError

BLOCK = 1 << 22  # bytes of text at a time
LONGEST_ROW = 1 << 26


def table(path: Path) -> Table:
    """The rows of a file; its cells are text."""
    with _opened(path) as file:
        sample = file.read(SAMPLE)
        dialect = sniff(sample, whole=len(sample) < SAMPLE)
    names, start = _header(next(_blocks(path, dialect)), dialect)

    def batches() -> Iterator[Batch]:
        line, skip = 1, start
        for block in _blocks(path, dialect):
            line += block.count(b"\n", 0, skip)
            frame, rows = _split(block[skip:], dialect.delimiter, names, line)
            if len(rows):
                yield Batch(frame, rows, str(path), dialect.decimal, "line")
            line, skip = line + block.count(b"\n", skip), 0

    return Table(names, batches, dialect.words)


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
    """Return the end of the last whole row: after the last newline outside quotes."""
    if b'"' not in block:
        return block.rfind(b"\n") + 1
    ends = _row_ends(np.frombuffer(block, np.uint8))
    return int(ends[-1]) + 1 if len(ends) else 0


def _row_ends(text: np.ndarray) -> np.ndarray:
    """The places of the newlines outside quotes."""
    newlines = np.flatnonzero(text == ord("\n"))
    return newlines[~_quoted(text)[newlines]]


def _quoted(text: np.ndarray) -> np.ndarray:
    """[n] whether each byte is inside quotes: after an odd number of them."""
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
            # So far there was only ASCII, which Latin-1 shares.
            if encoding != "utf-8" or not plain or encoding_of(block) != "cp1252":
                what = f"not all of the text is {encoding}"
                raise UserError(f"{what}; after line {line} it has another encoding.") from None
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
    start = len(block) - len(block.lstrip(b"\n"))
    ends = _row_ends(np.frombuffer(block, np.uint8))
    end = int(ends[np.searchsorted(ends, start)]) + 1
    line = block[start:end].decode().removeprefix("\ufeff")
    cells = [cell.strip() for cell in next(csv.reader(io.StringIO(line), delimiter=dialect.delimiter, strict=True))]
    if all(re.fullmatch(r"[+-]?[\d.,]+([eE][+-]?\d+)?", cell) for cell in cells):
        raise UserError("line 1 holds numbers; a header with the names of the columns is needed there.")
    return checked_names(cells), end


def _split(block: bytes, delimiter: str, names: tuple[str, ...], line: int) -> tuple[pl.DataFrame, np.ndarray]:
    """The cells of a block as text, and the line of each row; `line` is that of its beginning."""
    text = np.frombuffer(block, np.uint8)
    quotes = b'"' in block
    newlines = np.flatnonzero(text == ord("\n"))
    inside = _quoted(text) if quotes else np.zeros(len(text), bool)
    ends = newlines[~inside[newlines]]
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    lines = line + np.searchsorted(newlines, starts)
    marks = np.flatnonzero(text == ord(delimiter))
    counts = np.diff(np.searchsorted(marks[~inside[marks]], ends), prepend=0) + 1
    blank = ends == starts
    ragged = np.flatnonzero((counts != len(names)) & ~blank)
    if quotes:
        _check_quotes(text, inside, delimiter, lines, starts)
    if len(ragged):
        cells = f"line {lines[ragged[0]]} has {counts[ragged[0]]} cells and the header {len(names)}"
        raise UserError(f"{cells}; a cell that holds the delimiter must be in quotes.")
    if blank.any():
        keep = np.ones(len(text), bool)
        keep[ends[blank]] = False
        block, lines = text[keep].tobytes(), lines[~blank]
    if not len(lines):
        return pl.DataFrame(), lines
    written: dict[str, Any] = {"separator": delimiter, "quote_char": '"' if quotes else None}
    frame = pl.read_csv(block, has_header=False, new_columns=names, infer_schema=False, **written)
    if frame.shape != (len(lines), len(names)):
        raise UserError(f"the rows from line {line} could not be separated; save the table again.")
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


FORMAT = Format("CSV", (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz"), table=table)
