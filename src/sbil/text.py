"""Counts in words, and rows as a Markdown table."""

from collections.abc import Mapping, Sequence
from typing import Any


def counted(number: int, word: str) -> str:
    """1 step, 2 steps, 1,000 trajectories."""
    return f"{number:,} {word if number == 1 else plural(word)}"


def plural(word: str) -> str:
    """The plural of a word."""
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def over(resampled: Mapping[str, Any]) -> str:
    """What the intervals of a table are over, or why there are none."""
    unit, count = resampled.get("unit", "episode"), resampled.get("count")
    if count == 1:
        return f"no interval, because there is only one {unit} to resample"
    return f"95 % interval over {counted(count, unit) if count else plural(unit)}"


def markdown_table(rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    """Return rows as a Markdown table. The first row is the head; `numbers` aligns all but the first column right."""
    head, *body = rows
    rule = ["---", *["---:" if numbers else "---"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *body))
