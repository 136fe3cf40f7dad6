"""Pickles read as what they say, not run.

A pickle is a program that builds objects by calling functions it names. Here it is only followed: what it would look up
is a `Name`, what it would call is a `Made` with its arguments, and nothing is looked up or called. Whoever reads the
result takes from it the few things that are known and refuses the rest.
"""

import pickletools
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sbil.errors import UserError

VALUES = {
    *("NONE", "NEWTRUE", "NEWFALSE"),
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Name(NamedTuple):
    """What a pickle would import."""

    module: str
    name: str


class Stored(NamedTuple):
    """What lies outside the pickle, under an identity of the writer's making."""

    identity: Any


@dataclass(eq=False)
class Made:
    """What a pickle would make: by calling `what` with `arguments`, then setting `state` and `items`."""

    what: Any
    arguments: Any
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)


def read(content: bytes) -> Any:
    """What a pickle (of protocol 2 or later) says. Sets are read as lists; what is appended to a Made is left out."""
    try:
        return _followed(content)
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"a pickle in it is damaged ({type(error).__name__}).") from None


def _followed(content: bytes) -> Any:
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        start = marks.pop()
        taken = stack[start:]
        del stack[start:]
        return taken

    argument: Any
    for opcode, argument, _ in pickletools.genops(content):
        match opcode.name:
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                return stack.pop()
            case name if name in VALUES:
                stack.append(CONSTANTS.get(name, argument))
            case "MARK":
                marks.append(len(stack))
            case "POP":
                stack.pop()
            case "POP_MARK":
                since_mark()
            case name if name in TUPLES:
                start = len(stack) - TUPLES[name]
                stack[start:] = [tuple(stack[start:])]
            case "TUPLE" | "FROZENSET":
                stack.append(tuple(since_mark()))
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST" | "EMPTY_SET":
                stack.append([])
            case "APPEND":
                _append(stack[-2], [stack.pop()])
            case "APPENDS" | "ADDITEMS":
                new = since_mark()
                _append(stack[-1], new)
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                _set(stack[-1], [key, value])
            case "SETITEMS":
                pairs = since_mark()
                _set(stack[-1], pairs)
            case "GLOBAL":
                stack.append(_name(*argument.split(" ")))
            case "STACK_GLOBAL":
                name, module = stack.pop(), stack.pop()
                stack.append(_name(module, name))
            case "REDUCE" | "NEWOBJ":
                arguments, what = stack.pop(), stack.pop()
                stack.append(Made(what, arguments))
            case "NEWOBJ_EX":
                named, arguments, what = stack.pop(), stack.pop(), stack.pop()
                stack.append(Made(what, (arguments, named)))
            case "BUILD":
                state = stack.pop()
                if not isinstance(stack[-1], Made):
                    raise ValueError("only what was made has a state")
                stack[-1].state = state
            case "BINPERSID":
                stack.append(Stored(stack.pop()))
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case unfamiliar:
                raise UserError(f"a pickle in it uses '{unfamiliar}', which is not read here.")
    raise ValueError("no end")


def _name(module: str, name: str) -> Name:
    if not all(re.fullmatch(r"[\w.]{1,200}", word) for word in (module, name)):
        raise ValueError("not a name")
    return Name(module, name)


def _append(target: Any, new: list[Any]) -> None:
    if isinstance(target, list):
        target.extend(new)
    elif not isinstance(target, Made):
        raise TypeError("not a list")


def _set(target: Any, pairs: list[Any]) -> None:
    entries = target.items if isinstance(target, Made) else target
    if not isinstance(entries, dict) or len(pairs) % 2:
        raise TypeError("not a dictionary")
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        if not isinstance(key, str | int | float | bytes | None):  # to find the hash of anything else might not end
            raise TypeError("not a plain key")
        entries[key] = value
