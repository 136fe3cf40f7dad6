"""The devices that runs are spread over: every GPU, or one JAX device a CPU core."""

import contextlib
import os
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def prepare() -> None:
    """Give JAX one CPU device a core, unless it has started already or the user has set a number."""
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    if "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    # RuntimeError: JAX runs already; AttributeError: this system cannot tell its cores. One device does then.
    with contextlib.suppress(RuntimeError, AttributeError):
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


@cache
def mesh() -> Mesh:
    """All local devices in a row called "runs"."""
    return Mesh(np.array(jax.local_devices()), ("runs",))


RUNS = PartitionSpec("runs")
SHARED = PartitionSpec()


def spread(tree: Any) -> Any:
    """Put a tree whose leaves have the runs as first axis onto the devices, a share each."""
    return jax.device_put(tree, NamedSharding(mesh(), RUNS))


def share(tree: Any) -> Any:
    """Put a copy of a tree onto every device."""
    return jax.device_put(tree, NamedSharding(mesh(), SHARED))


def padded(count: int) -> int:
    """`count` rounded up to a multiple of the number of devices."""
    devices = mesh().size
    return -(-count // devices) * devices


def describe() -> dict[str, Any]:
    """What the numbers were computed on, for provenance."""
    device = jax.local_devices()[0]
    return {
        "platform": device.platform,
        "kind": device.device_kind,
        "devices": mesh().size,
        "jax": jax.__version__,
    }


prepare()
