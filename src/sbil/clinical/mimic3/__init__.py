"""MIMIC-III v1.4 to demonstrations: what was done for patients in intensive care, day by day.

Names are imported when they are first used, so that the rules can be read without DuckDB.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbil.clinical.mimic3.extraction import extract


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sbil.clinical.mimic3' has no attribute '{name}'")
    return getattr(import_module("sbil.clinical.mimic3.extraction"), name)


__all__ = ["extract"]
