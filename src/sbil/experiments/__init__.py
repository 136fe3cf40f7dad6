"""Experiments: cells of runs, the runner, and the store of results."""

from sbil.experiments.cell import SIZES, Cell, Method, Result

__all__ = ["SIZES", "Cell", "Method", "Result"]
