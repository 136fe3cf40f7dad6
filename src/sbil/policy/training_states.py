"""What a policy keeps of the states that it was trained on: their energies, and the ranges of their columns."""

import numpy as np

from sbil.demonstrations import Demonstrations
from sbil.padding import filled
from sbil.policy import guard
from sbil.policy.folder import ENERGIES
from sbil.policy.guard import Guard
from sbil.policy.policy import Policy

SEEN = 100_000  # training states whose energies are looked at


def training_energies(policy: Policy, demonstrations: Demonstrations) -> np.ndarray | None:
    """Quantiles of the energies of the training states (at most SEEN of them, evenly chosen); None for images."""
    if len(demonstrations.observation_shape) > 1:
        return None
    states, _ = some_states(demonstrations)
    energies = policy.energy(filled(states))[: len(states)]
    return np.quantile(energies, np.linspace(0, 1, ENERGIES)).astype(np.float32)


def training_guard(demonstrations: Demonstrations) -> Guard | None:
    """What is known of the columns of the training states; None for images and for too few states."""
    if len(demonstrations.observation_shape) > 1:
        return None
    states, episode = some_states(demonstrations)
    units = episode if demonstrations.groups is None else demonstrations.groups[episode]
    return guard.learned(states, units, demonstrations.schema.codes if demonstrations.schema else ())


def some_states(demonstrations: Demonstrations) -> tuple[np.ndarray, np.ndarray]:
    """States at which decisions were taken, at most SEEN of them, evenly chosen; and the trajectory of each."""
    visited = np.array([len(trajectory) for trajectory in demonstrations.trajectories])
    ends = np.cumsum(visited)
    wanted = np.unique(np.linspace(0, ends[-1] - 1, SEEN).astype(int)) if ends[-1] > SEEN else np.arange(ends[-1])
    episode = np.searchsorted(ends, wanted, side="right")
    within = wanted - (ends - visited)[episode]
    chosen = zip(episode, within, strict=True)
    return np.stack([demonstrations.trajectories[i].observations[t] for i, t in chosen]), episode
