"""The experts that ship: policies trained by reinforcement learning, each with a card that says how."""

import hashlib
from importlib import resources
from pathlib import Path

from sbil.demonstrators.collect import collect
from sbil.errors import unknown
from sbil.policy import WEIGHTS, Policy

MODES = ("greedy", "sampled")


def folder() -> Path:
    """Return the folder of the shipped demonstrators: one policy folder each, named ENVIRONMENT-ALGORITHM."""
    return Path(str(resources.files("sbil.demonstrators").joinpath("weights")))


def names() -> list[str]:
    """The demonstrators that ship."""
    return sorted(path.name for path in folder().iterdir() if path.is_dir())


def of(environment: str) -> list[str]:
    """The demonstrators of an environment, for instance dqn and ppo."""
    return [name.removeprefix(f"{environment}-") for name in names() if name.startswith(f"{environment}-")]


def get(name: str) -> Policy:
    """The demonstrator called `name`, for instance CartPole-v1-ppo."""
    if name not in names():
        raise unknown("demonstrator", name, names())
    return Policy.load(folder() / name)


def fingerprint(name: str) -> str:
    """The SHA-256 of a demonstrator's weights."""
    get(name)
    return hashlib.sha256((folder() / name / WEIGHTS).read_bytes()).hexdigest()


__all__ = ["MODES", "collect", "fingerprint", "folder", "get", "names", "of"]
