"""The experts that ship: policies trained by reinforcement learning, each with a card that says how."""

import hashlib
from importlib import resources
from pathlib import Path

from sbil import environments
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


def get(name: str) -> Policy:
    """The demonstrator called `name`, for instance CartPole-v1-ppo."""
    if name not in names():
        raise unknown("demonstrator", name, names())
    return Policy.load(folder() / name)


def measured(environment: str) -> dict[str, list[str]]:
    """The demonstrators of an environment whose returns were measured there, with the modes of each."""
    found = environments.returns().get(environment, {}).get("demonstrators", {})
    return {name: list(modes) for name, modes in found.items()}


def suited(environment: str, name: str | None = None, policy: Policy | None = None) -> tuple[str, str] | None:
    """Return the demonstrator to show beside a policy, or to compare it with, as (name, mode); None if none ships.

    It is the one called `name`, else the one that `policy` learned from, else ppo, else the first. It plays as in the
    data of `policy` if it is the one of these data. Otherwise it draws its actions if it was measured so.
    """
    known = measured(environment)
    if name is not None and known and name not in known:
        raise unknown(f"demonstrator of {environment}", name, known)
    data = policy.provenance.get("data", {}).get("provenance", {}) if policy else {}
    learned = data.get("demonstrator") if data.get("environment") == environment else None
    chosen = next((one for one in (name, learned, "ppo", *known) if one in [*known]), None)
    if chosen is None:
        return None
    modes = [data.get("mode")] if chosen == learned else []
    return chosen, next(mode for mode in (*modes, "sampled", "greedy") if mode in known[chosen])


def fingerprint(name: str) -> str:
    """The SHA-256 of a demonstrator's weights."""
    get(name)
    return hashlib.sha256((folder() / name / WEIGHTS).read_bytes()).hexdigest()


__all__ = ["MODES", "collect", "fingerprint", "folder", "get", "measured", "names", "suited"]
