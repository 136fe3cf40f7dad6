"""sbil: learn a policy from recorded decisions alone - no reward, no simulator, no second try.

    data = sbil.read("stays.csv", episode="stay", time="hour", action="treatment")
    report = sbil.train("edm", data, held_out=0.2, calibrate=True)
    report.policy.act(x); report.policy.probabilities(x); report.save("policy/")

The public names are listed in `__init__.pyi`. Each is imported when it is first used, so that `import sbil` and
`sbil --help` do not wait for JAX.
"""

import re
from importlib import import_module
from typing import Any

with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _listed:
    _HOMES = {name: module for module, name in re.findall(r"(?m)^from (\S+) import (\w+) as \2$", _listed.read())}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "load":
        raise AttributeError("sbil.load is gone; use sbil.read, which reads every format")
    if name not in _HOMES:
        raise AttributeError(f"module 'sbil' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
