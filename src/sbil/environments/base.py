"""What an environment is: a task to score finished policies in. Nothing here is ever used to train or select one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from jaxtyping import Array, PRNGKeyArray

from sbil.dataset import Spec
from sbil.host.played import Played


@dataclass(frozen=True, eq=False)
class Task:
    """What is the same for environments of every kind."""

    name: str
    spec: Spec
    time_limit: int
    observation_names: tuple[str, ...]  # none for images
    action_names: tuple[str, ...]
    demonstrations: int = field(
        default=200, kw_only=True
    )  # collected for an experiment; its draws are taken from these


@dataclass(frozen=True, eq=False)
class Environment(Task):
    """An environment in JAX: pure functions of one episode; vmap gives as many as wanted.

    reset:   key -> state
    observe: state -> observation
    step:    (state, action) -> (state, reward, terminal); the time limit is kept by whoever plays
    """

    reset: Callable[[PRNGKeyArray], Any]
    observe: Callable[[Any], Array]
    step: Callable[[Any, Array], tuple[Any, Array, Array]]
    check: Callable[[], None] = lambda: None  # refuses where what it needs is not installed


class Play(Protocol):
    """Plays on the host: stacked networks (leading axis R), one seed an episode [R, E] -> Played."""

    def __call__(self, networks: Any, seeds: np.ndarray, *, greedy: bool, record: bool = False) -> Played: ...


@dataclass(frozen=True, eq=False)
class HostEnvironment(Task):
    """An environment of a simulator outside JAX."""

    play: Play
    check: Callable[[], None]  # refuses where the simulator is not installed
    stack: int = 0  # how many frames make an observation; 0: observations are rows of numbers
