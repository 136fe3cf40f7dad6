"""Where published results and pages lie, and how a table gets into a page."""

from collections.abc import Mapping
from pathlib import Path

from sbil.statistics import Estimate, Interval

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


def bracketed(found: Estimate | Interval, form: str = "+.3f") -> str:
    """+0.049 [+0.012, +0.090]."""
    return f"{found[0]:{form}} [{found.low:{form}}, {found.high:{form}}]"


def bold(text: str, clear: bool) -> str:
    """Mark a difference that is clear."""
    return f"**{text}**" if clear else text
