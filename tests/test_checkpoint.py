"""Interrupted training writes its state at once, and continues from it to the same bytes."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import probes
import sbil
from sbil import checkpoint
from sbil.checkpoint import Checkpoint

SMALL = {"hidden": (8,)}


@pytest.fixture(autouse=True)
def _never_due(monkeypatch):
    """By the clock, nothing would be written."""
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 1e9)


def interrupted_at(share):
    """A watcher during whose call Ctrl-C comes."""

    def watch(done, words):
        if done >= share:
            os.kill(os.getpid(), signal.SIGINT)

    return watch


def test_an_interrupted_training_goes_on_after_its_last_chunk(tmp_path):
    data, options = probes.demonstrations(), {"updates": 2000, "thin": 2, **SMALL}
    whole = sbil.train("bc", data, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        sbil.train("bc", data, out=tmp_path / "policy", watch=interrupted_at(0.5), **options)
    assert len(list(tmp_path.glob(".policy.*.checkpoint"))) == 1
    resumed = sbil.train("bc", data, out=tmp_path / "policy", **options)
    assert (whole.resumed_at, resumed.resumed_at) == (0, 1000)
    for name in ("weights.safetensors", "metrics.csv"):
        assert (tmp_path / "policy" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"policy", "whole"}


def test_what_is_held_is_a_copy_and_is_written_once(tmp_path):
    one, state = Checkpoint(tmp_path / "a.checkpoint", {"seed": 1}), np.arange(3.0)
    one.hold(7, {"x": state}, lambda: {"note": 1})
    state[:] = -1
    assert not one.path.exists()
    one.write()
    saved = one.load({"x": state})
    assert (saved.done, saved.tree["x"].tolist(), saved.notes) == (7, [0.0, 1.0, 2.0], {"note": 1})
    one.path.unlink()
    one.write()
    assert not one.path.exists()


def test_only_the_trainings_that_run_are_written(tmp_path):
    running, ended = (Checkpoint(tmp_path / name, {}) for name in ("running", "ended"))
    with ended.written_if_interrupted():
        ended.hold(1, [np.zeros(1)], dict)
    with running.written_if_interrupted():
        running.hold(1, [np.zeros(1)], dict)
        checkpoint.write_running()
    assert [path.name for path in tmp_path.iterdir()] == ["running"]


LONG = """
import sys, time
import numpy as np
from pathlib import Path
from sbil import cli
from sbil.checkpoint import Checkpoint

def act(words):
    held = Checkpoint(Path(sys.argv[1]), {})
    with held.written_if_interrupted():
        held.hold(1, [np.zeros(1)], dict)
        print("held", flush=True)
        WAIT

cli._dispatch = act
cli.program()
"""
WAITS = {
    "in Python": "time.sleep(60)",
    "in compiled code": "__import__('hashlib').pbkdf2_hmac('sha512', b'', b'', 500_000_000)",
}


@pytest.mark.parametrize("where", WAITS)
def test_the_command_writes_the_state_before_it_ends(tmp_path, where):
    """Also if the main thread computes for minutes, when Python can raise nothing in it."""
    script, path = LONG.replace("WAIT", WAITS[where]), tmp_path / "a.checkpoint"
    words = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert path.exists()
