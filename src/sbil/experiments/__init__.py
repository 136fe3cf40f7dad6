"""Experiments: cells of runs, the runner, and the store of results."""

from sbil.experiments.cell import SIZES, Cell, Method
from sbil.experiments.experiment import Experiment
from sbil.experiments.result import Result

__all__ = ["SIZES", "Cell", "Experiment", "Method", "Result"]
