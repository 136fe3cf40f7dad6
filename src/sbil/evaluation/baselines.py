"""Two baselines that learn nothing about states: the most frequent action, and the previous action."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.evaluation.decided import Decided, units
from sbil.policy import Policy

MAJORITY, PREVIOUS = "majority", "previous action"
PER_SHARE = 1000  # decisions that a share of 1 stands for


@dataclass(frozen=True, eq=False)
class Baselines:
    """How often each action was taken, first in an episode and after each other action.

    One is added to every count before counts become probabilities, so that no action is impossible.
    """

    first: np.ndarray  # [actions]
    following: np.ndarray  # [actions before, actions]

    @classmethod
    def from_demonstrations(cls, demonstrations: Demonstrations) -> "Baselines":
        """Count the actions of demonstrations."""
        count = len(demonstrations.action_names)
        steps = demonstrations.decisions()
        before, start = _before(steps.action), steps.time == 0
        pairs = count * before[~start] + steps.action[~start]
        return cls(
            first=np.bincount(steps.action[start], minlength=count),
            following=np.bincount(pairs, minlength=count**2).reshape(count, count),
        )

    def decided(self, demonstrations: Demonstrations) -> dict[str, Decided]:
        """Return the probabilities of both baselines for recorded decisions."""
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

    @classmethod
    def from_json(cls, content: Any) -> "Baselines":
        """Read the counts from plain values, and check them."""
        try:
            first, following = (np.array(content[key]) for key in ("first", "following"))
        except (TypeError, KeyError, ValueError, OverflowError):
            first = following = np.array("nothing")
        sound = all(part.dtype.kind == "i" and (part >= 0).all() for part in (first, following))
        if not (sound and first.ndim == 1 and following.shape == (len(first), len(first))):
            raise UserError("baselines are counts: 'first' has one per action, and 'following' one row per action.")
        return cls(first, following)


def decided_by_baselines(
    policy: Policy, held_out: Demonstrations, training: Demonstrations | None
) -> dict[str, Decided]:
    """Return the probabilities of the baselines for held-out decisions.

    Both are counted in the training data. Without them the policy's own record is used: the shares of its actions are
    enough for the commonest action. Policies of older versions have all counts.
    """
    if training:
        return Baselines.from_demonstrations(training).decided(held_out)
    if counts := policy.provenance.get("baselines"):
        return Baselines.from_json(counts).decided(held_out)
    shares: Any = policy.provenance.get("shares")
    if not _are_shares(shares, len(policy.action_names)):
        return {}
    rest = max(1 - sum(share for share in shares if share is not None), 0) / max(shares.count(None), 1)
    counted = np.array([round(PER_SHARE * (rest if share is None else share)) for share in shares])
    none = np.zeros((len(counted), len(counted)), int)
    return {MAJORITY: Baselines(counted, none).decided(held_out)[MAJORITY]}


def _are_shares(shares: Any, count: int) -> bool:
    """Whether a policy's record is a list with one share per action: a number from 0 to 1, or None."""
    return (
        isinstance(shares, list)
        and len(shares) == count
        and all(share is None or (type(share) in (int, float) and 0 <= share <= 1) for share in shares)
    )


def _before(actions: np.ndarray) -> np.ndarray:
    """[n] the action of the row before; the first entry has no meaning."""
    return np.roll(actions, 1)


def _chances(counts: np.ndarray) -> np.ndarray:
    return (counts + 1) / (counts + 1).sum(axis=-1, keepdims=True)
