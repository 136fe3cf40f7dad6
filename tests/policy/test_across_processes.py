"""A policy is the same in every process, and changed files are refused or harmless."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import fuzz
import tampering
from sbil.cli import main
from sbil.policy import DESCRIPTION, WEIGHTS, Policy

FRESH = """
import sys, numpy as np
from sbil.cli import main
from sbil.policy import Policy
policy, seen, out = sys.argv[1:]
observations = np.load(seen)
loaded = Policy.load(policy)
np.savez(out, probabilities=loaded.probabilities(observations), energy=loaded.energy(observations))
main(["export", policy, "--onnx", out + ".onnx", "--json"])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, and a policy trained on it by the command line."""
    folder = tmp_path_factory.mktemp("processes")
    fuzz.good(folder)
    roles = ["--episode", "stay", "--time", "hour", "--action", "treat", "--observations", "pulse", "--one-hot", "sex"]
    table = str(folder / "good.csv")
    main(["train", "bc", "--data", table, *roles, "--updates", "50", "--out", str(folder / "policy"), "--json"])
    return folder


def started(*words: object, seed: int = 0) -> subprocess.Popen:
    """A fresh process with another order of sets."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.Popen([sys.executable, *map(str, words)], env=environment, stdout=subprocess.DEVNULL)


def test_every_process_predicts_the_same(folder):
    policy, table, seen = folder / "policy", folder / "good.csv", folder / "seen.npy"
    observations = np.random.default_rng(0).normal((70, 0.5, 0.5), (8, 0.5, 0.5), (64, 3)).astype(np.float32)
    np.save(seen, observations)
    words = ("-m", "sbil", "predict", policy, "--data", table, "--out")
    processes = [started(*words, folder / f"decisions{seed}.csv", seed=seed) for seed in (1, 2)]
    processes.append(started("-c", FRESH, policy, seen, folder / "fresh", seed=3))
    here = Policy.load(policy)
    main(["predict", str(policy), "--data", str(table), "--out", str(folder / "here.csv"), "--json"])
    for name in ("here.onnx", "again.onnx"):
        main(["export", str(policy), "--onnx", str(folder / name), "--json"])
    assert [process.wait(300) for process in processes] == [0, 0, 0]
    first = (folder / "here.csv").read_bytes()
    assert first.count(b"\n") == 1 + len(fuzz.ROWS)
    assert [(folder / f"decisions{seed}.csv").read_bytes() == first for seed in (1, 2)] == [True, True]
    there = np.load(folder / "fresh.npz")
    assert there["probabilities"].tobytes() == np.asarray(here.probabilities(observations)).tobytes()
    assert there["energy"].tobytes() == np.asarray(here.energy(observations)).tobytes()
    exported = (folder / "here.onnx").read_bytes()
    assert exported == (folder / "again.onnx").read_bytes() == (folder / "fresh.onnx").read_bytes()


def test_a_row_is_decided_by_itself(folder):
    """Other rows, even unfamiliar ones, change no action, and probabilities only by rounding."""
    policy = Policy.load(folder / "policy")
    observations = np.random.default_rng(1).normal((70, 0.5, 0.5), (20, 1, 1), (50, 3)).astype(np.float32)
    together = policy.probabilities(observations)
    for size in (1, 7):
        parts = [observations[start : start + size] for start in range(0, len(observations), size)]
        np.testing.assert_allclose(np.concatenate([policy.probabilities(part) for part in parts]), together, atol=1e-6)
        np.testing.assert_array_equal(np.concatenate([policy.act(part) for part in parts]), policy.act(observations))


def test_a_copy_written_again_is_the_same(folder, tmp_path):
    Policy.load(folder / "policy").save(tmp_path / "copy")
    for name in (DESCRIPTION, WEIGHTS):
        assert (tmp_path / "copy" / name).read_bytes() == (folder / "policy" / name).read_bytes()


# Changed files


def test_no_changed_byte_does_harm(folder, tmp_path):
    words = [sys.executable, tampering.__file__, str(folder / "good"), str(tmp_path / "copy")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["faults"] == []
    changed = result["changed"]
    assert changed[DESCRIPTION] == (folder / "good" / DESCRIPTION).stat().st_size
    assert result["refused"] + result["loaded"] == 2 * changed[DESCRIPTION] + changed[WEIGHTS]
    assert result["refused"] > changed[WEIGHTS]  # all of the weights, and all of policy.json but its white space
    assert result["loaded"] > 10


def test_the_watch_sees_what_is_run(tmp_path):
    """The test above would notice executed code, a started process, unpickling and a written file."""
    script = (
        "import pickle, subprocess, sys, tampering, fuzz, os\n"
        "from pathlib import Path\n"
        "watch, target, content = tampering.Watch(), Path(sys.argv[1]), Path(sys.argv[2]).read_bytes()\n"
        "for act in (lambda: eval('1 + 1'), lambda: exec('x = 1'), lambda: target.write_bytes(b''),\n"
        "            lambda: os.system('true'), lambda: subprocess.run(['true']), lambda: pickle.loads(content)):\n"
        "    with watch:\n"
        "        act()\n"
        "print(len(watch.events), len({event.split()[0] for event in watch.events}))\n"
    )
    (tmp_path / "trap").write_bytes(pickle.dumps(fuzz.Trap(tmp_path / "sprung")))
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(fuzz.__file__)}
    words = [sys.executable, "-c", script, str(tmp_path / "file"), str(tmp_path / "trap")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split()[0] == "6"
