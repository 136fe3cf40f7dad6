"""Agreement with recorded decisions, where there is no simulator to play in."""

import numpy as np

from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.policy import Policy


def agreement(policy: Policy, demonstrations: Demonstrations, thin: int = 1, thin_offset: int = 0) -> dict[str, float]:
    """How often the policy's most probable action is the recorded one, and its log-loss."""
    if demonstrations.action_names != policy.action_names:
        raise UserError(
            f"the policy chooses among {list(policy.action_names)}, these demonstrations among "
            f"{list(demonstrations.action_names)}; bring demonstrations of the same task."
        )
    parts = [demonstrations.select([index]) for index in range(len(demonstrations))]  # stacked frames are large
    logits = np.concatenate([policy.logits(part.flat(thin, thin_offset).observation) for part in parts])
    logits, steps = logits.astype(np.float64), demonstrations.decisions(thin, thin_offset)
    log_sum = np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)) + logits.max(axis=1)
    chosen = logits[np.arange(len(logits)), steps.action]
    counts = np.bincount(steps.action, minlength=len(policy.action_names))
    return {
        "accuracy": float((logits.argmax(axis=1) == steps.action).mean()),
        "log_loss": float((log_sum - chosen).mean()),
        "majority_accuracy": float(counts.max() / counts.sum()),
        "steps": len(steps.action),
    }
