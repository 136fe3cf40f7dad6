"""DuckDB with limits: it sees two folders only, its memory is bounded, and it uses no network."""

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sbil import files
from sbil.clinical.mimic3.source import SourceFile, checksums_hold, rows_of, rule
from sbil.errors import UserError

try:
    import duckdb
except ImportError:
    raise UserError("MIMIC-III is read with DuckDB; install it with: pip install 'sbil[clinical]'") from None

RULES = ("antibiotics", "covariates", "items", "routes", "ventilation")
PARTS, SPILL = "parts", "spill"  # temporary folders
TICK = 0.5  # seconds between two looks at the progress
MOST_THREADS = 1024
MEMORY = re.compile(r"(?=.*[1-9])[0-9]{1,9}(\.[0-9]{1,9})? ?[KMGT]i?B", re.IGNORECASE)

Progress = Callable[[str, float, int | None], None]  # the table, the share that was read, and its rows when it is done


def check(memory: str, threads: int | None) -> None:
    """Refuse limits that the database would not accept or would ignore, before anything is written."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise UserError(f"threads must be a whole number from 1 to {MOST_THREADS}. Got {threads}.")
    try:
        with duckdb.connect() as connection:
            connection.execute(f"SET memory_limit = {text(memory)}")
        sound = MEMORY.fullmatch(memory)
    except duckdb.Error:
        sound = None
    if not sound:
        raise UserError(f"memory must be an amount such as 2GB. Got '{memory}'.")


class Database:
    """The tables of a source and what was made from them. A later run continues from the same work folder."""

    def __init__(self, source: Path, work: Path, memory: str, threads: int | None) -> None:
        self.work = work
        self.connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "temp_directory": str(work / SPILL),
                "preserve_insertion_order": "false",
            }
        )
        folders = ", ".join(text(f"{folder}{os.sep}") for folder in (source, work))
        for setting in (
            f"memory_limit = {text(memory)}",
            *((f"threads = {int(threads)}",) if threads is not None else ()),
            "enable_progress_bar = true",  # without it DuckDB does not count its progress
            "enable_progress_bar_print = false",
            "enable_profiling = 'no_output'",
            f"allowed_directories = [{folders}]",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self.connection.execute(f"SET {setting}")
        for name in RULES:
            self._load_rule(name)

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def rows(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a command; return the rows that it gives, for small answers."""
        with _explained("the work folder"):
            return self.connection.execute(query, values or None).fetchall()

    def view(self, name: str, query: str) -> None:
        """Give a query a name; it is run at each use."""
        self.rows(f"CREATE OR REPLACE VIEW {identifier(name)} AS {query}")

    def table(self, name: str, query: str, **values: Any) -> None:
        """Run a query once and keep the rows under a name, in memory or on the disk."""
        self.rows(f"CREATE OR REPLACE TABLE {identifier(name)} AS {query}", **values)

    def parts(self, name: str, query: str, parts: int, **values: Any) -> list[Path]:
        """Run a query for one part ($part of $parts) after another into files, and give all of them one name.

        More parts need less memory at once.
        """
        folder = self.work / PARTS
        folder.mkdir(exist_ok=True)
        paths = [folder / f"{name}.{part}.parquet" for part in range(parts)]
        for part, path in enumerate(paths):
            self.rows(f"COPY ({query}) TO {text(path)} (FORMAT parquet)", **values, part=part, parts=parts)
        self.view(name, f"SELECT * FROM read_parquet([{', '.join(map(text, paths))}])")
        return paths

    def clear(self) -> None:
        """Remove the temporary folders, which no later run needs."""
        for name in (PARTS, SPILL):
            shutil.rmtree(self.work / name, ignore_errors=True)

    def read(self, table: SourceFile, progress: Progress) -> int:
        """Keep the needed columns of an official table as a view with its name; return how many rows the table has.

        What an earlier run kept is used again if the file and its rules are the same.
        """
        query = rule(f"read_{table.name}.sql")
        kept, note = self.work / f"{table.name}.parquet", self.work / f"{table.name}.json"
        mark = _fingerprint(table, query)
        rows = _rows_noted(note, mark) if kept.exists() else None
        if rows is None:
            note.unlink(missing_ok=True)
            rows = self._read(table, query, kept, progress)
            files.write_text(note, json.dumps({"fingerprint": mark, "rows": rows}))
        progress(table.name, 1.0, rows)
        self.view(table.name, f"SELECT * FROM read_parquet({text(kept)})")
        return rows

    def _read(self, table: SourceFile, query: str, kept: Path, progress: Progress) -> int:
        part = kept.with_suffix(".part")
        columns = ", ".join(f"{text(name)}: 'VARCHAR'" for name in table.columns)
        self.connection.execute(
            f"CREATE OR REPLACE VIEW source AS SELECT * FROM read_csv({text(table.path)}, columns = {{{columns}}}, "
            "header = true, auto_detect = false, delim = ',', quote = '\"', escape = '\"')"
        )
        with _verified(table.path), _explained(str(table.path)), self._watched(table.name, progress):
            self.connection.execute(f"COPY ({query}) TO {text(part)} (FORMAT parquet, COMPRESSION zstd)")
        rows = _scanned(json.loads(self.connection.get_profiling_information(format="json")))
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, kept)
        return rows

    @contextmanager
    def _watched(self, name: str, progress: Progress) -> Iterator[None]:
        done = threading.Event()

        def watch() -> None:
            while not done.wait(TICK):
                progress(name, min(max(self.connection.query_progress() / 100, 0.0), 1.0), None)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def _load_rule(self, name: str) -> None:
        """Load a table of rules into the database; a column of numbers becomes a number column."""
        rows = rows_of(f"{name}.csv")
        kinds = {column: _kind([row[column] for row in rows]) for column in rows[0]}
        columns = ", ".join(f"{identifier(column)} {kind}" for column, kind in kinds.items())
        self.connection.execute(f"CREATE TABLE {identifier(name)} ({columns})")
        marks = ", ".join("?" for _ in kinds)
        values = [[row[c] if kinds[c] == "VARCHAR" else row[c] or None for c in kinds] for row in rows]
        self.connection.executemany(f"INSERT INTO {identifier(name)} VALUES ({marks})", values)


