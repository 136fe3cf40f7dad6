"""How well every algorithm matches held-out decisions of recorded patients: the paper's clinical table.

The data are split at random several times, 80 % of the patients to learn from and 20 % to be judged by. Whatever is
fitted, standardisation too, is fitted to the learning part alone. One Parquet file a method holds the metrics, a row a
split, and no row of the data; a second call runs only what is missing.

The standard error over splits is printed as the paper prints it. It says how much another split would change a number,
not how far the number is from that of all patients: the splits share most of their patients. The intervals allow for
that (Nadeau and Bengio 2003, "Inference for the generalization error"): with J splits the variance of a mean is
(1/J + held-out / learning) times that between splits.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import polars as pl
from scipy.special import stdtrit

from sbil import algorithms, files
from sbil.checkpoint import Checkpoint
from sbil.dataset import Dataset, Standardisation, make_dataset, spec_of, standardisation_of
from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.evaluation.baselines import MAJORITY, PREVIOUS, Baselines
from sbil.evaluation.matching import METRICS, Decided, decided, scores, units
from sbil.experiments.cell import Method
from sbil.experiments.experiment import updates_for
from sbil.experiments.store import sealed, unpacked
from sbil.fitting import fingerprint
from sbil.keys import named
from sbil.policy import Policy
from sbil.training import pick, train_many
from sbil.version import __version__

LOGISTIC, TREES = "logistic regression", "gradient-boosted trees"
BASELINES = (MAJORITY, PREVIOUS, LOGISTIC, TREES)
LEARNERS = ("bc", "bc:decay", "rcal", "edm", "edm:released", "edm:paper", "value_dice", "dsfn")
METHODS = (*BASELINES, *LEARNERS)  # what takes longest comes last
REFERENCE = "bc"  # what others are compared with
PRINTED = {"accuracy": "ACC", "auc": "AUC", "apr": "APR"}  # the paper's table
LEVEL = 0.95

Watch = Callable[[str, float], None]  # a method, and the share of it that is done
Paper = Mapping[str, Mapping[str, tuple[float, float]]]  # by method and ACC, AUC, APR: mean and standard error


class Score(NamedTuple):
    """A mean over splits, its standard error as the paper prints it, and the corrected 95 % interval."""

    mean: float
    standard_error: float
    low: float
    high: float


class Comparison(NamedTuple):
    """What every method scored on the held-out decisions of every split."""

    name: str
    held_out: float
    scores: dict[str, dict[str, np.ndarray]]  # by method and metric: [splits], not a number where it diverged

    def diverged(self, method: str) -> int:
        """In how many splits the training of a method diverged."""
        return int(np.isnan(self.scores[method]["accuracy"]).sum())

    def score(self, method: str, metric: str) -> Score:
        """Over the splits in which it did not diverge."""
        return estimate(self.scores[method][metric], self.held_out)

    def difference(self, method: str, metric: str, reference: str = REFERENCE) -> Score:
        """What a method scored more than another on the same splits."""
        return estimate(self.scores[method][metric] - self.scores[reference][metric], self.held_out)


def estimate(values: np.ndarray, held_out: float) -> Score:
    """The mean of what splits gave, with the corrected resampled t interval; of one split just the mean."""
    known = values[~np.isnan(values)]
    count = len(known)
    if count < 2:
        return Score(float(known[0]) if count else float("nan"), *[float("nan")] * 3)
    mean, variance = float(known.mean()), float(known.var(ddof=1))
    reach = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * (variance * (1 / count + held_out / (1 - held_out))) ** 0.5
    return Score(mean, (variance / count) ** 0.5, mean - reach, mean + reach)


def run(
    name: str,
    demonstrations: Demonstrations,
    out: Path,
    methods: Sequence[str] = METHODS,
    *,
    splits: int = 10,
    held_out: float = 0.2,
    seed: int = 0,
    updates: int | None = None,
    watch: Watch | None = None,
) -> Comparison:
    """Compare methods on one dataset; what is stored in the folder `out` already is not run again.

    name: of the dataset, for files and tables.
    methods: the baselines above, or algorithms as edm, edm:released, bc+weight_decay=1.
    seed: split k and what is trained on it have the seed `seed` + k.
    updates: of algorithms; default, what the preset of each asks for.
    """
    if splits < 1:
        raise UserError(f"splits must be a whole number from 1. Got {splits}.")
    groups = None if demonstrations.groups is None else np.unique(demonstrations.groups, return_inverse=True)[1]
    data = _mark([fingerprint(demonstrations), groups if groups is None else groups.tolist()])
    asked = {method: [data, method, *_settings(method, updates), held_out] for method in methods}
    out = Path(out)
    files.probe(out)
    made = cache(lambda seeds: Splits.of(demonstrations, held_out, seeds))
    found = {}
    for method, request in asked.items():
        path = out / f"{_slug(name)}.{_slug(method)}.parquet"
        marks = {seed + k: _mark([__version__, *request, seed + k]) for k in range(splits)}
        rows = _stored(path)
        missing = tuple(each for each, mark in marks.items() if mark not in rows)
        if missing:
            tell = partial(watch, method) if watch else lambda share: None
            checkpoint = Checkpoint.beside(path, {"runs": [marks[each] for each in missing]})
            for each, row in zip(missing, _run(method, made(missing), updates, tell, checkpoint), strict=True):
                rows[marks[each]] = {"dataset": name, "method": method, "seed": each, "run": marks[each], **row}
            files.write_bytes(path, sealed(pl.DataFrame(sorted(rows.values(), key=lambda row: row["seed"]))))
            checkpoint.remove()
        found[method] = {metric: np.array([rows[mark][metric] for mark in marks.values()]) for metric in METRICS}
    return Comparison(name, held_out, found)


def _settings(method: str, updates: int | None) -> list[Any]:
    """What a result depends on beside the name of its method; wrong names are refused here."""
    if method in BASELINES:
        return []
    asked = Method.parse(method)
    configs = algorithms.candidates(asked.algorithm, asked.preset, asked.settings)
    if len(configs) > 1:
        raise UserError(f"{method}: settings are not chosen here; give one value of each.")
    (config,) = configs.values()
    return [updates_for(asked, updates), algorithms.settings_of(config)]


def _mark(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


class Splits(NamedTuple):
    """Random splits of one dataset, and the standardised states of all learning parts, split by split."""

    seeds: tuple[int, ...]
    training: list[Demonstrations]
    judged: list[Demonstrations]
    scalings: list[Standardisation]

    @classmethod
    def of(cls, demonstrations: Demonstrations, held_out: float, seeds: tuple[int, ...]) -> Splits:
        """Split by patient (group, or trajectory) with each of the seeds."""
        training, judged = zip(*(demonstrations.split(held_out, seed) for seed in seeds), strict=True)
        return cls(seeds, list(training), list(judged), [standardisation_of(part) for part in training])

    def dataset(self) -> Dataset:
        """One pool with the learning part of every split, each standardised by itself; a run a split."""
        trajectories = [
            replace(trajectory, observations=scaling.apply(trajectory.observations))
            for part, scaling in zip(self.training, self.scalings, strict=True)
            for trajectory in part.trajectories
        ]
        ends = np.cumsum([len(part) for part in self.training])
        draws = [np.arange(end - len(part), end) for part, end in zip(self.training, ends, strict=True)]
        together = Demonstrations(tuple(trajectories), self.training[0].action_names)
        return make_dataset(together, draws)


def _run(
    method: str, splits: Splits, updates: int | None, tell: Callable[[float], None], checkpoint: Checkpoint
) -> list[dict[str, Any]]:
    """The metrics of one method on the held-out decisions of every split."""
    tell(0.0)
    started = time.perf_counter()
    if method in BASELINES:
        said: list[Decided | None] = []
        for part in zip(splits.training, splits.judged, splits.scalings, splits.seeds, strict=True):
            said.append(_baseline(method, *part))
            tell(len(said) / len(splits.seeds))
    else:
        said = _learned(method, splits, updates, tell, checkpoint)
    seconds = (time.perf_counter() - started) / len(splits.seeds)
    return [
        {
            **(scores(one) if one else dict.fromkeys(METRICS, float("nan"))),
            "seconds": seconds,
            "trajectories": len(training),
            "held_out_trajectories": len(judged),
            "held_out_decisions": judged.steps,
        }
        for one, training, judged in zip(said, splits.training, splits.judged, strict=True)
    ]


def _learned(
    method: str, splits: Splits, updates: int | None, tell: Callable[[float], None], checkpoint: Checkpoint
) -> list[Decided | None]:
    """Train an algorithm on all splits in one program; nothing where it diverged."""
    asked, one = Method.parse(method), splits.training[0]
    entry, config = algorithms.get(asked.algorithm), algorithms.configure(*astuple(asked))
    dataset = splits.dataset()
    algorithms.require(asked.algorithm, dataset)
    trained = train_many(
        entry.make,
        spec_of(one),
        config,
        dataset,
        jnp.stack([named("fit", seed) for seed in splits.seeds]),
        updates_for(asked, updates),
        lambda report: tell(report.update / report.updates),
        checkpoint,
        chunk=entry.chunk,
    )
    return [
        None
        if trained.diverged[run]
        else decided(
            Policy(pick(trained.states, run).network, one.observation_names, one.action_names, scaling), judged
        )
        for run, (judged, scaling) in enumerate(zip(splits.judged, splits.scalings, strict=True))
    ]


def _baseline(
    method: str, training: Demonstrations, judged: Demonstrations, scaling: Standardisation, seed: int
) -> Decided:
    if method in (MAJORITY, PREVIOUS):
        return Baselines.from_demonstrations(training).decided(judged)[method]
    return _classified(method, training, judged, scaling, seed)


def _classified(
    method: str, training: Demonstrations, judged: Demonstrations, scaling: Standardisation, seed: int
) -> Decided:
    """What a classifier of scikit-learn with its default settings says, on standardised states."""
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise UserError(f"{method} needs scikit-learn; install it with: pip install 'sbil[clinical]'") from None
    steps, asked = training.flat(), judged.flat()
    probabilities = np.zeros((len(asked.action), len(training.action_names)))
    taken = np.unique(steps.action)
    if len(taken) == 1:  # nothing to tell apart
        probabilities[:, taken[0]] = 1
    else:
        model = LogisticRegression(max_iter=2000) if method == LOGISTIC else HistGradientBoostingClassifier()
        if method == TREES:
            model.set_params(random_state=seed)
        model.fit(scaling.apply(steps.observation), steps.action)
        probabilities[:, model.classes_] = model.predict_proba(scaling.apply(asked.observation))
    return Decided(probabilities, asked.action, units(judged, asked.trajectory))


def _stored(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file of metrics, by what was asked for."""
    if not path.exists():
        return {}
    try:
        rows = unpacked(path.read_bytes()).rows(named=True)
        return {row["run"]: row for row in rows if all(metric in row for metric in METRICS)}
    except (ValueError, KeyError, OSError, pl.exceptions.PolarsError):
        raise UserError(f"{path}: damaged, or no file of metrics; delete it and run the command again.") from None


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_=.-]+", "-", text)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """All means, standard errors, intervals and differences from BC, as plain values."""

    def plain(score: Score) -> dict[str, float | None]:
        return {key: round(value, 6) if np.isfinite(value) else None for key, value in score._asdict().items()}

    paired = REFERENCE in comparison.scores
    return {
        "name": comparison.name,
        "splits": len(next(iter(comparison.scores.values()))["accuracy"]),
        "held_out": comparison.held_out,
        "methods": {
            method: {
                "diverged": comparison.diverged(method),
                "scores": {metric: plain(comparison.score(method, metric)) for metric in METRICS},
                "minus_bc": {metric: plain(comparison.difference(method, metric)) for metric in METRICS}
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
    splits = len(next(iter(comparison.scores.values()))["accuracy"])
    head = ["method", *PRINTED.values(), *(f"{name}, paper" for name in PRINTED.values() if paper)]
    body = []
    for method in comparison.scores:
        cells = [_cell(comparison.score(method, metric)) for metric in PRINTED]
        theirs = [_printed(paper, method, name) for name in PRINTED.values()] if paper else []
        body.append([_called(comparison, method, named), *cells, *theirs])
    share = f"{100 * comparison.held_out:g} %"
    parts = [
        f"{comparison.name}: mean ± standard error over {splits} random splits, {share} held out.",
        _lines(head, body),
    ]
    if REFERENCE in comparison.scores:
        others = [method for method in comparison.scores if method != REFERENCE]
        metrics = {**PRINTED, "log_loss": "log-loss", "ece": "ECE"}
        rows = [
            [named(method), *(_interval(comparison.difference(method, metric)) for metric in metrics)]
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
    text, values = (Path(out) / f"{_slug(comparison.name)}.{kind}" for kind in ("md", "json"))
    files.write_text(text, markdown(comparison, named, paper))
    files.write_text(values, json.dumps(as_json(comparison), indent=2) + "\n")
    return text, values


def _called(comparison: Comparison, method: str, named: Callable[[str], str]) -> str:
    failed = comparison.diverged(method)
    return f"{named(method)} (diverged in {failed})" if failed else named(method)


def _cell(score: Score) -> str:
    if not np.isfinite(score.mean):
        return "-"
    return (
        f"{score.mean:.3f} ± {score.standard_error:.3f}" if np.isfinite(score.standard_error) else f"{score.mean:.3f}"
    )


def _interval(score: Score) -> str:
    if not np.isfinite(score.mean):
        return "-"
    return f"{score.mean:+.4f} ({score.low:+.4f} to {score.high:+.4f})"


def _printed(paper: Paper, method: str, metric: str) -> str:
    mean, error = paper.get(method, {}).get(metric, (float("nan"),) * 2)
    return f"{mean:.3f} ± {error:.3f}" if np.isfinite(mean) else ""


def _lines(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
