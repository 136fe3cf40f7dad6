"""sbil predict: a policy folder and a table of states -> a table of decisions, and how sure they are."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sbil.cli.columns import tell_filled

if TYPE_CHECKING:
    import polars as pl

    from sbil.policy import Policy

EXAMPLES = (
    "sbil predict policy/ --data new.csv --out decisions.csv",
    "sbil predict policy/ --data new.parquet --out decisions.parquet --missing mean --unfamiliar 95",
)
OWN = ("row", "action", "energy", "percentile", "unfamiliar")  # columns that are ours
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of a formula


@dataclass(frozen=True)
class Command:
    """Decide for every row of a table: action, probabilities, energy, and its percentile among the training states."""

    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """The policy folder."""
    data: str
    """The table: CSV or Parquet, one file, a folder or a glob. It needs the columns the policy was trained on."""
    out: Path
    """The table to write: .csv or .parquet."""
    missing: Annotated[str | None, tyro.conf.arg(metavar="{refuse,mean,last,drop}")] = None
    """What to do where a value is missing (default: what was done in training; the means are those of training)."""
    unfamiliar: float = 99.0
    """A state is flagged whose energy is above this percentile of the training states."""
    overwrite: bool = False
    """Replace the file if it exists."""
    json: bool = False
    """Print the counts as JSON."""


def run(command: Command) -> None:
    """Read, decide, write, and count what is unfamiliar."""
    from sbil import files
    from sbil.cli.outputs import must_be_free
    from sbil.demonstrations import read_observations
    from sbil.errors import UserError
    from sbil.policy import Policy

    if command.out.suffix not in (".csv", ".parquet"):
        raise UserError(f"--out {command.out}: the table is written as .csv or .parquet; name such a file.")
    must_be_free("--out", command.out, command.overwrite, (command.data,))
    if not 0 <= command.unfamiliar <= 100:
        raise UserError(f"--unfamiliar is a percentile from 0 to 100. Got {command.unfamiliar}.")
    policy = Policy.load(command.policy)
    if policy.schema is None:
        raise UserError(
            f"{command.policy} was not trained on a table, so its columns are not known; train it with --data TABLE, "
            "or use the policy in Python."
        )
    schema = policy.schema
    if command.missing:
        schema = replace(schema, missing=command.missing)  # type: ignore[arg-type]
    rows = read_observations(command.data, schema)
    table = decide(policy, rows, command.unfamiliar)
    files.write_bytes(command.out, written(table, command.out.suffix))
    report(command, policy, table, rows)


def decide(policy: "Policy", rows: Any, unfamiliar: float) -> "pl.DataFrame":
    """One row a state: where it stands, the decision, and how sure it is."""
    import polars as pl

    probabilities, schema = policy.probabilities(rows.observations), policy.schema
    columns: dict[str, Any] = {"row": rows.rows}
    for name, values in ((schema and schema.episode, rows.episode), (schema and schema.time, rows.time)):
        if name and values is not None:
            columns[f"{name} of the table" if name in OWN else name] = values
    columns["action"] = [policy.action_names[number] for number in policy.act(rows.observations)]
    columns |= {f"probability of {name}": probabilities[:, i] for i, name in enumerate(policy.action_names)}
    columns["energy"] = policy.energy(rows.observations)
    if policy.energies is not None:
        columns["percentile"] = policy.percentile(rows.observations).round(1)
        columns["unfamiliar"] = columns["percentile"] > unfamiliar
    return pl.DataFrame(columns)


def written(table: "pl.DataFrame", suffix: str) -> bytes:
    """The table as a file; in CSV no text begins like a formula, for spreadsheets would run it."""
    import io

    import polars as pl

    content = io.BytesIO()
    if suffix == ".parquet":
        table.write_parquet(content)
    else:
        texts = [name for name, kind in table.schema.items() if kind == pl.String]
        harmless = [
            pl.when(
                pl.col(name).str.slice(0, 1).is_in(FORMULAS) & pl.col(name).cast(pl.Float64, strict=False).is_null()
            )
            .then("'" + pl.col(name))
            .otherwise(pl.col(name))
            .alias(name)
            for name in texts
        ]
        safe = table.with_columns(harmless)
        safe.columns = [f"'{name}" if name.startswith(FORMULAS) else name for name in safe.columns]
        safe.write_csv(content, float_precision=6)
    return content.getvalue()


def report(command: Command, policy: "Policy", table: "pl.DataFrame", rows: Any) -> None:
    """Say what was written and how many states are unlike the training data."""
    counts = {name: int((table["action"] == name).sum()) for name in policy.action_names}
    strange = int(table["unfamiliar"].sum()) if "unfamiliar" in table.columns else None
    if command.json:
        print(
            json.dumps(
                {
                    "out": str(command.out),
                    "rows": len(table),
                    "dropped": rows.dropped,
                    "actions": counts,
                    "unfamiliar": strange,
                }
            )
        )
        return
    from sbil.text import counted

    words = ", ".join(f"{name} {count}" for name, count in counts.items())
    print(f"wrote {command.out}: {counted(len(table), 'decision')} ({words})")
    if rows.dropped:
        be = "is" if rows.dropped == 1 else "are"
        print(f"{counted(rows.dropped, 'row')} {be} left out because a value is missing")
    tell_filled(rows.filled)
    if strange is not None:
        be = "is" if strange == 1 else "are"
        print(
            f"{counted(strange, 'state')} ({strange / max(len(table), 1):.1%}) {be} flagged as unfamiliar: an energy "
            f"above percentile {command.unfamiliar:g} of the training states"
        )
    if not str(policy.provenance.get("algorithm", "")).startswith("edm"):
        print("note: only EDM trains the energy to be low where states were seen; of other policies it says little")
