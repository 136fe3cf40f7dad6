"""The data that people bring: trajectories of recorded decisions; reading, checks, thinning, draws and splits."""

from sbil.demonstrations.checking import Check, ColumnFacts, EpisodeFacts, check
from sbil.demonstrations.formats.npz import save
from sbil.demonstrations.problems import Problem
from sbil.demonstrations.reading import States, read, read_observations
from sbil.demonstrations.schema import Column, Schema
from sbil.demonstrations.trajectory import Demonstrations, Steps, Trajectory, thinned

__all__ = [
    "Check", "Column", "ColumnFacts", "Demonstrations", "EpisodeFacts", "Problem", "Schema", "States", "Steps",
    "Trajectory", "check", "read", "read_observations", "save", "thinned",
]  # fmt: skip
