"""sbil report: results -> one HTML page that says what they mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from sbil.experiments import Result


EXAMPLES = (
    "sbil report results/ --out report.html",
    "sbil report grid/ more/cell.parquet --out report.html --figures figures/",
    "sbil report results/ --json",
)


@dataclass(frozen=True)
class Command:
    """Say what results mean: in sentences here, and in one HTML page that needs no server and no network.

    The page has the verdict, charts, every cell, the runs of each and how to run them again.
    """

    results: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RESULTS")]
    """Folders that `sbil reproduce` filled, or single files of them."""
    out: Path = Path("report.html")
    """The page."""
    figures: Path | None = None
    """A folder for figures (PNG, SVG, PDF) and tables (Markdown, LaTeX, CSV) as well."""
    json: bool = False
    """Print the sentences and one row a cell as JSON."""


def run(command: Command) -> None:
    """Write the page, then say what it says."""
    from sbil import files
    from sbil.experiments.store import read_all
    from sbil.reports import clinical, exports, labels, page, tables
    from sbil.reports.rows import cell_rows

    check(command)
    matched = clinical.found(command.results)
    if matched and not any(path.is_file() or any(path.glob("*.parquet")) for path in command.results):
        files.write_text(command.out, clinical.build(matched))
        names = [table["name"] for table in matched]
        written = {"clinical": names, "written": [str(command.out)]}
        print(tables.json_text(written) if command.json else f"{', '.join(names)}\n\nwrote {command.out}")
        return
    results = read_all(command.results, episodes=False)
    apart = labels.told_apart(results)
    facts = cell_rows(apart)
    files.write_text(command.out, page.build(results, facts, matched))
    paths = [command.out, *(exports.write(apart, facts, command.figures) if command.figures else [])]
    said = verdicts(apart)
    if command.json:
        print(tables.json_text({"verdict": said, "cells": facts, "written": list(map(str, paths))}))
        return
    print(page.summary(apart))
    for title, sentences in said.items():
        print(f"\n{title}", *(f"  {sentence}" for sentence in sentences), sep="\n")
    print(f"\nwrote {', '.join(map(str, paths))}")


def check(command: Command) -> None:
    """Refuse what is missing or stands in the way, before anything is read."""
    from sbil.errors import UserError

    if not command.results:
        raise UserError("say what to report on: a folder that `sbil reproduce` filled, or files of one.")
    if command.out.is_dir():
        raise UserError(f"{command.out} is a folder; give a file for the page, such as {command.out / 'report.html'}.")
    if command.figures is not None and command.figures.exists() and not command.figures.is_dir():
        raise UserError(f"{command.figures} is a file; give a folder for the figures.")


def verdicts(results: "Sequence[Result]") -> dict[str, list[str]]:
    """What all results say, then those of each setting; a single setting is all there is."""
    from sbil.reports import sentences
    from sbil.reports.cells import grouped, setting_of

    groups = grouped(results, setting_of)
    if len(groups) > 1:
        groups = {"all settings": list(results), **groups}
    return {name: sentences.sentences(here) for name, here in groups.items()}
