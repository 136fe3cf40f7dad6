"""sbil view: a table of decisions -> one HTML page to look at its episodes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sbil.cli.columns import ColumnOptions, load

EXAMPLES = (
    "sbil view demos.npz --out view.html",
    "sbil view stays.csv --episode stay_id --time charttime --action treatment --out view.html",
    "sbil view stays.csv --policy policy/ --episodes 50 --out view.html",
)


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions):
    """Look at episodes: values and decisions over time, in one HTML page that needs no server and no network.

    The page finds, sorts and flags episodes, and saves the flagged ones as a list to exclude. It holds recorded values.
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """The demonstrations: a table (CSV, Parquet), a folder or glob of tables, NPZ, or minari:NAME."""
    out: Path
    """The page to write (HTML)."""
    policy: Path | None = None
    """A policy folder: what the policy would have done is shown beside what was. A table is read as the one that the
    policy was trained on."""
    episodes: int = 200
    """The most episodes to put into the page; of more, evenly chosen ones."""
    overwrite: bool = False
    """Replace the page if it exists."""
    json: bool = False
    """Print the result as JSON."""


def run(command: Command) -> None:
    """Read, write the page and say what it holds."""
    _check(command)
    from sbil import files
    from sbil.policy import Policy
    from sbil.reports.episodes import PRIVACY, episodes_page

    policy = Policy.load(command.policy) if command.policy else None
    demonstrations = load(command.data, command, policy.schema if policy else None)
    title = Path(command.data).name or command.data
    page = episodes_page(demonstrations, title=title, ids=demonstrations.ids, limit=command.episodes, policy=policy)
    files.write_text(command.out, page)
    shown, size = min(command.episodes, len(demonstrations)), len(page.encode())
    if command.json:
        counts = {"episodes": len(demonstrations), "shown": shown, "decisions": demonstrations.steps}
        print(json.dumps({"file": str(command.out), "bytes": size, **counts}))
        return
    print(f"wrote {command.out}: {shown:,} of {len(demonstrations):,} episodes, {size / 1e6:.1f} MB")
    print(PRIVACY)


def _check(command: Command) -> None:
    """Refuse what can be refused before anything is loaded."""
    from sbil.errors import UserError

    if command.episodes < 1:
        raise UserError(f"--episodes must be a whole number from 1. Got {command.episodes}.")
    if command.out.is_dir():
        raise UserError(f"{command.out} is a folder; name a file, such as {command.out / 'view.html'}.")
    if command.out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{command.out}: the page is written as HTML; name the file something.html.")
    if command.out.exists() and not command.overwrite:
        raise UserError(f"{command.out} exists already; choose another --out, or replace it with --overwrite.")
