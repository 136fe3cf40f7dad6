"""What every page of ours is made of: markup that escapes, data that stay data, and a policy that lets nothing else in.

Names come from files, so they get into a page as text only; a policy in its head forbids every script and style but
those that ship here, known by their hashes.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from importlib import resources
from string import Template
from typing import Any


class Html(str):
    """Markup; any other text is escaped before it gets in."""


def tag(name: str, *children: str, **attributes: object) -> Html:
    """An element; `class_` and `data_cell` are the attributes class and data-cell."""
    words = "".join(f' {k.rstrip("_").replace("_", "-")}="{escape(str(v))}"' for k, v in attributes.items())
    return Html(f"<{name}{words}>{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Parts one after the other."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def page(name: str, data: Any, *, looks: str = "", **parts: str) -> str:
    """The page of name.html, name.css and name.js, with its data (plain values) and the other parts it asks for.

    looks: the page whose style it shares, if it has none of its own.
    """
    style = asset("base.css") + asset(f"{looks or name}.css")
    script = asset("base.js") + asset(f"{name}.js")
    return Template(asset(f"{name}.html")).substitute(
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
        data=as_json(data),
        **{key: joined([part]) for key, part in parts.items()},
    )


def as_json(value: Any) -> str:
    """JSON in few characters, and none that HTML could take for a tag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def asset(name: str) -> str:
    """The text of a file that ships with the pages."""
    return resources.files("sbil.reports").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
