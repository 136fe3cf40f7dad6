"""The process that parses tables: it imports little and takes little memory; if it dies, the message is one line."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import polars as pl
import pytest
from tables import GOOD, ROLES

from sbil.demonstrations import read, reader_process
from sbil.errors import UserError


def write(folder, content):
    path = folder / "stays.csv"
    path.write_text(content)
    return path


def test_the_process_imports_no_jax():
    parts = ", ".join(
        f"sbil.demonstrations.{name}" for name in ("reader_process", "rows", "counting", "formats.parquet")
    )
    code = f"import sys, {parts}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_reading_needs_no_polars_until_a_table_comes():
    code = "import sys, sbil.demonstrations; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("import os; os.abort()", "the reader crashed; it may be damaged"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the reader crashed; it may be damaged"),
        ("raise SystemExit(77)", "more memory"),
    ],
)
def test_a_process_that_dies(tmp_path, monkeypatch, end, words):
    monkeypatch.setattr(reader_process, "COMMAND", ["-c", end])
    path = write(tmp_path, GOOD)
    with pytest.raises(UserError, match=words) as raised:
        read(path, **ROLES)
    assert str(path) in str(raised.value)


def test_memory_is_limited(tmp_path):
    code = "from sbil.demonstrations.reader_process import limit_memory; limit_memory(1 << 30); bytearray(1 << 31)"
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True)
    assert b"MemoryError" in done.stderr


def test_an_interrupt_ends_the_process(tmp_path, monkeypatch):
    started = []
    popen = subprocess.Popen

    class Interrupted(popen):
        def __init__(self, *words, **more):
            super().__init__(*words, **more)
            started.append(self)

        def wait(self, timeout=None):
            if not self.killed:
                raise KeyboardInterrupt
            return super().wait(timeout)

        killed = False

        def kill(self):
            self.killed = True
            super().kill()

    monkeypatch.setattr(reader_process.subprocess, "Popen", Interrupted)
    monkeypatch.setattr(reader_process, "COMMAND", ["-c", "import time; time.sleep(60)"])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(reader_process.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        read(write(tmp_path, GOOD), **ROLES)
    assert started[0].returncode is not None
    assert os.listdir(tmp_path) == ["stays.csv"]  # nothing is left behind


def test_errors_of_the_process_come_back(tmp_path):
    with pytest.raises(UserError, match="line 3, column 'pulse'"):
        read(write(tmp_path, GOOD.replace("61", "x")), **ROLES)


def anonymous(process):
    """Bytes of the anonymous memory of a process."""
    try:
        with open(f"/proc/{process}/smaps_rollup") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("Anonymous:")) << 10
    except OSError:
        return 0


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs /proc")
def test_a_large_table_takes_little_memory(tmp_path):
    """A million rows of ten numbers, 40 MB of them: neither process takes more than a few batches."""
    rows, rng = 1_000_000, np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "stay": np.repeat(np.arange(rows // 1_000), 1_000),
            "hour": np.tile(np.arange(1_000), rows // 1_000),
            "treat": rng.integers(0, 3, rows),
            **{f"x{i}": rng.random(rows, np.float32) for i in range(10)},
        }
    )
    frame.write_parquet(tmp_path / "large.parquet", compression="uncompressed")
    expected = frame["x9"].to_numpy()
    del frame
    before, peak, done = anonymous("self"), [0, 0], threading.Event()

    def watch():
        while not done.wait(0.02):
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                children = file.read().split()
            peak[0] = max(peak[0], anonymous("self") - before)
            peak[1] = max(peak[1], sum(map(anonymous, children)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.monotonic()
    try:
        read_ = read(tmp_path / "large.parquet", **ROLES)
    finally:
        done.set()
        watcher.join()
    assert time.monotonic() - start < 60
    np.testing.assert_array_equal(np.concatenate([t.observations[:, 9] for t in read_.trajectories]), expected)
    assert peak[0] < 100e6
    assert 0 < peak[1] < 600e6
