"""What each way of choosing would have scored, draw by draw, from the stored runs of the study."""

from collections.abc import Callable
from functools import cache

import numpy as np
import polars as pl
from scipy.stats import spearmanr

from sbil.choosing import CLONING
from sbil.dynamics.measures import SHORTEST
from studies.pages import RESULTS

STORED = RESULTS / "choosing"
CELL = ("environment", "demonstrator", "mode", "thin", "size")
SINGLE = {
    "bc": "BC",
    "bc+weight_decay=1": "BC, weight decay 1",
    "edm:released": "EDM, released",
    "edm_robust": "EDM, robust",
    "edm_imagined:rollouts": "EDM on imagined states",
}
LOW = 0.95  # a score of BC below this leaves room for improvement
OURS = pl.col("demonstrator").is_in(["dqn", "ppo"])  # the demonstrators that ship
TOGETHER = (3, 5)  # policies of an ensemble

Key = tuple[str, str, str, int, int]
Scores = dict[str, np.ndarray]  # of each way of choosing, [draws]


@cache
def stored(seed: int) -> pl.DataFrame:
    """Return all runs of a seed: one row per draw, method and network."""
    return pl.read_parquet(STORED / f"seed{seed}.parquet")


def single(runs: pl.DataFrame) -> pl.DataFrame:
    """Leave out the ensembles."""
    return runs.filter(~pl.col("method").str.starts_with("nearest"))


def by_cell(runs: pl.DataFrame) -> dict[Key, pl.DataFrame]:
    """Return the runs of each cell."""
    parts = runs.partition_by(CELL, as_dict=True, maintain_order=True)
    return {key: part for key, part in sorted(parts.items())}  # type: ignore[misc]


def scores_of(cell: pl.DataFrame) -> Scores:
    """Return what each way of choosing scores in every draw of a cell."""
    draws = cell.partition_by("draw", maintain_order=True)
    return {name: np.array([way(draw) for draw in draws]) for name, way in WAYS.items()}


def rank_correlations(cell: pl.DataFrame) -> dict[str, float]:
    """Return the mean rank correlation of scores with each measure within a draw; 1: a smaller measure scores more."""
    draws = cell.partition_by("draw")
    return {name: mean([ranked(draw, name) for draw in draws]) for name in ("distance", "log_loss", "error")}


def ranked(draw: pl.DataFrame, measure: str) -> float:
    """Return the rank correlation of a measure with the scores of a draw; 1: a smaller measure scores more."""
    rows = draw.filter(pl.col(measure).is_finite())
    if rows["score"].n_unique() < 2 or rows[measure].n_unique() < 2:
        return np.nan
    return -float(spearmanr(rows[measure], rows["score"]).statistic)


def mean(values: list[float]) -> float:
    """Return the mean of what is a number, or NaN."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else np.nan


def _single(method: str) -> Callable[[pl.DataFrame], float]:
    return lambda draw: float(draw.filter(pl.col("method") == method)["score"].to_numpy().mean())


def _by(measure: str) -> Callable[[pl.DataFrame], float]:
    """The mean score of the networks of the method with the smallest held-out loss or error."""

    def score(draw: pl.DataFrame) -> float:
        return _single(draw.sort(measure, nulls_last=True, maintain_order=True)["method"][0])(draw)

    return score


def _imagined(draw: pl.DataFrame) -> float:
    return float(draw.filter(~pl.col("diverged")).sort("distance")["score"][0])


def _auto(draw: pl.DataFrame) -> float:
    """As sbil.choosing chooses: without a trusted model, by log-loss among the candidates of behavioural cloning."""
    if draw["horizon"][0] >= SHORTEST:
        return _imagined(draw)
    return _by("log_loss")(draw.filter(pl.col("method").str.split("+").list.first() == CLONING))


def _best(draw: pl.DataFrame) -> float:
    """The best policy by one half of its episodes, scored by the other half: luck does not count."""
    even, odd = draw["score_even"].to_numpy(), draw["score_odd"].to_numpy()
    return float(odd[even.argmax()] + even[odd.argmax()]) / 2


WAYS: dict[str, Callable[[pl.DataFrame], float]] = {
    **{name: _single(method) for method, name in SINGLE.items()},
    "by log-loss": _by("log_loss"),
    "by errors": _by("error"),
    "by imagined rollouts": _imagined,
    "auto": _auto,
    "best of the draw": _best,
}
