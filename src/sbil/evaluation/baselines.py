"""What can be matched without learning anything of a state: the commonest action, and the one taken last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.evaluation.matching import Decided, units

MAJORITY, PREVIOUS = "majority", "previous action"


@dataclass(frozen=True, eq=False)
class Baselines:
    """How often each action was taken, first in an episode and after each other action.

    One is added to every count before counts become probabilities, so that no action is impossible.
    """

    first: np.ndarray  # [actions]
    following: np.ndarray  # [actions before, actions]

    @classmethod
    def from_demonstrations(cls, demonstrations: Demonstrations) -> Baselines:
        """Count."""
        count = len(demonstrations.action_names)
        steps = demonstrations.decisions()
        before, start = _before(steps.action), steps.time == 0
        pairs = count * before[~start] + steps.action[~start]
        return cls(
            first=np.bincount(steps.action[start], minlength=count),
            following=np.bincount(pairs, minlength=count**2).reshape(count, count),
        )

    def decided(self, demonstrations: Demonstrations) -> dict[str, Decided]:
        """What both say of recorded decisions."""
        count = len(demonstrations.action_names)
        if count != len(self.first):
            raise UserError(
                f"the baselines count {len(self.first)} actions, these demonstrations have {count}; "
                "bring demonstrations of the same task."
            )
        steps = demonstrations.decisions()
        majority = _chances(self.first + self.following.sum(axis=0))
        previous = _chances(self.following)[_before(steps.action)]
        previous[steps.time == 0] = _chances(self.first)
        episodes = units(demonstrations, steps.trajectory)
        return {
            MAJORITY: Decided(np.broadcast_to(majority, (len(steps.action), count)), steps.action, episodes),
            PREVIOUS: Decided(previous, steps.action, episodes),
        }

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"first": self.first.tolist(), "following": self.following.tolist()}

    @classmethod
    def from_json(cls, content: Any) -> Baselines:
        """From plain values, checked."""
        try:
            first, following = (np.array(content[key]) for key in ("first", "following"))
        except (TypeError, KeyError, ValueError, OverflowError):
            first = following = np.array("nothing")
        sound = all(part.dtype.kind == "i" and (part >= 0).all() for part in (first, following))
        if not (sound and first.ndim == 1 and following.shape == (len(first), len(first))):
            raise UserError("baselines are counts: 'first', one an action, and 'following', a row an action.")
        return cls(first, following)


def _before(actions: np.ndarray) -> np.ndarray:
    """[n] the action of the row before; that of the first row means nothing."""
    return np.roll(actions, 1)


def _chances(counts: np.ndarray) -> np.ndarray:
    return (counts + 1) / (counts + 1).sum(axis=-1, keepdims=True)
