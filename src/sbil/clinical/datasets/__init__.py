"""The datasets that `sbil reproduce` knows by name.

Each file of this folder that defines datasets holds them as DATASETS; `known` finds them.
"""

import importlib
import pkgutil
from functools import cache

from sbil.clinical.datasets.base import Asked, Known, Opened
from sbil.errors import unknown

# The order of lists. A file that is not named here comes after these, by name.
ORDER = ("mimic3", "physionet2012", "icu_sepsis")


@cache
def known() -> dict[str, Known]:
    """The datasets of this folder, by name."""
    files = {module.name for module in pkgutil.iter_modules(__path__)}
    modules = [importlib.import_module(f"{__name__}.{name}") for name in (*ORDER, *sorted(files - {*ORDER}))]
    return {dataset.name: dataset for module in modules for dataset in getattr(module, "DATASETS", ())}


def get(name: str) -> Known:
    """The dataset called `name`."""
    if name not in known():
        raise unknown("dataset", name, known())
    return known()[name]


__all__ = ["Asked", "Known", "Opened", "get", "known"]
