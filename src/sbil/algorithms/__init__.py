"""The algorithms, one file each, and their names."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np

from sbil.algorithms import bc as _bc
from sbil.algorithms import controls as _controls
from sbil.algorithms import dsfn as _dsfn
from sbil.algorithms import edm as _edm
from sbil.algorithms import edm_exact as _edm_exact
from sbil.algorithms import edm_metropolis as _edm_metropolis
from sbil.algorithms import edm_robust as _edm_robust
from sbil.algorithms import rcal as _rcal
from sbil.algorithms import tril as _tril
from sbil.algorithms import value_dice as _value_dice
from sbil.algorithms import value_dice_exact as _value_dice_exact
from sbil.algorithms.base import Algorithm, Entry, parse_settings, settings_of
from sbil.algorithms.bc import BCConfig, bc
from sbil.algorithms.controls import MajorityConfig, RandomConfig, majority, random
from sbil.algorithms.dsfn import DSFNConfig, dsfn
from sbil.algorithms.edm import EDMConfig, edm
from sbil.algorithms.edm_exact import EDMExactConfig, edm_exact
from sbil.algorithms.edm_metropolis import EDMMetropolisConfig, edm_metropolis
from sbil.algorithms.edm_robust import EDMRobustConfig, edm_robust
from sbil.algorithms.rcal import RCALConfig, rcal
from sbil.algorithms.tril import TRILConfig, tril
from sbil.algorithms.value_dice import ValueDICEConfig, value_dice
from sbil.algorithms.value_dice_exact import ValueDICEExactConfig, value_dice_exact
from sbil.dataset import Dataset
from sbil.errors import UserError, unknown

JARRETT = "Jarrett, Bica and van der Schaar (2020)"
LEE = "Lee, Srinivasan and Doshi-Velez (2019)"
KOSTRIKOV = "Kostrikov, Nachum and Tompson (2020)"
LARGEST = 1 << 24  # whole number that a file may have for a setting
ALGORITHMS: dict[str, Entry] = {
    "bc": Entry(bc, BCConfig, _bc.PRESETS, "pairs", "Pomerleau (1991)"),
    "edm": Entry(edm, EDMConfig, _edm.PRESETS, "pairs", JARRETT, uses_states=True),
    "edm_robust": Entry(edm_robust, EDMRobustConfig, _edm_robust.PRESETS, "pairs", JARRETT, uses_states=True),
    "edm_exact": Entry(
        edm_exact, EDMExactConfig, _edm_exact.PRESETS, "one-hot pairs", f"{JARRETT}, without samples", uses_states=True
    ),
    "edm_metropolis": Entry(
        edm_metropolis, EDMMetropolisConfig, _edm_metropolis.PRESETS, "one-hot pairs", JARRETT, uses_states=True
    ),
    "rcal": Entry(rcal, RCALConfig, _rcal.PRESETS, "triples", "Piot, Geist and Pietquin (2014)"),
    "value_dice": Entry(value_dice, ValueDICEConfig, _value_dice.PRESETS, "triples", KOSTRIKOV, _value_dice.UPDATES),
    "value_dice_exact": Entry(value_dice_exact, ValueDICEExactConfig, _value_dice_exact.PRESETS, "triples", KOSTRIKOV),
    "dsfn": Entry(dsfn, DSFNConfig, _dsfn.PRESETS, "trajectories", LEE, _dsfn.UPDATES, chunk=1),
    "tril": Entry(tril, TRILConfig, _tril.PRESETS, "triples", LEE, _tril.UPDATES),
    "majority": Entry(majority, MajorityConfig, _controls.MAJORITY_PRESETS, "pairs", "control", _controls.UPDATES),
    "random": Entry(random, RandomConfig, _controls.RANDOM_PRESETS, "pairs", "control", _controls.UPDATES),
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


def candidates(name: str, preset: str = "default", settings: tuple[str, ...] = ()) -> dict[str, Any]:
    """All Configs that the settings allow, values being separated by slashes, by what is particular to each."""
    words = [word.partition("=") for word in settings]
    names = [setting for setting, _, _ in words]
    for setting in names:
        if names.count(setting) > 1:
            raise UserError(f"--set {setting} is given {names.count(setting)} times; give it once.")
    choices = [[f"{setting}{equals}{value}" for value in values.split("/")] for setting, equals, values in words]
    found = {}
    for choice in product(*choices):
        particular = [word for word, others in zip(choice, choices, strict=True) if len(others) > 1]
        found["+".join(particular)] = configure(name, preset, choice)
    return found


def restored(name: str, settings: Mapping[str, Any]) -> Any:
    """The Config with settings that were read from a file; what is not told is as by default."""
    config, told = get(name).config, {}
    for setting, value in settings.items():
        if setting not in settings_of(config()):
            raise unknown(f"setting of {name}", setting, settings_of(config()))
        numbers = value if isinstance(value, list) else [value]
        if any(number is None or (type(number) is int and number > LARGEST) for number in numbers):
            raise UserError(f"The '{setting}' parameter of {name} must be a value, and at most {LARGEST} from a file.")
        told[setting] = tuple(value) if isinstance(value, list) else value
    return config(**told)


def updates_for(name: str, preset: str, configs: Iterable[Any], updates: int | None) -> int:
    """The updates to make: those asked for, or the preset's own number. More rounds than there are, are refused."""
    entry, configs = get(name), list(configs)
    if updates is None:
        return entry.budget(preset, configs)
    if any(hasattr(config, "rounds") for config in configs) and updates > entry.budget(preset, configs):
        raise UserError(
            f"one update of {name} is one of its rounds, of which its settings allow {entry.budget(preset, configs)}. "
            f"Got {updates} updates; leave them out, or set rounds."
        )
    return updates


def as_many(name: str, preset: str, updates: int | None) -> int | None:
    """The updates for BC beside a method that made so many; none, BC's own, where an update is no step of Adam alike.

    That is where the preset asks for another number than BC's: rounds, tables that are counted, a longer training.
    """
    if name not in ALGORITHMS or preset not in ALGORITHMS[name].presets:
        return None
    own, theirs = (updates_for(*one, [configure(*one, ())], None) for one in (("bc", "default"), (name, preset)))
    return updates if own == theirs else None


def require(name: str, dataset: Dataset) -> None:
    """Refuse data that the algorithm called `name` cannot use, for any of the dataset's runs."""
    needs = get(name).needs
    pool, rows = dataset.pool, dataset.labelled
    mask = np.arange(rows.indices.shape[-1]) < np.asarray(rows.size)[..., None]
    steps = np.asarray(rows.indices)
    others = ", ".join(other for other, entry in ALGORITHMS.items() if entry.needs == "pairs")
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
    "ALGORITHMS", "Algorithm", "BCConfig", "DSFNConfig", "EDMConfig", "EDMExactConfig", "EDMMetropolisConfig",
    "EDMRobustConfig", "Entry", "MajorityConfig", "RCALConfig", "RandomConfig", "TRILConfig", "ValueDICEConfig",
    "ValueDICEExactConfig", "bc", "candidates", "configure", "dsfn", "edm", "edm_exact", "edm_metropolis",
    "edm_robust", "get", "majority", "one_hot", "random", "rcal", "require", "settings_of", "tril", "updates_for",
    "value_dice", "value_dice_exact",
]  # fmt: skip
