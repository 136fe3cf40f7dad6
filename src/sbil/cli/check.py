"""sbil check: what a table of decisions holds, what is wrong with it, and how to correct it."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from sbil.cli.columns import SHOWN, ColumnOptions
from sbil.cli.options import Printed

if TYPE_CHECKING:
    from sbil.demonstrations import Check, ColumnFacts

EXAMPLES = ("sbil check stays.csv", "sbil check stays.csv --episode stay --time hour --action treatment --json")
STYLES = {"stops": "red", "harms": "yellow", "note": ""}


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions, Printed):
    """Look through a table before training. Roles of columns that you do not give are guessed.

    The exit status is 1 if something must be corrected before the command of the last line can run, else 0.
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A table (CSV, Parquet, JSON lines, Excel, SQLite, DuckDB), a folder or a glob of them, NPZ, or minari:NAME."""


def run(command: Command) -> None:
    """Look, and print what was found; the problems come last, the worst first. Exit with 1 if training would stop."""
    from sbil.demonstrations import check

    found = check(command.data, **command.columns())
    if command.json:
        print(json.dumps(found.as_json()))
    else:
        show(found)
    if found.blocked:
        sys.exit(1)


def show(found: "Check") -> None:
    """Print the table of columns, the decisions, the episodes, the problems, and what to type next."""
    from rich.console import Console
    from rich.text import Text

    from sbil.cli.tables import roomy, show_grid

    print(f"{found.source}: {found.rows:,} rows, {len(found.columns)} columns ({found.description})")
    heads = ("column", "role", "type", "missing", "distinct", "min", "mean", "max", "levels")
    show_grid(heads, [_cells(column) for column in found.columns], left=("role", "type", "levels"))
    if found.added:
        more = f" and {len(found.added) - SHOWN} more" if len(found.added) > SHOWN else ""
        print(f"each row also observes: {'; '.join(found.added[:SHOWN])}{more}")
    if found.actions:
        print("decisions: " + ", ".join(f"{name} {count}" for name, count in found.actions.items()))
    if found.episodes:
        lengths = (
            f"{found.episodes.shortest:,} to {found.episodes.longest:,} rows (median {found.episodes.median:,.4g})"
        )
        print(f"episodes:  {found.episodes.count:,} of {lengths}; {found.episodes.single:,} of them of one row")
    for problem in found.problems:
        severity = problem.severity, STYLES[problem.severity]
        told = f": {problem.where}: {problem.what}; {problem.remedy}"
        roomy(Console()).print(Text.assemble(severity, told))
    if not found.problems:
        print("no problem was found")
    lead = "correct what stops first, then" if found.blocked else "next"
    print(f"{lead}: {found.command}")


def _cells(column: "ColumnFacts") -> list[str]:
    missing = f"{column.missing:,} ({column.missing_share:.1%})" if column.missing else ""
    numbers = ["" if value is None else f"{value:.4g}" for value in (column.min, column.mean, column.max)]
    distinct = "many" if column.distinct is None else f"{column.distinct:,}"
    levels = ", ".join(column.levels[:6]) + (", ..." if len(column.levels) > 6 else "")
    return [column.name, column.role, column.type, missing, distinct, *numbers, levels]
