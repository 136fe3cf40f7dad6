"""sbil algorithms: list the algorithms, their presets and settings."""

import json
from dataclasses import dataclass, fields
from typing import Annotated, Any

import tyro

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
    from sbil import algorithms

    chosen = {command.name: algorithms.get(command.name)} if command.name else algorithms.ALGORITHMS
    facts = {name: describe(entry) for name, entry in chosen.items()}
    if command.json:
        print(json.dumps(facts))
        return
    for name, fact in facts.items():
        needs = fact["needs"] + (", and uses states without decisions" if fact["uses_states"] else "")
        budgets = ", ".join(
            f"{preset} ({count:,} update{'s' * (count > 1)})" for preset, count in fact["updates"].items()
        )
        print(f"{name}: needs {needs}; {fact['reference']}\n  presets: {budgets}")
        if not command.name:
            defaults = ", ".join(f"{setting['name']}={setting['default']}" for setting in fact["settings"])
            print(f"  defaults: {defaults}")
        if command.name:
            for setting in fact["settings"]:
                symbol = f" ({setting['symbol']})" if setting["symbol"] else ""
                print(f"  {setting['name']:20} {setting['default']!s:10} {setting['meaning']}{symbol}")
            for preset, changes in fact["presets"].items():
                if changes:
                    print(f"  --preset {preset}: {', '.join(f'{key}={value}' for key, value in changes.items())}")
    if not command.name:
        print(
            "\npairs: a state and the decision taken there. triples: what came next, too. trajectories: whole episodes."
            " one-hot pairs: pairs whose states are numbered."
        )
        print("next: sbil algorithms NAME for its settings and their defaults")


def describe(entry: Any) -> dict[str, Any]:
    """An algorithm as plain values; a preset is what it changes."""
    from sbil.algorithms import settings_of

    default = settings_of(entry.presets["default"])
    presets = {
        name: {key: value for key, value in settings_of(config).items() if value != default[key]}
        for name, config in entry.presets.items()
    }
    settings = [
        {"name": f.name, "default": default[f.name], "meaning": f.metadata["meaning"], "symbol": f.metadata["symbol"]}
        for f in fields(entry.config)
    ]
    return {
        "needs": entry.needs,
        "uses_states": entry.uses_states,
        "reference": entry.reference,
        "updates": {name: entry.budget(name) for name in entry.presets},
        "presets": presets,
        "settings": settings,
    }
