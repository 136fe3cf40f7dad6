"""Mistakes a person can make and mend."""

import difflib
import sys
from collections.abc import Callable, Iterable

LONGEST = 400  # characters of a message; of a longer one the middle is left out


class UserError(ValueError):
    """Something the user can put right: one line that says what, where and what to do.

    The command line prints the line and leaves with exit status 2; a library caller catches a ValueError. Whatever
    stood in a name (line ends, codes for the terminal, a million letters), the message is one line that can be printed.
    """

    def __init__(self, message: str) -> None:
        line = "".join(letter if letter.isprintable() else " " for letter in message)
        super().__init__(line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 + 3 :]}")


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """The error for a name that is not in a list of names, with the nearest one suggested."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"choose from: {', '.join(names)}."
    return UserError(f"unknown {kind} '{name}'; {hint}")


def program(name: str, main: Callable[[], None]) -> None:
    """Run a program; what a person can put right ends it with one line and status 2."""
    try:
        main()
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
