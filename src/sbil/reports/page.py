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
from sbil.reports.cells import grouped, is_ordinary, setting_of, two_lines
from sbil.reports.differences import FEWEST_DRAWS, few_draws
from sbil.reports.html import Html, joined, tag
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
    matched = [table.as_json() for table in tables]
    if not played:
        return clinical.build(matched)
    apart = labels.told_apart(played)
    facts, compared = facts or cell_rows(apart), sentences.comparisons(apart)
    return html.page(
        "page",
        page_data.plain(page_data.data(apart, facts)),
        title=summary(apart),
        few=_spaced(few_draws(apart)),
        every=_spaced(EVERY if any(result.cell.every_state for result in apart) else ""),
        verdict=_sentences(sentences.sentences(apart, compared)),
        glance=_glance(compared),
        settings=_by_setting(apart, compared),
        overall=_overall(shown(apart)),
        tables=_tables(apart, facts),
        clinical=clinical.section(matched),
        clinical_link=tag("a", "Clinical", href="#clinical") if matched else Html(""),
        commands=_commands(played),
        provenance=_provenance(apart),
    )


def _spaced(sentence: str) -> str:
    """Put a space before a sentence that follows another one."""
    return f" {sentence}" if sentence else ""


def shown(results: Sequence[Result]) -> list[Result]:
    """Return the cells of the main methods, which are shown first, or all cells if there are none of them."""
    return [result for result in results if str(result.cell.method) in MAIN] or list(results)


