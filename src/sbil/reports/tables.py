"""Tables of results: for the terminal, for Markdown and as plain rows."""

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from sbil.experiments.cell import Result
from sbil.reports.statistics import Estimate, estimate, sign_flip


def setting_of(result: Result) -> str:
    """What a table is about: environment, demonstrator and thinning."""
    cell = result.cell
    thinning = "every step" if cell.thin == 1 else f"every {cell.thin}th step"
    return f"{cell.environment}, {cell.demonstrator} demonstrator ({cell.mode}), {thinning}"


def rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row a cell: the estimate of its score, its mean return, and its diverged runs."""
    return [
        {
            "setting": setting_of(result),
            "method": str(result.cell.method),
            "size": result.cell.size,
            "runs": len(result.cell.runs),
            "diverged": int((result.diverged_at >= 0).sum()),
            "return": float(result.returns.mean()),
            **{f"score_{name}": value for name, value in estimate(result.scores)._asdict().items()},
        }
        for result in results
    ]


def differences(results: Sequence[Result], baseline: str = "bc") -> list[dict[str, Any]]:
    """Score minus the baseline's, run by run (same draw, same initialisation), with its interval."""
    base = {(setting_of(r), r.cell.size): r for r in results if str(r.cell.method) == baseline}
    pairs = [(r, base.get((setting_of(r), r.cell.size))) for r in results if str(r.cell.method) != baseline]
    return [
        {
            "setting": setting_of(result),
            "method": str(result.cell.method),
            "size": result.cell.size,
            "draws": result.cell.draws,
            **estimate(result.scores - other.scores)._asdict(),
            "p": sign_flip((result.scores - other.scores).mean(axis=1)),
        }
        for result, other in pairs
        if other is not None and other.scores.shape == result.scores.shape
    ]


FEWEST_DRAWS = 5  # below this an interval over draws says next to nothing


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
            "draw": draw,
            "initialisation": initialisation,
            "return": round(float(result.returns[i].mean()), 3),
            "score": round(float(result.scores[draw, initialisation]), 5),
            "diverged_at": int(result.diverged_at[i]),
            "chosen": result.choices[i],
        }
        for result in results
        for i, (draw, initialisation) in enumerate(result.cell.runs)
    ]


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


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
    if math.isnan(value.low):
        return f"{value.mean:.3f}"
    return f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def grid(results: Sequence[Result], cell_text: Any) -> tuple[list[str], list[list[str]]]:
    """(header, lines): methods down, sizes across."""
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
    return f"{value.mean:.3f} ± {value.standard_error:.3f}" + _diverged(result)


def _diverged(result: Result) -> str:
    count = int((result.diverged_at >= 0).sum())
    return f" ({count} of {len(result.cell.runs)} diverged)" if count else ""


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
    """One Markdown table a setting."""
    parts = []
    for setting in dict.fromkeys(setting_of(result) for result in results):
        header, lines = grid([r for r in results if setting_of(r) == setting], cell_text)
        table = [header, ["---"] * len(header), *lines]
        parts.append(f"**{setting}**\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in table))
    return "\n\n".join(parts) + "\n"
