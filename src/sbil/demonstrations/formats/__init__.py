"""The formats that demonstrations are read from: one file per format, found by listing this folder.

Each file holds one `FORMAT`. docs/adding_a_format.md shows how to add another.
"""

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from sbil.demonstrations.table import Table
from sbil.demonstrations.trajectory import Demonstrations
from sbil.errors import UserError, unknown

MARK = "::"  # between a file and the name of one of its tables
SHOWN = 10  # names of tables in a message


@dataclass(frozen=True)
class Format:
    """A format gives either a table, with columns that a person explains, or demonstrations, which need no explanation.

    name: its name in messages.
    endings: how the names of its files end, in lower case and with the dot.
    table: opens one file as a table. The reader process calls it, so that a damaged file harms nobody.
    demonstrations: reads a whole source.
    recognises: whether another source has this format, for example a folder, a prefix or an object.
    several: whether a file can hold several tables. `table` is then given FILE::TABLE if a person named a table.
    """

    name: str
    endings: tuple[str, ...] = ()
    table: Callable[[Any], Table] | None = None
    demonstrations: Callable[[Any], Demonstrations] | None = None
    recognises: Callable[[Any], bool] = lambda source: False
    several: bool = False


@cache
def every() -> tuple[Format, ...]:
    """All formats, in the order of their files."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return tuple(module.FORMAT for module in modules if hasattr(module, "FORMAT"))


def of_file(path: Path) -> Format | None:
    """Return the format of the ending of a file's name."""
    return _of_name(file_and_table(path)[0].name)


def _of_name(name: str) -> Format | None:
    return next((one for one in every() if one.endings and name.lower().endswith(one.endings)), None)


def file_and_table(source: str | Path) -> tuple[Path, str | None]:
    """Split FILE::TABLE into the file and the name of one of its tables; None if no table is named."""
    file, mark, name = str(source).partition(MARK)
    format_ = _of_name(file) if mark else None
    return (Path(file), name) if format_ and format_.several else (Path(source), None)


def chosen(path: str | Path, names: Sequence[str], word: str = "table") -> str:
    """The table that a person named, or the only one; `word` is what the format calls a table."""
    file, name = file_and_table(path)
    if name is None and len(names) == 1:
        return names[0]
    if not names:
        raise UserError(f"holds no {word}.")
    if name is None:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        shown = ", ".join(f"'{one[:60]}'" for one in names[:SHOWN]) + more
        raise UserError(f"holds {len(names)} {word}s ({shown}); name one of them, as in '{file}{MARK}{names[0]}'.")
    if name not in names:
        raise unknown(word, name, names)
    return name


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
