"""The formats that demonstrations are read from: one file per format, found by listing this folder.

Each file holds one `FORMAT`. docs/adding_a_format.md shows how to add another.
"""

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from sbil.demonstrations.table import Table
from sbil.demonstrations.trajectory import Demonstrations


@dataclass(frozen=True)
class Format:
    """A format gives either a table, with columns that a person explains, or demonstrations, which need no explanation.

    name: its name in messages.
    endings: how the names of its files end, in lower case and with the dot.
    table: opens one file as a table. The reader process calls it, so that a damaged file harms nobody.
    demonstrations: reads a whole source.
    recognises: whether another source has this format, for example a folder, a prefix or an object.
    """

    name: str
    endings: tuple[str, ...] = ()
    table: Callable[[Any], Table] | None = None
    demonstrations: Callable[[Any], Demonstrations] | None = None
    recognises: Callable[[Any], bool] = lambda source: False


@cache
def every() -> tuple[Format, ...]:
    """All formats, in the order of their files."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return tuple(module.FORMAT for module in modules if hasattr(module, "FORMAT"))


def of_file(path: Path) -> Format | None:
    """Return the format of the ending of a file's name."""
    name = path.name.lower()
    return next((format_ for format_ in every() if format_.endings and name.endswith(format_.endings)), None)


def of(source: Any) -> Format | None:
    """Return the format of a source; None for a folder or a glob of tables, and for unknown sources."""
    recognised = next((format_ for format_ in every() if format_.recognises(source)), None)
    return recognised or (of_file(Path(source)) if isinstance(source, str | Path) else None)


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name."""
    format_ = of_file(path)
    return format_ is not None and format_.table is not None


def endings(tables: bool = False) -> str:
    """The endings of all formats, or of the tables among them, for a message."""
    return ", ".join(ending for format_ in every() if format_.table or not tables for ending in format_.endings)
