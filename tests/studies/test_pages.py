"""The published pages, and what src may know of the studies."""

import ast
from pathlib import Path

import polars as pl

from studies.pages import RESULTS, ROOT, inserted


def test_a_table_gets_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- one -->\nold\n<!-- end of one -->\nb\n")
    assert inserted(page, {"one": "new\n"}) == "a\n<!-- one -->\nnew\n<!-- end of one -->\nb\n"


def test_the_package_imports_no_study():
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "studies" for name in names), path


def test_results_holds_data_only_and_says_what_each_file_is():
    words = (RESULTS / "README.md").read_text()
    for path in sorted(RESULTS.rglob("*")):
        if path.is_file() and path.name != "README.md":
            assert path.suffix in (".parquet", ".json", ".md"), path
            assert Path(path.relative_to(RESULTS)).parts[0] in words, path


def test_every_published_setting_is_there():
    cell = ["environment", "demonstrator", "mode", "thin", "fingerprint"]
    cells = pl.concat([pl.read_parquet(path, columns=cell) for path in RESULTS.glob("*.parquet")]).unique()
    assert len(cells.unique(cell[:-1])) == 9
    assert len(cells) == 788
