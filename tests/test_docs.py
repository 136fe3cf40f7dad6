"""The commands and programs that pages name exist, and a reader finds every page. test_surface.py follows the links."""

import re
from pathlib import Path

import pytest

from sbil.cli import commands

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FRONT = (ROOT / "README.md", ROOT / "docs" / "index.md")
PAGE = re.compile(r"\]\(([^)\s:#]+\.md)")
COMMAND = re.compile(r"(?:^ {4}|^|`)sbil ([a-z][a-z-]*)", re.MULTILINE)
PROGRAM = re.compile(r"\bpython (?:-m ((?:studies|benchmarks|sbil)[\w.]*)|((?:studies|results|examples)/\w+\.py))")


def program_exists(module, path):
    """Whether `python -m module` or `python path` names something in the repository."""
    if path:
        return (ROOT / path).is_file()
    place = Path(*module.split("."))
    bases = (ROOT / "src" / place, ROOT / place)
    return any(base.with_suffix(".py").is_file() or (base / "__main__.py").is_file() for base in bases)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist(page):
    text = page.read_text()
    assert set(COMMAND.findall(text)) <= set(commands())
    missing = [found for found in PROGRAM.findall(text) if not program_exists(*found)]
    assert not missing


def test_every_page_can_be_reached():
    reached, waiting = set(), [page.resolve() for page in FRONT]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        waiting += {(page.parent / link).resolve() for link in PAGE.findall(page.read_text())} - reached
    assert {page.resolve() for page in PAGES} <= reached
