"""sbil algorithms: list the algorithms, their presets and settings."""

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sbil.cli.options import Printed

if TYPE_CHECKING:
    from sbil.algorithms import Entry

EXAMPLES = ("sbil algorithms", "sbil algorithms edm")
LEGEND = """\
auto: needs pairs; trains several of these, with several settings and networks, and keeps one policy

pairs: a state and the decision taken there. triples: what came next, too. trajectories: whole episodes. \
one-hot pairs: pairs whose states are numbered. numeric pairs: pairs whose states are rows of numbers, not images.
next: sbil algorithms NAME for its settings and their defaults"""
PORTFOLIO = """\
auto: trains {networks} networks with each of these methods, and keeps one policy
  {methods}
Each policy acts in a model of the dynamics that is learned from the same demonstrations. The policy that
stays nearest to the demonstrated states is kept. Without a model that can be trusted, held-out log-loss in
cross-validation chooses among the settings of bc. What it chooses is trained on everything.

Of a table, auto blends these methods, by how well they predict held-out decisions:
  {tables}"""


@dataclass(frozen=True, kw_only=True)
class Command(Printed):
    """List the algorithms, or the settings of one of them."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[ALGORITHM]")] = None
    """The algorithm whose settings to list."""


def run(command: Command) -> None:
    """Print the list, or one algorithm."""
    from sbil import algorithms
    from sbil.portfolio import AUTO, require_known

    require_known(command.name or AUTO)
    entries = {name: entry for name, entry in algorithms.ALGORITHMS.items() if command.name in (None, name)}
    found = (
        {AUTO: auto_as_json()} if command.name == AUTO else {name: as_json(entry) for name, entry in entries.items()}
    )
    if command.json:
        print(json.dumps(found))
    elif command.name == AUTO:
        auto = found[AUTO]
        lists = {name: "\n  ".join(auto[name]) for name in ("methods", "tables")}
        print(PORTFOLIO.format(networks=auto["networks"], **lists))
    elif command.name:
        show(command.name, found[command.name])
        show_settings(found[command.name])
    else:
        for name, described in found.items():
            show(name, described)
            print("  defaults: " + written({one["name"]: one["default"] for one in described["settings"]}))
        print(LEGEND)


def auto_as_json() -> dict[str, Any]:
    """What `auto` trains, as plain values."""
    from sbil.portfolio import CLASSIFIERS, NETWORKS, of_tables, portfolio

    methods, tables = (dict.fromkeys(one.name for one in made) for made in (portfolio(), of_tables()))
    found = {"methods": list(methods), "networks": NETWORKS, "tables": list(tables)}
    return {"needs": "pairs", **found, "classifiers": list(CLASSIFIERS)}


def as_json(entry: "Entry") -> dict[str, Any]:
    """An algorithm as plain values; a preset is what it changes."""
    from sbil.algorithms import settings_of

    presets = {name: settings_of(config) for name, config in entry.presets.items()}
    default = presets["default"]
    settings = [
        {"name": f.name, "default": default[f.name], "meaning": f.metadata["meaning"], "symbol": f.metadata["symbol"]}
        for f in fields(entry.config)
    ]
    return {
        "needs": entry.needs,
        "uses_states": entry.uses_states,
        "reference": entry.reference,
        "updates": {name: entry.budget(name) for name in presets},
        "presets": {
            preset: {name: value for name, value in settings.items() if value != default[name]}
            for preset, settings in presets.items()
        },
        "settings": settings,
    }


def show(name: str, described: dict[str, Any]) -> None:
    """What an algorithm needs, and its presets."""
    from sbil.text import counted

    needs = described["needs"] + (", and uses states without decisions" if described["uses_states"] else "")
    budgets = ", ".join(f"{preset} ({counted(updates, 'update')})" for preset, updates in described["updates"].items())
    print(f"{name}: needs {needs}; {described['reference']}\n  presets: {budgets}")


def show_settings(described: dict[str, Any]) -> None:
    """One line per setting, and one per preset that changes some."""
    for one in described["settings"]:
        symbol = f" ({one['symbol']})" if one["symbol"] else ""
        print(f"  {one['name']:20} {one['default']!s:10} {one['meaning']}{symbol}")
    for preset, changed in described["presets"].items():
        if changed:
            print(f"  --preset {preset}: {written(changed)}")


def written(settings: dict[str, Any]) -> str:
    """name=value, name=value."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())