def summary(results: Sequence[Result]) -> str:
    """ "575 cells, 23 methods, 5 settings, 28,750 runs"."""
    counts = {
        "cell": len(results),
        "method": len({str(result.cell.method) for result in results}),
        "setting": len({setting_of(result) for result in results}),
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
    cards = []
    for setting, here in settings.items():
        said = sentences.sentences(here, [row for row in compared if row["setting"] == setting])
        cards.append(tag("details", tag("summary", setting), _sentences(said)))
    return joined([tag("h3", "Setting by setting"), tag("div", *cards, class_="stack")])


def _glance(compared: Sequence[dict[str, Any]]) -> Html:
    """Show where EDM is clearly above or below each baseline: settings down, sizes across."""
    if not compared:
        return Html("")
    first = compared[0]["method"]
    kept = [row for row in compared if row["method"] == first or row["baseline"] == "bc"]
    pairs = list(dict.fromkeys((row["method"], row["baseline"]) for row in kept))
    sizes = sorted({row["size"] for row in compared})
    edges = Html("".join(f'<col class="{_edge(size, sizes)}">' for _ in pairs for size in sizes))
    inside = tag("colgroup", Html('<col class="label">'), edges), _glance_head(pairs, sizes)
    narrow = {1: " one", 2: " two"}.get(len(sizes), "")  # wider columns, so that their heading has room
    caption, body = tag("caption", "EDM at a glance", class_="hidden"), _glance_body(compared, pairs, sizes)
    table = tag("table", caption, *inside, body, class_=f"glance{narrow}")
    key = "▲ clearly above, ▼ clearly below, · no clear difference, ? too few draws; by number of trajectories."
    return joined([tag("h3", "EDM at a glance"), _scrolling(table, "EDM at a glance"), tag("p", key, class_="note")])


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
    for setting in dict.fromkeys(row["setting"] for row in compared):
        name = tag("th", *(tag("span", line) for line in two_lines(setting)), scope="row")
        marks = [_mark(found.get((setting, *pair, size)), _edge(size, sizes)) for pair in pairs for size in sizes]
        lines.append(tag("tr", name, *marks))
    return tag("tbody", *lines)


def _edge(size: int, sizes: Sequence[int]) -> str:
    return "first" if size == sizes[0] else "inner"


def _scrolling(table: Html, label: str, kind: str = "scroll") -> Html:
    """Make a box that scrolls by itself, also by keyboard."""
    return tag("div", table, class_=kind, role="region", aria_label=label, tabindex=0)


def _mark(row: dict[str, Any] | None, edge: str) -> Html:
    if row is None:
        return tag("td", class_=edge)
    kind = row["verdict"] if row["verdict"] in ("above", "below") else "unclear"
    interval = {"mean": row["mean"], "mean_low": row["low"], "mean_high": row["high"]}
    words = f"{row['verdict']}, {_interval(interval, 'mean', signed=True)}"
    glyph = tag("span", GLYPHS.get(row["verdict"], "?"), aria_hidden="true")
    return tag("td", glyph, tag("span", words, class_="hidden"), class_=f"{kind} {edge}", title=words)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _number(value: float | None, signed: bool = False) -> str:
    if value is None or not _known(value):
        return "–"
    return f"{round(value, 3) + 0.0:{'+' if signed else ''}.3f}".replace("-", "−")


def _interval(row: dict[str, Any], name: str, signed: bool = False) -> str:
    """Write the entries of a row whose names start with `name` as 0.812 [0.745, 0.871], or "" if there are none."""
    value, low, high = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return ""
    return _number(value, signed) + (f" [{_number(low, signed)}, {_number(high, signed)}]" if _known(low) else "")


def _shown(row: dict[str, Any], draws: int) -> dict[str, tuple[str, float | None]]:
    """Return the columns of a cell in the table: the text, and the number by which the column is sorted."""
    printed, error = row["printed_mean"], row["printed_standard_error"]
    every = bool(row.get("every_state"))
    interval = f"{_number(row['low'])} to {_number(row['high'])}" + (_few(draws) if _known(row["low"]) else "")
    return {
        "Method": (name_of(row["method"]), None),
        "Size": (str(row["size"]), row["size"]),
        "Unlabelled": (f"{row['unlabelled']}{', all' if every else ''}", row["unlabelled"] + every / 2),
        "Runs": (str(row["runs"]), row["runs"]),
        "Diverged": (str(row["diverged"]), row["diverged"]),
        "Mean ± s.e.": (f"{_number(row['mean'])} ± {_number(row['standard_error'])}", row["mean"]),
        "95 % interval": (interval, row["low"]),
        "IQM": (_number(row["iqm"]), row["iqm"]),
        "Minus BC": (_interval(row, "difference", signed=True), row["difference"]),
        "Verdict": (row["verdict"] or "", None),
        "Printed": ("" if printed is None else f"{_number(printed)} ± {_number(error)}", printed),
        "Differs": (f"† {beyond(row)}" if row["differs"] else "", None),
    }


def _few(draws: int) -> str:
    """Return the number of draws in brackets if it is too small for an interval."""
    return f" ({counted(draws, 'draw')})" if draws < FEWEST_DRAWS else ""


def _tables(results: Sequence[Result], facts: Sequence[dict[str, Any]]) -> Html:
    """Make one table per setting; the script sorts and filters them."""
    hidden = {"Unlabelled"} if all(is_ordinary(result.cell) for result in results) else set()
    texts = [_shown(row, result.cell.draws) for result, row in zip(results, facts, strict=True)]
    columns = [name for name in texts[0] if name not in hidden]
    head = tag(
        "tr", *(tag("th", tag("button", name, type="button"), scope="col", class_=_kind(name)) for name in columns)
    )
    parts: list[Html] = []
    for setting in dict.fromkeys(row["setting"] for row in facts):
        mine = [(number, row) for number, row in enumerate(facts) if row["setting"] == setting]
        body = [tag("tr", *(_entry(name, texts[number], row, number) for name in columns)) for number, row in mine]
        inside = tag("caption", setting, class_="hidden"), tag("thead", head), tag("tbody", *body)
        box = _scrolling(tag("table", *inside, class_="cells"), f"Cells of {setting}", "scroll tall")
        opened = {} if parts else {"open": ""}
        parts.append(tag("details", tag("summary", f"{setting} ", tag("span", class_="count")), box, **opened))
    return tag("div", *parts, class_="stack")


def _overall(results: Sequence[Result]) -> Html:
    """Compare the methods of each setting with BC over all their sizes."""
    rows = aggregates(results)
    heads = [
        "Method",
        "Interquartile mean",
        "Mean",
        "Mean difference from BC",
        "P(run above BC)",
        "Clearly above",
        "Clearly below",
    ]
    parts = []
    for setting in dict.fromkeys(row["group"] for row in rows):
        body = [tag("tr", *_overall_line(row)) for row in rows if row["group"] == setting]
        head = tag("thead", tag("tr", *(tag("th", name, scope="col", class_=_kind(name)) for name in heads)))
        table = tag("table", tag("caption", setting, class_="hidden"), head, tag("tbody", *body), class_="plain")
        parts.append(tag("details", tag("summary", setting), _scrolling(table, f"Over all sizes, {setting}")))
    return tag("div", *parts, class_="stack") if parts else Html("")


def _overall_line(row: dict[str, Any]) -> list[Html]:
    compared = [_interval(row, "difference", signed=True), _interval(row, "improvement")]
    clear = [f"{row[side]} of {row['compared']}" if row["compared"] else "" for side in ("above", "below")]
    texts = [_interval(row, "iqm"), _interval(row, "mean"), *compared, *clear]
    return [tag("th", name_of(row["method"]), scope="row"), *(tag("td", text, class_="number") for text in texts)]


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
    for setting in sorted({setting_of(result) for result in results}):
        cells = [result.cell for result in results if setting_of(result) == setting]
        lines = [tag("pre", tag("code", line), tabindex=0) for line in commands.commands(cells)]
        if script := commands.from_python(cells):
            lines += [tag("p", FROM_PYTHON, class_="note"), tag("pre", tag("code", script), tabindex=0)]
        parts.append(tag("details", tag("summary", setting), *lines))
    return tag("div", *parts, class_="stack")


def _provenance(results: Sequence[Result]) -> Html:
    """Show the versions, devices and commits that made the results, and the time it took."""
    found: dict[str, set[str]] = {}
    for result in results:
        for name, value in result.made_by.items():
            found.setdefault(name, set()).add(str(value))
    unknown = {name: sum(not result.made_by.get(name) for result in results) for name in found}
    lines = {
        name.replace("_", " "): ", ".join(sorted(filter(None, values), key=lambda value: (len(value), value)))
        + (f" (not recorded for {unknown[name]:,} of {len(results):,} cells)" if unknown[name] else "")
        for name, values in sorted(found.items())
    }
    for name in SECONDS:
        taken = sum(result.seconds.get(name, math.nan) for result in results)
        lines |= {f"seconds of {name}": f"{taken:,.0f}"} if math.isfinite(taken) else {}
    body = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in lines.items()]
    return _scrolling(tag("table", *body, class_="facts"), "Made by")
