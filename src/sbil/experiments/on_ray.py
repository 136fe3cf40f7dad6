"""Groups of cells on a Ray cluster. Every group is one Ray task; if a worker or a machine is lost, no result is lost.

Ray is imported inside functions only, because a plain install does not have it.
"""

import logging
import os
import signal
import socket
import textwrap
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

from sbil.errors import UserError
from sbil.experiments.result import Result, results_in
from sbil.experiments.run import Execute, Watch, announce, run_cells
from sbil.experiments.store import Store, packed, unpacked
from sbil.experiments.task import Cell

RETRIES = 5  # how often a group is run again if its worker or machine is lost
AHEAD = 2  # tasks sent per task that the cluster can run at once: every machine is busy, and memory stays flat
PAUSE = 5.0  # seconds between two looks at the cluster and the store while no task ends
PATIENCE = 5.0  # seconds that a cluster has for its answer
NOTED = Path("/tmp/ray/ray_current_cluster")  # in this file Ray notes the address of this machine's cluster
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # keeps Ray from printing on our output when a worker is lost
    "RAY_task_oom_retries": str(RETRIES),  # without it, Ray never gives up a group that is too large for any machine
}
OBJECTS = 100 << 20  # bytes for results in transit, if we start Ray ourselves


def on_ray(address: str | None = None) -> Execute:
    """Run groups on the Ray cluster at `address` ("auto": this machine's cluster). Without an address, start Ray here.

    This process writes the store. A worker reports only when its group is done, so `watch` hears only that a group was
    sent. If the caller is connected to Ray already, that connection is used and stays open.
    """
    ray = load()

    def execute(work: Sequence[list[Cell]], store: Store, watch: Watch | None = None) -> Iterator[list[Result]]:
        if work:
            with connected(ray, address):
                yield from run_groups(ray, work, store, watch)

    return execute


