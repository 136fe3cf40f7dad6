"""What several commands share: options, and the way from options to keywords of the library."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from sbil.cli.columns import COLUMNS
from sbil.errors import UserError

Result = TypeVar("Result")

Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY", help="The policy folder.")]


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A command that prints its result."""

    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True, kw_only=True)
class Written(Printed):
    """A command that writes a file or a folder."""

    overwrite: bool = False
    """Replace what is there already."""


def with_options(function: Callable[..., Result], command: Any, *, aside: Iterable[str] = (), **more: Any) -> Result:
    """Call a library function with the options of a command that have the names of its keywords, and with more.

    An option that was not given (None) has the default of the library.
    aside: the options that the command itself reads or refuses. Any other option must be a keyword, so that no option
        is dropped.
    """
    keywords, options = set(signature(function).parameters), set(vars(command))
    handled = {"json", *aside, *more}
    if "columns" in keywords:
        more["columns"] = command.columns()
        handled |= {*COLUMNS}
    if lost := sorted(options - keywords - handled):
        raise TypeError(f"{function.__name__} has no keyword for the option {lost[0]}; name it in aside, or pass it on")
    given = {name: value for name, value in vars(command).items() if name in keywords - handled and value is not None}
    return function(**given, **more)


def must_not_be_given(command: Any, names: Iterable[str], why: str) -> None:
    """Refuse options that would have no effect; `why` says so."""
    for name in names:
        if getattr(command, name) != type(command).__dataclass_fields__[name].default:
            raise UserError(f"--{name.replace('_', '-')} {why}; leave it out.")
