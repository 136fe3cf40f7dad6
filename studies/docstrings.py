"""How the docs site shows our docstrings: lines such as `seed: the seed of training` become a list.

mkdocs.yml names this file as an extension of griffe, which reads the docstrings for the API reference.
"""

import re
from typing import Any

import griffe

NAMES = r"[a-z]\w*(?:, [a-z]\w*)*"


def as_markdown(docstring: str) -> str:
    """Return the docstring with its list of names as a Markdown list. Indented lines below a name belong to it."""
    lines, in_list = list[str](), False
    for line in docstring.splitlines():
        found = re.match(rf"({NAMES}): +(.+)", line)
        if found and not in_list:
            lines.append("")  # Markdown begins a list after an empty line
        in_list = bool(found) or (in_list and line.startswith(" "))
        lines.append(f"- **{found[1]}**: {found[2]}" if found else line)
    return "\n".join(lines)


class Docstrings(griffe.Extension):
    """Rewrites the docstring of every object that the reference shows."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
