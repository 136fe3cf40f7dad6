"""A grid that is killed again and again and resumed by the same command ends where an undisturbed one does.

SBIL_KILLS sets how often it is killed (the release check is 200).
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from sbil.experiments.store import read_all

KILLS = int(os.environ.get("SBIL_KILLS", "2"))
DECAYS, SIZES = (6, 10) if KILLS > 2 else (3, 6)
METHODS = ",".join(f"bc+weight_decay={decay}" for decay in range(DECAYS))
GRID = ("--env", "CartPole-v1", "--algorithms", METHODS, "--sizes", ",".join(map(str, range(1, SIZES + 1))))
TINY = ("--draws", "6", "--seeds", "1", "--updates", "20", "--episodes", "2")
CELLS = DECAYS * SIZES  # three share a program, so some kills fall between files of one program


def command(out: Path) -> list[str]:
    return [sys.executable, "-m", "sbil", "reproduce", *GRID, *TINY, "--out", str(out)]


def files_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.glob("*.parquet")}


def content(out: Path) -> dict[str, tuple]:
    """Everything that was measured; what it took in seconds is its own."""
    return {
        result.fingerprint: (
            result.cell,
            result.returns.tolist(),
            result.settings,
            {name: values.tolist() for name, values in result.curves.items()},
            result.made_by,
        )
        for result in read_all([out])
    }


def test_killed_again_and_again(tmp_path, programs):
    """Compiled programs are kept, so that kills fall into the work and not into compilation."""
    undisturbed = tmp_path / "undisturbed"
    subprocess.run(command(undisturbed), env=programs, check=True, capture_output=True)
    expected = content(undisturbed)
    assert len(expected) == CELLS
    rng = random.Random(0)
    kills = finished = partial = 0
    while kills < KILLS:
        out = tmp_path / f"storm-{finished}"
        while True:
            before = files_of(out)
            process = subprocess.Popen(command(out), env=programs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            moment = rng.uniform(1.5, 8)
            if kills % 2 and kills < KILLS:  # every second kill falls into the work, however slow the machine is
                while process.poll() is None and len(list(out.glob("*.parquet"))) == len(before):
                    time.sleep(0.01)
                moment = rng.uniform(0, 0.3)
            try:
                _, error = process.communicate(timeout=moment if kills < KILLS else 300)
                assert process.returncode == 0, error.decode()
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
            after = files_of(out)
            partial += len(before) < len(after) < CELLS
            assert before.items() <= after.items()  # nothing finished is lost, or run again
            assert all(len(read_all([out / name])) == 1 for name in after)  # every file is complete
            if process.returncode == 0:
                break
        finished += 1
        assert content(out) == expected
        assert not list(out.rglob(".*.tmp"))
    assert partial  # some fell into the work, and not all into its start or its report
    print(f"{kills} kills, {partial} of them in the middle of the work, {finished} grids finished")


def test_two_processes_fill_one_folder(tmp_path, programs):
    """Cells may be run twice; each ends in one file."""
    out = tmp_path / "shared"
    crowd = [
        subprocess.Popen(command(out), env=programs, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in "ab"
    ]
    for process in crowd:
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error.decode()
    assert len(content(out)) == CELLS
    assert all(np.isfinite(result.scores).all() for result in read_all([out]))
