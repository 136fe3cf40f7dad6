"""Every link in the pages leads somewhere, every page can be found, and every command that pages name exists."""

import re
from pathlib import Path

import pytest

from sbil.cli import commands

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FRONT = (ROOT / "README.md", ROOT / "docs" / "index.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:^ {4}|^|`)sbil ([a-z][a-z-]*)", re.MULTILINE)
PROGRAM = re.compile(r"\bpython (?:-m ((?:studies|benchmarks|sbil)[\w.]*)|((?:studies|results|examples)/\w+\.py))")


def targets(page):
    """The files a page links to, each with the heading it names."""
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    for link in links:
        path, _, heading = link.partition("#")
        yield (page.parent / path).resolve() if path else page, heading


def headings(page):
    """The anchors of a page as GitHub makes them."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


def program_exists(module, path):
    """Whether `python -m module` or `python path` names something in the repository."""
    if path:
        return (ROOT / path).is_file()
    place = Path(*module.split("."))
    bases = (ROOT / "src" / place, ROOT / place)
    return any(base.with_suffix(".py").is_file() or (base / "__main__.py").is_file() for base in bases)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_commands_of_a_page_exist(page):
    for target, heading in targets(page):
        assert target.exists(), target
        assert not heading or heading in headings(target), f"{target.name}#{heading}"
    text = page.read_text()
    assert set(COMMAND.findall(text)) <= set(commands())
    missing = [found for found in PROGRAM.findall(text) if not program_exists(*found)]
    assert not missing


def test_every_page_can_be_reached():
    reached, waiting = set(), [page.resolve() for page in FRONT]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        waiting += [target for target, _ in targets(page) if target.suffix == ".md" and target not in reached]
    assert {page.resolve() for page in PAGES} <= reached
