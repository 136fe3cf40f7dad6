"""Environments to score finished policies in, and what a random policy and the demonstrators reach there."""

import json
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any

from sbil.dataset import Spec
from sbil.environments.acrobot import ACROBOT
from sbil.environments.base import Environment, HostEnvironment, Task
from sbil.environments.beam_rider import BEAM_RIDER
from sbil.environments.cartpole import CARTPOLE
from sbil.environments.gymnasium_task import LUNAR_LANDER, from_gymnasium, registry
from sbil.environments.icu_sepsis import ICU_SEPSIS
from sbil.errors import UserError, unknown

ENVIRONMENTS: dict[str, Environment | HostEnvironment] = {
    env.name: env for env in (CARTPOLE, ACROBOT, LUNAR_LANDER, BEAM_RIDER, ICU_SEPSIS)
}


def get(name: str) -> Environment | HostEnvironment:
    """The environment called `name`: one of ENVIRONMENTS, or one registered with gymnasium where that is installed."""
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    others = registry()
    if name not in others and (not others or get_close_matches(name, ENVIRONMENTS)):
        wrong = unknown("environment", name, ENVIRONMENTS)
        more = "" if others else ' Others need gymnasium: pip install "sbil[envs]".'
        raise UserError(f"{wrong}{more}")
    return from_gymnasium(name)


def require(name: str) -> None:
    """Refuse an environment that cannot be played here, naming what to install."""
    get(name).check()


def must_fit(environment: Task, policy: Spec) -> None:
    """Refuse a policy that is not made for what an environment shows and takes."""

    def seen(spec: Spec) -> str:
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
    measured: dict[str, Any] = json.loads(text)["environments"]
    return measured


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


__all__ = ["ENVIRONMENTS", "Environment", "HostEnvironment", "get", "must_fit", "require", "returns", "scale"]
