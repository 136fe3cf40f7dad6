"""A worker process: it reads units of work from its input, plays them, and writes the results to its output.

It ends as soon as its input ends, also in the middle of a unit. So no worker outlives the process that started it.
"""

import contextlib
import os
import queue
import sys
import threading
import traceback
from typing import BinaryIO

import numpy as np

from sbil.environments.host import lockstep
from sbil.environments.host.messages import Message, receive, send
from sbil.errors import UserError


def main() -> None:
    """Serve until the input ends."""
    commands, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What an environment prints must not be mixed with the answers, and it must not read the commands.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    with contextlib.suppress(OSError):  # there may be nowhere to write errors to
        os.dup2(2, 1)
    units: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(commands, units), daemon=True).start()
    with contextlib.suppress(OSError):  # nobody reads any more
        while True:
            send(answers, _answer(units.get()))


def _listen(commands: BinaryIO, units: "queue.SimpleQueue[Message]") -> None:
    try:
        while True:
            units.put(receive(commands))
    except (EOFError, OSError):
        os._exit(0)


def _answer(unit: Message) -> Message:
    try:
        return _play(unit)
    except UserError as error:
        return Message({"mistake": str(error)}, [])
    except Exception:
        _steppers.clear()  # their state is unknown now
        return Message({"failure": traceback.format_exc()}, [])


_steppers: dict[tuple[str, str | None], list[lockstep.Stepper]] = {}  # kept from one unit to the next


def _play(unit: Message) -> Message:
    header = unit.header
    seeds, *arrays = unit.arrays
    weights = arrays.pop() if len(arrays) % 2 else None
    sys.path[:] = header["path"]
    steppers = _steppers.setdefault((header["name"], header["spec"]), [])
    while len(steppers) < len(seeds):
        steppers.append(lockstep.stepper(lockstep.make(header["name"], header["spec"])))
    returns, recorded = lockstep.play(
        steppers[: len(seeds)],
        list(zip(arrays[::2], arrays[1::2], strict=True)),
        header["activation"],
        seeds.tolist(),
        weights=weights,
        temperature=header.get("temperature", 1.0),
        greedy=header["greedy"],
        record=header["record"],
    )
    if not recorded:
        return Message({}, [returns])
    columns = [np.concatenate([r.observations for r in recorded]), np.concatenate([r.actions for r in recorded])]
    lengths = np.array([len(r.actions) for r in recorded], np.int64)
    return Message({"terminal": [r.terminal for r in recorded]}, [returns, *columns, lengths])
