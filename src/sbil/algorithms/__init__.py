"""The algorithms, one file each, and their names."""

from typing import Any

from sbil.algorithms import bc as _bc
from sbil.algorithms import edm as _edm
from sbil.algorithms.base import Algorithm, Entry, parse_settings, settings_of
from sbil.algorithms.bc import BCConfig, bc
from sbil.algorithms.edm import EDMConfig, edm
from sbil.errors import unknown

ALGORITHMS: dict[str, Entry] = {
    "bc": Entry(bc, BCConfig, _bc.PRESETS, "pairs", "Pomerleau (1991)"),
    "edm": Entry(edm, EDMConfig, _edm.PRESETS, "pairs", "Jarrett, Bica and van der Schaar (2020)"),
}


def get(name: str) -> Entry:
    """The algorithm called `name`."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


def configure(name: str, preset: str = "default", settings: tuple[str, ...] = ()) -> Any:
    """The Config of an algorithm: a named preset, with settings changed as name=value."""
    entry = get(name)
    if preset not in entry.presets:
        raise unknown(f"preset of {name}", preset, entry.presets)
    return parse_settings(entry.presets[preset], settings)


__all__ = [
    "ALGORITHMS", "Algorithm", "BCConfig", "EDMConfig", "Entry", "bc", "configure", "edm", "get", "settings_of",
]  # fmt: skip
