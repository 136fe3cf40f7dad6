"""Clinical tables: how well held-out decisions of recorded patients are matched, in Markdown, HTML and plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sbil import algorithms
from sbil.errors import UserError
from sbil.evaluation.matching import METRICS as MEASURED
from sbil.experiments import Cell, Method, Result, TableTask
from sbil.experiments.methods import BASELINES
from sbil.experiments.table import LEARNERS
from sbil.reports import html, paper_numbers
from sbil.reports.html import Html, folded, stack, tag
from sbil.reports.names import name_of
from sbil.reports.tables import plus_minus
from sbil.statistics import Estimate, estimate_over_splits
from sbil.text import counted, markdown_table

METRICS = {"accuracy": "ACC", "auc": "AUC", "apr": "APR"}  # the paper's columns
REFERENCE = "bc"  # what the others are compared with
MORE = (
    f"More than {name_of(REFERENCE)} on the same splits (of log-loss and ECE less is better), with 95 % "
    "intervals that allow for the splits sharing most of their data"
)
LEARNED = (LEARNERS[0], "edm_exact", "edm_metropolis", *LEARNERS[1:])  # in the order of tables
Paper = dict[str, dict[str, paper_numbers.PaperNumber]]  # by method and ACC, AUC or APR


@dataclass(frozen=True)
class ClinicalTable:
    """What every method scored on the held-out decisions of every split of one dataset."""

    task: TableTask
    results: dict[str, Result]  # by what a method is called here
    notes: tuple[str, ...]  # what must be known to read the numbers

    @property
    def splits(self) -> int:
        """How many there are; a method may have been run on the first of them only."""
        return max(result.cell.draws for result in self.results.values())

    @property
    def metrics(self) -> tuple[str, ...]:
        """What was measured, by matching decisions and then by playing."""
        return (*MEASURED, *dict(self.task.played))

    @property
    def compares(self) -> bool:
        """Whether there are differences from BC."""
        return REFERENCE in self.results and len(self.results) > 1

    def values(self, method: str, metric: str) -> np.ndarray:
        """[its splits], NaN where training diverged."""
        return self.results[method].metrics[metric]

    def score(self, method: str, metric: str) -> Estimate:
        """Estimate the mean over the splits in which it did not diverge."""
        return estimate_over_splits(self.values(method, metric), self.task.held_out)

    def difference(self, method: str, metric: str) -> Estimate:
        """Estimate what a method scored more than BC on the same splits."""
        ours, theirs = self.values(method, metric), self.values(REFERENCE, metric)
        both = min(len(ours), len(theirs))
        return estimate_over_splits(ours[:both] - theirs[:both], self.task.held_out)

    def as_json(self) -> dict[str, Any]:
        """All means, standard errors, intervals and differences from BC, as plain values."""
        return {
            "name": self.task.title,
            "notes": list(self.notes),
            "splits": self.splits,
            "held_out": self.task.held_out,
            "played": dict(self.task.played),
            "origin": self.task.origin,
            "methods": {method: self._method_as_json(method) for method in self.results},
        }

    def _method_as_json(self, method: str) -> dict[str, Any]:
        less = {metric: _plain(self.difference(method, metric)) for metric in self.metrics if REFERENCE in self.results}
        return {
            "splits": self.results[method].cell.draws,
            "diverged": self.results[method].diverged,
            "scores": {metric: _plain(self.score(method, metric)) for metric in self.metrics},
            "minus_bc": less or None,
        }


def _plain(score: Estimate) -> dict[str, float | None]:
    return {key: round(value, 6) if np.isfinite(value) else None for key, value in score._asdict().items()}


# From results to tables.


def apart(results: Sequence[Result]) -> tuple[list[ClinicalTable], list[Result]]:
    """Return the tables of recorded decisions, and the results of environments."""
    played = [result for result in results if not isinstance(result.cell.task, TableTask)]
    return tables(results), played


def tables(results: Sequence[Result]) -> list[ClinicalTable]:
    """Return the table of each dataset among results, by title."""
    groups: dict[TableTask, list[Result]] = {}
    for result in results:
        if isinstance(result.cell.task, TableTask):
            groups.setdefault(result.cell.task, []).append(result)
    return [_table(task, groups[task]) for task in sorted(groups, key=lambda task: (task.title, task.origin))]


def _table(task: TableTask, results: Sequence[Result]) -> ClinicalTable:
    """Return the table of one dataset.

    A method that was run with two numbers of updates has two rows. A method that was run on two numbers of splits has
    one row, with the larger number.
    """
    in_rounds = {name for name, entry in algorithms.ALGORITHMS.items() if entry.rounds}
    learned = [r.cell for r in results if r.cell.updates and r.cell.method.algorithm not in in_rounds]
    unusual = {cell for cell in learned if cell.updates != _usual_updates(cell)}
    notes = task.notes
    if unusual and len({cell.updates for cell in learned}) == 1:
        notes = (*notes, f"{learned[0].updates:,} updates (a method that learns in rounds: its own number).")
        unusual = set()
    found: dict[str, Result] = {}
    for result in sorted(results, key=lambda result: (_place(result.cell), result.cell.updates, result.cell.draws)):
        cell = result.cell
        found[f"{cell.method}+updates={cell.updates}" if cell in unusual else str(cell.method)] = result
    return ClinicalTable(task, found, notes)


def _usual_updates(cell: Cell) -> int:
    """Return the updates that the preset of a method asks for."""
    try:
        return cell.method.updates(None)
    except UserError:  # a method of another version
        return cell.updates


def _place(cell: Cell) -> tuple[int, int, str]:
    """What to sort methods by: policies that are known, baselines, then algorithms."""
    method, name = cell.method, str(cell.method)
    if not cell.updates:
        return 0, [*BASELINES].index(name) if name in BASELINES else -1, name
    kin = [place for place, other in enumerate(LEARNED) if Method.parse(other).algorithm == method.algorithm]
    return 1, LEARNED.index(name) if name in LEARNED else max(kin, default=len(LEARNED)), name


def printed(name: str) -> Paper:
    """What the paper prints of a dataset."""
    rows: Paper = {}
    for method, theirs in paper_numbers.COUNTERPARTS.items():
        for metric in METRICS.values():
            if cell := paper_numbers.printed(name, metric, theirs):
                rows.setdefault(method, {})[metric] = cell
    return rows


# Markdown.


def in_markdown(table: ClinicalTable) -> str:
    """The paper's columns, then how far every method is from BC."""
    share = f"{100 * table.task.held_out:g} %"
    title = f"{table.task.title}: mean ± standard error over {counted(table.splits, 'random split')}, {share} held out."
    parts = [" ".join([title, *table.notes]), scores_in_markdown(table)]
    if table.compares:
        parts += [f"{MORE}:", differences_in_markdown(table)]
    return "\n\n".join(parts) + "\n"


