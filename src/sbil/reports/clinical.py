"""The clinical tables in the report: how well held-out decisions of recorded patients are matched."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sbil.errors import UserError
from sbil.reports import html, paper_numbers
from sbil.reports.html import Html, tag
from sbil.reports.names import name_of

FOLDER = "clinical"  # inside a folder of results
METRICS = {"accuracy": "ACC", "auc": "AUC", "apr": "APR"}
Table = dict[str, Any]  # what clinical.table.as_json gives


def found(paths: Iterable[Path]) -> list[Table]:
    """The clinical tables that lie in folders of results."""
    files = [file for path in paths if path.is_dir() for file in sorted((path / FOLDER).glob("*.json"))]
    return [_read(file) for file in files]


def _read(path: Path) -> Table:
    try:
        table: Table = json.loads(path.read_bytes())
        for method in table["methods"].values():
            metrics = (*METRICS, *dict(table.get("played", {})))
            _ = [method["scores"][metric]["mean"] for metric in metrics], method["diverged"]
        _ = table["name"], table["splits"], table["held_out"] / 1
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: not a table of `sbil reproduce`; delete it and run the command again.") from None
    return table


def printed(name: str) -> dict[str, dict[str, tuple[float, float]]]:
    """What the paper prints of a dataset, by our methods and its metrics."""
    rows: dict[str, dict[str, tuple[float, float]]] = {}
    for method, theirs in paper_numbers.COUNTERPARTS.items():
        cells = {metric: paper_numbers.printed_metric(name, metric, theirs) for metric in METRICS.values()}
        rows[method] = {metric: (cell.mean, cell.standard_error) for metric, cell in cells.items() if cell}
    return {method: cells for method, cells in rows.items() if cells}


def build(tables: Sequence[Table]) -> str:
    """The page of clinical tables where there are no other results."""
    titles = "; ".join(str(table["name"]) for table in tables)
    return html.page("clinical", {}, looks="page", title=titles, clinical=section(tables))


def section(tables: Sequence[Table]) -> Html:
    """The part of the page; nothing where there is no table."""
    if not tables:
        return Html("")
    note = (
        "Mean ± standard error over random splits, as the paper prints them: by patient where the data say who that "
        "is, else by stay or episode. ACC is the share of held-out decisions that are met; AUC and APR are macro "
        "one-vs-rest. The splits share most of their data, so the standard error says how much another split would "
        "change a number; the intervals of the differences from BC allow for that (Nadeau and Bengio 2003)."
    )
    boxes = [tag("details", tag("summary", _title(table)), *_notes(table), _grid(table), open="") for table in tables]
    head = tag("h2", "Clinical data", id="clinical-title")
    parts = head, tag("div", *boxes, class_="stack"), tag("p", note, class_="note")
    return tag("section", *parts, id="clinical", aria_labelledby="clinical-title")


def _title(table: Table) -> str:
    splits = f"{table['splits']} split{'s' * (table['splits'] != 1)}"
    return f"{table['name']}: {splits}, {100 * table['held_out']:g} % held out"


def _notes(table: Table) -> list[Html]:
    notes = table.get("notes") or []
    return [tag("p", " ".join(map(str, notes)), class_="note")] if notes else []


def _grid(table: Table) -> Html:
    theirs, played = printed(table["name"]), dict(table.get("played", {}))
    heads = [
        "Method",
        *METRICS.values(),
        *played.values(),
        "ACC minus BC",
        "AUC minus BC",
        *(["printed ACC"] if theirs else []),
    ]
    kinds = ["words", *["number"] * (len(heads) - 1)]
    head = tag("tr", *(tag("th", name, scope="col", class_=kind) for name, kind in zip(heads, kinds, strict=True)))
    body = []
    for method, values in table["methods"].items():
        texts = [_score(values["scores"][metric]) for metric in METRICS]
        texts += [_score(values["scores"][metric], digits=4) for metric in played]
        less = values.get("minus_bc") or {}
        texts += [_difference(less.get(metric)) if method != "bc" else "" for metric in ("accuracy", "auc")]
        if theirs:
            cell = theirs.get(method, {}).get("ACC")
            texts.append(f"{cell[0]:.3f} ± {cell[1]:.3f}" if cell else "")
        fewer = values.get("splits", table["splits"])
        remarks = [f"{fewer} of {table['splits']} splits"] * (fewer < table["splits"])
        remarks += [f"diverged in {values['diverged']}"] * bool(values["diverged"])
        lost = f" ({', '.join(remarks)})" if remarks else ""
        cells = [tag("td", text, class_="number") for text in texts]
        body.append(tag("tr", tag("th", name_of(method) + lost, scope="row"), *cells))
    inside = tag("caption", table["name"], class_="hidden"), tag("thead", head), tag("tbody", *body)
    box = tag("table", *inside, class_="plain")
    return tag("div", box, class_="scroll", role="region", aria_label=f"Clinical table {table['name']}", tabindex=0)


def _score(score: dict[str, float | None], digits: int = 3) -> str:
    if score["mean"] is None:
        return "–"
    error = score.get("standard_error")
    return f"{score['mean']:.{digits}f}" + (f" ± {error:.{digits}f}" if error is not None else "")


def _difference(score: dict[str, float | None] | None) -> str:
    if not score or score["mean"] is None:
        return ""
    low, high = score.get("low"), score.get("high")
    interval = f" [{_signed(low)}, {_signed(high)}]" if low is not None and high is not None else ""
    return _signed(score["mean"]) + interval


def _signed(value: float) -> str:
    """+0.0012, in the four digits of the Markdown table; a zero has a plus."""
    return f"{round(value, 4) + 0.0:+.4f}".replace("-", "−")
