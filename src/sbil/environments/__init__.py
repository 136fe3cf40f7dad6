"""Environments in which finished policies play, and the returns that were measured there.

Each file of this folder that defines an environment holds it as ENVIRONMENT; `known` finds them. Worker processes
import this package and must start without JAX, so nothing heavy is imported at the top.
"""

import importlib
import json
import pkgutil
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from sbil.errors import UserError, unknown

if TYPE_CHECKING:
    from sbil.dataset import Spec
    from sbil.environments.base import Environment, HostEnvironment, JaxEnvironment

# The order of lists. A file that is not named here comes after these, by name.
ORDER = ("cartpole", "acrobot", "lunar_lander", "beam_rider", "icu_sepsis")


@cache
def known() -> "dict[str, JaxEnvironment | HostEnvironment]":
    """The environments of this folder, by name."""
    files = [module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in (*ORDER, *sorted({*files} - {*ORDER}))]
    found = [module.ENVIRONMENT for module in modules if hasattr(module, "ENVIRONMENT")]
    return {environment.name: environment for environment in found}


def get(name: "str | JaxEnvironment | HostEnvironment") -> "JaxEnvironment | HostEnvironment":
    """The environment called `name`: a known one, or one that is registered with gymnasium. An environment is kept."""
    if not isinstance(name, str):
        return name
    if name in known():
        return known()[name]
    from sbil.environments.registered import from_gymnasium, registry

    others = registry()
    if name not in others and (not others or get_close_matches(name, known())):
        more = "" if others else ' Others need gymnasium: pip install "sbil[envs]".'
        raise UserError(f"{unknown('environment', name, known())}{more}")
    return from_gymnasium(name)


def must_fit(environment: "Environment", policy: "Spec") -> None:
    """Refuse a policy that is made for other observations or actions than those of the environment."""

    def seen(spec: "Spec") -> str:
        shape = spec.observation_shape
        return f"{shape[0]} numbers" if len(shape) == 1 else f"images of {' x '.join(map(str, shape))}"

    if policy != environment.spec:
        raise UserError(
            f"the policy sees {seen(policy)} and has {policy.actions} actions; {environment.name} shows "
            f"{seen(environment.spec)} and takes {environment.spec.actions}; give the environment it was trained for."
        )


@cache
def returns() -> dict[str, Any]:
    """Measured returns by environment: of random policies and of the demonstrators (returns.json)."""
    text = resources.files("sbil.environments").joinpath("returns.json").read_text()
    return json.loads(text)["environments"]


def scale(environment: str, demonstrator: str, mode: str) -> tuple[float, float]:
    """(random, demonstrator): the returns that scaled scores call 0 and 1."""
    if environment not in returns():
        raise UserError(
            f"no returns have been measured in {environment}, so there is no scale for scores; "
            f"there is one for: {', '.join(sorted(returns()))}."
        )
    measured = returns()[environment]
    if demonstrator not in measured["demonstrators"]:
        raise unknown(f"demonstrator of {environment}", demonstrator, measured["demonstrators"])
    if mode not in measured["demonstrators"][demonstrator]:
        raise UserError(f"the demonstrator {demonstrator} of {environment} has no mode '{mode}'.")
    return measured["random network"]["mean"], measured["demonstrators"][demonstrator][mode]["mean"]
