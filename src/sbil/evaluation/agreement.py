"""Agreement with recorded decisions in a line: what is printed after training."""

import numpy as np

from sbil.demonstrations import Demonstrations
from sbil.evaluation.matching import Decided, decided, means
from sbil.policy import Policy


def agreement(policy: Policy, demonstrations: Demonstrations, thin: int = 1, thin_offset: int = 0) -> dict[str, float]:
    """How often the policy's most probable action is the recorded one, and its log-loss."""
    return agreed(decided(policy, demonstrations, thin, thin_offset))


def agreed(made: Decided) -> dict[str, float]:
    """`agreement`, where it is known what the policy thinks of the decisions."""
    found = means(made)
    return {
        "accuracy": found["accuracy"],
        "log_loss": found["log_loss"],
        "majority_accuracy": float(np.bincount(made.actions).max() / len(made.actions)),
        "steps": len(made.actions),
    }
