"""The tutorial: every command and every piece of Python on the page runs, in its order, and says what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.release)])
def test_the_page_goes_all_the_way(tmp_path, quick):
    environment = dict(os.environ) if quick else AS_ELSEWHERE
    found = {}  # what every command printed
    for kind, block in BLOCKS:
        if quick:
            block = fewer_updates(block)
        if kind == "python":
            ran([sys.executable, "-c", block], tmp_path, environment)
            continue
        for line in block.strip().splitlines():
            program, *words = line.split()
            assert program == "sbil"
            found[words[0]] = ran([sys.executable, "-m", "sbil", *words], tmp_path, environment)
    assert list(found) == ["check", "view", "compare", "train", "show", "verify", "evaluate", "predict", "export"]
    written = {path.name for path in tmp_path.iterdir()}
    assert {"cells.html", "policy", "decisions.csv", "policy.onnx"} <= written
    assert (tmp_path / "policy" / "README.md").read_text().startswith("# ")
    assert "next: sbil train edm --data cells.csv --action call" in found["check"]
    agreement = float(re.search(r"([\d.]+)% agreement", found["evaluate"]).group(1))
    assert agreement > 90  # the commonest action: about 62 %
    assert re.search(r"energy", found["evaluate"])
    assert "neighbour" in found["evaluate"] or "nearest" in found["evaluate"]
