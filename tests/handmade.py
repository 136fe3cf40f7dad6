"""Results made by hand, without training."""

import numpy as np

from cells import cell_of
from sbil import environments
from sbil.experiments import Result

BASE = np.linspace(0.2, 0.8, 12).reshape(6, 2)
ENDS = (20.0, 500.0)  # the returns of a random network and of the demonstrator
MADE_BY = {"sbil": "0.1.0", "jax": "0.11.2", "kind": "cpu", "commit": "0123abc"}


def made(
    method: str, size: int = 1, score: float = 0.5, *, scores=None, diverged=0, points=0, chosen=(), **cell
) -> Result:
    """A cell of 6 draws x 2 initialisations that scores `score` on average, or `scores` [draws, initialisations].

    The spread over runs is the same in every such cell, so that paired differences have none.
    """
    shape = cell.pop("draws", 6), cell.pop("initialisations", 2)
    where = {"environment": "CartPole-v1", "demonstrator": "ppo", "mode": "sampled", "thin": 20, "episodes": 2, **cell}
    spread = np.linspace(-0.05, 0.05, shape[0] * shape[1]).reshape(shape)
    scores = score + spread if scores is None else np.asarray(scores, float)
    draws, initialisations = scores.shape
    runs = draws * initialisations
    low, high = ENDS
    returns = low + scores.reshape(-1, 1) * (high - low) + np.array([-1.0, 1.0])
    rising = np.linspace(1, 2, max(points, 1)) + np.linspace(0, 1, runs)[:, None]
    return Result(
        cell_of(method, size, draws=draws, initialisations=initialisations, **where),
        returns.astype(np.float32).astype(np.float64),  # as a file keeps them
        ENDS,
        np.where(np.arange(runs) < diverged, 500, -1),
        {"policy_loss": rising, "energy": rising * np.logspace(0, 6, max(points, 1))} if points else {},
        np.linspace(500, 10_000, points).astype(int) if points else np.array([], int),
        tuple(f'{{"batch": 64, "run": {run if chosen else 0}}}' for run in range(runs)),
        tuple(chosen[run % len(chosen)] for run in range(runs)) if chosen else (),
        {"selection": 0.0, "training": 1.5, "evaluation": 0.25},
        dict(MADE_BY),
        "",
    )


def result(method: str, size: int, scores: np.ndarray, diverged: int = 0, **fields: object) -> Result:
    """A result whose runs score what is wanted, on CartPole unless `fields` of the cell say something else."""
    draws, initialisations = scores.shape
    setting = {"environment": "CartPole-v1", "demonstrator": "ppo", "mode": "sampled", "thin": 20, "episodes": 2}
    runs = {"size": size, "draws": draws, "initialisations": initialisations}
    cell = cell_of(method, **(setting | runs | fields))
    low, high = environments.scale(cell.task.environment, cell.task.demonstrator, cell.task.mode)
    returns = low + scores.reshape(-1, 1) * (high - low) + np.array([-1.0, 1.0])
    diverged_at = np.where(np.arange(scores.size) < diverged, 500, -1)
    return Result(cell, returns, (low, high), diverged_at)
