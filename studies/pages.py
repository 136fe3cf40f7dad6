"""Where published results and pages lie, and how a table gets into a page."""

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS, FIGURES = ROOT / "results", ROOT / "docs" / "figures"


def inserted(page: Path, tables: Mapping[str, str]) -> str:
    """Return the text of a page with new content between the marks of each table."""
    text = page.read_text()
    for mark, content in tables.items():
        start, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, rest = text.split(start)
        text = before + start + content + end + rest.split(end)[1]
    return text


def bold(text: str, clear: bool) -> str:
    """Mark a difference that is clear."""
    return f"**{text}**" if clear else text
