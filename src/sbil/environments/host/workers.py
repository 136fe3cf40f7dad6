"""Worker processes, one per core. They start when they are first needed and end with this process.

They are plain child processes that speak over their input and output. Unlike those of multiprocessing they do not
import the main script again. So a script needs no guard, and workers can be used from `python -c`, from an installed
command and from a notebook.
"""

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, cast

from sbil.environments.host.messages import Message, receive, send
from sbil.errors import UserError

VARIABLE = "SBIL_WORKERS"
# A worker looks for modules where its parent does.
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from sbil.environments.host.worker import main; main()"
)
# There is one worker per core, so threads inside the workers would compete for the same cores.
ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "BLIS_NUM_THREADS"), "1"
)
ATTEMPTS = 2  # how often a unit is tried when its worker dies


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count() -> int:
    """How many worker processes play at once: SBIL_WORKERS, or one per core."""
    given = os.environ.get(VARIABLE)
    if given is None:
        return cores()
    if not (given.isascii() and given.isdecimal() and int(given) >= 1):
        raise UserError(f"the environment variable {VARIABLE} must be a whole number from 1. Got '{given}'.")
    return int(given)


def search_path() -> list[str]:
    """Return the folders in which this process looks for modules."""
    return [str(path) for path in sys.path]


class Worker:
    """One worker process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, json.dumps(search_path())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ONE_THREAD,
            # Ctrl-C goes to the parent only, which ends its workers itself.
            process_group=0 if os.name == "posix" else None,
        )
        self.pid = self._process.pid
        self._input = cast(BinaryIO, self._process.stdin)
        self._output = cast(BinaryIO, self._process.stdout)

    def ask(self, unit: Message) -> Message:
        """The answer to a unit; raise EOFError if the worker dies."""
        try:
            send(self._input, unit)
            return receive(self._output)
        except (OSError, ValueError):  # the pipe is broken, or closed on this side
            raise EOFError from None

    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once; a caller that waits for its answer gets EOFError."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Let the process end, and wait for that."""
        with contextlib.suppress(OSError):
            self._input.close()  # the process ends when its input does
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
        self._output.close()


_idle: deque[Worker] = deque()


@atexit.register
def close() -> None:
    """End all workers; later calls start new ones."""
    while _idle:
        _idle.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a forked process must not talk to the workers of its parent


def _waiting() -> Worker | None:
    """An idle worker; those that have died are removed."""
    with contextlib.suppress(IndexError):  # another thread may be faster
        while True:
            worker = _idle.pop()
            if worker.alive():
                return worker
            worker.close()
    return None


class _Stopped(Exception):
    """No more work may be started."""


class _Deal:
    """Hands units to workers, so that all of them can be stopped at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[Worker] = set()
        self._stopped = False

    def answer(self, unit: Message) -> Message:
        for _ in range(ATTEMPTS):
            with self._lock:
                if self._stopped:
                    raise _Stopped
                worker = _waiting() or Worker()
                self._busy.add(worker)
            try:
                answer = worker.ask(unit)
            except EOFError:
                answer = None
            with self._lock:
                self._busy.discard(worker)
            if answer:
                _idle.append(worker)
                return answer
            worker.kill()
            worker.close()
        raise UserError(
            f"a worker process died {ATTEMPTS} times over the same episodes of {unit.header['name']}, perhaps for lack "
            f"of memory; set {VARIABLE} to use fewer workers."
        )

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for worker in self._busy:
                worker.kill()


def deal(units: Sequence[Message]) -> list[Message]:
    """The answers to all units, in their order; each goes to the next worker that is free."""
    threads = max(min(count(), len(units)), 1)
    dealer = _Deal()
    with ThreadPoolExecutor(threads, thread_name_prefix="sbil-worker") as pool:
        try:
            futures = [pool.submit(dealer.answer, unit) for unit in units]
            answers = [_checked(unit, future.result()) for unit, future in zip(units, futures, strict=True)]
        except BaseException:  # Ctrl-C too
            dealer.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return answers


def _checked(unit: Message, answer: Message) -> Message:
    if "mistake" in answer.header:
        raise UserError(answer.header["mistake"])
    if "failure" in answer.header:
        raise RuntimeError(f"{unit.header['name']} failed in a worker process:\n{answer.header['failure']}")
    return answer
