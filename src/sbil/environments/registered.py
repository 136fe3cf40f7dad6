"""Any environment that is registered with gymnasium, played in worker processes."""

from difflib import get_close_matches
from functools import cache, partial
from typing import Any

from sbil.dataset import Spec
from sbil.environments.base import HostEnvironment
from sbil.environments.host import gym, lockstep
from sbil.errors import UserError, unknown


@cache
def from_gymnasium(name: str) -> HostEnvironment:
    """The environment registered with gymnasium as `name`: rows of numbers in, one of n actions out."""
    spec = _registered(name)
    limit = spec.max_episode_steps
    if limit is None:
        raise UserError(f"{name} has no time limit, so an episode might never end; register it with max_episode_steps.")
    description = _description(spec)
    environment = lockstep.make(name)
    features = _features(name, environment.observation_space)
    actions = _actions(name, environment.action_space)
    environment.close()
    return HostEnvironment(
        name=name,
        spec=Spec((features,), actions),
        time_limit=limit,
        observation_names=tuple(f"observation {number}" for number in range(features)),
        action_names=tuple(f"action {number}" for number in range(actions)),
        play=partial(gym.play, name, spec=description),
        check=partial(lockstep.check, name, description),
    )


def registry() -> dict[str, Any]:
    """What is registered with gymnasium, by name; empty if gymnasium is not installed."""
    try:
        import gymnasium
    except ImportError:
        return {}
    return gymnasium.registry


def _registered(name: str) -> Any:
    """Return the registration of a name. This imports no module, because a name may come from a file."""
    known = registry()
    if not known:
        raise UserError(lockstep.MISSING)
    if name in known:
        return known[name]
    if get_close_matches(name, known, cutoff=0.5):
        raise unknown("environment", name, known)
    raise UserError(f"unknown environment '{name}'; import the package that registers it with gymnasium first.")


def _description(spec: Any) -> str | None:
    """The registration as JSON, for workers, which import nothing but gymnasium."""
    if callable(spec.entry_point) or str(spec.entry_point).startswith("__main__"):
        raise UserError(
            f"{spec.id} is registered in a way that worker processes cannot repeat; "
            "register it with entry_point='module:Class', in a module that can be imported."
        )
    try:
        return spec.to_json()
    except (TypeError, ValueError):  # JSON cannot hold its arguments; perhaps the workers know the name
        return None


def _features(name: str, space: Any) -> int:
    from gymnasium.spaces import Box

    if not isinstance(space, Box):
        raise UserError(f"observations must be rows of numbers (Box). {name} has {type(space).__name__}.")
    if len(space.shape) != 1:
        kind = "images" if len(space.shape) in (2, 3) else "arrays"
        raise UserError(f"observations must be rows of numbers. {name} shows {kind} of shape {space.shape}.")
    return int(space.shape[0])


def _actions(name: str, space: Any) -> int:
    from gymnasium.spaces import Discrete

    if not isinstance(space, Discrete):
        kind = "continuous actions (Box)" if type(space).__name__ == "Box" else f"{type(space).__name__} actions"
        raise UserError(f"actions must be one of a few (Discrete). {name} has {kind}.")
    if space.start != 0:
        raise UserError(f"actions must be numbered from 0. Those of {name} start at {space.start}.")
    return int(space.n)
