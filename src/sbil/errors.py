"""Mistakes that a person can make and correct."""

import difflib
import sys
from collections.abc import Callable, Iterable

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


def program(name: str, main: Callable[[], None]) -> None:
    """Run a program; a mistake that the user can correct ends it with one line and status 2."""
    try:
        main()
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
