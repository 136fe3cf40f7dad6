"""Write files so that a reader sees the whole old file or the whole new one."""

import glob
import json
import os
import platform
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sbil.errors import UserError


def write_bytes(path: Path, content: bytes, private: bool = False) -> None:
    """Write `content` under a temporary name, sync it to the disk, then rename it to `path`.

    private: only its owner may read the file.
    """
    path = Path(path)
    _make_parent(path)
    temporary, mode = _temporary(path), 0o600 if private else 0o666
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_text(path: Path, content: str) -> None:
    """`write_bytes` for text, in UTF-8."""
    write_bytes(path, content.encode())


def json_object(content: str | bytes, what: str, whole: str, finite: bool = True) -> dict[str, Any]:
    """Return the JSON object in a file that others may have written.

    what, whole: what is read, and what it is a part of, for messages. finite: refuse NaN and infinity.
    """
    try:
        found = json.loads(content, object_pairs_hook=unique_keys)
        json.dumps(found, ensure_ascii=False, allow_nan=not finite).encode()  # half a character is JSON but not text
    except (ValueError, RecursionError):
        raise UserError(f"{what} is not readable JSON; {whole} is damaged.") from None
    if not isinstance(found, dict):
        raise UserError(f"{what} is not a JSON object; {whole} is damaged.")
    return found


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dictionary. Refuse a key that it has twice."""
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise UserError("has the same key twice; remove one of them")
    return entries


def as_path(name: str, value: Any) -> Path:
    """Return a path; refuse what is none, by name."""
    if not isinstance(value, str | os.PathLike):
        raise UserError(f"{name} must be the path of a file or folder. Got {value!r}.")
    return Path(value)


def probe(folder: Path) -> None:
    """Raise now, and not after hours of work, if a folder cannot be written to."""
    try:
        _make_parent(folder / "file")
        temporary = _temporary(folder / "probe")
        temporary.touch()
        temporary.unlink()
    except FileNotFoundError:  # in a folder of the system, such as /proc
        raise UserError(f"no file can be written to {folder}; choose another folder.") from None


def sweep(folder: Path) -> None:
    """Remove the temporary files that killed processes of this machine left in a folder."""
    for path in filter(_abandoned, folder.glob(".*.tmp")):
        _remove(path)


def _abandoned(path: Path) -> bool:
    """Whether a process of this machine that has ended wrote this file: .NAME.PROCESS@MACHINE.LETTERS.KIND."""
    if os.name != "posix":  # on other systems this question disturbs the process
        return False
    process, _, machine = path.stem.rpartition(".")[0].rpartition(".")[2].rpartition("@")
    return machine == _machine() and process.isdigit() and not _alive(int(process))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends without an error.

    An existing folder is refused unless `overwrite`. With `overwrite` it is moved aside (to a name that starts with
    a dot) and deleted last. So one whole version exists at every moment, though for an instant not under `path`. If
    the process is killed at that instant, the next call brings the folder back.
    """
    path = Path(path)
    _recover(path)
    if path.exists() and not overwrite:
        raise exists_already(path)
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file; name a folder to write.")
    _make_parent(path)
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            aside = temporary.with_suffix(".old")
            path.rename(aside)
            try:
                temporary.rename(path)
            except BaseException:
                aside.rename(path)
                raise
            shutil.rmtree(aside, ignore_errors=True)
        else:
            temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_folder(path.parent)


def exists_already(path: Path) -> UserError:
    """The mistake of naming something that exists."""
    return UserError(f"{path} exists already; choose another name, or replace it with overwrite=True (--overwrite).")


def _recover(path: Path) -> None:
    """Bring back a folder that a killed process had moved aside, and remove its other leftovers."""
    for left in filter(_abandoned, path.parent.glob(f".{glob.escape(path.name)}.*")):
        if left.suffix == ".old" and not path.exists():
            left.rename(path)
        elif left.suffix in (".old", ".tmp"):
            _remove(left)


def _make_parent(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path.parent} is not a folder; choose another place for {path.name}.") from None


def _temporary(path: Path) -> Path:
    """A new hidden name beside a path, which says who writes there."""
    return path.with_name(f".{path.name}.{os.getpid()}@{_machine()}.{secrets.token_hex(4)}.tmp")


def _machine() -> str:
    return platform.node().replace(".", "-")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # Windows cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
