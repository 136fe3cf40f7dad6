"""Decide for every row of a table: action, probabilities, energy, how familiar the state is, and what is outside."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sbil import files
from sbil.demonstrations import States, read_observations
from sbil.errors import UserError, flag
from sbil.evaluation.alarm import Alarm, alarm
from sbil.files import as_path
from sbil.policy import Policy
from sbil.policy.guard_measures import WORDS
from sbil.policy.outputs import must_be_free

# The columns that are added here.
OWN = ("row", "action", "energy", "percentile", "unfamiliar", "columns outside", "outside")
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet reads text that begins with these as a formula
SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True, eq=False)
class Decisions:
    """One decision per row of a table.

    frame: the place of the row in its table, the action, the probability of each action, the energy, the percentile of
        the state by the policy's measure, whether it is unfamiliar, how many of its numbers lie outside their range in
        training, and which.
    dropped: rows that were left out because a value is missing.
    filled: missing values that were filled in, by column.
    unseen: levels and earlier actions that were not seen in training and count as other, by column.
    new: those of them whose column had none in training, as far as the policy knows: it has no number that marks them.
    percentile: a state is unfamiliar if it is above this percentile.
    alarm: the whole table beside the training data; None if the policy does not know its columns.
    """

    frame: pl.DataFrame
    policy: Policy
    dropped: int
    filled: Mapping[str, int]
    percentile: float
    alarm: Alarm | None = None
    new: Mapping[str, int] = field(default_factory=dict)
    unseen: Mapping[str, int] = field(default_factory=dict)

    @property
    def actions(self) -> dict[str, int]:
        """How often each action was chosen."""
        return {name: int((self.frame["action"] == name).sum()) for name in self.policy.action_names}

    @property
    def unfamiliar(self) -> int | None:
        """How many states are unfamiliar; None if the policy has nothing to tell it by."""
        return int(self.frame["unfamiliar"].sum()) if "unfamiliar" in self.frame.columns else None

    @property
    def measure(self) -> str:
        """What decides whether a state is unfamiliar, in words."""
        guard = self.policy.guard
        return WORDS[guard.measure.name if guard and guard.measure else "energy"]

    @property
    def outside(self) -> int | None:
        """How many states have a number outside its range in training; None if the ranges are not known."""
        known = "columns outside" in self.frame.columns
        return int((self.frame["columns outside"] > 0).sum()) if known else None

    def as_json(self) -> dict[str, Any]:
        rows = len(self.frame)
        return {
            **{"rows": rows, "dropped": self.dropped, "actions": self.actions, "unfamiliar": self.unfamiliar},
            "outside": self.outside,
            "filled": dict(self.filled),
            "newly_missing": dict(self.new),
            "unseen": dict(self.unseen),
            "alarm": self.alarm.as_json() if self.alarm else None,
        }

    def save(self, out: str | Path, overwrite: bool = False) -> None:
        """Write the table as CSV or Parquet. No text in a CSV begins like a formula: spreadsheets run formulas."""
        _must_be_writable(Path(out), overwrite)
        content = io.BytesIO()
        if Path(out).suffix == ".parquet":
            self.frame.write_parquet(content)
        else:
            _harmless(self.frame).write_csv(content)
        files.write_bytes(Path(out), content.getvalue())


def _must_be_writable(out: Path, overwrite: bool, table: Any = None) -> None:
    """Refuse a file that is neither CSV nor Parquet, one that exists, and the table that is read."""
    if out.suffix not in SUFFIXES:
        raise UserError(f"{out}: the table is written as .csv or .parquet; name such a file.")
    must_be_free(out, overwrite, (table,))


def predict(
    policy: Policy | str | Path,
    table: Any,
    *,
    missing: str | None = None,
    unseen: str | None = None,
    unfamiliar: float = 99.0,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Decisions:
    """Decide for every row of a table.

        sbil.predict("policy/", "new.csv").save("decisions.csv")

    policy: a Policy that was trained on a table, or the path of its folder.
    table: a path or a data frame with the columns that the policy was trained on, in any order. If the policy observes
        the rows before, these are the episode and the time too, and the action where it observes the previous one; it
        may be empty in the last row of an episode.
    missing: what to do if a value is missing: refuse, mean, last, indicator or drop; default: what was done in
        training. The means are those of training.
    unseen: what to do with levels, and with earlier actions that the policy observes, that were not seen in training:
        refuse, or other (count them as other); default: what was done in training.
    unfamiliar: a state is unfamiliar if it is above this percentile by the policy's measure.
    out: also write the decisions to this CSV or Parquet file.
    overwrite: replace that file if it exists.
    """
    if out is not None:
        _must_be_writable(as_path("out", out), flag("overwrite", overwrite), table)
    if not (isinstance(unfamiliar, int | float) and 0 <= unfamiliar <= 100):
        raise UserError(f"unfamiliar is a percentile from 0 to 100. Got {unfamiliar!r}.")
    name = "this policy" if isinstance(policy, Policy) else str(policy)
    policy = policy if isinstance(policy, Policy) else Policy.load(policy)
    if policy.schema is None:
        raise UserError(
            f"{name} was not trained on a table, so its columns are not known; train it on a table, or call "
            "policy.probabilities in Python."
        )
    rules = {"missing": missing or policy.schema.missing, "unseen": unseen or policy.schema.unseen}
    schema = replace(policy.schema, **rules)  # type: ignore[arg-type]
    if missing == "indicator" and policy.schema.missing != missing:
        raise UserError(f"{name} was trained without numbers that mark missing values; choose mean, last or drop.")
    rows = read_observations(table, schema)
    frame = _decided(policy, rows, unfamiliar)
    known = "percentile" in frame.columns
    found = (
        alarm(policy, rows.observations, frame["percentile"].to_numpy(), rows.episode, unfamiliar) if known else None
    )
    made = Decisions(frame, policy, rows.dropped, rows.filled, unfamiliar, found, rows.new, rows.unseen)
    if out is not None:
        made.save(out, overwrite)
    return made


def _decided(policy: Policy, rows: States, unfamiliar: float) -> pl.DataFrame:
    """One row per state."""
    schema, seen = policy.schema, rows.observations
    assert schema is not None
    columns: dict[str, Any] = {"row": rows.rows}
    for name, values in ((schema.episode, rows.episode), (schema.time, rows.time)):
        if name and values is not None:
            columns[f"{name} of the table" if name in OWN else name] = values
    columns["action"] = [policy.action_names[number] for number in policy.act(seen)]
    probabilities = policy.probabilities(seen)
    columns |= {f"probability of {name}": probabilities[:, i] for i, name in enumerate(policy.action_names)}
    columns["energy"] = policy.energy(seen)
    if policy.energies is not None or (policy.guard and policy.guard.measure):
        columns["percentile"] = policy.percentile(seen).round(1)
        columns["unfamiliar"] = columns["percentile"] > unfamiliar
    if policy.guard is not None:
        names = policy.outside_names(seen)
        columns["columns outside"] = np.array([len(each) for each in names], np.int32)
        columns["outside"] = ["; ".join(each) for each in names]
    return pl.DataFrame(columns)


def _harmless(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with an apostrophe before every text and name that begins like a formula; numbers stay."""

    def escaped(name: str) -> pl.Expr:
        text = pl.col(name)
        formula = text.str.slice(0, 1).is_in(FORMULAS) & text.cast(pl.Float64, strict=False).is_null()
        return pl.when(formula).then("'" + text).otherwise(text).alias(name)

    safe = frame.with_columns([escaped(name) for name, kind in frame.schema.items() if kind == pl.String])
    safe.columns = [f"'{name}" if name.startswith(FORMULAS) else name for name in safe.columns]
    return safe
