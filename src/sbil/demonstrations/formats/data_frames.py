"""Tables in memory: Pandas and Polars data frames, and what hands out Arrow data, such as PyArrow and DuckDB."""

from typing import Any

import numpy as np
import polars as pl

from sbil.demonstrations.formats import Format
from sbil.demonstrations.table import Table, checked_names, of_frame


def is_frame(source: Any) -> bool:
    """Whether an object is a table; no package is imported for that."""
    home = type(source).__module__.split(".")[0]
    if home in ("pandas", "polars"):
        return type(source).__name__ == "DataFrame"
    return hasattr(type(source), "__arrow_c_stream__") and hasattr(type(source), "columns")


def table(frame: Any) -> Table:
    """The table of a data frame."""
    if not isinstance(frame, pl.DataFrame):
        frame = _from_pandas(frame) if hasattr(frame, "index") else pl.DataFrame(frame)
    return of_frame(frame.lazy(), "the data frame", "data frame")


def _from_pandas(frame: Any) -> pl.DataFrame:
    """Convert column by column, which needs no PyArrow; what is neither a number nor a date becomes text.

    An ordered category keeps its order.
    """
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    names = checked_names([str(name) for name in frame.columns])
    return pl.DataFrame([_series(name, frame.iloc[:, place]) for place, name in enumerate(names)])


def _series(name: str, column: Any) -> pl.Series:
    kind = getattr(column.dtype, "kind", "O")
    if isinstance(column.dtype, np.dtype) and kind in "iufb":
        return pl.Series(name, column.to_numpy())
    if kind == "M":
        zone = getattr(column.dtype, "tz", None)
        plain = column.dt.tz_convert("UTC").dt.tz_localize(None) if zone else column
        series = pl.Series(name, plain.to_numpy().astype("datetime64[us]"))
        return series.dt.replace_time_zone("UTC") if zone else series
    gone = column.isna().to_numpy()
    values = [None if empty else str(value) for value, empty in zip(column.tolist(), gone, strict=True)]
    if getattr(column.dtype, "ordered", False):
        return pl.Series(name, values, dtype=pl.Enum([*dict.fromkeys(map(str, column.dtype.categories))]))
    return pl.Series(name, values, dtype=pl.String)


FORMAT = Format("Data frames", table=table, recognises=is_frame)
