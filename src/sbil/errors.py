"""Mistakes that a person can make and correct."""

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

LONGEST = 400  # characters of a message; a longer one loses its middle


class UserError(ValueError):
    """A mistake that the user can correct: one line that says what is wrong, where, and what to do.

    The command line prints the line and exits with status 2; a library caller catches a ValueError. The message is
    always one printable line, even if a name contains line ends, codes for the terminal or a million letters.
    """

    def __init__(self, message: str) -> None:
        line = "".join(letter if letter.isprintable() else " " for letter in message)
        super().__init__(line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 + 3 :]}")


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """Return the error for a name that is not among the known names; it suggests the nearest one."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"choose from: {', '.join(names)}."
    return UserError(f"unknown {kind} '{name}'; {hint}")


def whole(name: str, value: Any, low: int = 0) -> int:
    """Return a whole number of Python or NumPy as an int; refuse anything else by name, and what is below `low`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < low:
        raise UserError(f"{name} must be a whole number from {low}. Got {value!r}.")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """Return True or False; refuse anything else by name."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be True or False. Got {value!r}.")
    return value


def share(name: str, value: Any) -> float:
    """Return a share, from 0 to less than 1, as a float; refuse anything else by name."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < 1:
        raise UserError(f"{name} must be a number between 0 and 1. Got {value!r}.")
    return float(value)


@contextmanager
def naming(path: object, damaged: str = "") -> Iterator[None]:
    """Begin the errors of a block with the path of what it reads.

    damaged: what errors of other kinds mean, "not a readable file"; without it, they are not mistakes of the user.
    """
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:
        if isinstance(error, OSError) and (error.strerror or not damaged):
            raise UserError(f"{path}: cannot be read ({error.strerror or error}).") from None
        if not damaged:
            raise
        raise UserError(f"{path}: {damaged}; damaged or incomplete ({type(error).__name__}).") from None


def program(name: str, main: Callable[[], None]) -> None:
    """Run a program; a mistake that the user can correct ends it with one line and status 2."""
    try:
        main()
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
