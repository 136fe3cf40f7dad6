"""The official files of MIMIC-III in a folder, and our rules for them."""

import csv
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from sbil.errors import UserError, naming

LONGEST_HEADER = 1 << 16
PIECE = 1 << 20  # bytes unpacked at once


class SourceFile(NamedTuple):
    """One file: the name of its table and the columns in its header."""

    name: str
    path: Path
    columns: tuple[str, ...]

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.path.stat().st_size


class OfficialRows(NamedTuple):
    """How many rows a table has in the two editions; None if we do not know."""

    full: int
    demo: int | None


def rule(name: str) -> str:
    """The text of a rule: a table (.csv) or a query (.sql)."""
    return (files("sbil.clinical.mimic3") / "rules" / name).read_text(encoding="utf-8")


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a table of rules."""
    return list(csv.DictReader(io.StringIO(rule(name))))


def rules_digest() -> str:
    """The SHA-256 of all rules together."""
    paths = (files("sbil.clinical.mimic3") / "rules").iterdir()
    named = sorted(path.name for path in paths if path.name.endswith((".csv", ".sql")))
    return hashlib.sha256(json.dumps([(name, rule(name)) for name in named]).encode()).hexdigest()


def needed() -> dict[str, tuple[str, ...]]:
    """The tables that are read, and the columns that they must have."""
    return {row["table"]: tuple(row["columns"].split()) for row in rows_of("tables.csv") if row["columns"]}


def official_rows() -> dict[str, OfficialRows]:
    """The rows of every table of MIMIC-III v1.4 and of its demo."""
    return {
        row["table"]: OfficialRows(int(row["rows"]), int(row["rows_of_demo"]) if row["rows_of_demo"] else None)
        for row in rows_of("tables.csv")
    }


def find(folder: Path) -> dict[str, SourceFile]:
    """Find the file of every table that is read, and check its columns."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; name the folder with the files of MIMIC-III.")
    there: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        name = path.name.lower()
        for ending in (".csv", ".csv.gz"):
            if name.endswith(ending) and path.is_file():
                there.setdefault(name.removesuffix(ending), []).append(path)
    wanted = needed()
    missing = [name for name in wanted if name not in there]
    if len(missing) == len(wanted):
        raise UserError(f"{folder} holds no table of MIMIC-III; it should hold ICUSTAYS.csv or ICUSTAYS.csv.gz, etc.")
    if missing:
        names = ", ".join(f"{name.upper()}.csv(.gz)" for name in missing)
        raise UserError(f"{folder} has no {names}; copy it there from MIMIC-III v1.4.")
    return {name: _checked(name, there[name], columns) for name, columns in wanted.items()}


def _checked(name: str, paths: list[Path], columns: tuple[str, ...]) -> SourceFile:
    if len(paths) > 1:
        raise UserError(f"{paths[0].parent} holds both {paths[0].name} and {paths[1].name}; remove one of them.")
    header = _header(paths[0])
    known = [column.upper() for column in header]
    lacking = next((column for column in columns if column not in known), None)
    if lacking:
        other = "; MIMIC-IV is another database" if "STAY_ID" in known else ""
        raise UserError(f"{paths[0]} has no column {lacking}; MIMIC-III v1.4 is expected{other}.")
    twice = next((column for column in known if known.count(column) > 1), None)
    if twice:
        raise UserError(f"{paths[0]} has two columns called {twice}; MIMIC-III v1.4 is expected.")
    return SourceFile(name, paths[0], header)


def _header(path: Path) -> tuple[str, ...]:
    """The names in the first line."""
    open_it = gzip.open if path.name.lower().endswith(".gz") else open
    with naming(path, "copy it again"), open_it(path, "rb") as file:
        line = file.readline(LONGEST_HEADER)
    try:
        text = line.decode("utf-8-sig")
        names = tuple(name.strip() for name in next(csv.reader([text.rstrip("\r\n")], strict=True), []))
    except (UnicodeDecodeError, csv.Error):
        names = ()
    if not names or not all(names):
        raise UserError(f"{path} begins with no header; the official CSV file is expected.")
    return names


def checksums_hold(path: Path, stopped: Callable[[], bool] = lambda: False) -> bool:
    """Whether the checksums and lengths in a gzip file are those of its content. DuckDB does not check them."""
    whole, rest = True, b""
    try:
        with path.open("rb") as file:
            while not stopped() and (packed := rest or file.read(PIECE // 4)):
                if whole:  # another member begins, or only zeros follow
                    packed = packed.lstrip(b"\0")
                    unpacking = zlib.decompressobj(wbits=31)
                if packed:
                    unpacking.decompress(packed, PIECE)
                    whole = unpacking.eof
                rest = unpacking.unused_data if whole else unpacking.unconsumed_tail
    except (zlib.error, OSError):
        return False
    return whole
