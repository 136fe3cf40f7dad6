"""The algorithms. Each file of this folder defines one and holds its ENTRY; the package finds them."""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np

from sbil.algorithms.avril import AVRILConfig, avril
from sbil.algorithms.base import Algorithm, Entry, change, parse, plain, settings_of, written
from sbil.algorithms.bc import BCConfig, bc
from sbil.algorithms.classifiers import LogisticConfig, TreesConfig, logistic, trees
from sbil.algorithms.controls import MajorityConfig, RandomConfig, majority, random
from sbil.algorithms.dsfn import DSFNConfig, dsfn
from sbil.algorithms.edm import EDMConfig, edm
from sbil.algorithms.edm_exact import EDMExactConfig, edm_exact
from sbil.algorithms.edm_metropolis import EDMMetropolisConfig, edm_metropolis
from sbil.algorithms.edm_robust import EDMRobustConfig, edm_robust
from sbil.algorithms.iq_learn import IQLearnConfig, iq_learn
from sbil.algorithms.rcal import RCALConfig, rcal
from sbil.algorithms.table_network import TableNetworkConfig, table_network
from sbil.algorithms.tril import TRILConfig, tril
from sbil.algorithms.value_dice import ValueDICEConfig, value_dice
from sbil.algorithms.value_dice_exact import ValueDICEExactConfig, value_dice_exact
from sbil.dataset import Dataset
from sbil.errors import UserError, unknown

LARGEST = 1 << 24  # the largest whole number that a file may give to a setting
# The order of lists: first the paper's method and its variants, last the controls. Files that are not named here come
# after these, in the order of their names.
ORDER = (
    *("bc", "edm", "edm_robust", "edm_exact", "edm_metropolis", "rcal", "iq_learn", "avril"),
    *("value_dice", "value_dice_exact", "dsfn", "tril", "edm_imagined", "ckil", "corrective"),
    *("bc_regularised", "bc_ensemble", "bc_early_stopping", "classifiers", "table_network", "controls"),
)


def _found() -> dict[str, Entry]:
    """Return the entries of all files in this folder."""
    files = {module.name for module in pkgutil.iter_modules(__path__)}
    modules = [importlib.import_module(f"{__name__}.{name}") for name in (*ORDER, *sorted(files - {*ORDER, "base"}))]
    entries = [entry for module in modules for entry in getattr(module, "ENTRIES", None) or (module.ENTRY,)]
    return {entry.name: entry for entry in entries}


ALGORITHMS = _found()


def get(name: str) -> Entry:
    """Return the algorithm called `name`."""
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


def parse_words(name: str, words: Iterable[str]) -> dict[str, Any]:
    """Return settings of an algorithm, by name, from words such as batch=32; weight_decay=0/0.1/1 becomes a list."""
    return parse(get(name).config, words)


def configure(name: str, preset: str = "default", settings: Mapping[str, Any] = {}) -> Any:
    """Return the Config of an algorithm: a preset, with some settings changed."""
    entry = get(name)
    if not isinstance(preset, str) or preset not in entry.presets:
        raise unknown(f"preset of {name}", preset, entry.presets)
    return change(entry.presets[preset], settings)


