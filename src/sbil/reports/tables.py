"""Tables of results: for the terminal, for Markdown, for LaTeX and as plain rows.

Tables of methods and sizes show ordinary cells only, those without unlabelled trajectories.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
from rich.table import Table

from sbil.errors import UserError
from sbil.experiments import Result
from sbil.reports import paper, statistics
from sbil.reports.names import name_of, place_of
from sbil.reports.statistics import Estimate, Interval, estimate, sign_flip

Key = TypeVar("Key", bound=Hashable)


def setting_of(result: Result) -> str:
    """What a table is about: environment, demonstrator and thinning."""
    cell = result.cell
    thinning = "every step" if cell.thin == 1 else f"every {cell.thin}th step"
    return f"{cell.environment}, {cell.demonstrator} demonstrator ({cell.mode}), {thinning}"


def grouped(results: Sequence[Result], key: Callable[[Result], Key]) -> dict[Key, list[Result]]:
    """Results by what `key` says of them, in the order in which they come."""
    groups: dict[Key, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def distinct(results: Sequence[Result]) -> list[Result]:
    """The same cells; refused if two would stand in one place of a table or figure."""
    seen = set()
    for cell in (result.cell for result in results):
        if str(cell) in seen:
            raise UserError(f"{cell} is there twice, run in different ways; bring one grid at a time.")
        seen.add(str(cell))
    return list(results)


def ordinary(results: Sequence[Result]) -> list[Result]:
    """The cells without unlabelled trajectories, one for each setting, method and size."""
    return distinct([result for result in results if not result.cell.unlabelled])


def differences(results: Sequence[Result], baseline: str = "bc") -> list[dict[str, Any]]:
    """Score minus the baseline's, run by run (same draw, same initialisation), with its interval."""
    return [
        {
            "setting": setting_of(result),
            "method": str(result.cell.method),
            "size": result.cell.size,
            **_difference(result, other),
        }
        for result, other in _pairs(ordinary(results), results, baseline)
    ]


def _pairs(results: Sequence[Result], every: Sequence[Result], baseline: str) -> list[tuple[Result, Result]]:
    """Each cell with the ordinary cell of the baseline that has the same setting, size and runs, where there is one."""
    base = {(r.cell.setting, r.cell.size): r for r in ordinary(every) if str(r.cell.method) == baseline}
    pairs = [(result, base.get((result.cell.setting, result.cell.size))) for result in results]
    return [(r, other) for r, other in pairs if other and other is not r and other.scores.shape == r.scores.shape]


def _difference(result: Result, other: Result) -> dict[str, Any]:
    values = result.scores - other.scores
    return {"draws": len(values), **estimate(values)._asdict(), "p": sign_flip(values.mean(axis=1))}


FEWEST_DRAWS = 6  # with fewer the signs of no difference give p < 0.05


def verdict(row: dict[str, Any]) -> str:
    """A difference from the baseline in words: clear if its interval and random signs both say so."""
    if row["draws"] < FEWEST_DRAWS:
        return f"too few draws to tell ({row['draws']})"
    if row["p"] >= 0.05:
        return "no clear difference"
    return "above" if row["low"] > 0 else "below" if row["high"] < 0 else "no clear difference"


