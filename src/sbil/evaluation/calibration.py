"""How well probabilities agree with frequencies, and the temperature that makes them agree better."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sbil.demonstrations import Demonstrations
from sbil.evaluation.decided import Decided, observed, softmax
from sbil.evaluation.metrics.ece import BINS, bins_of
from sbil.policy import Policy

LOWEST, HIGHEST = 0.05, 1000.0  # temperatures; if all of a few decisions are matched, the best one would be 0
STEPS = 45  # of the search; each halves the range on a logarithmic scale
CHUNK = 2**18  # rows looked at together


class Bin(NamedTuple):
    """The decisions whose most probable action has a probability from `low` to `high`."""

    low: float
    high: float
    decisions: int
    confidence: float  # the mean of these probabilities
    accuracy: float  # how often the action was the one taken


def reliability(decided: Decided, bins: int = BINS) -> list[Bin]:
    """The calibration curve: one row for each of `bins` bins of equal width, without the empty ones."""
    confidence = decided.probabilities.max(axis=1).astype(np.float64)
    number = bins_of(confidence, bins)
    counts = np.bincount(number, minlength=bins)
    sums = (np.bincount(number, weights, minlength=bins) for weights in (confidence, decided.right))
    rows = zip(counts, *sums, strict=True)
    return [
        Bin(place / bins, (place + 1) / bins, int(count), float(sure / count), float(right / count))
        for place, (count, sure, right) in enumerate(rows)
        if count
    ]


def fit_temperature(logits: np.ndarray, actions: np.ndarray) -> float:
    """The temperature, from 0.05 to 1000, for which softmax(logits / temperature) has the smallest log-loss.

    The log-loss is convex in 1 / temperature, so its slope says on which side of a temperature the best one lies.
    The order of the actions at a state is not changed, so neither is the most probable one.
    """
    low, high = LOWEST, HIGHEST
    for _ in range(STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if _too_sure(logits, actions, middle) else (low, middle)
    found = float(np.sqrt(low * high))
    return found if _loss(logits, actions, found) < _loss(logits, actions, 1.0) else 1.0


def calibrated(policy: Policy, held_out: Demonstrations) -> Policy:
    """The policy with the temperature at which its probabilities fit decisions that it was not trained on."""
    logits = np.concatenate([policy.logits(part) for part in observed(held_out)])
    temperature = fit_temperature(logits, held_out.decisions().action)
    facts = {"calibration": {"temperature": temperature, "episodes": len(held_out), "decisions": held_out.steps}}
    return replace(policy, temperature=temperature, provenance={**policy.provenance, **facts})


def _too_sure(logits: np.ndarray, actions: np.ndarray, temperature: float) -> bool:
    """Whether a higher temperature has a smaller log-loss: the mean logit exceeds that of the action taken."""
    slope = 0.0
    for start in range(0, len(logits), CHUNK):
        part = logits[start : start + CHUNK].astype(np.float64)
        taken = part[np.arange(len(part)), actions[start : start + CHUNK]]
        slope += float((softmax(part, temperature) * (part - taken[:, None])).sum())
    return slope > 0


def _loss(logits: np.ndarray, actions: np.ndarray, temperature: float) -> float:
    """The summed log-loss."""
    total = 0.0
    for start in range(0, len(logits), CHUNK):
        part = logits[start : start + CHUNK].astype(np.float64) / temperature
        part -= part[np.arange(len(part)), actions[start : start + CHUNK]][:, None]
        most = part.max(axis=1)
        total += float((most + np.log(np.exp(part - most[:, None]).sum(axis=1))).sum())
    return total
