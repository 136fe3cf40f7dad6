"""Copies finished cells into results/: one Parquet file per environment, one row per run.

python -m studies.collect grid/    add the cells of a folder that `sbil reproduce` filled; they replace older ones
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from sbil.errors import UserError, program
from sbil.experiments import Result
from sbil.experiments.environment import played
from sbil.experiments.store import read, read_all, write
from sbil.reports.cells import grouped
from sbil.reports.names import place_of
from studies.pages import RESULTS


def place(result: Result) -> tuple[object, ...]:
    """Return what tells the cells of an environment apart, in the order of tables."""
    cell = result.cell
    return (
        played(cell).demonstrator,
        played(cell).mode,
        played(cell).thin,
        place_of(str(cell.method)),
        cell.size,
        cell.task.unlabelled,
        cell.task.every_state,
        cell.task.seed,
    )


def collect(folders: Sequence[str], into: Path = RESULTS) -> None:
    """Read the cells, then rewrite the files of their environments."""
    found = read_all(map(Path, folders))
    for environment, mine in sorted(grouped(found, lambda result: played(result.cell).environment).items()):
        new = {place(result): result for result in mine}
        if len(new) < len(mine):
            raise UserError(
                f"a cell of {environment} is there twice with different settings; bring the files of one grid."
            )
        path = into / f"{environment}.parquet"
        old = {place(result): result for result in read(path)} if path.exists() else {}
        every = old | new
        write(path, [every[key] for key in sorted(every)])
        print(f"{path.name}: {len(new)} cells of {len(every)}")


if __name__ == "__main__":
    program("collect", lambda: collect(sys.argv[1:]))
