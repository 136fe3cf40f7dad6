"""Versions and devices, for bug reports."""

import platform

import jax

from sbil import devices
from sbil.provenance import commit, versions


def info() -> dict[str, str]:
    """The versions of this package and its engine, the system, and the devices of JAX. No network is used."""
    kinds = ", ".join(sorted({device.device_kind for device in jax.devices()}))
    return {
        **versions(),
        "commit": commit() or "not known",
        "system": platform.platform(),
        "platform": jax.default_backend(),
        "devices": f"{kinds} x {devices.count()}",
    }
