"""sbil: learn a policy from recorded decisions alone - no reward, no simulator, no second try.

    demonstrations = sbil.read("demonstrations.npz")
    policy = sbil.fit("edm", demonstrations, seed=0)
    policy.act(x); policy.probabilities(x); policy.energy(x); policy.save("policy/")

Names are imported when they are first used, so that `import sbil` and `sbil --help` do not wait for JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sbil.errors import UserError
from sbil.version import __version__

if TYPE_CHECKING:
    from sbil.dataset import Dataset, Spec, make_dataset, spec_of
    from sbil.demonstrations import Demonstrations, Trajectory, check, read, save
    from sbil.evaluation import Policies, play
    from sbil.fitting import fit
    from sbil.policy import Policy
    from sbil.training import train_many, train_one

_HOMES = {
    "Dataset": "sbil.dataset",
    "Spec": "sbil.dataset",
    "make_dataset": "sbil.dataset",
    "spec_of": "sbil.dataset",
    "Demonstrations": "sbil.demonstrations",
    "Trajectory": "sbil.demonstrations",
    "check": "sbil.demonstrations",
    "read": "sbil.demonstrations",
    "save": "sbil.demonstrations",
    "Policies": "sbil.evaluation",
    "play": "sbil.evaluation",
    "fit": "sbil.fitting",
    "Policy": "sbil.policy",
    "train_one": "sbil.training",
    "train_many": "sbil.training",
}


def __getattr__(name: str) -> Any:
    if name == "load":
        raise AttributeError("sbil.load is gone; use sbil.read, which reads every format")
    if name not in _HOMES:
        raise AttributeError(f"module 'sbil' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


__all__ = [
    "Dataset",
    "Demonstrations",
    "Policies",
    "Policy",
    "Spec",
    "Trajectory",
    "UserError",
    "__version__",
    "check",
    "fit",
    "make_dataset",
    "play",
    "read",
    "save",
    "spec_of",
    "train_many",
    "train_one",
]
