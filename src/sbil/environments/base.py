"""What an environment is: a task in which finished policies play. Nothing here is ever used to train or select one.

Worker processes import this module and must start without JAX, so JAX is imported for the types alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Array, PRNGKeyArray

    from sbil.dataset import Spec


@dataclass(frozen=True, eq=False)
class Environment:
    """What is the same for environments of every kind."""

    name: str
    spec: Spec
    time_limit: int
    observation_names: tuple[str, ...]  # none for images
    action_names: tuple[str, ...]
    stack: int = field(default=0, kw_only=True)  # frames in an observation; 0: observations are rows of numbers
    # Episodes that are collected for an experiment; each of its draws takes some of them.
    demonstrations: int = field(default=200, kw_only=True)
    check: Callable[[], object] = field(default=lambda: None, kw_only=True)  # refuse if a needed package is missing


@dataclass(frozen=True, eq=False)
class JaxEnvironment(Environment):
    """An environment in JAX: pure functions of one episode; vmap makes many of them.

    reset:   key -> state
    observe: state -> observation
    step:    (state, action) -> (state, reward, terminal); the caller keeps the time limit
    """

    reset: Callable[[PRNGKeyArray], Any]
    observe: Callable[[Any], Array]
    step: Callable[[Any, Array], tuple[Any, Array, Array]]


class Recorded(NamedTuple):
    """What was seen and done in one episode."""

    observations: np.ndarray  # [T + 1, ...]; for images, single frames in uint8
    actions: np.ndarray  # [T]
    terminal: bool  # False: the time limit ended the episode


class Played(NamedTuple):
    """What R policies reached in E episodes each."""

    returns: np.ndarray  # [R, E], float64
    episodes: list[list[Recorded]]  # [R][E]; empty if nothing was recorded


class Play(Protocol):
    """Play on the host: stacked networks (leading axis R) and the seed of every episode [R, E] -> Played."""

    def __call__(self, networks: Any, seeds: np.ndarray, *, greedy: bool, record: bool = False) -> Played: ...


@dataclass(frozen=True, eq=False)
class HostEnvironment(Environment):
    """An environment whose simulator runs outside JAX."""

    play: Play
