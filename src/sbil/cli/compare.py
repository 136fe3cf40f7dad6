"""sbil compare: a table of decisions -> which algorithm matches them best, by cross-validation."""

import json
from dataclasses import dataclass
from pathlib import Path

from sbil.cli.columns import ColumnOptions, tell
from sbil.cli.options import Written, with_options

EXAMPLES = (
    "sbil compare --data stays.csv --episode stay --time hour --action treatment --algorithms edm,rcal",
    "sbil compare --data stays.parquet --schema stays.json --algorithms edm --folds 10 --json",
)


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions, Written):
    """Cross-validate algorithms by episode, and compare them with BC, the most frequent and the previous action."""

    data: str
    """The demonstrations: a table (CSV, Parquet, JSON lines, Excel, SQLite, DuckDB), a folder or a glob of tables, NPZ,
    or minari:NAME."""
    algorithms: str = "edm"
    """Which algorithms, separated by commas; BC is always included, and for tables also logistic and trees."""
    folds: int = 5
    """Parts of the episodes (of the groups, with --group), each held out once."""
    updates: int | None = None
    """Updates (default: what each algorithm's default preset asks for)."""
    seed: int = 0
    """Seed of the folds and of training."""
    out: Path | None = None
    """Also write the table as JSON to this file."""


def run(command: Command) -> None:
    """Cross-validate and print."""
    from sbil.api.compare import compare
    from sbil.cli.progress import bar
    from sbil.cli.tables import show_methods
    from sbil.errors import UserError
    from sbil.evaluation.decided import unit_of_intervals
    from sbil.text import counted, over

    names = [name.strip() for name in command.algorithms.split(",") if name.strip()]
    if not names:
        raise UserError("--algorithms is empty; name algorithms that `sbil algorithms` lists, separated by commas.")
    with bar(1, f"{command.folds} folds") as advance:
        found = with_options(compare, command, algorithms=names, watch=advance)
    if command.json:
        print(json.dumps(found.as_json()))
        return
    data = found.data
    tell(data.observation_names, data.provenance)
    sizes = f"{counted(data.steps, 'decision')} of {counted(len(data), data.words[0])}"
    show_methods(found.compared, f"{sizes}, each held out once [{over(unit_of_intervals(data))}]")
    print(found.verdict.words)
