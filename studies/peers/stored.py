"""The runs of the study of peers that are published, and what they score."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import tyro

from sbil.errors import UserError
from studies.cells import write
from studies.choosing import choices
from studies.choosing.choices import CELL, WAYS, Key, by_cell
from studies.choosing.tables import SEED
from studies.pages import RESULTS
from studies.peers.live import BEST
from studies.peers.methods import METHODS

STORED = RESULTS / "peers" / "runs.parquet"
AUTO = "auto"
SEEN = "what the best checkpoint scored when it was kept"
UNIT = [*CELL, "draw"]

Scores = dict[str, np.ndarray]  # by method: [draws]


@dataclass(frozen=True, kw_only=True)
class Take:
    """Copy finished runs to results/peers/runs.parquet."""

    folder: tyro.conf.Positional[Path]
    """Where the runs are."""


def take(asked: Take) -> None:
    """Join all files of a folder."""
    found = sorted(asked.folder.rglob("*.parquet"))
    if not found:
        raise UserError(f"{asked.folder} holds no finished runs; run the study first.")
    rows = pl.concat(map(pl.read_parquet, found), how="diagonal_relaxed")
    own = [*UNIT, "method", "network"]
    write(STORED, rows.unique(own, keep="last").sort(own).write_parquet)


@cache
def cells() -> dict[Key, Scores]:
    """Return what every method scores in every cell, by draw."""
    own, others = by_cell(pl.read_parquet(STORED)), by_cell(choices.single(choices.stored(SEED)))
    return {key: scores_of(runs, others.get(key)) for key, runs in own.items()}


def scores_of(own: pl.DataFrame, others: pl.DataFrame | None) -> Scores:
    """Return the score of each method in each draw: the mean of its networks, or of the policy that `auto` keeps.

    others: the same cell in the study of choosing.
    """
    found = _means(own, "score")
    if "seen" in own.columns and own["seen"].count():
        found[SEEN] = _means(own.drop_nulls("seen"), "seen")[BEST]
    if others is not None:
        same = others.join(own.select("draw").unique(), on="draw", how="semi").sort("draw", maintain_order=True)
        kept = [peer.name for peer in METHODS if peer.stored]
        found |= _means(same.filter(pl.col("method").is_in(kept)), "score")
        found[AUTO] = np.array([WAYS[AUTO](draw) for draw in same.partition_by("draw", maintain_order=True)])
    return found


def _means(runs: pl.DataFrame, column: str) -> Scores:
    """Return the mean over networks, by method and draw."""
    means = runs.group_by("method", "draw").agg(pl.col(column).mean()).sort("method", "draw")
    return {name: part[column].to_numpy() for (name,), part in means.partition_by("method", as_dict=True).items()}  # type: ignore[misc]