def scores_in_markdown(table: ClinicalTable) -> str:
    """The scores of every method, and what the paper prints for this dataset, if it does."""
    return markdown_table(_scores(table), numbers=True).rstrip()


def differences_in_markdown(table: ClinicalTable) -> str:
    """How far every method is from BC on the same splits."""
    return markdown_table(_differences(table), numbers=True).rstrip()


# HTML.


def build(tables: Sequence[ClinicalTable]) -> str:
    """The page of clinical tables if there are no other results."""
    titles = "; ".join(table.task.title for table in tables)
    return html.page("clinical", {}, looks="page", title=titles, clinical=section(tables))


def section(tables: Sequence[ClinicalTable]) -> Html:
    """The part of the page; nothing if there is no table."""
    if not tables:
        return Html("")
    note = (
        "Mean ± standard error over random splits, as the paper prints them: by patient where the data say who that "
        "is, else by stay or episode. ACC is the share of held-out decisions that are met; AUC and APR are macro "
        "one-vs-rest. The splits share most of their data, so the standard error says how much another split would "
        "change a number; the intervals of the differences from BC allow for that (Nadeau and Bengio 2003)."
    )
    head = tag("h2", "Clinical data", id="clinical-title")
    parts = head, stack(map(_in_html, tables)), tag("p", note, class_="note")
    return tag("section", *parts, id="clinical", aria_labelledby="clinical-title")


def _in_html(table: ClinicalTable) -> Html:
    title = f"{table.task.title}: {counted(table.splits, 'split')}, {100 * table.task.held_out:g} % held out"
    parts = [tag("p", " ".join(table.notes), class_="note")] if table.notes else []
    parts.append(html.numbers(f"Clinical table {table.task.title}", _scores(table)))
    if table.compares:
        parts += [tag("p", f"{MORE}:"), html.numbers(f"Differences from BC, {table.task.title}", _differences(table))]
    return folded(title, *parts, open="")


# The lines of both.


def _scores(table: ClinicalTable) -> list[list[str]]:
    played, theirs = dict(table.task.played), printed(table.task.title)
    names = [*METRICS.values(), *played.values()]
    lines = [["method", *names, *(f"{name}, paper" for name in METRICS.values() if theirs)]]
    for method in table.results:
        ours = [_score(table, method, metric, 3) for metric in METRICS]
        ours += [_score(table, method, metric, 4) for metric in played]
        cells = theirs.get(method, {})
        paper_ = [plus_minus(*cells[name]) if name in cells else "" for name in METRICS.values() if theirs]
        lines.append([_called(table, method), *ours, *paper_])
    return lines


def _differences(table: ClinicalTable) -> list[list[str]]:
    metrics = {**METRICS, "log_loss": "log-loss", "ece": "ECE", **dict(table.task.played)}
    body = [
        [_called(table, method), *(_interval(table.difference(method, metric)) for metric in metrics)]
        for method in table.results
        if method != REFERENCE
    ]
    return [["method", *metrics.values()], *body]


def _called(table: ClinicalTable, method: str) -> str:
    """The name of a method, and on how many splits it was run, and in how many it diverged, if these are special."""
    run, diverged = table.results[method].cell.draws, table.results[method].diverged
    remarks = [f"{run} of {table.splits} splits"] * (run < table.splits) + [f"diverged in {diverged}"] * (diverged > 0)
    return name_of(method) + (f" ({', '.join(remarks)})" if remarks else "")


def _score(table: ClinicalTable, method: str, metric: str, digits: int) -> str:
    score, result = table.score(method, metric), table.results[method]
    if not np.isfinite(score.mean):
        return "-"
    known, sound = int(np.isfinite(table.values(method, metric)).sum()), result.cell.draws - result.diverged
    where = f" (in {known} of {sound} splits)" if known < sound else ""  # not defined if one action was taken
    return plus_minus(score.mean, score.standard_error, digits) + where


def _interval(score: Estimate) -> str:
    if not np.isfinite(score.mean):
        return "-"
    interval = f" ({score.low:+.4f} to {score.high:+.4f})" if np.isfinite(score.low) else ""
    return f"{score.mean:+.4f}{interval}"
