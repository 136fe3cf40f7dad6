"""Tables of results: for the terminal, for Markdown, for LaTeX and as plain rows.

Tables of methods and sizes show ordinary cells only: cells without further states.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from itertools import starmap
from typing import Any

from rich.table import Column, Table

from sbil.errors import UserError
from sbil.experiments import Result
from sbil.experiments.environment import played
from sbil.reports import paper_numbers
from sbil.reports.cells import grouped, method_of, ordinary, setting_of
from sbil.reports.differences import few_draws
from sbil.reports.names import name_of, place_of
from sbil.reports.rows import aggregates
from sbil.statistics import Estimate, Interval, estimate
from sbil.text import counted, markdown_table


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV. An apostrophe is put before text that a spreadsheet would take for a formula."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _inert(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _inert(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def json_text(value: Any) -> str:
    """Return JSON, with null for NaN and infinity."""
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda name: None))


def bracketed(found: Estimate | Interval, form: str = ".3f") -> str:
    """Write a statistic with its interval as 0.812 [0.745, 0.871]; without an interval if it is NaN."""
    interval = "" if math.isnan(found.low) else f" [{found.low:{form}}, {found.high:{form}}]"
    return f"{found[0]:{form}}{interval}"


def grid(results: Sequence[Result], cell_text: Any) -> tuple[list[str], list[list[str]]]:
    """Return (header, lines) of one setting: methods down, sizes across."""
    results = ordinary(results)
    sizes = sorted({result.cell.size for result in results})
    found = {(method_of(result), result.cell.size): cell_text(result) for result in results}
    if len(found) < len(results):
        raise UserError("a table of methods and sizes shows one setting and one seed; bring them one at a time.")
    lines = [[method, *(found.get((method, size), "") for size in sizes)] for method in grouped(results, method_of)]
    return ["method", *(counted(size, "trajectory") for size in sizes)], lines


def with_interval(result: Result) -> str:
    """Write the score of a cell with its interval, and its diverged runs if there are any."""
    return bracketed(estimate(result.scores)) + _diverged(result)


def with_error(result: Result) -> str:
    """Write the score of a cell as the paper does, mean ± standard error, and its diverged runs."""
    return plus_minus(*estimate(result.scores)[:2]) + _diverged(result)


def with_printed(result: Result) -> str:
    """Write the score of a cell and the paper's; † marks cells that differ from it (`paper_numbers.differs`)."""
    printed = paper_numbers.counterpart(result)
    if printed is None:
        return with_error(result)
    mark = " †" if paper_numbers.differs(result) else ""
    return f"{with_error(result)} (printed: {plus_minus(*printed)}){mark}"


def plus_minus(mean: float, standard_error: float, digits: int = 3) -> str:
    """Write a mean ± its standard error, if it has one."""
    return f"{mean:.{digits}f}" + ("" if math.isnan(standard_error) else f" ± {standard_error:.{digits}f}")


def _diverged(result: Result) -> str:
    return f" ({result.diverged} of {len(result.cell.runs)} diverged)" if result.diverged else ""


def terminal(results: Sequence[Result], title: str) -> Table:
    """Return a table of one setting for the terminal."""
    (first, *sizes), lines = grid(results, with_interval)
    columns = [Column(first), *(Column(size, justify="right") for size in sizes)]
    table = Table(*columns, title=title, title_justify="left", caption=few_draws(ordinary(results)) or None)
    for line in lines:
        table.add_row(*line)
    return table


def markdown(results: Sequence[Result], cell_text: Any = with_error) -> str:
    """Return one Markdown table per setting; `cell_text` is with_error, with_interval, with_printed or your own."""
    parts = []
    for setting, here in grouped(ordinary(results), setting_of).items():
        header, lines = grid(here, cell_text)
        note = _note(here) if cell_text is with_interval else ""
        parts.append(f"**{setting}**\n\n" + markdown_table([header, *lines]) + note)
    return "\n".join(parts)


def _note(results: Sequence[Result]) -> str:
    """Return a paragraph for below a table whose intervals have too few draws."""
    text = few_draws(results)
    return f"\n{text}\n" if text else ""


def aggregate_markdown(results: Sequence[Result]) -> str:
    """Return the rows of `aggregates` as one Markdown table per setting, values with their 95 % intervals."""
    compared = ["difference from BC", "P(run above BC)", "clearly above", "clearly below"]
    header = ["method", "cells", "IQM", "mean", *compared]
    groups, parts = grouped(ordinary(results), setting_of), []
    for group, rows in grouped(aggregates(results), lambda row: row["group"]).items():
        lines = [header, *map(_aggregate_line, rows)]
        parts.append(f"**{group}**\n\n{markdown_table(lines)}{_note(groups[group])}")
    return "\n".join(parts)


def _aggregate_line(row: dict[str, Any]) -> list[str]:
    def text(name: str, form: str = ".3f") -> str:
        return bracketed(Interval(row[name], row[f"{name}_low"], row[f"{name}_high"]), form)

    diverged = f" ({row['diverged']} of {row['runs']} runs diverged)" if row["diverged"] else ""
    line = [name_of(row["method"]), str(row["cells"]), text("iqm") + diverged, text("mean")]
    if not row["compared"]:
        return [*line, "", "", "", ""]
    clear = [f"{row[name]} of {row['compared']}" for name in ("above", "below")]
    return [*line, text("difference", "+.3f"), text("improvement"), *clear]


def latex(results: Sequence[Result]) -> str:
    """Return one booktabs table per setting: mean ± standard error, and the paper's rows below ours."""
    return "\n".join(starmap(_latex_table, grouped(ordinary(results), setting_of).items()))


def _latex_table(setting: str, results: Sequence[Result]) -> str:
    results = sorted(results, key=lambda result: place_of(method_of(result)))
    task = played(results[0].cell)
    sizes = sorted({result.cell.size for result in results})
    _, ours = grid(results, _latex_cell)
    body = [[name_of(method).translate(LATEX), *cells] for method, *cells in ours]
    names = paper_numbers.NAMES.items()
    printed = [[f"printed: {name}", *_printed_cells(task.environment, sizes, method)] for method, name in names]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_caption(setting, results)}}}",
        rf"\label{{tab:{task.setting}{f'-seed{task.seed}' if task.seed else ''}}}",
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
    text = f"{setting.translate(LATEX)}: scaled return (random 0, demonstrator 1), mean $\\pm$ standard error"
    text += f" of {runs} runs."
    if any(paper_numbers.differs(result) for result in results):
        text += r" $\dagger$: more than two standard errors of the difference from the paper's value."
    return text + (" In brackets: runs that diverged." if any(result.diverged for result in results) else "")


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(result: Result) -> str:
    mark = r"^\dagger" if paper_numbers.differs(result) else ""
    diverged = f" [{result.diverged}]" if result.diverged else ""
    return _latex_value(*estimate(result.scores)[:2], mark) + diverged


def _printed_cells(environment: str, sizes: Sequence[int], method: str) -> list[str]:
    cells = [paper_numbers.printed(environment, size, method) for size in sizes]
    return [_latex_value(*cell) if cell else "" for cell in cells]


def _latex_value(mean: float, standard_error: float, mark: str = "") -> str:
    return f"${plus_minus(mean, standard_error)}{mark}$".replace("±", r"\pm")


LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
