"""sbil show: what a policy folder holds."""

import json
from dataclasses import dataclass
from typing import Any

from sbil.cli.options import Folder, Printed

SIZES = {"trajectories": "episode", "steps": "decision"}
EXAMPLES = ("sbil show policy/", "sbil show policy/ --json")


@dataclass(frozen=True, kw_only=True)
class Command(Printed):
    """Show the network, the columns, the actions, the data and the settings of a policy, and check its folder."""

    policy: Folder


def run(command: Command) -> None:
    """Load, which checks everything, and print."""
    from sbil.policy import DESCRIPTION, Policy

    policy = Policy.load(command.policy)
    description = json.loads((command.policy / DESCRIPTION).read_bytes())
    if command.json:
        print(json.dumps(description))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from sbil.cli.tables import roomy

    grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts(policy, description).items():
        grid.add_row(Text(name, style="bold"), Text(value))
    roomy(Console()).print(grid)


def facts(policy: Any, description: dict[str, Any]) -> dict[str, str]:
    """One line per fact, by its name."""
    from sbil.policy.architecture import in_words

    made, schema = policy.provenance, policy.schema
    data, selection = made.get("data", {}), made.get("selection")
    settings = ", ".join(f"{name} {value}" for name, value in made.get("settings", {}).items())
    roles = {role: getattr(schema, role) for role in ("action", "episode", "time", "group")} if schema else {}
    lines = {
        "algorithm": " ".join(str(made.get(key, "")) for key in ("algorithm", "preset")).strip(),
        "settings": settings,
        "found by": selection.get("words", "") if isinstance(selection, dict) else "",
        "network": in_words(description["network"]),
        "observations": ", ".join(policy.observation_names) or f"images {policy.spec.observation_shape}",
        "actions": ", ".join(policy.action_names),
        "columns": ", ".join(f"{role}: {name}" for role, name in roles.items() if name),
        "standardised": "yes, inside the policy" if policy.standardisation else "no",
        "temperature": f"{policy.temperature:g}",
        "trained on": ", ".join(_count(data[key], word) for key, word in SIZES.items() if {*SIZES} <= {*data}),
        "data": data.get("sha256", ""),
        "seed": str(made.get("seed", "")),
        "sbil": made.get("sbil", ""),
        "weights": description["weights_sha256"],
    }
    return {name: str(value) for name, value in lines.items() if value}


def _count(number: Any, word: str) -> str:
    """1 episode, 2 episodes; the number comes from a folder, so it may be of any type."""
    return f"{number} {word}{'' if number == 1 else 's'}"
