"""The tutorial: every command and every piece of Python on the page runs, in its order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "your_data.md"
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", PAGE.read_text(), re.DOTALL)


def ran(words, folder):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{words[-3:]}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What every command printed, by its first words."""
    folder, found = tmp_path_factory.mktemp("tutorial"), {}
    for kind, block in BLOCKS:
        if kind == "python":
            ran([sys.executable, "-c", block], folder)
            continue
        for line in block.strip().splitlines():
            program, *words = line.split()
            assert program == "sbil"
            found[words[0]] = ran([sys.executable, "-m", "sbil", *words], folder)
    return folder, found


def test_the_page_goes_all_the_way(outputs):
    folder, found = outputs
    assert list(found) == ["check", "view", "compare", "train", "show", "evaluate", "predict", "export"]
    written = {path.name for path in folder.iterdir()}
    assert {"cells.html", "policy", "decisions.csv", "policy.onnx"} <= written
    assert (folder / "policy" / "README.md").read_text().startswith("# ")


def test_the_policy_is_worth_more_than_the_commonest_action(outputs):
    _, found = outputs
    agreement = float(re.search(r"([\d.]+)% agreement", found["evaluate"]).group(1))
    assert agreement > 90  # the commonest: about 62 %


def test_check_names_the_next_command(outputs):
    _, found = outputs
    assert "next: sbil train edm --data cells.csv --action call" in found["check"]


def test_whether_the_energy_helps_is_said(outputs):
    _, found = outputs
    assert re.search(r"energy", found["evaluate"])
    assert "nearest" in found["evaluate"] or "neighbour" in found["evaluate"]
