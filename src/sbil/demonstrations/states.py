"""The states of a table whose decisions may not be known, in the order of the file, as arrays on the disk."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sbil.demonstrations import rules
from sbil.demonstrations.columns import Gathered
from sbil.demonstrations.observations import newly_missing, observations
from sbil.demonstrations.order import Order, ordered
from sbil.demonstrations.problems import Problems
from sbil.demonstrations.roles import require
from sbil.demonstrations.rows import begin, complete
from sbil.demonstrations.schema import Schema
from sbil.demonstrations.table import Table
from sbil.errors import UserError


def _require_columns(schema: Schema, keys: Mapping[str, str], names: Sequence[str]) -> None:
    for column in schema.columns:
        require(column.name, names, "observation")
    for role, name in keys.items():
        require(name, names, role)
    if schema.previous_action and schema.action not in names:
        what = "the policy observes the previous action; add the actions of earlier rows, empty where not known yet"
        raise UserError(f"there is no column '{schema.action}' (action), and {what}.")


def _as_in_the_table(folder: Path, file: str, order: Order) -> str:
    """Bring observations back to the order of the table, and return the name of their file."""
    if order.chosen is None:
        return file
    np.save(folder / "back.npy", np.load(folder / file, mmap_mode="r")[np.argsort(order.chosen)])
    return "back.npy"


def states(table: Table, schema: Schema, folder: Path) -> dict[str, Any]:
    """Write the observations of a table whose decisions may not be known, in the order of the file."""
    _, batches = begin(table)
    linked = schema.linked
    keys = {role: name for role in ("episode", "time") if (name := schema.roles[role])}
    _require_columns(schema, keys if linked else {}, table.names)
    shown = {role: name for role, name in keys.items() if name in table.names}
    needed = keys if linked else dict.fromkeys(keys)
    action = schema.action if schema.previous_action else ""
    used = replace(schema, action=action, group=None, terminal=None, truncated=None, weights=None, **needed)
    problems = Problems(raising=True)
    read = Gathered(used, folder, problems, texts=(*shown.values(), *filter(None, [action]))).add_all(batches)
    problems.apply(rules.OF_STATES, read, schema)
    kept = complete(read) if schema.missing == "drop" else None
    order = ordered(read, used, kept)
    problems.apply(rules.OF_HISTORY, read, schema, order)
    file = observations(read, order, schema, folder)
    if linked:
        file = _as_in_the_table(folder, file, order)
    rows = np.arange(len(read)) if kept is None else kept
    np.save(folder / "kept.npy", read.rows.all()[rows])
    for role, column_name in shown.items():
        np.save(folder / f"{role}.npy", read.codes[column_name].all()[rows])
    return {
        "observations": file,
        "texts": {role: read.levels[column_name].names for role, column_name in shown.items()},
        "rows_in_file": len(read),
        "filled_values": {} if schema.missing == "drop" else read.missing,
        "newly_missing": newly_missing(read, schema),
        "unseen_values": read.unseen(schema),
    }
