"""Facts about algorithms: the data they need, their presets and their settings."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from sbil import algorithms
from sbil.algorithms import Entry, settings_of


@dataclass(frozen=True)
class SettingFacts:
    """A setting: its name, its default, its meaning, and its symbol in the paper."""

    name: str
    default: Any
    meaning: str
    symbol: str


@dataclass(frozen=True)
class AlgorithmFacts:
    """An algorithm.

    needs: "pairs", "triples", "trajectories" or "one-hot pairs".
    uses_states: whether it also learns from states without a decision.
    updates: how many each preset asks for.
    presets: what each preset changes.
    """

    needs: str
    uses_states: bool
    reference: str
    updates: dict[str, int]
    presets: dict[str, dict[str, Any]]
    settings: tuple[SettingFacts, ...]

    def as_json(self) -> dict[str, Any]:
        """The facts as plain values."""
        return asdict(self)


def describe_algorithms(name: str | None = None) -> dict[str, AlgorithmFacts]:
    """The facts of every algorithm, or of the one called `name`."""
    chosen = {name: algorithms.get(name)} if name else algorithms.ALGORITHMS
    return {name: _facts(entry) for name, entry in chosen.items()}


def _facts(entry: Entry) -> AlgorithmFacts:
    default = settings_of(entry.presets["default"])
    presets = {
        name: {key: value for key, value in settings_of(config).items() if value != default[key]}
        for name, config in entry.presets.items()
    }
    settings = (
        SettingFacts(field.name, default[field.name], field.metadata["meaning"], field.metadata["symbol"])
        for field in fields(entry.config)
    )
    updates = {name: entry.budget(name) for name in entry.presets}
    return AlgorithmFacts(entry.needs, entry.uses_states, entry.reference, updates, presets, tuple(settings))
