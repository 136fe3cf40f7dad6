"""Demonstrations from the tables that people have: CSV, Parquet, NPZ, Minari, data frames.

Files are read by another process (`child`), which leaves plain arrays in a temporary folder; they are mapped from there
and the folder is removed at once, so that a large table takes little memory and leaves nothing behind.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbil.demonstrations import npz
from sbil.demonstrations.child import OUT_OF_MEMORY
from sbil.demonstrations.dialect import PARQUET, TEXT
from sbil.demonstrations.roles import Roles
from sbil.demonstrations.schema import Missing, Schema
from sbil.demonstrations.trajectory import Demonstrations, Trajectory
from sbil.errors import UserError

CHILD = ["-m", "sbil.demonstrations.child"]
THREADS = 8  # of the reader; more take address space and save little


class Rows(NamedTuple):
    """Observations to decide on, in the order of their file."""

    observations: np.ndarray  # [n, numbers] float32
    rows: np.ndarray  # [n] the line of a CSV file, or the row from 1
    episode: list[str] | None  # [n] as written in the file; empty where missing
    time: list[str] | None
    dropped: int  # rows left out because a value is missing
    filled: dict[str, int]  # values that were missing and filled in, by column


def read(
    source: Any,
    *,
    episode: str | None = None,
    time: str | None = None,
    action: str | None = None,
    observations: Sequence[str] = (),
    terminal: str | None = None,
    group: str | None = None,
    categories: Sequence[str] = (),
    one_hot: Sequence[str] = (),
    units: Mapping[str, str] | None = None,
    missing: Missing | None = None,
    schema: Schema | str | Path | None = None,
    exclude: Sequence[str] = (),
) -> Demonstrations:
    """Read demonstrations from a table, checked; what cannot be used is refused with its row and column.

    source: a CSV or Parquet file, a folder or a glob of them, an NPZ file, `minari:NAME`, a Pandas or Polars frame.
    episode: the column that says which rows belong together; without, every row is an episode of its own.
    time: the column that orders the rows of an episode; without, they are in order.
    action: the column of the decision taken: a few whole numbers or words.
    observations: the columns that the decision was based on; without, every other column of numbers, and what is given
        as `categories` (each becomes the number of its level) or `one_hot` (each becomes 0 or 1 a level).
    terminal: the column that is 1 where the process itself ended with a row.
    group: the column of what a split must not tear apart.
    units: of observed columns, to be shown with their names.
    missing: refuse, the default; or fill with the mean of the column; or with the last value of the episode, and the
        mean where there is none; or drop the row. The schema keeps the means in any case, for gaps in later tables.
    schema: all of this, from a file or an earlier table; what is given beside it goes first. Levels and actions that it
        lists are the only ones allowed.
    exclude: the names of episodes to leave out; what stands in their rows is not looked at.
    """
    roles = roles_of(
        **{"episode": episode, "time": time, "action": action, "terminal": terminal, "group": group},
        **{"observations": observations, "categories": categories, "one_hot": one_hot},
        **{"units": units, "missing": missing, "schema": schema},
    )
    if loaded := ready(source, roles):
        if exclude:
            raise UserError(f"{source}: episodes are excluded by name, and these data have none.")
        return loaded
    with asked(source, {"task": "read", "roles": roles.as_json(), "exclude": list(exclude)}) as (folder, result):
        return _assembled(folder, result)


def read_observations(source: Any, schema: Schema | str | Path) -> Rows:
    """Read what a policy is to decide on: the columns of its schema, in any order, with or without actions."""
    chosen = _schema(schema)
    assert chosen is not None
    with asked(source, {"task": "observe", "schema": chosen.as_json()}) as (folder, result):
        texts = {role: _texts(folder, role, names) for role, names in result["texts"].items()}
        kept = np.load(folder / "kept.npy")
        return Rows(
            _mapped(folder / result["observations"]),
            kept,
            texts.get("episode"),
            texts.get("time"),
            result["rows in file"] - len(kept),
            result["filled values"],
        )


def _texts(folder: Path, role: str, names: list[str]) -> list[str]:
    table = [*names, ""]  # the last stands for -1, missing
    return [table[code] for code in np.load(folder / f"{role}.npy").tolist()]


def roles_of(**said: Any) -> Roles:
    """What was said of the columns, checked."""
    lists = {name: _several(said.get(name, ()), name) for name in ("observations", "categories", "one_hot")}
    more = {"units": dict(said.get("units") or {}), "schema": _schema(said.get("schema"))}
    return Roles(**{**said, **lists, **more})


def _several(names: Sequence[str], what: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise UserError(f"{what} is a list of columns. Got the text '{names}'; write ['{names}'].")
    return tuple(names)


def _schema(schema: Schema | str | Path | None) -> Schema | None:
    return Schema.load(schema) if isinstance(schema, str | Path) else schema


def ready(source: Any, roles: Roles) -> Demonstrations | None:
    """Demonstrations that are no table: their own files say what is what."""
    if not isinstance(source, str | Path):
        return None
    path = Path(source)
    minari = str(source).startswith("minari:") or (path / "data" / "main_data.hdf5").exists()
    minari = minari or (path / "data" / "metadata.json").exists()
    if not minari and not path.name.lower().endswith(".npz"):
        return None
    if replace(roles, schema=None) != Roles():
        raise UserError(f"{source}: columns can be given for a table (CSV, Parquet), not for this kind of data.")
    if minari:
        from sbil.demonstrations.minari import read_minari

        return read_minari(str(source).removeprefix("minari:"))
    return npz.load_any(path)


@contextmanager
def asked(source: Any, request: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Put a request to the reader of a table; yields its folder of arrays, for as long as the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix="sbil-read-"))
    try:
        if isinstance(source, str | Path):
            files = files_of(source)
            request = {**request, "files": [str(path) for path in files], "name": str(source)}
            result = _elsewhere(request, folder)
            result.setdefault("provenance", {})["source"] = [path.name for path in files]
            result["provenance"]["sha256"] = result["sha256"]
        else:
            result = _here(source, {**request, "files": [], "name": "the data frame"}, folder)
        yield folder, result
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"no room left for a copy of the table in {folder.parent}; set TMPDIR.") from None
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _here(frame: Any, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    if type(frame).__module__.split(".")[0] not in ("pandas", "polars") or not hasattr(frame, "columns"):
        what = type(frame).__name__
        raise UserError(f"a table is a path, or a Pandas or Polars data frame. Got {what}.")
    from sbil.demonstrations import table, tasks

    result = tasks.run(request, table.of_frame(frame, request["name"]), folder)
    result.setdefault("provenance", {})["source"] = ["data frame"]
    return result


def _elsewhere(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Have the child answer; whatever becomes of it, the answer is a result or one line."""
    (folder / "request.json").write_text(json.dumps(request))
    package = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "POLARS_MAX_THREADS": os.environ.get("POLARS_MAX_THREADS", str(min(THREADS, os.cpu_count() or 1))),
    }
    command = [sys.executable, "-P", *CHILD, str(folder)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    name = request["name"]
    if status == OUT_OF_MEMORY:
        raise UserError(f"could not read {name}: it needs more memory than the reader may take; it may be damaged.")
    if status or not (folder / "result.json").exists():
        raise UserError(f"could not read {name}: the reader crashed; it may be damaged.")
    result: dict[str, Any] = json.loads((folder / "result.json").read_bytes())
    if "error" in result:
        raise UserError(result["error"])
    if "fault" in result:
        raise RuntimeError(f"reading {name} failed; this is a fault of sbil:\n{result['fault']}")
    return result


def files_of(source: str | Path) -> list[Path]:
    """The files of a table: one, those of a folder, or those that match a glob; in order of their names."""
    path = Path(source)
    if path.is_dir():
        found = [p for p in sorted(path.iterdir()) if _is_table(p) and not p.name.startswith((".", "_"))]
        if not found:
            raise UserError(f"{source}: there is no table in this folder (.csv, .tsv, .txt, .csv.gz, .parquet).")
    elif not os.path.lexists(path) and glob.has_magic(str(source)):
        found = [p for p in sorted(map(Path, glob.glob(str(source)))) if _is_table(p)]
        if not found:
            raise UserError(f"{source}: no table matches (.csv, .tsv, .txt, .csv.gz, .parquet).")
    else:
        found = [_single(path)]
    kinds = {p.name.lower().endswith(PARQUET) for p in found}
    if len(kinds) > 1:
        raise UserError(f"{source}: both CSV and Parquet files are there; name one kind, as in '{path}/*.parquet'.")
    return found


def _single(path: Path) -> Path:
    if not os.path.lexists(path):
        raise UserError(f"{path}: there is no such file.")
    if not _is_table(path):
        excel = path.name.lower().endswith((".xlsx", ".xls", ".ods"))
        advice = "save the sheet as CSV" if excel else "known are .csv, .tsv, .txt, .csv.gz, .parquet and .npz"
        raise UserError(f"{path}: this kind of file cannot be read; {advice}.")
    return path


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith((*TEXT, *PARQUET))


def _mapped(path: Path) -> np.ndarray:
    return np.asarray(np.load(path, mmap_mode="r"))


def _assembled(folder: Path, result: dict[str, Any]) -> Demonstrations:
    schema = Schema.from_json(result["schema"])
    seen, taken = _mapped(folder / result["observations"]), np.load(folder / "actions.npy")
    bounds = zip(*(np.load(folder / f"{name}.npy").tolist() for name in ("starts", "stops", "terminal")), strict=True)
    groups = folder / "groups.npy"
    return Demonstrations(
        tuple(Trajectory(seen[start:stop], taken[start:stop], terminal) for start, stop, terminal in bounds),
        schema.actions,
        schema.observation_names,
        result["provenance"],
        schema=schema,
        groups=np.load(groups) if groups.exists() else None,
        ids=tuple(result["ids"]) if result["ids"] else None,
    )
