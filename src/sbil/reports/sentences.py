"""Sentences that say what results show: where EDM wins, where it loses, and where there is no clear difference.

Sentences are made from the numbers. Wins and losses have the same wording. `differences.verdict` says what is clear.
"""

from collections.abc import Sequence
from typing import Any

from sbil.experiments import Method, Result
from sbil.experiments.environment import played
from sbil.reports import paper_numbers
from sbil.reports.cells import grouped, is_ordinary, method_of, setting_of
from sbil.reports.differences import FEWEST_DRAWS, differences, verdict
from sbil.reports.names import name_of, place_of
from sbil.text import counted

FORMS = ("edm", "edm:released", "edm:paper")  # of EDM, by our names


def baselines(results: Sequence[Result]) -> list[str]:
    """Return the baselines among the results: BC, BC with weight decay, BC with a decay that each run chose."""
    methods = grouped(results, method_of)
    chosen = [method for method in methods if _chooses_decay(Method.parse(method))]
    return [method for method in ("bc", "bc:decay", *chosen) if method in methods]


def _chooses_decay(method: Method) -> bool:
    choices = [text for text in method.settings if text.startswith("weight_decay=") and "/" in text]
    return (method.algorithm, method.preset) == ("bc", "default") and len(choices) == len(method.settings) == 1


def comparisons(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Compare each form of EDM with each baseline: one row per cell with the paired difference and its verdict."""
    labelled = [result for result in results if is_ordinary(result.cell)]
    rows = []
    for baseline in baselines(labelled):
        here = [result for result in labelled if method_of(result) in (*FORMS, baseline)]
        rows += [{**row, "baseline": baseline, "verdict": verdict(row)} for row in differences(here, baseline)]
    return sorted(rows, key=lambda row: FORMS.index(row["method"]))


def sentences(results: Sequence[Result], rows: Sequence[dict[str, Any]] | None = None) -> list[str]:
    """Return what the results say; `rows` are their `comparisons`, if they are known already."""
    rows = comparisons(results) if rows is None else rows
    labelled = [result for result in results if is_ordinary(result.cell)]
    forms = [form for form in FORMS if form in grouped(labelled, method_of)]
    parts = [_standing(form, [row for row in rows if row["method"] == form]) for form in forms]
    if not forms:
        parts.append("No form of EDM is among these results.")
    elif not any(row["baseline"] == "bc" for row in rows):
        parts.append("No cell of BC has the same setting, size and runs, so EDM cannot be compared.")
    return [part for part in (*parts, _divergence(results), _print(labelled), _ranking(labelled)) if part]


def by_setting(results: Sequence[Result]) -> dict[str, list[str]]:
    """Return the sentences on all results, then those on each setting; those of a single setting once."""
    groups = grouped(results, setting_of)
    if len(groups) > 1:
        groups = {"all settings": list(results), **groups}
    return {name: sentences(here) for name, here in groups.items()}


def _standing(form: str, rows: Sequence[dict[str, Any]]) -> str:
    """ "EDM: against BC clearly above in 3 of 5 cells, below in 1 (by -0.112 to +0.243); against ..."."""
    parts, total = [], 0
    for baseline, mine in grouped(rows, lambda row: row["baseline"]).items():
        parts.append(f"against {_in_words(baseline)} {_side(mine, total)}")
        total = len(mine)
    return f"{name_of(form)}: {'; '.join(parts)}." if parts else ""


def _in_words(baseline: str) -> str:
    return {"bc": "BC", "bc:decay": "BC with weight decay"}.get(baseline, "BC with chosen weight decay")


def _side(rows: Sequence[dict[str, Any]], said: int) -> str:
    """Say on which side of a baseline a form of EDM lies, in how many cells (unless `said`), and by how much."""
    means = [_signed(row["mean"]) for row in sorted(rows, key=lambda row: row["mean"])]
    span = f"(by {means[0]})" if len(means) == 1 else f"(by {means[0]} to {means[-1]})"
    words = [row["verdict"] for row in rows]
    untold = sum(row["draws"] < FEWEST_DRAWS for row in rows)
    if untold == len(rows):
        return f"too few draws to tell {span}"
    if len(rows) == 1:
        return f"{'clearly ' if words[0] in ('above', 'below') else ''}{words[0]} {span}"
    above, below = (_count(words.count(word)) for word in ("above", "below"))
    rest = f", too few draws to tell in {untold}" if untold else ""
    total = f" of {counted(len(rows), 'cell')}" if len(rows) != said else ""
    return f"clearly above in {above}{total}, below in {below}{rest} {span}"


def _signed(value: float) -> str:
    """Write a number as +0.012; zero has a plus."""
    return f"{round(value, 3) + 0.0:+.3f}"


def _divergence(results: Sequence[Result]) -> str:
    """Say which methods diverge, and which forms of EDM do not."""
    groups = grouped(results, method_of)
    lost = {method: sum(result.diverged for result in mine) for method, mine in groups.items()}
    if not any(lost.values()):
        return "Diverged runs: none."
    shown = sorted((method for method in groups if lost[method] or method in FORMS), key=place_of)
    parts = [f"{name_of(m)} {_count(lost[m])} of {sum(len(r.cell.runs) for r in groups[m]):,}" for m in shown]
    return f"Diverged runs: {'; '.join(parts)}."


def _count(number: int) -> str:
    return f"{number:,}" if number else "none"


def _print(results: Sequence[Result]) -> str:
    """Say how many cells differ from the paper's numbers, and on which side."""
    found = [(result, printed) for result in results if (printed := paper_numbers.counterpart(result))]
    if any(method_of(result) == "edm:paper" for result, _ in found):  # the paper prints another form than our default
        found = [(result, printed) for result, printed in found if method_of(result) != "edm"]
    if not found:
        return ""
    far = [(result, printed) for result, printed in found if paper_numbers.differs(result)]
    above = sum(result.scores.mean() > printed.mean for result, printed in far)
    sides = f": {_count(above)} above, {_count(len(far) - above)} below" if far else ""
    lie = f"{_count(len(far))} {'lies' if len(far) == 1 else 'lie'} more than two standard errors from them"
    return f"The paper's numbers: of {counted(len(found), 'cell')} that it prints too, {lie}{sides}."


def _ranking(results: Sequence[Result]) -> str:
    """Say how often EDM has the highest mean of the paper's methods in cells where the paper prints that."""
    won: dict[str, list[int]] = {}
    for cells in grouped(results, lambda r: (setting_of(r), r.cell.size)).values():
        means = {method_of(r): round(float(r.scores.mean()), 3) for r in cells}
        others = [means[method] for method in paper_numbers.METHODS if method in means and method != "edm"]
        if others and _first_in_the_paper(cells[0]):
            for form in FORMS:
                if form in means:
                    best = max(others)
                    won.setdefault(form, []).append((means[form] > best) - (means[form] < best))
    parts = [
        f"{name_of(form)} is first in {_count(places.count(1))} of {counted(len(places), 'cell')}, "
        f"tied in {_count(places.count(0))}"
        for form, places in won.items()
    ]
    return f"The paper's ranking, EDM first: by their means {'; '.join(parts)}." if won else ""


def _first_in_the_paper(result: Result) -> bool:
    """Return whether the paper prints EDM's mean as the highest (ties count) at the size of a cell."""
    environment, size = played(result.cell).environment, result.cell.size
    printed = {method: paper_numbers.printed(environment, size, method) for method in paper_numbers.METHODS}
    means = {method: value.mean for method, value in printed.items() if value}
    return "edm" in means and means["edm"] == max(means.values())
