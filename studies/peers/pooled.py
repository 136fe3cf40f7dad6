"""Cells of several demonstrators as one: their runs share programs."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from sbil import environments
from sbil.demonstrations import Demonstrations
from studies.cells import Cells, Grid, Setting, Unit


@dataclass(frozen=True)
class Pooled(Cells):
    """The cells of settings that differ in their demonstrators only. `setting` is the first of them."""

    members: tuple[Cells, ...]

    @property
    def name(self) -> str:
        """What the folder of these settings is called."""
        return f"{self.setting.environment}-{self.setting.thin}-seed{self.asked.seed}-draw{self.asked.first}"

    @cached_property
    def units(self) -> list[Unit]:
        """What each run learns from, member by member."""
        return [unit for member in self.members for unit in member.units]

    @cached_property
    def collected(self) -> tuple[Demonstrations, tuple[float, float]]:
        """All demonstrations, and the scale of scores, which the members share."""
        every = [member.collected[0] for member in self.members]
        trajectories = tuple(trajectory for each in every for trajectory in each.trajectories)
        return Demonstrations(trajectories, every[0].action_names), self.members[0].collected[1]

    @cached_property
    def orders(self) -> list[np.ndarray]:
        """The order in which each run draws trajectories. They are numbered through all demonstrations."""
        first = np.cumsum([0, *(len(member.collected[0]) for member in self.members)])
        return [start + order for start, member in zip(first, self.members, strict=False) for order in member.orders]

    def keys(self, use: str) -> jax.Array:
        """The keys of the members, so that pooling changes no draw and no network."""
        return jnp.concatenate([member.keys(use) for member in self.members])

    def identified(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with setting, seed, size and draw instead of the number of the run."""
        ends = np.cumsum([0, *(len(member.units) for member in self.members)]).tolist()
        parts = []
        for member, (first, end) in zip(self.members, pairwise(ends), strict=True):
            own = rows.filter(pl.col("run").is_between(first, end - 1))
            parts.append(member.identified(own.with_columns(pl.col("run") - first)))
        return pl.concat(parts)


def pools(asked: Grid, texts: Iterable[str]) -> list[Pooled]:
    """Pool the settings of one environment, thinning and scale."""
    found: dict[Any, list[Setting]] = {}
    for setting in map(Setting.parse, texts):
        scale = environments.scale(*setting[:3])
        found.setdefault((setting.environment, setting.thin, scale), []).append(setting)
    return [Pooled(asked, own[0], tuple(Cells(asked, setting) for setting in own)) for own in found.values()]
