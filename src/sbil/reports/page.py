"""The report: one HTML page that holds everything it shows, opens from a disk and loads nothing else.

Equal results give equal bytes.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from sbil.experiments import Result
from sbil.experiments.result import SECONDS
from sbil.reports import clinical, commands, html, labels, page_data, sentences
from sbil.reports.cells import grouped, is_ordinary, method_of, setting_of, two_lines
from sbil.reports.differences import FEWEST_DRAWS, few_draws
from sbil.reports.html import Html, folded, joined, stack, tag
from sbil.reports.names import MAIN, name_of
from sbil.reports.page_data import beyond
from sbil.reports.rows import aggregates, cell_rows
from sbil.text import counted

FROM_PYTHON = "From Python: sbil reproduce has no option for another seed or for every state."
EVERY = (
    "If “all” follows the number of further trajectories, every state is shown, also the states of thinned decisions."
)
GLYPHS = {"above": "▲", "below": "▼", "no clear difference": "·"}


def build(results: Sequence[Result], facts: Sequence[dict[str, Any]] | None = None) -> str:
    """Return the page of results. Their order does not matter.

    facts: the `cell_rows` of `labels.told_apart` of the results of environments, if they are known already.
    """
    tables, played = clinical.apart(results)
    if not played:
        return clinical.build(tables)
    apart = labels.told_apart(played)
    facts, compared = facts or cell_rows(apart), sentences.comparisons(apart)
    return html.page(
        "page",
        page_data.plain(page_data.data(apart, facts)),
        title=summary(apart),
        few=f" {few_draws(apart)}".rstrip(),
        every=f" {EVERY}" if any(result.cell.task.every_state for result in apart) else "",
        verdict=_sentences(sentences.sentences(apart, compared)),
        glance=_glance(compared),
        settings=_by_setting(apart, compared),
        overall=_overall(shown(apart)),
        tables=_tables(apart, facts),
        clinical=clinical.section(tables),
        clinical_link=tag("a", "Clinical", href="#clinical") if tables else Html(""),
        commands=_commands(played),
        provenance=_provenance(apart),
    )


def shown(results: Sequence[Result]) -> list[Result]:
    """Return the cells of the main methods, which are shown first, or all cells if there are none of them."""
    return [result for result in results if method_of(result) in MAIN] or list(results)


def summary(results: Sequence[Result]) -> str:
    """ "575 cells, 23 methods, 5 settings, 28,750 runs"."""
    counts = {
        "cell": len(results),
        "method": len(grouped(results, method_of)),
        "setting": len(grouped(results, setting_of)),
        "run": sum(len(result.cell.runs) for result in results),
    }
    return ", ".join(counted(count, name) for name, count in counts.items())


def _sentences(sentences: Iterable[str]) -> Html:
    """Make a list of sentences. The subject stands before the colon; each part after it gets its own line."""
    items = []
    for sentence in sentences:
        subject, _, rest = sentence.partition(": ")
        parts = re.sub(r"(?<=[ (])-(?=\d)", "−", rest or subject).split("; ")
        head = [tag("strong", subject)] if rest else []
        items.append(tag("li", *head, *(tag("span", part.rstrip(".")) for part in parts)))
    return tag("ul", *items, class_="verdict")


def _by_setting(results: Sequence[Result], compared: Sequence[dict[str, Any]]) -> Html:
    """Show the sentences of each setting, if there are several settings."""
    settings = grouped(results, setting_of)
    if len(settings) == 1:
        return Html("")
    rows = grouped(compared, lambda row: row["setting"])
    cards = [
        folded(setting, _sentences(sentences.sentences(here, rows.get(setting, []))))
        for setting, here in settings.items()
    ]
    return joined([tag("h3", "Setting by setting"), stack(cards)])


def _glance(compared: Sequence[dict[str, Any]]) -> Html:
    """Show where EDM is clearly above or below each baseline: settings down, sizes across."""
    if not compared:
        return Html("")
    first = compared[0]["method"]
    kept = [row for row in compared if row["method"] == first or row["baseline"] == "bc"]
    pairs = list(dict.fromkeys((row["method"], row["baseline"]) for row in kept))
    sizes = sorted({row["size"] for row in compared})
    edges = Html("".join(f'<col class="{_edge(size, sizes)}">' for _ in pairs for size in sizes))
    columns, head = tag("colgroup", Html('<col class="label">'), edges), _glance_head(pairs, sizes)
    narrow = {1: " one", 2: " two"}.get(len(sizes), "")  # wider columns, so that their heading has room
    body, title = _glance_body(compared, pairs, sizes), "EDM at a glance"
    table = html.table(title, columns, head, body, caption=title, look=f"glance{narrow}")
    key = "▲ clearly above, ▼ clearly below, · no clear difference, ? too few draws; by number of trajectories."
    return joined([tag("h3", title), table, tag("p", key, class_="note")])


def _glance_head(pairs: Sequence[tuple[str, str]], sizes: Sequence[int]) -> Html:
    heads = []
    for form, baseline in pairs:
        names = tag("span", name_of(form)), tag("span", f"against {name_of(baseline)}")
        heads.append(tag("th", *names, colspan=len(sizes), scope="colgroup"))
    numbers = [tag("th", str(size), scope="col", class_=_edge(size, sizes)) for _ in pairs for size in sizes]
    return tag("thead", tag("tr", tag("td"), *heads), tag("tr", tag("td"), *numbers))


def _glance_body(compared: Sequence[dict[str, Any]], pairs: Sequence[tuple[str, str]], sizes: Sequence[int]) -> Html:
    found = {(row["setting"], row["method"], row["baseline"], row["size"]): row for row in compared}
    lines = []
    for setting in grouped(compared, lambda row: row["setting"]):
        name = tag("th", *(tag("span", line) for line in two_lines(setting)), scope="row")
        marks = [_mark(found.get((setting, *pair, size)), _edge(size, sizes)) for pair in pairs for size in sizes]
        lines.append(tag("tr", name, *marks))
    return tag("tbody", *lines)


def _edge(size: int, sizes: Sequence[int]) -> str:
    return "first" if size == sizes[0] else "inner"


def _mark(row: dict[str, Any] | None, edge: str) -> Html:
    if row is None:
        return tag("td", class_=edge)
    kind = row["verdict"] if row["verdict"] in ("above", "below") else "unclear"
    words = f"{row['verdict']}, {_interval(row['mean'], row['low'], row['high'], signed=True)}"
    glyph = tag("span", GLYPHS.get(row["verdict"], "?"), aria_hidden="true")
    return tag("td", glyph, tag("span", words, class_="hidden"), class_=f"{kind} {edge}", title=words)


def _number(value: float | None, signed: bool = False) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{round(value, 3) + 0.0:{'+' if signed else ''}.3f}".replace("-", "−")


def _columns(row: dict[str, Any], name: str, signed: bool = False) -> str:
    """Write the entries of a row whose names start with `name`, or "" if there are none."""
    return "" if row[name] is None else _interval(row[name], row[f"{name}_low"], row[f"{name}_high"], signed)


def _interval(value: float, low: float | None, high: float | None, signed: bool = False) -> str:
    """Write a value with its interval as 0.812 [0.745, 0.871]."""
    interval = f" [{_number(low, signed)}, {_number(high, signed)}]"
    return _number(value, signed) + (interval if low is not None and math.isfinite(low) else "")


def _shown(row: dict[str, Any], draws: int) -> dict[str, tuple[str, float | None]]:
    """Return the columns of a cell in the table: the text, and the number by which the column is sorted."""
    printed, error = row["printed_mean"], row["printed_standard_error"]
    every = bool(row.get("every_state"))
    few = f" ({counted(draws, 'draw')})" if draws < FEWEST_DRAWS and row["low"] is not None else ""
    return {
        "Method": (name_of(row["method"]), None),
        "Size": (str(row["size"]), row["size"]),
        "Unlabelled": (f"{row['unlabelled']}{', all' if every else ''}", row["unlabelled"] + every / 2),
        "Runs": (str(row["runs"]), row["runs"]),
        "Diverged": (str(row["diverged"]), row["diverged"]),
        "Mean ± s.e.": (f"{_number(row['mean'])} ± {_number(row['standard_error'])}", row["mean"]),
        "95 % interval": (f"{_number(row['low'])} to {_number(row['high'])}{few}", row["low"]),
        "IQM": (_number(row["iqm"]), row["iqm"]),
        "Minus BC": (_columns(row, "difference", signed=True), row["difference"]),
        "Verdict": (row["verdict"] or "", None),
        "Printed": ("" if printed is None else f"{_number(printed)} ± {_number(error)}", printed),
        "Differs": (f"† {beyond(row)}" if row["differs"] else "", None),
    }


def _tables(results: Sequence[Result], facts: Sequence[dict[str, Any]]) -> Html:
    """Make one table per setting; the script sorts and filters them."""
    hidden = {"Unlabelled"} if all(is_ordinary(result.cell) for result in results) else set()
    texts = [_shown(row, result.cell.draws) for result, row in zip(results, facts, strict=True)]
    columns = [name for name in texts[0] if name not in hidden]
    buttons = {name: tag("button", name, type="button") for name in columns}
    head = html.head(*(tag("th", button, scope="col", class_=_kind(name)) for name, button in buttons.items()))
    parts: list[Html] = []
    for setting, mine in grouped(enumerate(facts), lambda entry: entry[1]["setting"]).items():
        body = [tag("tr", *(_entry(name, texts[number], row, number) for name in columns)) for number, row in mine]
        box = html.table(f"Cells of {setting}", head, tag("tbody", *body), caption=setting, look="cells", tall=True)
        title = joined([f"{setting} ", tag("span", class_="count")])
        parts.append(folded(title, box, **({} if parts else {"open": ""})))
    return stack(parts)


def _overall(results: Sequence[Result]) -> Html:
    """Compare the methods of each setting with BC over all their sizes."""
    comparison = ["Mean difference from BC", "P(run above BC)", "Clearly above", "Clearly below"]
    head, parts = ["Method", "Interquartile mean", "Mean", *comparison], []
    for setting, rows in grouped(aggregates(results), lambda row: row["group"]).items():
        parts.append(folded(setting, html.numbers(f"Over all sizes, {setting}", [head, *map(_overall_line, rows)])))
    return stack(parts) if parts else Html("")


def _overall_line(row: dict[str, Any]) -> list[str]:
    clear = [f"{row[side]} of {row['compared']}" if row["compared"] else "" for side in ("above", "below")]
    names = "iqm", "mean", "difference", "improvement"
    return [name_of(row["method"]), *(_columns(row, name, signed=name == "difference") for name in names), *clear]


def _kind(column: str) -> str:
    return "words" if column in ("Method", "Verdict", "Differs") else "number"


def _entry(column: str, texts: dict[str, tuple[str, float | None]], row: dict[str, Any], number: int) -> Html:
    text, value = texts[column]
    if column == "Method":
        button = tag("button", text, type="button", class_="link", data_cell=number, title=row["method"])
        return tag("th", button, scope="row", class_="words")
    side = f" {text}" if column == "Verdict" and text in GLYPHS else ""
    return tag("td", text, class_=_kind(column) + side, **({} if value is None else {"data_sort": value}))


def _commands(results: Sequence[Result]) -> Html:
    """Show the commands that run the cells of each setting again, and a script for cells without a command."""
    parts = []
    for setting, here in sorted(grouped(results, setting_of).items()):
        cells = [result.cell for result in here]
        lines = [tag("pre", tag("code", line), tabindex=0) for line in commands.commands(cells)]
        if script := commands.from_python(cells):
            lines += [tag("p", FROM_PYTHON, class_="note"), tag("pre", tag("code", script), tabindex=0)]
        parts.append(folded(setting, *lines))
    return stack(parts)


def _provenance(results: Sequence[Result]) -> Html:
    """Show the versions, devices and commits that made the results, and the time it took."""
    lines = {}
    for name in sorted({name for result in results for name in result.made_by}):
        told = [str(value) for result in results if (value := result.made_by.get(name))]
        unknown = len(results) - len(told)
        where = f" (not recorded for {unknown:,} of {len(results):,} cells)" if unknown else ""
        lines[name.replace("_", " ")] = ", ".join(sorted(set(told), key=lambda text: (len(text), text))) + where
    for name in SECONDS:
        taken = sum(result.seconds.get(name, math.nan) for result in results)
        lines |= {f"seconds of {name}": f"{taken:,.0f}"} if math.isfinite(taken) else {}
    body = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in lines.items()]
    return html.table("Made by", *body, look="facts")
