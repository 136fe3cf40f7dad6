"""A small table of decisions for the tests of the library: a pulse above 80 is treated."""

import numpy as np
import polars as pl

COLUMNS = {"episode": "stay", "time": "hour", "action": "treatment"}


def stays(count: int = 20, shift: float = 0.0, seed: int = 3) -> pl.DataFrame:
    """Four hours of each stay."""
    rng = np.random.default_rng(seed)
    pulse = rng.normal(80 + shift, 15, size=4 * count).round(1)
    return pl.DataFrame(
        {
            "stay": np.repeat(np.arange(count), 4),
            "hour": np.tile(np.arange(4), count),
            "pulse": pulse,
            "age": np.repeat(40 + np.arange(count), 4),
            "treatment": np.where(pulse > 80, "fluids", "none"),
        }
    )
