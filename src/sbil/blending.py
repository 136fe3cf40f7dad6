"""A policy for a table: the blend of several methods that gives held-out decisions the highest probability.

    pi(a|s) = sum over methods of w_m pi_m(a|s),   w maximises the sum of log pi(a|s) over held-out decisions

Every method judges every decision while the decision's episode (or group) is held out. The weights follow from these
probabilities alone, by expectation maximisation. Methods with a weight above LEAST are then trained on everything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sbil.algorithms.controls import ControlState
from sbil.checkpoint import Checkpoint
from sbil.choosing import Choice, Draw, Progress
from sbil.folds import FOLDS
from sbil.mixtures import Blend
from sbil.portfolio import left_out
from sbil.selection import Candidate, Job, held_out_chances, share_of_work, trainings
from sbil.training import Trained, stack

BLEND = "blend"
LEAST = 0.05  # weight; a method with less is left out
ROUNDS, CLOSE = 500, 1e-7  # of expectation maximisation
TINIEST = 1e-12  # probability


@dataclass(frozen=True)
class BlendConfig:
    """What a policy records as its settings: the weight of each method."""

    weights: Mapping[str, float]


class LearnedMethod(NamedTuple):
    """A method that was trained on everything."""

    candidate: Candidate
    trained: Trained


def blend(draw: Draw, candidates: Sequence[Candidate], progress: Progress, checkpoint: Checkpoint | None) -> Choice:
    """Return the blend of the candidates that predicts held-out decisions best; of one method, the method itself."""
    watch = progress.of_training(share_of_work(len(candidates)), "cross-validation")
    chances, counts = held_out_chances(
        draw.spec, candidates, draw.dataset, draw.keys, groups=draw.groups, watch=watch, checkpoint=checkpoint
    )
    weights = weights_of(chances, counts)
    used = [candidate for candidate, weight in zip(candidates, weights, strict=True) if weight > 0]
    parts = _trained(draw, used, progress, checkpoint)
    sound = [part for part in parts if not part.trained.diverged[0]]
    if len(sound) < len(parts):
        weights = weights_of(
            chances, counts, [candidate in [part.candidate for part in sound] for candidate in candidates]
        )
    share = {candidate.name: float(weight) for candidate, weight in zip(candidates, weights, strict=True)}
    kept = sorted(
        (part for part in sound if share[part.candidate.name] > 0), key=lambda part: -share[part.candidate.name]
    )
    record = _record(candidates, chances, counts, weights) | _diverged(parts, sound)
    if len(kept) < 2:
        best = (kept or parts)[0]
        return Choice(best.candidate, record | {"chosen": best.candidate.name}, best.trained)
    return _blended(kept, share, record)


def weights_of(chances: np.ndarray, counts: np.ndarray, allowed: Sequence[bool] | None = None) -> np.ndarray:
    """Return the weights [methods] with which the mean log of the weighted mean of chances [methods, n] is largest.

    counts: [n], how much each decision counts.
    A method with chances that are not numbers has weight 0. If nothing was held out, the first method has weight 1.
    """
    usable = np.isfinite(chances).all(axis=1) & (True if allowed is None else np.asarray(allowed))
    if not counts.sum() or not usable.any():
        usable = np.arange(len(chances)) == (0 if allowed is None or not any(allowed) else np.argmax(allowed))
        return usable.astype(float)
    weights = _maximised(chances, counts, usable)
    return _maximised(chances, counts, weights >= min(LEAST, weights.max()))


def _maximised(chances: np.ndarray, counts: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """Return the weights of the usable methods; the log-loss is convex, so they are the best."""
    own = np.maximum(chances[usable].astype(np.float64), TINIEST)
    weights = np.full(len(own), 1 / len(own))
    for _ in range(ROUNDS):
        before, weights = weights, (weights[:, None] * own / (weights @ own)) @ (counts / counts.sum())
        if np.abs(weights - before).max() < CLOSE:
            break
    found = np.zeros(len(chances))
    found[usable] = weights / weights.sum()
    return found


def _trained(
    draw: Draw, candidates: Sequence[Candidate], progress: Progress, checkpoint: Checkpoint | None
) -> list[LearnedMethod]:
    """Train candidates on everything."""
    watch = progress.of_training(1.0, "training on everything")
    jobs = [Job(0, number) for number in range(len(candidates))]
    found = []
    for program, trained in trainings(draw.spec, candidates, draw.dataset, draw.keys, jobs, watch, checkpoint):
        found += [LearnedMethod(candidates[job.candidate], trained.only(place)) for place, job in enumerate(program)]
    return found


def _blended(parts: Sequence[LearnedMethod], share: Mapping[str, float], record: dict[str, Any]) -> Choice:
    """Return the choice of a blend; the course of its training is that of the method with the largest weight."""
    weights = np.array([share[part.candidate.name] for part in parts])
    networks = tuple(_only(part.trained.states.network) for part in parts)
    states = stack([ControlState(Blend(networks, jnp.asarray(weights / weights.sum(), jnp.float32)))])
    first = parts[0].trained._replace(states=states, seconds=sum(part.trained.seconds for part in parts))
    config = BlendConfig({part.candidate.name: round(share[part.candidate.name], 4) for part in parts})
    updates = max(part.candidate.updates for part in parts)
    label = " + ".join(f"{share[part.candidate.name]:.2f} {part.candidate.name}" for part in parts)
    return Choice(Candidate(BLEND, config, updates, label), record | {"chosen": label}, first)


def _only(network: Any) -> Any:
    """Return the network of the only run."""
    return jax.tree.map(lambda leaf: leaf[0], network)


def _record(
    candidates: Sequence[Candidate], chances: np.ndarray, counts: np.ndarray, weights: np.ndarray
) -> dict[str, Any]:
    """What a policy records of the choice, as plain values."""
    every = np.concatenate([chances, (weights @ np.nan_to_num(chances))[None]])
    share = counts / max(counts.sum(), TINIEST)
    losses = -np.log(np.maximum(every, TINIEST)) @ share if counts.sum() else np.full(len(every), np.nan)
    names = [*(candidate.name for candidate in candidates), BLEND]
    return {
        "criterion": BLEND,
        "weights": {candidate.name: round(float(w), 4) for candidate, w in zip(candidates, weights, strict=True)},
        "held_out_log_loss": {
            name: round(float(loss), 6) if np.isfinite(loss) else None for name, loss in zip(names, losses, strict=True)
        },
        "folds": FOLDS,
        **({"left_out": words} if (words := left_out()) else {}),
    }


def _diverged(parts: Sequence[LearnedMethod], sound: Sequence[LearnedMethod]) -> dict[str, Any]:
    names = [part.candidate.name for part in parts if part not in sound]
    return {"diverged": names} if names else {}


def in_words(record: Mapping[str, Any]) -> str:
    """Say what was blended, and why."""
    losses = record["held_out_log_loss"]
    together = sum(weight > 0 for weight in record["weights"].values()) > 1
    shown = {name: loss for name, loss in losses.items() if together or name != BLEND}
    words = ", ".join(f"{name}: {'none' if loss is None else f'{loss:.3f}'}" for name, loss in shown.items())
    what = f"a blend of methods by their held-out decisions, {record['chosen']}" if together else record["chosen"]
    found = f"chose {what} (held-out log-loss: {words})"
    if None in losses.values():
        found += "; none: training diverged or nothing was held out"
    if diverged := record.get("diverged"):
        found += f"; diverged when trained on everything: {', '.join(diverged)}"
    return found + (f"; {record['left_out']}" if record.get("left_out") else "")
