"""The probabilities that a policy or a baseline gives recorded decisions; every metric is computed from them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.policy import Policy

LARGE = 2**21  # decisions from which on probabilities are kept in float32
CHUNK = 2**25  # bytes of observations that are looked at together


class Decided(NamedTuple):
    """The probabilities that a policy or a baseline gives recorded decisions; row i is one decision."""

    probabilities: np.ndarray  # [n, actions]; the most probable action is the one chosen
    actions: np.ndarray  # [n], the actions that were taken
    episodes: np.ndarray  # [n], the episode of each decision, or its group: these units are resampled whole
    folds: np.ndarray | None = None  # [n], the number of the policy that judged each decision; None if there is one

    @property
    def chosen(self) -> np.ndarray:
        """[n], the most probable actions."""
        return self.probabilities.argmax(axis=1)

    @property
    def right(self) -> np.ndarray:
        """[n], whether the most probable action is the one taken."""
        return self.chosen == self.actions


def decided(policy: Policy, demonstrations: Demonstrations, thin: int = 1, thin_offset: int = 0) -> Decided:
    """The probabilities that a policy gives to the actions at every recorded decision."""
    must_match(policy, demonstrations)
    steps = demonstrations.decisions(thin, thin_offset)
    rows = len(steps.action)
    kind = np.float32 if rows > LARGE else np.float64
    probabilities, done = np.empty((rows, len(policy.action_names)), kind), 0
    for observations in observed(demonstrations, thin, thin_offset):
        part = softmax(policy.logits(observations), policy.temperature)
        probabilities[done : done + len(part)] = part
        done += len(part)
    return Decided(probabilities, steps.action, units(demonstrations, steps.trajectory))


def observed(demonstrations: Demonstrations, thin: int = 1, thin_offset: int = 0) -> Iterator[np.ndarray]:
    """Yield the observations of all decisions in order, a few trajectories at a time because they may be large."""
    shape, kind = demonstrations.observation_shape, demonstrations.trajectories[0].observations.dtype
    room = max(CHUNK // (int(np.prod(shape)) * kind.itemsize), 1)
    chunk = np.cumsum(demonstrations.lengths) // room
    for number in np.unique(chunk):
        yield demonstrations.select(np.flatnonzero(chunk == number)).flat(thin, thin_offset).observation


def units(demonstrations: Demonstrations, trajectories: np.ndarray) -> np.ndarray:
    """[n] the unit that each decision is resampled with: its group if there are groups, else its trajectory."""
    return trajectories if demonstrations.groups is None else demonstrations.groups[trajectories]


def unit_of_intervals(demonstrations: Demonstrations) -> dict[str, Any]:
    """What intervals are over: the unit that is resampled whole (an episode, or a group), and how many there are."""
    groups = demonstrations.groups
    return {"unit": demonstrations.unit, "count": len(demonstrations if groups is None else set(groups.tolist()))}


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """[n, actions] probabilities in float64, so that probabilities close to 1 stay apart."""
    scaled = logits.astype(np.float64) / temperature
    powers = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def must_match(policy: Policy, demonstrations: Demonstrations) -> None:
    """Refuse demonstrations whose actions or columns differ from those of the policy, also in their order."""
    if policy.action_names != demonstrations.action_names:
        raise UserError(
            f"the policy chooses among {list(policy.action_names)}, these demonstrations among "
            f"{list(demonstrations.action_names)}; bring demonstrations of the same task."
        )
    if policy.observation_names != demonstrations.observation_names:
        raise UserError(
            f"the policy sees {list(policy.observation_names)}, these demonstrations have "
            f"{list(demonstrations.observation_names)}; bring the same columns in the same order."
        )