def candidates(name: str, preset: str = "default", settings: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return every Config that the settings allow, by what distinguishes it: "weight_decay=0.1+hidden=8".

    settings: a value for each, or a list of values to choose from.
    """
    choices = {setting: value if isinstance(value, list) else [value] for setting, value in settings.items()}
    several = [setting for setting, values in choices.items() if len(values) > 1]
    found = {}
    for values in product(*choices.values()):
        config = configure(name, preset, dict(zip(choices, values, strict=True)))
        label = "+".join(f"{setting}={written(getattr(config, setting))}" for setting in several)
        found[label] = config
    if not found:
        empty = next(setting for setting, values in choices.items() if not values)
        raise UserError(f"The '{empty}' parameter of {name} is an empty list; give one value or several.")
    return found


def restored(name: str, settings: Mapping[str, Any]) -> Any:
    """Return the Config for settings that were read from a file. A setting that the file lacks has its default."""
    config, given = get(name).config, {}
    for setting, value in settings.items():
        if setting not in settings_of(config()):
            raise unknown(f"setting of {name}", setting, settings_of(config()))
        numbers = value if isinstance(value, list) else [value]
        if any(number is None or (type(number) is int and number > LARGEST) for number in numbers):
            raise UserError(f"The '{setting}' parameter of {name} must be a value, and at most {LARGEST} from a file.")
        given[setting] = tuple(value) if isinstance(value, list) else value
    return config(**given)


def updates_for(name: str, preset: str, configs: Iterable[Any], updates: int | None) -> int:
    """Return how many updates to make: those asked for, or the preset's number. Refuse more rounds than allowed."""
    entry = get(name)
    own = entry.budget(preset, list(configs))
    if entry.rounds and updates is not None and updates > own:
        raise UserError(
            f"one update of {name} is one round, and its settings allow {own} rounds. "
            f"Got {updates} updates; leave out the number of updates, or set rounds."
        )
    return own if updates is None else updates


def as_many(name: str, preset: str, updates: int | None) -> int | None:
    """Return how many updates BC makes when it is compared with another method that made `updates`.

    None (BC's default) if one update of this method is not one Adam step: a preset that asks for another number than
    BC's learns in rounds, counts, or trains for longer.
    """
    if name not in ALGORITHMS or preset not in ALGORITHMS[name].presets:
        return None
    return updates if ALGORITHMS[name].budget(preset) == ALGORITHMS["bc"].budget("default") else None


def installed(name: str) -> bool:
    """Whether what an algorithm needs beyond a plain install is there."""
    return not get(name).extra or find_spec(get(name).extra) is not None


def require(name: str, dataset: Dataset) -> None:
    """Refuse data that the algorithm called `name` cannot use, for any of the dataset's runs."""
    entry = get(name)
    needs = entry.needs
    if not installed(name):
        raise UserError(f"{name} needs {entry.extra}; install it with: pip install 'sbil[{entry.extra}]'")
    _must_weigh(name, dataset)
    pool, rows = dataset.pool, dataset.labelled
    mask = np.arange(rows.indices.shape[-1]) < np.asarray(rows.size)[..., None]
    steps = np.asarray(rows.indices)
    others = ", ".join(other for other, entry in ALGORITHMS.items() if entry.needs == "pairs")
    if needs == "numeric pairs" and pool.images:
        raise UserError(
            f"{name} needs numeric pairs: it learns from rows of numbers, and these states are images; use one that "
            f"needs pairs ({others})."
        )
    if needs == "one-hot pairs" and not one_hot(dataset):
        raise UserError(
            f"{name} needs one-hot pairs: a state must be one of finitely many, a row of zeros and a single 1; give "
            f"the state as one category, one-hot and not standardised, or use one that needs pairs ({others})."
        )
    if needs in ("triples", "trajectories") and not (np.asarray(pool.known)[steps] & mask).any(axis=-1).all():
        raise UserError(
            f"{name} needs triples: not one of the steps to learn from has its next state recorded or is the true "
            f"end of an episode; record what followed each decision, or use one that needs pairs ({others})."
        )
    trajectory = np.asarray(pool.trajectory)[steps]
    follows = (trajectory[..., 1:] == trajectory[..., :-1]) & mask[..., 1:]
    if needs == "trajectories" and not follows.any(axis=-1).all():
        raise UserError(
            f"{name} needs trajectories: no two of the steps to learn from follow each other in one; give whole "
            f"episodes, or use one that needs pairs ({others})."
        )
    if needs == "quadruples" and not (follows & (steps[..., 1:] == steps[..., :-1] + 1)).any(axis=-1).all():
        raise UserError(
            f"{name} needs quadruples: after not one of the steps to learn from is the very next step to be learned "
            f"from too; give whole episodes and leave out thinning, or use one that needs pairs ({others})."
        )


def _must_weigh(name: str, dataset: Dataset) -> None:
    """Refuse decisions of different weight if the algorithm lets all count the same."""
    if dataset.pool.weight is not None and not get(name).weighs:
        able = ", ".join(other for other, entry in ALGORITHMS.items() if entry.weighs)
        raise UserError(
            f"{name} lets all decisions count the same; leave out weights and balance (--weights, --balance), or use "
            f"one that can weigh them ({able})."
        )


def one_hot(dataset: Dataset) -> bool:
    """Whether every state that the dataset's runs learn from is a row of zeros and a single 1."""
    pool, (steps, sizes), (others, counts) = dataset.pool, dataset.labelled, dataset.unlabelled
    if pool.images:
        return False

    def used(rows: Any, size: Any) -> np.ndarray:
        return np.asarray(rows)[np.arange(rows.shape[-1]) < np.asarray(size)[..., None]]

    rows = np.union1d(np.asarray(pool.row)[used(steps, sizes)], used(others, counts))
    states = np.asarray(pool.observations)[rows]
    return bool((((states == 1).sum(axis=1) == 1) & ((states != 0).sum(axis=1) == 1)).all())


__all__ = [
    "ALGORITHMS", "AVRILConfig", "Algorithm", "BCConfig", "DSFNConfig", "EDMConfig", "EDMExactConfig",
    "EDMMetropolisConfig", "EDMRobustConfig", "Entry", "IQLearnConfig", "LogisticConfig", "MajorityConfig",
    "RCALConfig", "RandomConfig", "TRILConfig", "TableNetworkConfig", "TreesConfig", "ValueDICEConfig",
    "ValueDICEExactConfig", "avril", "bc", "candidates", "configure", "dsfn", "edm", "edm_exact", "edm_metropolis",
    "edm_robust", "get", "installed", "iq_learn", "logistic", "majority", "one_hot", "parse_words", "plain", "random",
    "rcal", "require", "settings_of", "table_network", "trees", "tril", "updates_for", "value_dice", "value_dice_exact",
]  # fmt: skip
