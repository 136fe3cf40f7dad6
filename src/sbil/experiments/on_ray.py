"""Groups of cells on a Ray cluster: every group is a task, and a lost worker or machine costs no result.

Ray is imported inside functions only: a plain install does not have it.
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

RETRIES = 5  # how often a group is run again whose worker or machine was lost
AHEAD = 2  # tasks sent per task that the cluster can run at once: every machine is busy, and memory stays flat
PAUSE = 5.0  # seconds between two looks at the cluster and the store while no task ends
PATIENCE = 5.0  # seconds within which a cluster has to answer
NOTED = Path("/tmp/ray/ray_current_cluster")  # where Ray keeps the address of the cluster this machine belongs to
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # keeps Ray from printing on our output when a worker is lost
    "RAY_task_oom_retries": str(RETRIES),  # else a group that no machine has the memory for is tried for ever
}
OBJECTS = 100 << 20  # bytes for the results on their way, in a Ray of our own


def on_ray(address: str | None = None) -> Execute:
    """Run groups on the Ray cluster at `address` ("auto": the one this machine belongs to), or on a Ray of our own.

    This process writes the store. A worker tells nothing before its group is done: `watch` hears that a group was
    sent. A connection to Ray that the caller has made already is used, and left.
    """
    ray = load()

    def execute(work: Sequence[list[Cell]], store: Store, watch: Watch | None = None) -> Iterator[list[Result]]:
        if work:
            with connected(ray, address):
                yield from run_groups(ray, work, store, watch)

    return execute


def load() -> Any:
    """Ray, with settings that it reads when it is imported; those that the user has made stay."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise UserError("the executor ray needs Ray; install it with: pip install 'sbil[ray]'") from None
    return ray


@contextmanager
def connected(ray: Any, address: str | None) -> Iterator[None]:
    """A connection to the cluster, ended with the block; with no address, a Ray that is ended as well."""
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
    """Keep the caller's handler of SIGTERM, which Ray replaces, and JAX quiet about processes that Ray starts."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            # The new processes run another program at once, and never touch what JAX warns of.
            warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
            yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def require_listener(address: str) -> None:
    """Refuse an address at which nothing listens; Ray itself would try for minutes."""
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
    """A task on its way: its cells, and the CPUs (or GPUs) it asked for."""

    cells: list[Cell]
    amount: int


def run_groups(
    ray: Any, work: Sequence[list[Cell]], store: Store, watch: Watch | None = None
) -> Iterator[list[Result]]:
    """The results of every group as they arrive; tasks that are left behind are cancelled."""
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
    """The CPUs or GPUs of every machine that is alive."""
    return [int(node["Resources"].get(kind, 0)) for node in ray.nodes() if node["Alive"]]


def environment(devices: int) -> dict[str, str]:
    """What JAX in a worker has to find before it starts, to give the bits that it gives here."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("JAX_")}
    variables["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in variables["XLA_FLAGS"]:
        variables["JAX_NUM_CPU_DEVICES"] = str(devices)
    return variables


def take_back(ray: Any, waiting: deque[list[Cell]], sent: dict[Any, Sent], amount: int) -> None:
    """Let tasks wait again that ask for more than any machine has, now that the largest is lost."""
    for reference, task in list(sent.items()):
        if 0 < amount < task.amount:
            ray.cancel(reference, force=True)
            waiting.appendleft(sent.pop(reference).cells)


def finished_elsewhere(ray: Any, sent: dict[Any, Sent], store: Store) -> Iterator[list[Result]]:
    """The results of tasks that another process, filling the same store, was faster with."""
    for reference, task in list(sent.items()):
        if found := store.load_all(task.cells):
            ray.cancel(reference, force=True)
            del sent[reference]
            yield found


def arrived(ray: Any, sent: dict[Any, Sent]) -> Iterator[list[Result]]:
    """Wait for a task to end, then the results of all that have; an error is raised when the others are safe."""
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
    """The results of a task that has ended; its mistakes are raised as they would be here."""
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
