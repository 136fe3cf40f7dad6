"""sbil algorithms: list the algorithms, their presets and settings."""

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sbil.cli.options import Printed

if TYPE_CHECKING:
    from sbil.algorithms import Entry

EXAMPLES = (
    "sbil algorithms",
    "sbil algorithms edm",
)


@dataclass(frozen=True, kw_only=True)
class Command(Printed):
    """List the algorithms, or the settings of one of them."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[ALGORITHM]")] = None
    """The algorithm whose settings to list."""


def run(command: Command) -> None:
    """Print the list, or one algorithm."""
    from sbil import algorithms

    entries = {command.name: algorithms.get(command.name)} if command.name else algorithms.ALGORITHMS
    if command.json:
        print(json.dumps({name: as_json(entry) for name, entry in entries.items()}))
        return
    for name, entry in entries.items():
        show(name, entry)
        if command.name:
            show_settings(entry)
        else:
            print("  defaults: " + written(changes(entry, None)))
    if not command.name:
        print(
            "\npairs: a state and the decision taken there. triples: what came next, too. trajectories: whole episodes."
            " one-hot pairs: pairs whose states are numbered."
        )
        print("next: sbil algorithms NAME for its settings and their defaults")


def changes(entry: "Entry", preset: str | None) -> dict[str, Any]:
    """The settings that a preset changes; all settings of the default without one."""
    from sbil.algorithms import settings_of

    default = settings_of(entry.presets["default"])
    if preset is None:
        return default
    return {name: value for name, value in settings_of(entry.presets[preset]).items() if value != default[name]}


def as_json(entry: "Entry") -> dict[str, Any]:
    """An algorithm as plain values; a preset is what it changes."""
    default = changes(entry, None)
    settings = [
        {"name": f.name, "default": default[f.name], "meaning": f.metadata["meaning"], "symbol": f.metadata["symbol"]}
        for f in fields(entry.config)
    ]
    return {
        "needs": entry.needs,
        "uses_states": entry.uses_states,
        "reference": entry.reference,
        "updates": {name: entry.budget(name) for name in entry.presets},
        "presets": {name: changes(entry, name) for name in entry.presets},
        "settings": settings,
    }


def show(name: str, entry: "Entry") -> None:
    """What an algorithm needs, and its presets."""
    from sbil.text import counted

    needs = entry.needs + (", and uses states without decisions" if entry.uses_states else "")
    budgets = ", ".join(f"{preset} ({counted(entry.budget(preset), 'update')})" for preset in entry.presets)
    print(f"{name}: needs {needs}; {entry.reference}\n  presets: {budgets}")


def show_settings(entry: "Entry") -> None:
    """One line per setting, and one per preset that changes some."""
    default = changes(entry, None)
    for field in fields(entry.config):
        symbol = f" ({field.metadata['symbol']})" if field.metadata["symbol"] else ""
        print(f"  {field.name:20} {default[field.name]!s:10} {field.metadata['meaning']}{symbol}")
    for preset in entry.presets:
        if changed := changes(entry, preset):
            print(f"  --preset {preset}: {written(changed)}")


def written(settings: dict[str, Any]) -> str:
    """name=value, name=value."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())
