"""sbil report: results -> one HTML page, and tables and figures for print."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    """A folder for figures (PNG, SVG) and tables (Markdown, LaTeX, CSV) as well."""
    json: bool = False
    """Print the sentences and one row a cell as JSON."""


def run(command: Command) -> None:
    """Write the page, then say what it says."""
    from sbil.reports import page, tables

    results = read(command.results)
    apart = page.told_apart(results)
    facts = tables.cell_rows(apart)
    written = write(results, facts, command.out, command.figures)
    said = verdicts(apart)
    if command.json:
        print(tables.json_text({"verdict": said, "cells": facts, "written": list(map(str, written))}))
        return
    print(page.summary(apart))
    for title, sentences in said.items():
        print(f"\n{title}", *(f"  {sentence}" for sentence in sentences), sep="\n")
    print(f"\nwrote {', '.join(map(str, written))}")


def write_report(paths: Sequence[Path], out: Path, figures: Path | None = None) -> str:
    """The report of files and folders, for other commands; says in a line what was written."""
    from sbil.reports import page, tables

    results = read(paths)
    written = write(results, tables.cell_rows(page.told_apart(results)), out, figures)
    return f"wrote {', '.join(map(str, written))}"


def read(paths: Sequence[Path]) -> "list[Result]":
    """The cells of files and folders."""
    from sbil.errors import UserError
    from sbil.experiments.store import read_all

    if not paths:
        raise UserError("say what to report on: a folder that `sbil reproduce` filled, or files of one.")
    return read_all(paths)


def verdicts(results: "Sequence[Result]") -> dict[str, list[str]]:
    """What all results say, then those of each setting; a single setting is all there is."""
    from sbil.reports import tables, verdict

    groups: dict[str, list[Result]] = {"all settings": list(results)}
    for result in results:
        groups.setdefault(tables.setting_of(result), []).append(result)
    if len(groups) == 2:
        del groups["all settings"]
    return {name: verdict.sentences(here) for name, here in groups.items()}


def write(results: "Sequence[Result]", facts: list[dict[str, Any]], out: Path, figures: Path | None) -> list[Path]:
    """Write the page, and tables and figures if they have a place; returns the files."""
    from sbil import files
    from sbil.errors import UserError
    from sbil.reports import page

    if out.is_dir():
        raise UserError(f"{out} is a folder; give a file for the page, such as {out / 'report.html'}.")
    if figures is not None and figures.exists() and not figures.is_dir():
        raise UserError(f"{figures} is a file; give a folder for the figures.")
    files.write_text(out, page.build(results, facts))
    if figures is None:
        return [out]
    apart = page.told_apart(results)
    return [out, *write_tables(apart, facts, figures), *write_figures(apart, figures)]


def write_tables(results: "Sequence[Result]", facts: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Cells and runs as CSV; in Markdown and LaTeX the cells beside the paper's, and methods over all sizes."""
    from sbil import files
    from sbil.reports import page, tables

    texts = {"cells.csv": tables.csv_text(facts), "runs.csv": tables.csv_text(tables.run_rows(results))}
    if any(result.cell.unlabelled == 0 for result in results):
        texts["cells.md"] = tables.markdown(results, tables.with_printed)
        texts["cells.tex"] = tables.latex(results)
        texts["overall.md"] = tables.aggregate_markdown(page.shown(results))
    for name, text in texts.items():
        files.write_text(folder / name, text)
    return [folder / name for name in texts]


def write_figures(results: "Sequence[Result]", folder: Path) -> list[Path]:
    """Figures of the methods that the page shows when it opens, as PNG and SVG."""
    from sbil.reports import figures, page

    shown = page.shown(results)
    labelled = [result for result in shown if result.cell.unlabelled == 0]
    drawn: dict[str, Any] = {}
    if labelled:
        drawn["return"] = figures.against_size(labelled)
        drawn["return_and_printed"] = figures.against_size(labelled, printed=True)
        drawn["profile"] = figures.profile(labelled)
    if len(labelled) < len(shown):
        drawn["unlabelled"] = figures.semi_supervised(shown)
    for setting in dict.fromkeys(result.cell.setting for result in labelled):
        here = [result for result in labelled if result.cell.setting == setting and len(result.points) > 1]
        metrics = {name for result in here if result.cell.method.algorithm == "edm" for name in result.curves}
        metrics = metrics or {name for result in here for name in result.curves}
        if metrics:
            name = re.sub(r"[^\w.-]", "_", setting)  # it comes from a file, and becomes the name of one
            drawn[f"diagnostics-{name}"] = figures.diagnostics(here, sorted(metrics))
    paths = [folder / f"{name}.{kind}" for name in drawn for kind in ("png", "svg")]
    for path in paths:
        figures.write(drawn[path.stem], path)
    return paths
