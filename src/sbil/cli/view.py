"""sbil view: a table of decisions -> one HTML page to look at its episodes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sbil.cli.columns import ColumnOptions
from sbil.cli.options import Written, with_options

EXAMPLES = (
    "sbil view demos.npz --out view.html",
    "sbil view stays.csv --episode stay_id --time charttime --action treatment --out view.html",
    "sbil view stays.csv --policy policy/ --imagine --out view.html",
)


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions, Written):
    """Look at episodes: values and decisions over time, in one HTML page that needs no server and no network.

    The page finds, sorts and flags episodes, and saves the flagged ones as a list to exclude. It holds recorded values.
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """The demonstrations: a table, a folder or a glob of tables, NPZ, or minari:NAME."""
    out: Path
    """The page to write (HTML)."""
    policy: Path | None = None
    """A policy folder. The page shows its decisions beside the recorded ones. A table is read as in the training of the
    policy."""
    imagine: bool = False
    """Learn from the data what follows a decision, let the policy act in that model, and show where it would go, with
    --policy. It takes seconds."""
    episodes: int = 200
    """The largest number of episodes in the page. If there are more, evenly spaced ones are taken."""


def run(command: Command) -> None:
    """Write the page and say what it holds."""
    from sbil.api.view import view
    from sbil.reports.episodes import PRIVACY

    made = with_options(view, command)
    if command.json:
        print(json.dumps(made.as_json()))
        return
    print(f"wrote {made.file}: {made.shown:,} of {made.episodes:,} episodes, {made.bytes / 1e6:.1f} MB")
    print(PRIVACY)
