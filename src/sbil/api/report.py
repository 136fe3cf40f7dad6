"""Write the report of results: what `sbil report` does."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sbil import files
from sbil.errors import UserError
from sbil.experiments import Result
from sbil.experiments.store import read_all
from sbil.reports import clinical, exports, page, sentences
from sbil.reports.labels import told_apart
from sbil.reports.rows import cell_rows


@dataclass(frozen=True)
class ResultsReport:
    """What a report says, and the files it was written to.

    summary: how many cells, methods, settings and runs there are.
    verdict: the sentences on all results, then those on each setting.
    cells: one row of statistics per cell.
    clinical: the names of the clinical tables.
    """

    written: list[Path]
    summary: str = ""
    verdict: dict[str, list[str]] = field(default_factory=dict)
    cells: list[dict[str, Any]] = field(default_factory=list)
    clinical: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        content = {"verdict": self.verdict, "cells": self.cells} if self.cells else {"clinical": self.clinical}
        return {**content, "written": list(map(str, self.written))}


def report(
    results: Sequence[str | Path], out: str | Path = "report.html", figures: str | Path | None = None
) -> ResultsReport:
    """Write one HTML page that says what results mean.

        sbil.report(["grid/"], "report.html", figures="figures/")

    results: folders that `sbil reproduce` filled, or single files of them.
    out: the page.
    figures: a folder for figures (PNG, SVG, PDF) and tables (Markdown, LaTeX, CSV).
    """
    paths, out, folder = list(map(Path, results)), Path(out), Path(figures) if figures else None
    _check(paths, out, folder)
    return write(read_all(paths, episodes=False), out, folder)


def write(results: Sequence[Result], out: Path, figures: Path | None = None) -> ResultsReport:
    """Write the report of results that were read. Figures show results of environments only."""
    tables, played = clinical.apart(results)
    names = [table.task.title for table in tables]
    apart = told_apart(played)
    rows = cell_rows(apart)
    files.write_text(out, page.build(results, rows))
    if not apart:
        return ResultsReport([out], clinical=names)
    written = [out, *(exports.write(apart, rows, figures) if figures else [])]
    return ResultsReport(written, page.summary(apart), sentences.by_setting(apart), rows, names)


def _check(paths: Sequence[Path], out: Path, figures: Path | None) -> None:
    """Refuse missing results and unsuitable places before anything is read."""
    if not paths:
        raise UserError("say what to report on: a folder that `sbil reproduce` filled, or files of one.")
    if out.is_dir():
        raise UserError(f"{out} is a folder; give a file for the page, such as {out / 'report.html'}.")
    if figures is not None and figures.exists() and not figures.is_dir():
        raise UserError(f"{figures} is a file; give a folder for the figures.")
