"""What people bring: trajectories of recorded decisions, read, checked, thinned, drawn and split."""

from sbil.demonstrations.npz import load, save
from sbil.demonstrations.schema import Column, Schema
from sbil.demonstrations.trajectory import Demonstrations, Steps, Trajectory, thinned

__all__ = ["Column", "Demonstrations", "Schema", "Steps", "Trajectory", "load", "save", "thinned"]
