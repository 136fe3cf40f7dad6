"""Compiled programs are kept in a folder, which may be shared, damaged, or absent."""

import os
import subprocess
import sys

import pytest

from sbil.cli import programs

TABLE = "episode,time,glucose,action\n" + "".join(f"{row // 5},{row % 5},{row % 7},{row % 2}\n" for row in range(40))


@pytest.fixture
def table(tmp_path):
    """A small table."""
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


def start(table, out, **variables):
    """Start `sbil train bc` as a process that keeps every program."""
    words = [sys.executable, "-m", "sbil", "train", "bc", "--data", table, "--episode", "episode", "--time", "time"]
    words += ["--action", "action", "--updates", "3", "--out", out]
    given = {
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        **{name: str(value) for name, value in variables.items()},
    }
    return subprocess.Popen(words, env=os.environ | given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def train(table, out, **variables):
    """Train, and return what is said on the error stream."""
    process = start(table, out, **variables)
    error = process.communicate()[1]
    assert process.returncode == 0, error
    return error


def kept(folder):
    """The programs in a folder."""
    return sorted(folder.glob("*/*-cache"))


def test_programs_are_shared_found_again_and_repaired(table, tmp_path):
    folder = tmp_path / "programs"
    both = [start(table, tmp_path / name, SBIL_CACHE=folder) for name in ("first", "second")]
    for process in both:
        assert process.communicate()[1].count("Error") == 0
        assert process.returncode == 0
    before = kept(folder)
    assert before
    times = [path.stat().st_mtime_ns for path in before]
    for path in before[:2]:  # as if its process had been killed
        path.write_bytes(path.read_bytes()[:100])
        path.with_name(path.name.replace("-cache", "-atime")).unlink()
    error = train(table, tmp_path / "third", SBIL_CACHE=folder)
    assert "rror" not in error
    assert kept(folder) == before
    assert [path.stat().st_mtime_ns for path in before[2:]] == times[2:]
    weights = {(tmp_path / name / "weights.safetensors").read_bytes() for name in ("first", "second", "third")}
    assert len(weights) == 1


def test_commands_work_where_no_folder_can_be_made(table, tmp_path):
    (tmp_path / "file").write_text("")
    assert "rror" not in train(table, tmp_path / "out", SBIL_CACHE=tmp_path / "file" / "programs")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"SBIL_CACHE": "off"}, None),
        ({"SBIL_CACHE": "here"}, "here"),
        ({"JAX_COMPILATION_CACHE_DIR": "theirs"}, "theirs"),
    ],
)
def test_variables_say_where_programs_are_kept(given, told, tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("JAX_COMPILATION", "JAX_PERSISTENT", "SBIL_CACHE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", {**os.environ, **given})
    monkeypatch.chdir(tmp_path)
    programs.keep()
    found = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    assert (found or "none").split("/")[0] == (told or "none")
