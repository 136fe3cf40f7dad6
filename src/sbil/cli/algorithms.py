"""sbil algorithms: list the algorithms, their presets and settings."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from sbil.api.algorithms import AlgorithmFacts

EXAMPLES = (
    "sbil algorithms",
    "sbil algorithms edm",
)


@dataclass(frozen=True)
class Command:
    """List the algorithms, or the settings of one of them."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[ALGORITHM]")] = None
    """The algorithm whose settings to list."""
    json: bool = False
    """Print as JSON."""


def run(command: Command) -> None:
    """Print the list, or one algorithm."""
    from sbil.api.algorithms import describe_algorithms

    found = describe_algorithms(command.name)
    if command.json:
        print(json.dumps({name: facts.as_json() for name, facts in found.items()}))
        return
    for name, facts in found.items():
        show(name, facts)
        if command.name:
            show_settings(facts)
        else:
            print("  defaults: " + ", ".join(f"{setting.name}={setting.default}" for setting in facts.settings))
    if not command.name:
        print(
            "\npairs: a state and the decision taken there. triples: also the next state. trajectories: whole episodes."
            " one-hot pairs: pairs with numbered states."
        )
        print("next: sbil algorithms NAME for its settings and their defaults")


def show(name: str, facts: "AlgorithmFacts") -> None:
    """Return what an algorithm needs, and its presets."""
    from sbil.text import counted

    needs = facts.needs + (", and uses states without decisions" if facts.uses_states else "")
    budgets = ", ".join(f"{preset} ({counted(count, 'update')})" for preset, count in facts.updates.items())
    print(f"{name}: needs {needs}; {facts.reference}\n  presets: {budgets}")


def show_settings(facts: "AlgorithmFacts") -> None:
    """Return one line per setting, and one per preset that changes settings."""
    for setting in facts.settings:
        symbol = f" ({setting.symbol})" if setting.symbol else ""
        print(f"  {setting.name:20} {setting.default!s:10} {setting.meaning}{symbol}")
    for preset, changes in facts.presets.items():
        if changes:
            print(f"  --preset {preset}: {', '.join(f'{key}={value}' for key, value in changes.items())}")
