"""Experiments: tasks, methods and cells of runs, the runner, and the store of results."""

from sbil.experiments.environment import SIZES, EnvironmentTask
from sbil.experiments.experiment import Experiment
from sbil.experiments.methods import Method
from sbil.experiments.result import Result
from sbil.experiments.table import Process, TableTask
from sbil.experiments.task import Cell

__all__ = ["SIZES", "Cell", "EnvironmentTask", "Experiment", "Method", "Process", "Result", "TableTask"]
