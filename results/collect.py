"""Copies finished cells into this folder: one Parquet file a setting, one row a run, every episode.

python results/collect.py grid/    add the cells of a folder that `sbil reproduce` filled, in place of older ones
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from sbil.experiments import Result
from sbil.experiments.store import read, read_all, write
from sbil.reports.names import place_of

HERE = Path(__file__).resolve().parent


def place(result: Result) -> tuple[tuple[int, str], int, int, bool, int]:
    """What there is one cell of in a setting, in the order of tables."""
    cell = result.cell
    return place_of(str(cell.method)), cell.size, cell.unlabelled, cell.every_state, cell.seed


def main(folders: Sequence[str]) -> None:
    """Read the cells, then rewrite the files of their settings."""
    found = read_all(map(Path, folders))
    for setting in sorted({result.cell.setting for result in found}):
        new = {place(result): result for result in found if result.cell.setting == setting}
        if len(new) < sum(result.cell.setting == setting for result in found):
            sys.exit(f"a cell of {setting} is there twice, with other settings; bring the files of one grid.")
        path = HERE / f"{setting}.parquet"
        old = {place(result): result for result in read(path)} if path.exists() else {}
        write(path, sorted({**old, **new}.values(), key=place))
        print(f"{path.name}: {len(new)} cells of {len(old | new)}")


if __name__ == "__main__":
    main(sys.argv[1:])
