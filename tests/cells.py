"""Cells of environments for tests: named by all their fields, those of the task too."""

import dataclasses

from sbil.experiments import Cell, EnvironmentTask, Method

OF_TASK = {field.name for field in dataclasses.fields(EnvironmentTask)}
CARTPOLE = {"environment": "CartPole-v1", "demonstrator": "ppo", "mode": "sampled", "thin": 20}


def cell_of(method="bc", size=1, **fields) -> Cell:
    """A cell of CartPole, unless `fields` of the cell or its task say something else."""
    task = EnvironmentTask(**{name: value for name, value in (CARTPOLE | fields).items() if name in OF_TASK})
    return Cell(task, Method.parse(method), size, **{n: value for n, value in fields.items() if n not in OF_TASK})


def changed(cell: Cell, **fields) -> Cell:
    """The cell with other fields, of its task too."""
    task = dataclasses.replace(cell.task, **{name: value for name, value in fields.items() if name in OF_TASK})
    return dataclasses.replace(cell, task=task, **{n: value for n, value in fields.items() if n not in OF_TASK})
