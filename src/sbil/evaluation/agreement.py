"""Agreement with recorded decisions in one line: what is printed after training."""

from typing import NamedTuple

import numpy as np

from sbil.evaluation.decided import Decided
from sbil.evaluation.matching import scores


class Agreement(NamedTuple):
    """How often the most probable action is the recorded one, and how probable the recorded actions are."""

    accuracy: float
    log_loss: float
    majority_accuracy: float  # of always choosing the commonest of these decisions
    steps: int

    @classmethod
    def of(cls, decided: Decided) -> "Agreement":
        """The agreement of a policy, or a baseline, with recorded decisions."""
        count = len(decided.actions)
        commonest = float(np.bincount(decided.actions).max() / count)
        return cls(**scores(decided, ("accuracy", "log_loss")), majority_accuracy=commonest, steps=count)
