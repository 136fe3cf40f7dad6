"""Data frames that are given to a policy: the columns that it sees, found by name, as an array."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sbil.demonstrations import Schema, read_observations
from sbil.demonstrations.formats.data_frames import is_frame, table
from sbil.demonstrations.roles import listed
from sbil.demonstrations.schema import Column
from sbil.errors import UserError
from sbil.text import counted

__all__ = ["is_frame", "rows_of"]


def rows_of(frame: Any, names: Sequence[str], schema: Schema | None) -> np.ndarray:
    """[n, numbers] what a policy sees in a data frame; the order of the columns does not matter.

    The data frame has the columns of the table that the policy was trained on, or one column per number, with the
    names that the policy gives to its numbers. Other columns are ignored. A missing column is refused by name.
    """
    given = table(frame).names
    wanted = [column.name for column in schema.columns] if schema else [*names]
    bare = schema is None or schema.adds or not set(wanted) <= set(given)
    by_number = schema is None or (bare and set(names) <= set(given))
    missing = [name for name in (names if by_number else wanted) if name not in given]
    if missing:
        raise UserError(
            f"the data frame lacks columns that the policy sees: {listed(missing)}; columns are found by name, in any "
            "order."
        )
    if by_number or schema is None:
        nothing = max(names, key=len, default="") + "'"  # a name that no column has
        schema = Schema(nothing, tuple(map(Column, names)))
    states = read_observations(frame, schema)
    if states.dropped:
        raise UserError(
            f"{counted(states.dropped, 'row')} with a missing value would be dropped, as in training; fill the gap, or "
            "use sbil.predict, which says what it left out."
        )
    return np.asarray(states.observations, np.float32)
