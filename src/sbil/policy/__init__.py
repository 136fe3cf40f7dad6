"""A finished policy, its folder, its card, and its ONNX file.

The names are imported when they are first used, so that the guard can be checked without JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbil.dataset import Standardisation
    from sbil.policy.folder import DESCRIPTION, WEIGHTS
    from sbil.policy.policy import Policy

__all__ = ["DESCRIPTION", "WEIGHTS", "Policy", "Standardisation"]

_HOMES = {
    **dict.fromkeys(("DESCRIPTION", "WEIGHTS"), "sbil.policy.folder"),
    **{"Policy": "sbil.policy.policy", "Standardisation": "sbil.dataset"},
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sbil.policy' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
