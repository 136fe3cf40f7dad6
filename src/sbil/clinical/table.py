"""A comparison as the paper's clinical table, in Markdown and as plain values."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sbil import files
from sbil.clinical.comparison import REFERENCE, Comparison, slug
from sbil.evaluation.matching import METRICS
from sbil.statistics import Estimate

PRINTED = {"accuracy": "ACC", "auc": "AUC", "apr": "APR"}  # the paper's columns

Paper = Mapping[str, Mapping[str, tuple[float, float]]]  # by method and ACC, AUC, APR: mean and standard error


def as_json(comparison: Comparison) -> dict[str, Any]:
    """All means, standard errors, intervals and differences from BC, as plain values."""

    def plain(score: Estimate) -> dict[str, float | None]:
        return {key: round(value, 6) if np.isfinite(value) else None for key, value in score._asdict().items()}

    paired = REFERENCE in comparison.scores
    metrics = (*METRICS, *comparison.played)
    return {
        "name": comparison.name,
        "notes": list(comparison.notes),
        "splits": comparison.splits,
        "held_out": comparison.held_out,
        "played": dict(comparison.played),
        "origin": comparison.origin,
        "methods": {
            method: {
                "splits": comparison.splits_of(method),
                "diverged": comparison.diverged(method),
                "scores": {metric: plain(comparison.score(method, metric)) for metric in metrics},
                "minus_bc": {metric: plain(comparison.difference(method, metric)) for metric in metrics}
                if paired
                else None,
            }
            for method in comparison.scores
        },
    }


def markdown(comparison: Comparison, named: Callable[[str], str] = str, paper: Paper | None = None) -> str:
    """The paper's table, and how far every method is from BC on the same splits.

    named: what methods are called in print.
    paper: what the paper prints for this dataset, if it does.
    """
    shown = {**PRINTED, **comparison.played}
    head = ["method", *shown.values(), *(f"{name}, paper" for name in PRINTED.values() if paper)]
    body = []
    for method in comparison.scores:
        cells = [_cell(comparison, method, metric, 4 if metric in comparison.played else 3) for metric in shown]
        theirs = [_printed(paper, method, name) for name in PRINTED.values()] if paper else []
        body.append([_called(comparison, method, named), *cells, *theirs])
    share = f"{100 * comparison.held_out:g} %"
    splits = f"{comparison.splits} random split" + "s" * (comparison.splits != 1)
    title = f"{comparison.name}: mean ± standard error over {splits}, {share} held out."
    parts = [" ".join([title, *comparison.notes]), _lines(head, body)]
    others = [method for method in comparison.scores if method != REFERENCE]
    if others and REFERENCE in comparison.scores:
        metrics = {**PRINTED, "log_loss": "log-loss", "ece": "ECE", **comparison.played}
        rows = [
            [
                _called(comparison, method, named),
                *(_interval(comparison.difference(method, metric)) for metric in metrics),
            ]
            for method in others
        ]
        parts += [
            f"More than {named(REFERENCE)} on the same splits (of log-loss and ECE less is better), with 95 % "
            "intervals that allow for the splits sharing most of their data:",
            _lines(["method", *metrics.values()], rows),
        ]
    return "\n\n".join(parts) + "\n"


def write(
    comparison: Comparison, out: Path, named: Callable[[str], str] = str, paper: Paper | None = None
) -> tuple[Path, Path]:
    """The table as Markdown and as JSON, in the folder `out`."""
    text, values = (Path(out) / f"{slug(comparison.name)}.{kind}" for kind in ("md", "json"))
    files.write_text(text, markdown(comparison, named, paper))
    files.write_text(values, json.dumps(as_json(comparison), indent=2) + "\n")
    return text, values


def _called(comparison: Comparison, method: str, named: Callable[[str], str]) -> str:
    failed, run = comparison.diverged(method), comparison.splits_of(method)
    remarks = [f"{run} of {comparison.splits} splits"] * (run < comparison.splits) + [f"diverged in {failed}"] * (
        failed > 0
    )
    return f"{named(method)} ({', '.join(remarks)})" if remarks else named(method)


def _cell(comparison: Comparison, method: str, metric: str, digits: int) -> str:
    score, values = comparison.score(method, metric), comparison.scores[method][metric]
    if not np.isfinite(score.mean):
        return "-"
    error = f" ± {score.standard_error:.{digits}f}" if np.isfinite(score.standard_error) else ""
    known, sound = int(np.isfinite(values).sum()), comparison.splits_of(method) - comparison.diverged(method)
    where = f" (in {known} of {sound} splits)" if known < sound else ""  # not defined where one action was taken
    return f"{score.mean:.{digits}f}{error}{where}"


def _interval(score: Estimate) -> str:
    if not np.isfinite(score.mean):
        return "-"
    interval = f" ({score.low:+.4f} to {score.high:+.4f})" if np.isfinite(score.low) else ""
    return f"{score.mean:+.4f}{interval}"


def _printed(paper: Paper, method: str, metric: str) -> str:
    mean, error = paper.get(method, {}).get(metric, (float("nan"),) * 2)
    return f"{mean:.3f} ± {error:.3f}" if np.isfinite(mean) else ""


def _lines(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
