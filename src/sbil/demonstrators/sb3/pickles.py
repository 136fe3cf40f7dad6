"""Pickles are read without being run.

A pickle is a program that builds objects by calling functions that it names. Here its instructions are followed, but
nothing is imported or called: a function becomes a `Name`, and a call becomes a `Made` with its arguments. The reader
of the result takes the few things that it knows and refuses the rest.
"""

import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sbil.errors import UserError

VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}


class Name(NamedTuple):
    """What a pickle would import."""

    module: str
    name: str


class Stored(NamedTuple):
    """Something outside the pickle, with the identity that the writer gave it."""

    identity: Any


@dataclass(eq=False)
class Made:
    """What a pickle would make: by calling `what` with `arguments`, then setting `state` and `items`."""

    what: Any
    arguments: Any
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)


def read(content: bytes) -> Any:
    """The content of a pickle of protocol 2 or later. Sets become lists; what is appended to a Made is left out."""
    try:
        return _Machine().follow(content)
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"a pickle in it is damaged ({type(error).__name__}).") from None


class _Machine:
    """The stack, the marks and the memo of a pickle that is followed; each method is a kind of instruction."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def follow(self, content: bytes) -> Any:
        """What lies on top of the stack at the end."""
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name == "STOP":
                return self.stack.pop()
            if opcode.name not in INSTRUCTIONS:
                raise UserError(f"a pickle in it uses '{opcode.name}', which is not read here.")
            INSTRUCTIONS[opcode.name](self, argument)
        raise ValueError("no end")

    def since_mark(self) -> list[Any]:
        """Take everything above the last mark from the stack."""
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def take(self, count: int) -> list[Any]:
        """Take the last `count` from the stack, the lowest first."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def build(self, state: Any) -> None:
        if not isinstance(self.stack[-1], Made):
            raise ValueError("only what was made has a state")
        self.stack[-1].state = state

    def memoize(self, place: int) -> None:
        self.memo[place] = self.stack[-1]


Instruction = Callable[[_Machine, Any], object]

INSTRUCTIONS: dict[str, Instruction] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda m, _: None),
    **dict.fromkeys(VALUES, lambda m, argument: m.push(argument)),
    "NONE": lambda m, _: m.push(None),
    "NEWTRUE": lambda m, _: m.push(True),
    "NEWFALSE": lambda m, _: m.push(False),
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "TUPLE1": lambda m, _: m.push(tuple(m.take(1))),
    "TUPLE2": lambda m, _: m.push(tuple(m.take(2))),
    "TUPLE3": lambda m, _: m.push(tuple(m.take(3))),
    **dict.fromkeys(("TUPLE", "FROZENSET"), lambda m, _: m.push(tuple(m.since_mark()))),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda m, _: m.push([])),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda m, _: _append(m.since_mark(), m.stack[-1])),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda m, _: m.push(Made(*m.take(2)))),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda m, place: m.memoize(place)),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda m, place: m.push(m.memo[place])),
    "MEMOIZE": lambda m, _: m.memoize(len(m.memo)),
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.since_mark(),
    "EMPTY_DICT": lambda m, _: m.push({}),
    "APPEND": lambda m, _: _append(m.take(1), m.stack[-1]),
    "SETITEM": lambda m, _: _set(m.take(2), m.stack[-1]),
    "SETITEMS": lambda m, _: _set(m.since_mark(), m.stack[-1]),
    "GLOBAL": lambda m, words: m.push(_name(*words.split(" "))),
    "STACK_GLOBAL": lambda m, _: m.push(_name(*m.take(2))),
    "NEWOBJ_EX": lambda m, _: m.push(Made(m.stack.pop(-3), tuple(m.take(2)))),
    "BUILD": lambda m, _: m.build(m.stack.pop()),
    "BINPERSID": lambda m, _: m.push(Stored(m.stack.pop())),
}


def _name(module: str, name: str) -> Name:
    if not all(re.fullmatch(r"[\w.]{1,200}", word) for word in (module, name)):
        raise ValueError("not a name")
    return Name(module, name)


def _append(new: list[Any], target: Any) -> None:
    if isinstance(target, list):
        target.extend(new)
    elif not isinstance(target, Made):
        raise TypeError("not a list")


def _set(pairs: list[Any], target: Any) -> None:
    entries = target.items if isinstance(target, Made) else target
    if not isinstance(entries, dict) or len(pairs) % 2:
        raise TypeError("not a dictionary")
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        if not isinstance(key, str | int | float | bytes | None):  # the hash of anything else might take forever
            raise TypeError("not a plain key")
        entries[key] = value
