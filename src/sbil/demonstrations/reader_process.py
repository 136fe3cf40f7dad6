"""The process that parses tables: a file that crashes it, hangs it or fills its memory does not harm the caller.

The caller writes `request.json` into a temporary folder and starts the process. The process imports no JAX and limits
its own memory. It leaves arrays and `result.json` in the folder. Data frames are parsed in the caller's own process.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sbil.demonstrations import formats
from sbil.demonstrations.roles import Roles
from sbil.demonstrations.schema import Schema
from sbil.demonstrations.table import Table
from sbil.errors import UserError

COMMAND = ["-c", "from sbil.demonstrations.reader_process import main; main()"]
MEMORY = 8 << 30  # bytes of address space, in addition to the mapped files
OUT_OF_MEMORY = 77  # exit status
REMEDIES = {  # by the type of what is no table
    "Demonstrations": "they are read already; use them as they are",
    "LazyFrame": "call its collect() first",
    "ndarray": "make a data frame with named columns, or give X and y to a classifier of sbil.sklearn",
    **dict.fromkeys(("dict", "list", "Series"), "make a data frame of it, as polars.DataFrame(...) does"),
}
THREADS = 8  # of the process; more take address space and save little time


# The caller's side


@contextmanager
def asked(source: Any, request: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Ask about a table; yield the folder of arrays and the result while the block runs."""
    folder = Path(tempfile.mkdtemp(prefix="sbil-read-"))
    try:
        about = _about_files if isinstance(source, str | Path) else _about_frame
        yield folder, about(source, request, folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"no room left for a copy of the table in {folder.parent}; set TMPDIR.") from None
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _about_files(source: str | Path, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    from sbil.demonstrations.sources import files_of

    files = files_of(source)
    result = elsewhere({**request, "files": [str(path) for path in files], "name": str(source)}, folder)
    return {**result, "origin": {"source": [path.name for path in files], "sha256": result["sha256"]}}


def _about_frame(frame: Any, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    format_ = formats.of(frame)
    if format_ is None or format_.table is None:
        kind = type(frame).__name__
        remedy = f"; {REMEDIES[kind]}" if kind in REMEDIES else ""
        raise UserError(f"a table is a path, or a Pandas, Polars or Arrow table. Got {kind}{remedy}.")
    result = _answer({**request, "files": [], "name": "the data frame"}, format_.table(frame), folder)
    return {**result, "origin": {"source": ["data frame"]}}


def elsewhere(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Let another process answer. The caller gets a result or a one-line error in every case."""
    (folder / "request.json").write_text(json.dumps(request))
    package = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "POLARS_MAX_THREADS": os.environ.get("POLARS_MAX_THREADS", str(min(THREADS, os.cpu_count() or 1))),
    }
    command = [sys.executable, "-P", *COMMAND, str(folder)]
    quiet = subprocess.DEVNULL
    done = subprocess.run(command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, check=False)
    return _result(folder, done.returncode, request["name"])


def _result(folder: Path, status: int, name: str) -> dict[str, Any]:
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


# The process's side


def main() -> None:
    """Answer the request in the folder that is the first argument; a mistake of the user is a result too."""
    folder = Path(sys.argv[1])
    request = json.loads((folder / "request.json").read_bytes())
    paths = [formats.file_and_table(path)[0] for path in request["files"]]
    limit_memory(MEMORY + 8 * sum(path.stat().st_size for path in paths if path.is_file()))
    try:
        result = answer(request, folder)
    except UserError as error:
        result = {"error": str(error)}
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    except Exception:
        result = {"fault": traceback.format_exc()}
    (folder / "result.json").write_text(json.dumps(result))


def answer(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Answer a request about the files that it lists."""
    from sbil.demonstrations import sources

    paths = [Path(path) for path in request["files"]]
    result = _answer(request, sources.table_of(paths), folder)
    return {**result, "sha256": sources.sha256(paths)}


def _answer(request: dict[str, Any], table: Table, folder: Path) -> dict[str, Any]:
    from sbil.demonstrations import inspection, rows, states

    try:
        if request["task"] == "observe":
            return states.states(table, Schema.from_json(request["schema"]), folder)
        roles = Roles.of(request["roles"])
        if request["task"] == "read":
            return rows.demonstrations(table, roles, folder, request.get("notes", False))
        return {"check": asdict(inspection.inspect(table, roles, folder))}
    except UserError as error:
        placed = any(str(error).startswith(name) for name in request["files"] or [request["name"]])
        raise (error if placed else UserError(f"{request['name']}: {error}")) from None


def limit_memory(size: int) -> None:
    """Let this process take at most `size` bytes of address space, if the system can limit it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))
