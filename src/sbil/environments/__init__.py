"""Environments to score finished policies in, and what a random policy and the demonstrators reach there."""

import json
from functools import cache
from importlib import resources
from typing import Any

from sbil.environments.acrobot import ACROBOT
from sbil.environments.base import Environment, HostEnvironment
from sbil.environments.cartpole import CARTPOLE
from sbil.errors import UserError, unknown

ENVIRONMENTS: dict[str, Environment | HostEnvironment] = {env.name: env for env in (CARTPOLE, ACROBOT)}


def get(name: str) -> Environment | HostEnvironment:
    """The environment called `name`."""
    if name not in ENVIRONMENTS:
        raise unknown("environment", name, ENVIRONMENTS)
    return ENVIRONMENTS[name]


@cache
def returns() -> dict[str, Any]:
    """Measured returns by environment: of random policies and of the demonstrators (returns.json)."""
    text = resources.files("sbil.environments").joinpath("returns.json").read_text()
    measured: dict[str, Any] = json.loads(text)["environments"]
    return measured


def scale(environment: str, demonstrator: str, mode: str) -> tuple[float, float]:
    """(random, demonstrator): the returns that scaled scores call 0 and 1."""
    measured = returns()[environment]
    if demonstrator not in measured["demonstrators"]:
        raise unknown(f"demonstrator of {environment}", demonstrator, measured["demonstrators"])
    if mode not in measured["demonstrators"][demonstrator]:
        raise UserError(f"the demonstrator {demonstrator} of {environment} has no mode '{mode}'.")
    return measured["random network"]["mean"], measured["demonstrators"][demonstrator][mode]["mean"]


__all__ = ["ENVIRONMENTS", "Environment", "HostEnvironment", "get", "returns", "scale"]
