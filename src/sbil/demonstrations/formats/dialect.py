"""How a CSV file is written: its encoding, its delimiter and its decimal sign; and which files are no CSV files.

The guesses of Python and Polars are not used: they fall back to a single column, or drop cells that do not fit. Here a
file is read correctly or refused.
"""

import re
from collections import Counter
from typing import NamedTuple

import numpy as np

from sbil.errors import UserError

DELIMITERS = ",;\t|"
WORDS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
SAMPLE = 1 << 20  # bytes from which the dialect is found
LINES = 200  # lines from which the delimiter is found, and lines with fractions for the decimal sign
COMMA = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
POINT = re.compile(r"[+-]?(\d*|\d{1,3}(,\d{3})+)\.\d+([eE][+-]?\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
SIGNS = {",": "decimal comma", ".": "decimal point"}

# Files that are not tables although their names say so, by their first bytes.
FOREIGN = {
    b"\x1f\x8b": "is a gzip file; name it .csv.gz",
    b"PK": "is a ZIP archive or an Excel workbook; name a workbook .xlsx",
    b"\xd0\xcf\x11\xe0": "is an old Excel workbook; save the sheet as CSV",
    b"PAR1": "is a Parquet file; name it .parquet",
    b"\x93NUMPY": "is a NumPy array; save a table, or an NPZ file",
    b"\x89HDF": "is an HDF5 file; save the table as CSV or Parquet",
    b"SQLite format 3": "is a SQLite file; name it .sqlite",
    b"%PDF": "is a PDF document; save the table as CSV",
    b"version https://git-lfs": "is a Git LFS pointer, not the table itself; fetch it with git lfs pull",
    b"{": "is JSON; if it has one object per line, name it .jsonl",
    b"[": "is JSON; save the table as CSV or Parquet",
    b"<": "is a web page or XML, perhaps a login page saved instead of the table; download it again",
    b"#": "starts with a comment; remove the lines before the header",
}


class Dialect(NamedTuple):
    """How a CSV file is written."""

    encoding: str
    delimiter: str
    decimal: str = "."

    @property
    def words(self) -> str:
        """In plain words."""
        return f"{WORDS[self.delimiter]}-separated, {self.encoding}, {SIGNS[self.decimal]}"


def sniff(sample: bytes, whole: bool) -> Dialect:
    """The dialect of a file that begins with `sample`; `whole` if the sample is the whole file."""
    if not sample.strip():
        raise UserError("the file is empty.")
    _refuse_foreign(sample)
    encoding = encoding_of(sample, whole)
    # The last character and the last line may be cut.
    text = sample.decode(encoding, errors="strict" if whole else "ignore").lstrip("\ufeff")
    _refuse_foreign(text.lstrip()[:40].encode())
    if "\0" in text:
        line = text.partition("\0")[0].count("\n") + 1
        raise UserError(f"line {line} holds NUL bytes; this is not a text table.")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    lines = [line for line in (lines if whole else lines[:-1] or lines) if line.strip()]
    delimiter = _delimiter(lines[:LINES])
    return Dialect(encoding, delimiter, _decimal(lines[1:], delimiter))


def _refuse_foreign(beginning: bytes) -> None:
    for start, what in FOREIGN.items():
        if beginning.startswith(start):
            raise UserError(f"{what}.")


def encoding_of(sample: bytes, whole: bool = False) -> str:
    """The encoding, by the byte order mark, by zeros between the letters, or by what can be decoded."""
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if sample.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    zeros = np.frombuffer(sample[: len(sample) // 2 * 2], np.uint8).reshape(-1, 2) == 0
    even, odd = zeros.mean(0) if len(zeros) else (0.0, 0.0)
    if odd > 0.6 and even < 0.1:
        return "utf-16-le"
    if even > 0.6 and odd < 0.1:
        return "utf-16-be"
    if _valid(sample, "utf-8", cut=not whole):
        return "utf-8"
    if not _valid(sample, "cp1252", cut=False):
        raise UserError("the file is not text in UTF-8, UTF-16 or Latin-1; is it a table?")
    return "cp1252"


def _valid(sample: bytes, encoding: str, cut: bool) -> bool:
    """Whether a sample can be decoded; if it is `cut`, its last character may be incomplete."""
    try:
        sample.decode(encoding)
    except UnicodeDecodeError as error:
        return cut and error.reason == "unexpected end of data"
    return True


def _delimiter(lines: list[str]) -> str:
    """The delimiter that most lines have as often as the header; of several, the most frequent one."""
    plain = [re.sub(r'"[^"]*"', "", line) for line in lines]  # without what is in quotes
    counts = {delimiter: [line.count(delimiter) for line in plain] for delimiter in DELIMITERS}

    def fit(delimiter: str) -> tuple[float, int]:
        header = counts[delimiter][0]
        return (sum(count == header for count in counts[delimiter]) / len(lines) if header else 0.0, header)

    return max(DELIMITERS, key=fit)


def _decimal(lines: list[str], delimiter: str) -> str:
    """The sign that most columns are written with; of equally many, a comma if the delimiter is a semicolon.

    What may be a thousand (1,234 or 1.234) counts little, and with a comma only if the delimiter is a semicolon.
    """
    columns: Counter[int] = Counter()  # above 0 for a comma
    telling = 0
    for line in lines:
        if "." not in line and ('"' if delimiter == "," else ",") not in line:
            continue
        votes = {place: vote for place, cell in enumerate(_split(line, delimiter)) if (vote := _vote(cell, delimiter))}
        columns.update(votes)
        telling += bool(votes)
        if telling == LINES:
            break
    commas, points = sum(vote > 0 for vote in columns.values()), sum(vote < 0 for vote in columns.values())
    return "," if commas > points or (commas == points > 0 and delimiter == ";") else "."


def _vote(cell: str, delimiter: str) -> int:
    """What a cell says about the decimal sign: above 0 a comma, below 0 a point, 0 nothing."""
    comma, thousand = COMMA.fullmatch(cell), THOUSANDS.fullmatch(cell)
    if comma and thousand and delimiter != ";":
        return 0
    size = 1 if thousand else LINES
    return size if comma else -size if POINT.fullmatch(cell) else 0


def _split(line: str, delimiter: str) -> list[str]:
    """The cells of a line, without the quotes and blanks around them."""
    if '"' not in line:
        return [cell.strip() for cell in line.split(delimiter)]
    whole = re.sub(r'"([^"]*)"', lambda quoted: quoted[1].replace(delimiter, "\0"), line)
    return [cell.replace("\0", delimiter).strip() for cell in whole.split(delimiter)]
