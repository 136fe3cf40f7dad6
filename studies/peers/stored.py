"""The runs of the study of peers that are published, and what they score."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import tyro

from sbil.errors import UserError
from sbil.portfolio import NETWORKS, portfolio
from studies.cells import write
from studies.choosing.choices import CELL, WAYS, Key, by_cell
from studies.pages import RESULTS

STORED = RESULTS / "peers"
AUTO, EVERYTHING = "auto", "auto, with every method"
SEEN = "what the best checkpoint scored when it was kept"
MODELS, FOLDS, LIVE = "models", "folds", "live"  # files that are no program of methods
UNIT = [*CELL, "draw"]

Scores = dict[str, np.ndarray]  # by method: [draws]


@dataclass(frozen=True, kw_only=True)
class Take:
    """Copy finished runs to results/peers/, one file per environment."""

    folder: tyro.conf.Positional[Path]
    """Where the runs are."""


def take(asked: Take) -> None:
    """Join the files of each setting."""
    found = [_joined(folder) for folder in sorted(asked.folder.iterdir()) if any(folder.glob("*.parquet"))]
    if not found:
        raise UserError(f"{asked.folder} holds no finished setting; run the study first.")
    runs = pl.concat(found, how="diagonal_relaxed")
    for (environment,), rows in runs.partition_by("environment", as_dict=True).items():
        write(STORED / f"{environment}.parquet", rows.sort(*UNIT, "method", "network").write_parquet)


def _joined(folder: Path) -> pl.DataFrame:
    """Return one row per policy, with what is known of its draw and of its method by cross-validation."""
    paths = [path for path in sorted(folder.glob("*.parquet")) if path.stem not in (MODELS, FOLDS)]
    rows = pl.concat([pl.read_parquet(path) for path in paths], how="diagonal_relaxed")
    rows = rows.unique([*UNIT, "method", "network"], keep="last", maintain_order=True)
    models = pl.read_parquet(folder / f"{MODELS}.parquet").select(*UNIT, "horizon", "r2_next")
    folds = pl.read_parquet(folder / f"{FOLDS}.parquet").select(*UNIT, "method", "log_loss", "error")
    return rows.join(models, on=UNIT, how="left").join(folds, on=[*UNIT, "method"], how="left")


@cache
def stored() -> pl.DataFrame:
    """Return all runs: one row per draw, method and network."""
    return pl.concat([pl.read_parquet(path) for path in sorted(STORED.glob("*.parquet"))], how="diagonal_relaxed")


@cache
def cells() -> dict[Key, Scores]:
    """Return what every method scores in every cell, by draw."""
    return {key: scores_of(runs) for key, runs in by_cell(stored()).items()}


def scores_of(cell: pl.DataFrame) -> Scores:
    """Return the score of each method in each draw: the mean of its networks, or of the policy that `auto` keeps."""
    means = cell.group_by("method", "draw").agg(pl.col("score").cast(pl.Float64).mean()).sort("method", "draw")
    found = {name: part["score"].to_numpy() for (name,), part in means.partition_by("method", as_dict=True).items()}
    names = {candidate.name for candidate in portfolio(1)}
    first = cell.filter(pl.col("network") < NETWORKS, pl.col("distance").is_not_null())
    known = first.filter(pl.col("method").is_in(names))
    for way, rows in {AUTO: known, EVERYTHING: first}.items():
        found[way] = np.array([WAYS["auto"](draw) for draw in rows.partition_by("draw", maintain_order=True)])
    if "seen" in cell.columns:
        best = cell.drop_nulls("seen").group_by("draw").agg(pl.col("seen").mean()).sort("draw")
        found[SEEN] = best["seen"].to_numpy()
    return found
