"""The devices that runs are spread over: every GPU, or one JAX device per CPU core."""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def prepare() -> None:
    """Give JAX one CPU device per core, unless JAX has started or the user has set a number."""
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    if "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    # RuntimeError: JAX has started; AttributeError: this system cannot count its cores. Then one device is enough.
    with contextlib.suppress(RuntimeError, AttributeError):
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def over_runs(runs: int) -> Mesh:
    """Return the devices that `runs` runs are spread over, as a mesh: all, or one per run if there are fewer runs."""
    return Mesh(np.array(jax.local_devices()[:runs]), ("runs",))


def count() -> int:
    """Return the number of devices."""
    return jax.local_device_count()


def memory() -> int:
    """Return the bytes to plan with: most of a GPU's memory, or half of the main memory for all CPU devices."""
    if stats := jax.local_devices()[0].memory_stats():
        return int(0.8 * stats["bytes_limit"])
    if not hasattr(os, "sysconf"):
        return 4 << 30
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


RUNS = PartitionSpec("runs")
SHARED = PartitionSpec()


def spread(tree: Any, runs: int) -> Any:
    """Spread a tree over the devices along the first axis of its leaves, the runs.

    The last run is repeated until the runs divide evenly. Drop the entries beyond `runs` afterwards.
    """
    devices = over_runs(runs)
    rows = np.minimum(np.arange(-(-runs // devices.size) * devices.size), runs - 1)
    padded = jax.tree.map(lambda leaf: leaf[rows], tree) if len(rows) > runs else tree
    return jax.device_put(padded, NamedSharding(devices, RUNS))


def gather(tree: Any, runs: int) -> Any:
    """Undo `spread`: bring the first `runs` entries of every leaf onto one device.

    On several CPU devices the host copies the shards. A slice of a spread array would be one collective program per
    leaf, and when many of these run at once they can wait for each other until XLA ends the process.
    """
    if jax.default_backend() != "cpu":
        return jax.tree.map(lambda leaf: leaf[:runs], tree)
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[:runs]), tree)


def share(tree: Any, runs: int) -> Any:
    """Copy a tree onto every device that `runs` runs are spread over."""
    return jax.device_put(tree, NamedSharding(over_runs(runs), SHARED))


def in_batches(function: Callable[[Any], Any], args: Any, most: int) -> Any:
    """Map a function over the first axis of `args`, at most `most` entries at once.

    All batches have one size; the last is filled up with entries from the beginning. The batches of `lax.map` may leave
    a remainder, and the XLA of JAX 0.11 cannot compile for a GPU how the two parts are joined.
    """
    total = len(jax.tree.leaves(args)[0])
    batches = -(-total // most)
    rows = jnp.arange(batches * -(-total // batches)) % total
    batched = jax.tree.map(lambda leaf: leaf[rows.reshape(batches, -1)], args)
    found = jax.lax.map(jax.vmap(function), batched)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:total], found)


def describe(runs: int) -> dict[str, Any]:
    """Describe what `runs` runs are computed on: XLA may round differently for another number of runs or devices."""
    device = jax.local_devices()[0]
    return {
        "platform": device.platform,
        "kind": device.device_kind,
        "devices": over_runs(runs).size,
        "runs_per_program": runs,
        "matmul_precision": jax.config.values["jax_default_matmul_precision"] or "default",
        "jax": jax.__version__,
    }


prepare()
