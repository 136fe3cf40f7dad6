"""Experiments: tasks, methods and cells of runs, the runner, and the store of results."""

from sbil.experiments.cell import Cell
from sbil.experiments.environment import SIZES, EnvironmentTask
from sbil.experiments.experiment import Experiment
from sbil.experiments.methods import Method
from sbil.experiments.result import Result

__all__ = ["SIZES", "Cell", "EnvironmentTask", "Experiment", "Method", "Result"]
