"""The pages docs/adding_*.md work as they stand: two files are added to a copy of the package, and no other is touched.

A code block whose first line is the path of a file is that file. One process per page runs the page's own test, the
tests that hold for everything of its kind, and `SHOWN`: what was added appears where people look for it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("docs/adding_*.md"))
BLOCK = re.compile(r"```python\n# (\S+\.py)\n(.*?)```", flags=re.DOTALL)
HELPERS = ("pyproject.toml", "tests/conftest.py", "tests/shared.py", "tests/probes.py", "tests/algorithms/golden.json")
CONTRACT = "tests/algorithms/test_contract.py"

# By page: what must be seen of the new thing. `said` runs a command and gives what it prints.
SHOWN = {
    "adding_an_algorithm": """
        assert "smooth: needs pairs; Szegedy et al. (2016)" in said("algorithms")
        data = tmp_path / "data.npz"
        sbil.demonstrations.save(probes.demonstrations(), data)
        words = ["--updates", 3, "--set", "hidden=8", "smoothing=0/0.2", "--out", tmp_path / "policy"]
        assert "(smooth, 3 updates" in said("train", "smooth", "--data", data, *words)
        assert sbil.Policy.load(tmp_path / "policy").provenance["algorithm"] == "smooth"
        from sbil.reports.names import name_of
        assert name_of("smooth") == "BC, smoothed labels"
    """,
    "adding_an_environment": """
        from test_corridor import always
        always(1).save(tmp_path / "policy")
        played = said("evaluate", tmp_path / "policy", "--env", "Corridor-v0", "--episodes", 4)
        assert played.startswith("Corridor-v0: mean return -5.00")
        assert "not scaled" in played
    """,
    "adding_a_format": """
        import polars as pl
        pl.DataFrame({"x": [1.5, 2.5], "act": ["a", "b"]}).write_ipc(tmp_path / "data.arrow")
        assert "2 rows, 2 columns (Arrow)" in said("check", tmp_path / "data.arrow")
        (tmp_path / "data.orc").touch()
        with pytest.raises(sbil.UserError, match="known endings are .*arrow, .feather"):
            sbil.read(tmp_path / "data.orc", action="act")
    """,
    "adding_a_command": """
        assert "hello        greet somebody" in said("--help")
        assert said("hello") == "hello, world\\n"
    """,
    "adding_a_metric": """
        data = tmp_path / "data.npz"
        sbil.demonstrations.save(probes.demonstrations(), data)
        words = ["--algorithms", "bc", "--folds", 2, "--updates", 3, "--json"]
        rows = json.loads(said("compare", "--data", data, *words))["compared"]
        assert all(0 <= row["top_two"]["value"] <= 1 for row in rows)
    """,
}
SHOWING = """
import json

import probes
import pytest
import sbil
import sbil.demonstrations
from sbil.cli import main


def test_it_is_shown(tmp_path, capsys):
    def said(*words):
        capsys.readouterr()
        main([str(word) for word in words])
        return capsys.readouterr().out
"""


def test_there_is_a_page_for_each_kind():
    assert [page.stem for page in PAGES] == sorted(SHOWN)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_adds_a_thing_with_two_files(page, tmp_path):
    files = dict(BLOCK.findall(page.read_text("utf-8")))
    source, test = sorted(files)
    assert (source.split("/")[0], test.split("/")[0]) == ("src", "tests")
    assert not (ROOT / source).exists(), f"{source} is there already"
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "BeamRider*"))
    new = {**files, "tests/test_shown.py": SHOWING + indent(dedent(SHOWN[page.stem]), "    ")}
    tests = ["tests/test_shown.py", test]
    if source.startswith("src/sbil/algorithms"):
        tests.append(CONTRACT)
        new[CONTRACT] = (ROOT / CONTRACT).read_text("utf-8")
    for name in HELPERS:
        new[name] = (ROOT / name).read_text("utf-8")
    for name, content in new.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, "utf-8")
    name = Path(source).stem
    only = ["-k", f"shown or test_{name} or ({name} and not release)"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), str((tmp_path / test).parent)]),
        "SBIL_GOLDEN": "write",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *only, *tests]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
