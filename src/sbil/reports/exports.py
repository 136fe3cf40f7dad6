"""Every table and figure of a set of results as files: Markdown, LaTeX and CSV; PNG, SVG and PDF."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sbil import files
from sbil.experiments import Result
from sbil.reports import figures, tables
from sbil.reports.cells import grouped, is_ordinary, method_of
from sbil.reports.differences import few_draws
from sbil.reports.names import MAIN, place_of
from sbil.reports.rows import run_rows

DRAWN = 8  # methods that a figure can show and stay legible
DIAGNOSED = ("policy_loss", "energy_gap", "energy", "chain_size")


def write(results: Sequence[Result], facts: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Write tables and figures into a folder and return their paths; `facts` are the `cell_rows` of the results."""
    files.sweep(folder)
    texts, plots = _texts(results, facts), _plots(shown(results))
    for name, text in texts.items():
        files.write_text(folder / name, text)
    for name, figure in plots.items():
        for kind in figures.STAMPS:
            figures.write(figure, folder / f"{name}.{kind}")
    return [*(folder / name for name in texts), *(folder / f"{name}.png" for name in plots)]


def _texts(results: Sequence[Result], facts: Sequence[dict[str, Any]]) -> dict[str, str]:
    texts = {"cells.csv": tables.csv_text(facts), "runs.csv": tables.csv_text(run_rows(results))}
    if any(is_ordinary(result.cell) for result in results):
        texts["tables.md"] = tables.markdown(results, tables.with_printed) + "\n" + tables.aggregate_markdown(results)
        texts["tables.tex"] = tables.latex(results)
    return texts


def _plots(results: Sequence[Result]) -> dict[str, Figure]:
    main = [result for result in results if is_ordinary(result.cell)]
    apart = [result for result in results if not is_ordinary(result.cell)]
    plots = {}
    if main:
        plots["return_against_size"] = _noted(figures.against_size(main, printed=True), main)
        plots["profile"] = _noted(figures.profile(main), main)
    if apart:
        plots["semi_supervised"] = _noted(figures.semi_supervised(results), apart)
    least = min((result.cell.size for result in main), default=0)
    followed = [result for result in main if result.cell.size == least and len(result.points) > 1]
    known = [name for name in DIAGNOSED if any(name in result.curves for result in followed)]
    if known:
        plots["diagnostics"] = figures.diagnostics(followed, known)
    return plots


def _noted(figure: Figure, results: Sequence[Result]) -> Figure:
    """Say above a figure that its intervals have too few draws."""
    if note := few_draws(results):
        figure.suptitle(note, fontsize=8)
    return figure


def shown(results: Sequence[Result]) -> list[Result]:
    """Return the cells of the methods that a figure has room for: the first in the order of tables."""
    kept = sorted(grouped(results, method_of), key=lambda method: (method not in MAIN, place_of(method)))[:DRAWN]
    return [result for result in results if method_of(result) in kept]
