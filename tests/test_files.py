"""Files: whatever happens while one is written, a reader sees the old or the new one."""

import errno
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from sbil import files
from sbil.errors import UserError

OLD, NEW = b"old" * 100_000, b"new content" * 100_000

# Writes OLD and NEW in turn, for ever.
WRITER = """
import sys
from pathlib import Path
from sbil import files
old, new = b"old" * 100_000, b"new content" * 100_000
print("ready", flush=True)
while True:
    files.write_bytes(Path(sys.argv[1]), new)
    files.write_bytes(Path(sys.argv[1]), old)
"""

# Writes NEW once and kills itself at the given place.
VICTIM = """
import os, signal, sys
from pathlib import Path
from sbil import files
setattr(os, sys.argv[2], lambda *args: os.kill(os.getpid(), signal.SIGKILL))
files.write_bytes(Path(sys.argv[1]), b"new content" * 100_000)
"""


def test_killed_at_any_moment(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    for attempt in range(8):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(0.004 * attempt)
            writer.send_signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL
        assert path.read_bytes() in (OLD, NEW)


@pytest.mark.parametrize("place", ["open", "fsync", "replace"])
def test_killed_before_the_end(tmp_path, place):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    victim = subprocess.run([sys.executable, "-c", VICTIM, path, place], check=False)
    assert victim.returncode == -signal.SIGKILL
    assert path.read_bytes() == OLD
    leftovers = [other for other in tmp_path.iterdir() if other != path]
    assert all(other.name.startswith(".") for other in leftovers)  # hidden, and not mistaken for the file
    files.write_bytes(path, NEW)
    assert path.read_bytes() == NEW


def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("place", ["open", "fsync", "replace"])
def test_full_disk_leaves_the_old_file(tmp_path, monkeypatch, place):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    monkeypatch.setattr(os, place, full)
    with pytest.raises(OSError, match="No space left"):
        files.write_bytes(path, NEW)
    monkeypatch.undo()
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


def test_write_that_fails_half_way_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(OLD)

    def limited(name, mode, opener):
        file = open(name, mode, buffering=0, opener=opener)  # noqa: SIM115

        class Half:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                file.close()

            def write(self, content):
                file.write(content[: len(content) // 2])
                full()

        return Half()

    monkeypatch.setattr(files, "open", limited, raising=False)
    with pytest.raises(OSError, match="No space left"):
        files.write_bytes(path, NEW)
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    files.write_bytes(path, OLD)
    files.write_bytes(path, NEW)
    assert path.read_bytes() == NEW
    files.write_text(path, "größer\n")
    assert path.read_bytes() == "größer\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_permissions_are_those_of_the_user(tmp_path):
    """The permissions of an ordinary file, not the private ones of a temporary file."""
    mask = os.umask(0o027)
    try:
        files.write_bytes(tmp_path / "file", b"")
        with files.new_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o750


def test_a_file_in_the_way_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="not a folder"):
        files.write_bytes(tmp_path / "file" / "inside", OLD)


def fill(path, name, overwrite=False, error=None):
    """Make a folder with one file in it, perhaps with an error half-way."""
    with files.new_folder(path, overwrite) as folder:
        (folder / name).write_text(name)
        if error:
            raise error


def names(path):
    return [file.name for file in path.iterdir()]


def test_new_folder_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "folder"
    with pytest.raises(RuntimeError, match="half"):
        fill(path, "one", error=RuntimeError("half"))
    assert names(tmp_path) == []
    fill(path, "one")
    assert names(path) == ["one"]
    with pytest.raises(RuntimeError, match="half"):
        fill(path, "two", overwrite=True, error=RuntimeError("half"))
    assert names(path) == ["one"]
    fill(path, "three", overwrite=True)
    assert names(path) == ["three"]
    assert names(tmp_path) == ["folder"]


def test_new_folder_refuses_what_is_there(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("precious")
    for name, overwrite in [("folder", False), ("file", False), ("file", True)]:
        with pytest.raises(UserError, match=name):
            fill(tmp_path / name, "inside", overwrite)
    assert names(tmp_path / "folder") == []
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.skipif(os.name != "posix", reason="elsewhere one cannot ask whether a process is alive")
def test_a_folder_that_was_killed_aside_comes_back(tmp_path):
    """Killed while it was written, and killed between the two renames: the next call finds the whole old version."""
    path, gone = tmp_path / "folder", subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f".folder.{gone.pid}@{files._machine()}.abcd1234.old").mkdir()
    (tmp_path / f".folder.{gone.pid}@{files._machine()}.abcd1234.old" / "one").write_text("one")
    (tmp_path / f".folder.{gone.pid}@{files._machine()}.abcd1234.tmp").mkdir()
    (tmp_path / f".folder.{os.getpid()}@{files._machine()}.abcd1234.tmp").mkdir()  # of one that lives
    with pytest.raises(UserError, match="exists already"):
        fill(path, "two")
    assert names(path) == ["one"]
    assert {name.split("@")[0] for name in names(tmp_path)} == {"folder", f".folder.{os.getpid()}"}
    fill(path, "two", overwrite=True)
    assert names(path) == ["two"]


def test_private_files_are_their_owners(tmp_path):
    files.write_bytes(tmp_path / "file", b"", private=True)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_what_the_killed_left_is_swept_and_nothing_else(tmp_path):
    path = tmp_path / "file.parquet"
    subprocess.run([sys.executable, "-c", VICTIM, path, "replace"], check=False)
    (left,) = tmp_path.iterdir()
    others = [left.name.replace("@", "@another-"), f".file.parquet.{os.getpid()}@{left.name.split('@')[1]}", ".x.tmp"]
    for name in others:
        (tmp_path / name).write_text("")
    path.write_bytes(OLD)
    files.sweep(tmp_path)
    assert {found.name for found in tmp_path.iterdir()} == {*others, path.name}
    files.sweep(tmp_path / "missing")
