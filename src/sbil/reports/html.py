"""Building blocks of HTML pages: markup that escapes text, data that stay data, and a content security policy.

Names come from files, so they enter a page as text only. The policy in the head of a page forbids every script and
style except those that ship here, which it knows by their hashes.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any


class Html(str):
    """Markup. Any other text is escaped before it becomes a part of it."""


def tag(name: str, *children: str, **attributes: object) -> Html:
    """Return an element; `class_` and `data_cell` are the attributes class and data-cell."""
    words = "".join(f' {k.rstrip("_").replace("_", "-")}="{escape(str(v))}"' for k, v in attributes.items())
    return Html(f"<{name}{words}>{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Return the parts one after the other."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def table(label: str, *parts: str, caption: str = "", look: str, tall: bool = False) -> Html:
    """Return a table in a box that scrolls by itself, also by keyboard. Its caption is for readers of the screen."""
    head = [tag("caption", caption, class_="hidden")] if caption else []
    inside = tag("table", *head, *parts, class_=look)
    return tag("div", inside, class_="scroll tall" if tall else "scroll", role="region", aria_label=label, tabindex=0)


def head(*cells: str) -> Html:
    """Return the head of a table with one row of cells."""
    return tag("thead", tag("tr", *cells))


def numbers(label: str, lines: Iterable[Sequence[str]]) -> Html:
    """Return a table of a head and lines; the first column holds names, the others numbers."""
    (first, *names), *body = lines
    heads = tag("th", first, scope="col", class_="words"), *(tag("th", n, scope="col", class_="number") for n in names)
    rows = []
    for name, *cells in body:
        texts = (tag("td", cell.replace("-", "−"), class_="number") for cell in cells)
        rows.append(tag("tr", tag("th", name, scope="row"), *texts))
    return table(label, head(*heads), tag("tbody", *rows), caption=label, look="plain")


def folded(title: str, *parts: str, **attributes: object) -> Html:
    """Return parts under a title that opens and closes them."""
    return tag("details", tag("summary", title), *parts, **attributes)


def stack(parts: Iterable[str]) -> Html:
    """Return parts one above the other."""
    return tag("div", *parts, class_="stack")


def page(name: str, data: Any, *, command: str = "sbil report", looks: str = "", **parts: str) -> str:
    """Return the page of name.html, name.css and name.js with its data (plain values) and its other parts.

    command: the command that writes the page.
    looks: another page whose style it shares, if it has no style of its own.
    """
    style = asset("base.css") + asset(f"{looks or name}.css")
    script = asset("base.js") + asset(f"{name}.js")
    escaped = {key: joined([part]) for key, part in parts.items()}
    return Template(asset("base.html")).substitute(
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        command=command,
        title=escaped["title"],
        style=style,
        script=script,
        data=as_json(data),
        body=Template(asset(f"{name}.html")).substitute(escaped, command=command),
    )


def as_json(value: Any) -> str:
    """Return compact JSON without characters that HTML could take for a tag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def asset(name: str) -> str:
    """Return the text of a file that ships with the pages."""
    return resources.files("sbil.reports").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
