"""What the numbers were measured on, and how busy it was."""

import importlib.util
import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from sbil import devices
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
        "jax device": devices.describe(),
        "load before": load(),
    }


def cpu_model() -> str:
    """The name of the processor, as far as the system tells it."""
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
    """Mean number of busy processes over the last minute, or None where the system does not tell."""
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
