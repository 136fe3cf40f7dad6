"""The machine of a measurement, and how busy it was."""

import importlib.util
import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import sbil.devices  # noqa: F401 - gives JAX one CPU device per core, before JAX looks for devices
from sbil.version import __version__

PACKAGES = ("jax", "jaxlib", "numpy", "equinox", "optax", "torch", "gymnasium")


def facts() -> dict[str, Any]:
    """The machine and the packages, as plain values."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": cores(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "sbil": __version__,
        "packages": {name: version(name) for name in PACKAGES},
        "jax device": jax_device(),
        "load before": load(),
    }


def jax_device() -> dict[str, Any]:
    """What JAX computes on here, and how many devices of it there are to spread runs over."""
    device = jax.local_devices()[0]
    return {"platform": device.platform, "kind": device.device_kind, "devices": jax.local_device_count()}


def cpu_model() -> str:
    """Return the name of the processor, if the system has it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float | None:
    """Mean number of busy processes over the last minute, or None if the system does not have it."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def version(package: str) -> str | None:
    """The installed version of a package, or None; the package is not imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def has(module: str) -> bool:
    """Whether a module can be imported; it is not imported."""
    return importlib.util.find_spec(module) is not None
