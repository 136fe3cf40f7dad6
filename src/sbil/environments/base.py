"""What an environment in JAX is: pure functions of one episode; vmap gives as many as wanted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, PRNGKeyArray

from sbil.dataset import Spec


@dataclass(frozen=True, eq=False)
class Environment:
    """A task to score finished policies in; nothing here is ever used to train or select one.

    reset:   key -> state
    observe: state -> observation
    step:    (state, action) -> (state, reward, terminal); the time limit is kept by whoever plays
    """

    name: str
    spec: Spec
    time_limit: int
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    reset: Callable[[PRNGKeyArray], Any]
    observe: Callable[[Any], Array]
    step: Callable[[Any, Array], tuple[Any, Array, Array]]
