"""The tutorial: every command and every piece of Python on the page runs, in its order, and says what the page says."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from sbil.cli import main
from sbil.dynamics.model import learn
from sbil.portfolio import METHODS, TABLES

PAGE = Path(__file__).parents[2] / "docs" / "your_data.md"
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", PAGE.read_text(), re.DOTALL)
# The flags that make compilation cheap make training slow. With all updates, the page runs without them.
AS_ELSEWHERE = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}


def ran(words, folder, environment):
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{words[-3:]}: {done.stderr[-2000:]}"
    return done.stdout


def fewer_updates(block):
    """The block with a tenth of its updates, in commands and in Python."""
    return re.sub(r"(--updates |updates=)(\d+)", lambda found: f"{found[1]}{int(found[2]) // 10}", block)


def follow(run_python, run_command, change=str):
    """Run every block of the page in order; return what each command printed at last."""
    found = {}
    for kind, block in BLOCKS:
        block = change(block)
        if kind == "python":
            run_python(block)
            continue
        for line in block.strip().splitlines():
            program, *words = line.split()
            assert program == "sbil"
            found[words[0]] = run_command(words)
    return found


def test_the_page_goes_all_the_way(tmp_path, monkeypatch, capsys):
    """In this process, with fewer updates, fewer candidates of auto, and a model of the dynamics that learns less."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sbil.choosing.learn", partial(learn, updates=20))
    monkeypatch.setattr("sbil.portfolio.METHODS", METHODS[:2])
    monkeypatch.setattr("sbil.portfolio.TABLES", TABLES[:2])

    def command(words):
        capsys.readouterr()
        main(words)
        return capsys.readouterr().out

    check(follow(lambda block: exec(compile(block, PAGE.name, "exec"), {}), command, fewer_updates), tmp_path)


@pytest.mark.release
def test_the_page_goes_all_the_way_in_processes_of_its_own(tmp_path):
    def python(*words):
        return ran([sys.executable, *words], tmp_path, AS_ELSEWHERE)

    check(follow(lambda block: python("-c", block), lambda words: python("-m", "sbil", *words)), tmp_path)


def check(found, tmp_path):
    """The page says what its commands say."""
    assert list(found) == ["check", "view", "compare", "train", "show", "verify", "evaluate", "predict", "export"]
    written = {path.name for path in tmp_path.iterdir()}
    assert {"cells.html", "policy", "decisions.csv", "policy.onnx"} <= written
    assert (tmp_path / "policy" / "README.md").read_text().startswith("# ")
    assert "next: sbil train edm --data cells.csv --action call" in found["check"]
    agreement = float(re.search(r"([\d.]+)% agreement", found["evaluate"]).group(1))
    assert agreement > 90  # the commonest action: about 62 %
    assert re.search(r"energy", found["evaluate"])
    assert "neighbour" in found["evaluate"] or "nearest" in found["evaluate"]
