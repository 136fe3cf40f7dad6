"""sbil info: versions and devices, for bug reports."""

import json
from dataclasses import dataclass

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
    from sbil.api.info import info

    facts = info()
    print(json.dumps(facts) if command.json else "\n".join(f"{name:16} {value}" for name, value in facts.items()))