def load() -> Any:
    """Import Ray. It reads its settings during the import; settings of the user have priority."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise UserError("the executor ray needs Ray; install it with: pip install 'sbil[ray]'") from None
    return ray


@contextmanager
def connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect to the cluster for the length of the block. Without an address, start Ray and end it after the block."""
    if ray.is_initialized():
        yield
        return
    if address:
        require_listener(address)
    where: dict[str, Any] = {"address": address} if address else {"address": "local", "object_store_memory": OBJECTS}
    try:
        with as_before():
            ray.init(**where, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        ray.shutdown()
        tried = f"join the Ray cluster at {address}" if address else "start Ray"
        raise UserError(f"could not {tried}: {one_line(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def as_before() -> Iterator[None]:
    """Keep the caller's handler of SIGTERM, which Ray replaces. Silence JAX's warning about the processes of Ray."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            # The new processes run another program at once, so the deadlock that JAX warns of cannot happen.
            warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
            yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def require_listener(address: str) -> None:
    """Refuse an address at which nothing listens. Ray itself would try for minutes."""
    if address == "auto":
        noted = NOTED.read_text().strip() if os.access(NOTED, os.R_OK) else ""
        address = os.environ.get("RAY_ADDRESS") or noted
        if not address:
            return  # Ray looks for a cluster on this machine, and says at once if there is none
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise UserError(f"address must be auto or host:port, as in 10.0.0.1:6379. Got '{address}'.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError, UnicodeError):
        raise UserError(
            f"no Ray cluster answers at {address}; start one with `ray start --head`, or give the address it printed."
        ) from None


class Sent(NamedTuple):
    """A task that was sent: its cells, and how many CPUs (or GPUs) it needs."""

    cells: list[Cell]
    amount: int


def run_groups(
    ray: Any, work: Sequence[list[Cell]], store: Store, watch: Watch | None = None
) -> Iterator[list[Result]]:
    """Yield the results of every group as they arrive. At the end, cancel the tasks that are left."""
    devices = jax.local_device_count() if jax.default_backend() == "cpu" else 1
    kind = "GPU" if any(machines(ray, "GPU")) and os.environ.get("JAX_PLATFORMS") != "cpu" else "CPU"
    most = 1 if kind == "GPU" else devices
    if not any(machines(ray, kind)):
        raise UserError("the Ray cluster has no CPUs; add a machine to it with `ray start --address=...`.")
    options = {"max_retries": RETRIES, "runtime_env": {"env_vars": environment(devices)}}
    task = ray.remote(run_group)
    waiting, sent = deque(work), dict[Any, Sent]()
    try:
        while waiting or sent:
            sizes = machines(ray, kind)
            amount = min(most, max(sizes, default=0))
            take_back(ray, waiting, sent, amount)
            yield from finished_elsewhere(ray, sent, store)
            while waiting and amount and len(sent) < AHEAD * sum(size // amount for size in sizes):
                group = waiting.popleft()
                if found := store.load_all(group):
                    yield found
                    continue
                asking = task.options(**options, **{f"num_{kind.lower()}s": amount})
                sent[asking.remote(group)] = Sent(group, amount)
                announce(group, watch)
            yield from arrived(ray, sent)
    finally:
        for reference in sent:
            ray.cancel(reference, force=True)


def machines(ray: Any, kind: str) -> list[int]:
    """Return the number of CPUs or GPUs of every machine that is alive."""
    return [int(node["Resources"].get(kind, 0)) for node in ray.nodes() if node["Alive"]]


def environment(devices: int) -> dict[str, str]:
    """Return the environment variables with which JAX in a worker gives the same bits as here."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("JAX_")}
    variables["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in variables["XLA_FLAGS"]:
        variables["JAX_NUM_CPU_DEVICES"] = str(devices)
    return variables


def take_back(ray: Any, waiting: deque[list[Cell]], sent: dict[Any, Sent], amount: int) -> None:
    """After the largest machine was lost: cancel tasks that need more than any machine has, and queue them again."""
    for reference, task in list(sent.items()):
        if 0 < amount < task.amount:
            ray.cancel(reference, force=True)
            waiting.appendleft(sent.pop(reference).cells)


def finished_elsewhere(ray: Any, sent: dict[Any, Sent], store: Store) -> Iterator[list[Result]]:
    """Yield the results that another process has put into the same store meanwhile, and cancel their tasks."""
    for reference, task in list(sent.items()):
        if found := store.load_all(task.cells):
            ray.cancel(reference, force=True)
            del sent[reference]
            yield found


def arrived(ray: Any, sent: dict[Any, Sent]) -> Iterator[list[Result]]:
    """Wait until a task ends, and yield the results of all that have ended. Raise an error only after the others."""
    if not sent:
        time.sleep(PAUSE)
        return
    ready, _ = ray.wait(list(sent), timeout=PAUSE)
    if ready:
        ready, _ = ray.wait(list(sent), num_returns=len(sent), timeout=0)
    failures: list[Exception] = []
    for reference in ready:
        cells = sent.pop(reference).cells
        try:
            results = fetch(ray, reference, cells)
        except (UserError, ray.exceptions.RayError) as error:
            failures.append(error)
        else:
            yield results
    if failures:
        raise failures[0]


def fetch(ray: Any, reference: Any, cells: Sequence[Cell]) -> list[Result]:
    """Return the results of a task that has ended. Raise its errors as if it had run here."""
    try:
        results = list(results_in(unpacked(ray.get(reference))))
    except ray.exceptions.RayTaskError as error:
        raise UserError(str(error.cause)) if isinstance(error.cause, UserError) else error from None
    except ray.exceptions.RayError as error:
        more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
        raise UserError(
            f"Ray gave up {cells[0]}{more} ({one_line(error)}); what is finished is kept, and the same command goes on."
        ) from None
    for cell, result in zip(cells, results, strict=True):
        if (cell, cell.fingerprint) != (result.cell, result.fingerprint):
            raise UserError(
                f"a worker with sbil {result.made_by.get('sbil')} ran something else than {cell}; "
                "install the same version of sbil on every machine."
            )
    # The cells that come back have no data, because they were read from a file. The cells that were sent have data.
    return [replace(result, cell=cell) for cell, result in zip(cells, results, strict=True)]


def one_line(error: Exception) -> str:
    """The kind of an error and the beginning of what it says."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", 160, placeholder=" ...")


def run_group(cells: list[Cell]) -> bytes:
    """What a worker does."""
    return packed(run_cells(cells))
