"""Copies finished cells into this folder: one line a run in a file a setting, and how long each method took.

python results/collect.py grid/    add the cells of a folder that `sbil reproduce` filled, in place of older ones
"""

import json
import sys
from pathlib import Path
from typing import Any

import publish

from sbil import files
from sbil.experiments.cell import Result
from sbil.reports import tables

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Read the cells, then rewrite the files of their settings."""
    found = [Result.from_json(json.loads(path.read_text())) for path in sorted(Path(sys.argv[1]).glob("*.json"))]
    for name in sorted({publish.name_of(result) for result in found}):
        new = [result for result in found if publish.name_of(result) == name]
        path = HERE / f"{name}.csv"
        known = [(str(result.cell.method), str(result.cell.size)) for result in new]
        if len(set(known)) < len(known):
            sys.exit(f"{sys.argv[1]} holds a cell of {name} twice, with other settings; bring the files of one grid.")
        old = publish.rows_of(path) if path.exists() else []
        rows: list[dict[str, Any]] = [row for row in old if (row["method"], row["size"]) not in known]
        rows += tables.run_rows(new)
        order = {method: place for place, method in enumerate(publish.NAMES)}
        numbers = ("size", "draw", "initialisation")
        rows.sort(key=lambda row: (order[row["method"]], *(int(row[name]) for name in numbers)))
        files.write_text(path, tables.csv_text([{**row, "chosen": row.get("chosen", "")} for row in rows]))
    times = HERE / "benchmarks" / "grid-seconds.json"
    seconds = json.loads(times.read_text()) if times.exists() else {}
    for task in {(result.cell.environment, result.cell.method, result.cell.thin) for result in found}:
        mine = [r for r in found if (r.cell.environment, r.cell.method, r.cell.thin) == task]
        seconds[f"{task[0]} thin {task[2]} {task[1]}"] = time_of(mine)
    files.write_text(times, json.dumps(dict(sorted(seconds.items())), indent=1) + "\n")


def time_of(results: list[Result]) -> dict[str, object]:
    """What a run took, compilation and choosing of settings included, and on what."""
    runs = sum(len(result.cell.runs) for result in results)
    taken = {
        f"{name}_seconds_a_run": round(sum(result.seconds[name] for result in results) / runs, 5)
        for name in results[0].seconds
    }
    return {**taken, "updates": results[0].cell.updates, **results[0].device}


if __name__ == "__main__":
    main()
