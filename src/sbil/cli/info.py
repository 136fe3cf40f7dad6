"""sbil info: versions and devices, for bug reports."""

import json
import platform
from dataclasses import dataclass
from importlib import metadata

EXAMPLES = (
    "sbil info",
    "sbil info --json",
)


@dataclass(frozen=True)
class Command:
    """Print versions and devices. No network is used, here or in any other command."""

    json: bool = False
    """Print as JSON."""


def run(command: Command) -> None:
    """Print."""
    from sbil import devices

    names = ("sbil", "jax", "jaxlib", "equinox", "optax", "numpy", "safetensors")
    facts = {
        **{name: metadata.version(name) for name in names},
        "python": platform.python_version(),
        "system": platform.platform(),
        **{f"device_{key}": value for key, value in devices.describe().items() if key != "jax"},
    }
    print(json.dumps(facts) if command.json else "\n".join(f"{name:16} {value}" for name, value in facts.items()))