def text(value: object) -> str:
    """A text in SQL."""
    return "'" + str(value).replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _kind(cells: list[str]) -> str:
    if all(re.fullmatch(r"-?\d+", cell) for cell in cells):
        return "INTEGER"
    return "DOUBLE" if all(re.fullmatch(r"(-?\d+(\.\d+)?)?", cell) for cell in cells) else "VARCHAR"


def _fingerprint(table: SourceFile, query: str) -> str:
    """The SHA-256 of the name, size and header of a file and of the rules that choose its rows."""
    rules = [rule(f"{name}.csv") for name in RULES if re.search(rf"\b{name}\b", query)]
    content = json.dumps([table.path.name, table.size, table.columns, query, rules])
    return hashlib.sha256(content.encode()).hexdigest()


def _rows_noted(note: Path, mark: str) -> int | None:
    try:
        content = json.loads(note.read_bytes())
        return int(content["rows"]) if content["fingerprint"] == mark else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _scanned(profile: Any) -> int:
    """How many rows DuckDB read from the CSV file, by its own profile of the query."""
    if isinstance(profile, list):
        return max(map(_scanned, profile), default=0)
    if profile.get("extra_info", {}).get("Function") == "READ_CSV":
        return int(profile["rows_scanned"])
    return max(map(_scanned, (*profile.get("operator", ()), *profile.get("children", ()))), default=0)


@contextmanager
def _verified(path: Path) -> Iterator[None]:
    """Compare the checksum of a gzip file in another thread while the block reads the file."""
    if not path.name.lower().endswith(".gz"):
        yield
        return
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        verdict = pool.submit(checksums_hold, path, stop.is_set)
        try:
            yield
            sound = verdict.result()
        finally:
            stop.set()
    if not sound:
        raise UserError(f"{path} is damaged (its checksum does not match its content); copy it again.")


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Turn the errors of DuckDB into one line, without the cells that they quote."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise UserError(f"{where}: the limit on memory is too low for this step; give more memory.") from None
    except (duckdb.IOException, duckdb.InvalidInputException, duckdb.ConversionException) as error:
        complaint = str(error)
        line = re.search(r"CSV Error on Line: (\d+)", complaint)
        if "No space left" in complaint:
            raise UserError(f"{where}: the disk is full; free some space and run the same command again.") from None
        if "GZIP" in complaint or "gzip" in complaint:
            raise UserError(f"{where} is damaged or incomplete (its gzip stream breaks off); copy it again.") from None
        if line:
            what = f"line {line[1]} is not a whole row of the table; the file is damaged or incomplete"
            raise UserError(f"{where}: {what}; copy it again.") from None
        raise UserError(f"{where} cannot be read ({type(error).__name__}); copy it again.") from None
