"""What people see beside the code: the site of the docs, links between pages, and files that other programs read."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import yaml

import sbil

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [*PAGES, *ROOT.glob("*.md")]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
GITHUB = [*(ROOT / ".github").rglob("*.yml")]


def name(path):
    return str(path.relative_to(ROOT))


# The site


def entries(nav):
    """The pages that a navigation names, in order."""
    for entry in nav:
        target = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from [target] if isinstance(target, str) else entries(target)


def test_every_page_is_in_the_navigation_once():
    assert sorted(entries(SITE["nav"])) == [str(page.relative_to(DOCS)) for page in PAGES]


def test_the_reference_has_every_public_name_once():
    listed = re.findall(r"^::: sbil\.(\w+)$", (DOCS / "reference.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(set(sbil.__all__) - {"__version__"})


def test_the_reference_shows_what_public_functions_return():
    """The result of each function, by its annotation, stands in the reference too."""
    text = (DOCS / "reference.md").read_text()
    functions = [getattr(sbil, name) for name in sbil.__all__ if inspect.isfunction(getattr(sbil, name))]
    results = [typing.get_type_hints(function)["return"] for function in functions]
    own = [one for one in results if inspect.isclass(one) and one.__module__.startswith("sbil.")]
    assert len(own) > 8
    for one in own:
        public = getattr(sbil, one.__name__, None) is one
        assert public or f"::: {one.__module__}.{one.__name__}\n" in text, one


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs MkDocs: pip install 'sbil[docs]'")
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_other_hosts(tmp_path):
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an advertisement of the theme
    done = subprocess.run(words, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stderr
    page = (tmp_path / "reference.html").read_text()
    assert 'id="sbil.train"' in page
    assert "Train a policy" in page
    for built in tmp_path.rglob("*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", built.read_text())
        assert not [tag for tag in tags if re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag)]


# Links


def anchors(page):
    """The anchors of a page's headings, as forges and the site make them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("text", TEXTS, ids=name)
def test_links_lead_somewhere(text):
    """Links of docs/ stay in docs/, so that they work on the site as well."""
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        page = (text.parent / target).resolve() if target else text
        assert page.exists(), target
        assert text.parent != DOCS or page.is_relative_to(DOCS), target
        if anchor and page.suffix == ".md":
            assert anchor in anchors(page), f"{target}#{anchor}"


# Files that other programs read


@pytest.mark.parametrize("path", [*GITHUB, ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"], ids=name)
def test_yaml_is_valid(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_workflows_call_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            called = re.findall(r"^make (\w+)$", "\n".join(step.get("run", "") for step in job["steps"]), re.MULTILINE)
            assert called
            assert set(called) <= targets
            assert job["timeout-minutes"]


def test_workflows_try_every_python_that_is_promised():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text())
    tried = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    promised = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    assert tried == promised


def test_issue_templates_have_what_forges_ask_for():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        template = yaml.safe_load(path.read_text())
        if path.name != "config.yml":
            assert {"name", "description", "body"} <= set(template)
            assert all({"id", "type", "attributes"} <= set(field) for field in template["body"])


def test_the_citation_is_complete():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["version"] == sbil.__version__
    for reference in citation["references"]:
        assert {"type", "title", "authors"} <= set(reference)