def run_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row a run: everything that a statistic over runs needs."""
    return [
        {
            "environment": result.cell.environment,
            "demonstrator": result.cell.demonstrator,
            "mode": result.cell.mode,
            "thin": result.cell.thin,
            "method": str(result.cell.method),
            "size": result.cell.size,
            "unlabelled": result.cell.unlabelled,
            "draw": draw,
            "initialisation": initialisation,
            "return": round(float(result.returns[i].mean()), 3),
            "score": round(float(result.scores[draw, initialisation]), 5),
            "diverged_at": int(result.diverged_at[i]),
            "chosen": result.chosen[i] if result.chosen else "",
        }
        for result in results
        for i, (draw, initialisation) in enumerate(result.cell.runs)
    ]


def cell_rows(results: Sequence[Result], baseline: str = "bc") -> list[dict[str, Any]]:
    """One row a cell, whole: its statistics, the difference from the baseline, and what the paper prints.

    With unlabelled trajectories the difference is from the baseline that has the same decisions and nothing else.
    """
    others = {id(result): other for result, other in _pairs(results, results, baseline)}
    return [_cell_row(result, others.get(id(result))) for result in results]


def _cell_row(result: Result, other: Result | None) -> dict[str, Any]:
    difference = _difference(result, other) if other else {}
    printed = paper.counterpart(result)
    row = {
        "setting": setting_of(result),
        "method": str(result.cell.method),
        "size": result.cell.size,
        "unlabelled": result.cell.unlabelled,
        "runs": len(result.cell.runs),
        "diverged": result.diverged,
        **estimate(result.scores)._asdict(),
        **_columns("iqm", statistics.aggregate([result.scores[None]])),
        "difference": difference.get("mean"),
        "difference_low": difference.get("low"),
        "difference_high": difference.get("high"),
        "p": difference.get("p"),
        "verdict": verdict(difference) if difference else None,
        "printed_mean": printed.mean if printed else None,
        "printed_standard_error": printed.standard_error if printed else None,
        "differs": paper.differs(result) if printed else None,
    }
    return {name: _tidy(value) for name, value in row.items()}


def _tidy(value: Any) -> Any:
    """Numbers with six decimals, and nothing for those that are not there."""
    if not isinstance(value, float):
        return value
    return round(value, 6) if math.isfinite(value) else None


def strata(results: Sequence[Result]) -> list[np.ndarray]:
    """Scores of cells as statistics take them: [cells, draws, initialisations] for each environment.

    There the draws of all settings and sizes have the same seeds, initial weights and live episodes, so they are not
    independent. Cells with another number of runs are strata of their own.
    """
    groups: dict[tuple[str, tuple[int, ...]], list[np.ndarray]] = {}
    for result in sorted(results, key=lambda result: (result.cell.setting, result.cell.size)):
        groups.setdefault((result.cell.environment, result.scores.shape), []).append(result.scores)
    return [np.stack(scores) for scores in groups.values()]


def aggregates(
    results: Sequence[Result], baseline: str = "bc", by: Callable[[Result], str] = setting_of
) -> list[dict[str, Any]]:
    """One row a setting (or whatever `by` gives) and method, over all its cells.

    Compared with the baseline are the cells that both have: the mean difference, the probability that a run beats one
    of the baseline's, and the number of cells in which the method is clearly above or below it.
    """
    found: dict[tuple[str, str], list[Result]] = {}
    for result in ordinary(results):
        found.setdefault((by(result), str(result.cell.method)), []).append(result)
    places = {group: place for place, (group, _) in enumerate(found)}
    keys = sorted(found, key=lambda key: (places[key[0]], place_of(key[1])))
    return [{"group": key[0], "method": key[1], **_aggregate(found[key], results, baseline)} for key in keys]


def _aggregate(mine: Sequence[Result], every: Sequence[Result], baseline: str) -> dict[str, Any]:
    pairs = _pairs(mine, every, baseline)
    ours, theirs = strata([result for result, _ in pairs]), strata([other for _, other in pairs])
    verdicts = [verdict(_difference(result, other)) for result, other in pairs]
    return {
        "cells": len(mine),
        "runs": sum(len(result.cell.runs) for result in mine),
        "diverged": sum(result.diverged for result in mine),
        **_columns("iqm", statistics.aggregate(strata(mine))),
        **_columns("mean", statistics.aggregate(strata(mine), statistics.mean)),
        "compared": len(pairs),
        **_columns("difference", statistics.difference(ours, theirs) if pairs else None),
        **_columns("improvement", statistics.improvement(ours, theirs) if pairs else None),
        "above": verdicts.count("above"),
        "below": verdicts.count("below"),
    }


def _columns(name: str, interval: Interval | None) -> dict[str, float | None]:
    value, low, high = interval or (None, None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV; a text that a spreadsheet would take for a formula is quoted by an apostrophe."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _inert(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _inert(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def json_text(value: Any) -> str:
    """JSON, with null for numbers that are not there."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [plain(entry) for entry in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(value))


def short(value: Estimate) -> str:
    """0.812 [0.745, 0.871]; a single run has no interval."""
    return _bracketed(value.mean, value.low, value.high)


def _bracketed(value: float, low: float, high: float, form: str = ".3f") -> str:
    return f"{value:{form}}" if math.isnan(low) else f"{value:{form}} [{low:{form}}, {high:{form}}]"


def grid(results: Sequence[Result], cell_text: Any) -> tuple[list[str], list[list[str]]]:
    """(header, lines): methods down, sizes across."""
    results = ordinary(results)
    sizes = sorted({result.cell.size for result in results})
    methods = list(dict.fromkeys(str(result.cell.method) for result in results))
    found = {(str(r.cell.method), r.cell.size): r for r in results}
    lines = [
        [method, *(cell_text(found[method, size]) if (method, size) in found else "" for size in sizes)]
        for method in methods
    ]
    return ["method", *(f"{size} trajectories" if size > 1 else "1 trajectory" for size in sizes)], lines


def with_interval(result: Result) -> str:
    """The score of a cell with its interval, and its diverged runs if it has any."""
    return short(estimate(result.scores)) + _diverged(result)


def with_error(result: Result) -> str:
    """The score of a cell as the paper prints it, mean ± standard error, and its diverged runs."""
    value = estimate(result.scores)
    return _plus_minus(value.mean, value.standard_error) + _diverged(result)


def with_printed(result: Result) -> str:
    """The score of a cell and, where the paper has it, the printed one; † where they differ (`paper.differs`)."""
    printed = paper.counterpart(result)
    if printed is None:
        return with_error(result)
    mark = " †" if paper.differs(result) else ""
    return f"{with_error(result)} (printed: {_plus_minus(*printed)}){mark}"


