"""sbil report: results -> one HTML page that says what they mean."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sbil.cli.options import Printed, with_options

EXAMPLES = (
    "sbil report results/ --out report.html",
    "sbil report grid/ more/cell.parquet --out report.html --figures figures/",
    "sbil report results/ --json",
)


@dataclass(frozen=True, kw_only=True)
class Command(Printed):
    """Say what results mean: in sentences here, and in one HTML page that needs no server and no network.

    The page shows the verdict, charts, every cell and its runs, and the commands that run them again.
    """

    results: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RESULTS")]
    """Folders that `sbil reproduce` filled, or single files of them."""
    out: Path = Path("report.html")
    """The page."""
    figures: Path | None = None
    """A folder for figures (PNG, SVG, PDF) and tables (Markdown, LaTeX, CSV)."""


def run(command: Command) -> None:
    """Write the page, then print what it says."""
    from sbil.api.report import report
    from sbil.reports.tables import json_text

    made = with_options(report, command)
    if command.json:
        print(json_text(made.as_json()))
        return
    print(made.summary or ", ".join(made.clinical))
    for title, sentences in made.verdict.items():
        print(f"\n{title}", *(f"  {sentence}" for sentence in sentences), sep="\n")
    print(f"\nwrote {', '.join(map(str, made.written))}")
