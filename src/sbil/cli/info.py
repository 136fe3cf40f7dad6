"""sbil info: versions and devices, for bug reports."""

import json
import platform
from dataclasses import dataclass

from sbil.cli.options import Printed

EXAMPLES = ("sbil info", "sbil info --json")


@dataclass(frozen=True)
class Command(Printed):
    """Print versions and devices. No command uses the network, except with --executor ray."""


def run(command: Command) -> None:
    """Print."""
    import jax

    from sbil import devices
    from sbil.cli import programs
    from sbil.provenance import commit, versions

    facts = {
        **versions(),
        "commit": commit() or "not known",
        "system": platform.platform(),
        "platform": jax.default_backend(),
        "programs": str(programs.home() or "not kept"),
        "devices": f"{', '.join(sorted({device.device_kind for device in jax.devices()}))} x {devices.count()}",
    }
    print(json.dumps(facts) if command.json else "\n".join(f"{name:16} {value}" for name, value in facts.items()))