def _plus_minus(mean: float, standard_error: float) -> str:
    return f"{mean:.3f}" if math.isnan(standard_error) else f"{mean:.3f} ± {standard_error:.3f}"


def _diverged(result: Result) -> str:
    return f" ({result.diverged} of {len(result.cell.runs)} diverged)" if result.diverged else ""


def terminal(results: Sequence[Result], title: str) -> Table:
    """A table for the terminal."""
    header, lines = grid(results, with_interval)
    table = Table(title=title, title_justify="left")
    for name in header:
        table.add_column(name, justify="left" if name == "method" else "right")
    for line in lines:
        table.add_row(*line)
    return table


def markdown(results: Sequence[Result], cell_text: Any = with_error) -> str:
    """One Markdown table a setting; `cell_text` is with_error, with_interval, with_printed or your own."""
    parts = []
    for setting, here in _by_setting(results):
        header, lines = grid(here, cell_text)
        parts.append(f"**{setting}**\n\n" + _markdown(header, lines))
    return "\n".join(parts)


def aggregate_markdown(
    results: Sequence[Result], baseline: str = "bc", by: Callable[[Result], str] = setting_of
) -> str:
    """The rows of `aggregates` as one Markdown table a setting, values with their 95 % intervals."""
    name = name_of(baseline)
    compared = [f"difference from {name}", f"P(run above {name})", "clearly above", "clearly below"]
    header = ["method", "cells", "IQM", "mean", *compared]
    rows = aggregates(results, baseline, by)
    parts = []
    for group in dict.fromkeys(row["group"] for row in rows):
        lines = [_aggregate_line(row) for row in rows if row["group"] == group]
        parts.append(f"**{group}**\n\n" + _markdown(header, lines))
    return "\n".join(parts)


def _aggregate_line(row: dict[str, Any]) -> list[str]:
    def text(name: str, form: str = ".3f") -> str:
        return _bracketed(row[name], row[f"{name}_low"], row[f"{name}_high"], form)

    diverged = f" ({row['diverged']} of {row['runs']} runs diverged)" if row["diverged"] else ""
    line = [name_of(row["method"]), str(row["cells"]), text("iqm") + diverged, text("mean")]
    if not row["compared"]:
        return [*line, "", "", "", ""]
    clear = [f"{row[name]} of {row['compared']}" for name in ("above", "below")]
    return [*line, text("difference", "+.3f"), text("improvement"), *clear]


def _by_setting(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    return list(grouped(ordinary(results), setting_of).items())


def _markdown(header: list[str], lines: list[list[str]]) -> str:
    table = [header, ["---"] * len(header), *lines]
    return "".join("| " + " | ".join(line) + " |\n" for line in table)


def latex(results: Sequence[Result]) -> str:
    """One booktabs table a setting: mean ± standard error, and the paper's printed rows below ours."""
    return "\n".join(_latex_table(setting, here) for setting, here in _by_setting(results))


def _latex_table(setting: str, results: Sequence[Result]) -> str:
    results = sorted(results, key=lambda result: place_of(str(result.cell.method)))
    cell = results[0].cell
    sizes = sorted({result.cell.size for result in results})
    _, ours = grid(results, _latex_cell)
    body = [[_escaped(name_of(method)), *cells] for method, *cells in ours]
    printed = [[f"printed: {name}", *_printed_cells(cell.environment, sizes, m)] for m, name in paper.NAMES.items()]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_caption(setting, results)}}}",
        rf"\label{{tab:{cell.setting}}}",
        rf"\begin{{tabular}}{{l{'r' * len(sizes)}}}",
        r"\toprule",
        _latex_line(["trajectories", *map(str, sizes)]),
        r"\midrule",
        *map(_latex_line, body),
        *([r"\midrule", *map(_latex_line, printed)] if any(any(line[1:]) for line in printed) else []),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _caption(setting: str, results: Sequence[Result]) -> str:
    runs = " or ".join(map(str, sorted({len(result.cell.runs) for result in results})))
    text = rf"{_escaped(setting)}: scaled return (random 0, demonstrator 1), mean $\pm$ standard error of {runs} runs."
    if any(paper.differs(result) for result in results):
        text += r" $\dagger$: more than two standard errors of the difference from what the paper prints."
    return text + (" In brackets: runs that diverged." if any(result.diverged for result in results) else "")


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(result: Result) -> str:
    value = estimate(result.scores)
    mark = r"^\dagger" if paper.differs(result) else ""
    diverged = f" [{result.diverged}]" if result.diverged else ""
    return _latex_value(value.mean, value.standard_error, mark) + diverged


def _printed_cells(environment: str, sizes: Sequence[int], method: str) -> list[str]:
    cells = [paper.printed(environment, size, method) for size in sizes]
    return [_latex_value(*cell) if cell else "" for cell in cells]


def _latex_value(mean: float, standard_error: float, mark: str = "") -> str:
    return f"${_plus_minus(mean, standard_error)}{mark}$".replace("±", r"\pm")


LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def _escaped(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)
