"""The candidates of `auto`: methods of which each does best somewhere, with several networks each."""

from collections.abc import Iterable, Mapping
from typing import Any

from sbil import algorithms
from sbil.algorithms.base import written
from sbil.dataset import Dataset
from sbil.demonstrations import Demonstrations
from sbil.errors import UserError, unknown
from sbil.selection import Candidate

AUTO = "auto"
NETWORKS = 3  # initialisations of each method
METHODS: tuple[tuple[str, str, dict[str, Any]], ...] = (  # algorithm, preset, settings
    ("bc", "default", {}),
    *(("bc", "default", {"weight_decay": decay}) for decay in (0.1, 0.3, 1.0, 3.0)),
    ("bc", "default", {"hidden": (64,), "weight_decay": 1.0}),
    ("bc", "default", {"hidden": (16, 16), "weight_decay": 1.0}),
    ("bc", "default", {"hidden": (128, 128)}),
    ("bc", "default", {"hidden": (128, 128), "weight_decay": 1.0}),
    ("edm", "released", {}),
    ("edm_robust", "default", {}),
    ("rcal", "default", {}),
    *(("edm_imagined", "rollouts", {"weight_decay": decay} if decay else {}) for decay in (0.0, 0.1, 1.0)),
)
CLASSIFIERS = ("logistic", "trees")  # of tables; they compete only where held-out decisions choose
TABLES: tuple[tuple[str, str, dict[str, Any]], ...] = (  # what is blended on tables
    *((name, "default", {}) for name in (*CLASSIFIERS, "table_network")),
    ("bc", "default", {"weight_decay": 1.0}),
    ("edm", "released", {}),
)


def require_known(algorithm: object) -> None:
    """Refuse what is neither `auto` nor the name of an algorithm."""
    if algorithm not in (known := [AUTO, *algorithms.ALGORITHMS]):
        raise unknown("algorithm", algorithm, known)


def chooses_itself(given: str) -> UserError:
    """Return the error for a setting, or a preset, that is given to `auto`."""
    return UserError(f"auto chooses settings itself. Got {given}; leave it out, or name an algorithm.")


def portfolio(networks: int = NETWORKS, updates: int | None = None) -> list[Candidate]:
    """Return every method with each of its initialisations. updates: the same for all (default: of their presets)."""
    made = [_candidate(*method, updates) for method in METHODS]
    return [one._replace(network=number) for one in made for number in range(networks)]


def of_tables(updates: int | None = None) -> list[Candidate]:
    """Return the methods that are blended on tables. updates: of those that learn by as many as they are given."""
    return [_candidate(*method, _granted(method[0], updates)) for method in TABLES]


def left_out() -> str:
    """Say which methods of tables are left out because a package is not installed, or nothing."""
    missing = [name for name, _, _ in TABLES if not algorithms.installed(name)]
    if not missing:
        return ""
    extras = ",".join(dict.fromkeys(algorithms.get(name).extra for name in missing))
    return f"{' and '.join(missing)} left out: not installed (pip install 'sbil[{extras}]')"


def _granted(algorithm: str, updates: int | None) -> int | None:
    """Return how many updates a method of tables makes if others make `updates`; None: its own number."""
    entry = algorithms.get(algorithm)
    own = entry.budget("default")
    return None if updates is None else min(updates, own) if entry.rounds or own == 1 else updates


def _candidate(algorithm: str, preset: str, settings: Mapping[str, Any], updates: int | None) -> Candidate:
    config = algorithms.plain(algorithms.configure(algorithm, preset, settings))
    made = algorithms.updates_for(algorithm, preset, [config], updates)
    return Candidate(algorithm, config, made, _name(algorithm, preset, settings))


def classifiers_beside(demonstrations: Demonstrations) -> list[str]:
    """Return the names of the classifiers that a policy is compared with: for tables, those that are installed."""
    return [name for name in CLASSIFIERS if demonstrations.schema and algorithms.installed(name)]


def usable(candidates: Iterable[Candidate], dataset: Dataset) -> list[Candidate]:
    """Return the candidates that can learn from the data: some need to know what followed each decision."""
    candidates = list(candidates)
    fit = {name for name in {candidate.algorithm for candidate in candidates} if _fits(name, dataset)}
    return [candidate for candidate in candidates if candidate.algorithm in fit]


def _name(algorithm: str, preset: str, settings: Mapping[str, Any]) -> str:
    name = algorithm if preset == "default" else f"{algorithm}:{preset}"
    return "+".join((name, *(f"{setting}={written(value)}" for setting, value in settings.items())))


def _fits(algorithm: str, dataset: Dataset) -> bool:
    try:
        algorithms.require(algorithm, dataset)
    except UserError:
        return False
    return True
