"""Whether demonstrations are the same: hashes of observations, actions, ends and weights."""

import hashlib
from typing import Any

import numpy as np

from sbil.demonstrations.trajectory import Demonstrations, Trajectory


def twins(some: Demonstrations, others: Demonstrations) -> int:
    """How many trajectories of some demonstrations are also among others, with the same values."""
    known = {hashlib.sha256(b"".join(_content(trajectory))).digest() for trajectory in others.trajectories}
    return sum(hashlib.sha256(b"".join(_content(trajectory))).digest() in known for trajectory in some.trajectories)


def fingerprint(demonstrations: Demonstrations) -> str:
    """The SHA-256 of what is learned from: observations, actions, ends and weights of all trajectories."""
    digest = hashlib.sha256(f"stack {demonstrations.stack}".encode() if demonstrations.stack else b"")
    if demonstrations.schema and demonstrations.schema.balance:
        digest.update(b"balance")
    for trajectory in demonstrations.trajectories:
        for part in _content(trajectory):
            digest.update(part)
    return digest.hexdigest()


def _content(trajectory: Trajectory) -> tuple[bytes, ...]:
    ends: Any = (len(trajectory), trajectory.observations.shape, trajectory.terminal, trajectory.truncated)
    observations = np.ascontiguousarray(trajectory.observations)
    actions = np.ascontiguousarray(trajectory.actions, np.int32)
    weights = () if trajectory.weights is None else (np.ascontiguousarray(trajectory.weights, np.float32).tobytes(),)
    return repr(ends).encode(), observations.tobytes(), actions.tobytes(), *weights
