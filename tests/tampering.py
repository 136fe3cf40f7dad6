"""A policy changed in one byte and loaded, again and again: refused, or the same policy, and nothing is run.

Every byte of policy.json and of the header of the weights is changed, and every 16th of the numbers of the weights,
which are alike: one hash is over all of them.

What is loaded must be the same in every part, not only in its numbers: only white space may change unnoticed.

    python tests/tampering.py POLICY COPY

Prints one line of JSON: how many changes were refused and loaded, and every fault. Python itself reports what it is
about to do (`sys.addaudithook`), so code in the files would be noticed however it is started.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import jax
import numpy as np

from sbil.errors import UserError
from sbil.policy import DESCRIPTION, WEIGHTS, Policy

FORBIDDEN = (
    *("exec", "compile", "import", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"),
    *("socket.connect", "socket.getaddrinfo", "pickle.find_class", "marshal.loads", "ctypes.dlopen", "os.remove"),
    *("os.rename", "os.mkdir", "shutil.rmtree"),
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Watch:
    """What Python is about to do while it is watched."""

    def __init__(self) -> None:
        self.on, self.events = False, list[str]()
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Keep what must not happen."""
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if self.on and (event in FORBIDDEN or writes):
            self.on = False
            self.events.append(f"{event} {arguments[:1]!r}"[:200])

    def __enter__(self) -> None:
        self.on = True

    def __exit__(self, *_: object) -> None:
        self.on = False


EVERY = 16  # of the bytes of numbers


def places(name: str, content: bytes) -> list[int]:
    """The bytes to change."""
    if name == DESCRIPTION:
        return list(range(len(content)))
    header = 8 + int.from_bytes(content[:8], "little")
    return [*range(header), *range(header, len(content), EVERY)]


def changes(good: dict[str, bytes]) -> Iterator[tuple[str, int, bytes]]:
    """Bytes of the weights and of policy.json with a bit turned over, and those of policy.json left out."""
    rng = Random(6)
    for name, content in good.items():
        for place in places(name, content):
            flipped = content[place] ^ (1 << rng.randrange(8))
            yield name, place, content[:place] + bytes([flipped]) + content[place + 1 :]
            if name == DESCRIPTION:
                yield name, place, content[:place] + content[place + 1 :]


def numbers(policy: Policy) -> list[bytes]:
    """All of its numbers, bit by bit."""
    arrays = [*jax.tree.leaves(policy.network), *(policy.standardisation or ())]
    return [np.asarray(array).tobytes() for array in (*arrays, policy.energies)]


def words(policy: Policy) -> dict[str, Any]:
    """All that it is beside its numbers, by name."""
    return {
        "temperature": policy.temperature,
        "observation names": policy.observation_names,
        "action names": policy.action_names,
        "schema": policy.schema and policy.schema.as_json(),  # the values that fill gaps among it
        "provenance": policy.provenance,
    }


def fault(policy: Policy, original: Policy, seen: np.ndarray) -> str | None:
    """What is wrong with a policy that a changed file gave, if anything."""
    probabilities = policy.probabilities(seen)
    if probabilities.shape != (len(seen), len(original.action_names)):
        return f"probabilities of shape {probabilities.shape}"
    if not np.isfinite(probabilities).all():
        return f"probabilities that are not finite, at temperature {policy.temperature}"
    for name, value in words(original).items():
        if words(policy)[name] != value:
            return f"another {name}"
    return None if numbers(policy) == numbers(original) else "other weights"


def main() -> None:
    """Change, load, act, count."""
    source, copy = Path(sys.argv[1]), Path(sys.argv[2])
    good = {name: (source / name).read_bytes() for name in (DESCRIPTION, WEIGHTS)}
    original = Policy.load(source)
    seen = np.random.default_rng(0).normal(size=(3, len(original.observation_names))).astype(np.float32)
    original.probabilities(seen)
    shutil.copytree(source, copy)
    watch, counts, faults = Watch(), {"refused": 0, "loaded": 0}, list[str]()
    for name, place, content in changes(good):
        (copy / name).write_bytes(content)
        try:
            with watch:
                policy = Policy.load(copy)
                wrong = fault(policy, original, seen)
            counts["loaded"] += 1
        except UserError as error:
            counts["refused"] += 1
            wrong = None if len(str(error).splitlines()) == 1 else "more than one line"
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong or watch.events:
            faults.append(f"{name}, byte {place}: {wrong} {watch.events}")
            watch.events.clear()
        (copy / name).write_bytes(good[name])
    changed = {name: len(places(name, content)) for name, content in good.items()}
    print(json.dumps({**counts, "changed": changed, "faults": faults}))


if __name__ == "__main__":
    main()
