"""sbil predict: a policy folder and a table of states -> decisions, and how sure they are."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from sbil.cli.columns import tell_filled, tell_unseen
from sbil.cli.options import Folder, Written, with_options

if TYPE_CHECKING:
    from sbil.api.predict import Decisions

EXAMPLES = (
    "sbil predict policy/ --data new.csv --out decisions.csv",
    "sbil predict policy/ --data new.parquet --out decisions.parquet --missing mean --unfamiliar 95",
)


@dataclass(frozen=True, kw_only=True)
class Command(Written):
    """Decide for every row of a table: action, probabilities, and whether the state is like those of training."""

    policy: Folder
    data: str
    """The table: one file, a folder or a glob. It needs the columns the policy was trained on."""
    out: Path
    """The table to write: .csv or .parquet."""
    missing: Annotated[str | None, tyro.conf.arg(metavar="{refuse,mean,last,drop,indicator}")] = None
    """What to do if a value is missing (default: what was done in training; the means are those of training)."""
    unseen: Annotated[str | None, tyro.conf.arg(metavar="{refuse,other}")] = None
    """What to do with levels and earlier actions that were not seen in training (default: what was said in training).
    """
    unfamiliar: float = 99.0
    """Flag a state as unfamiliar if it is above this percentile by the policy's measure (the card says which)."""


def run(command: Command) -> None:
    """Read, decide, write, and count what is unfamiliar."""
    from sbil.api.predict import predict

    made = with_options(predict, command, aside=("data",), table=command.data)
    if command.json:
        print(json.dumps({"out": str(command.out), **made.as_json()}))
    else:
        show(command, made)


def show(command: Command, made: "Decisions") -> None:
    """Say what was written and how many states are unlike the training data."""
    from sbil.api.methods import trains_energy
    from sbil.policy.guard_measures import WORDS
    from sbil.text import counted

    words = ", ".join(f"{name} {count}" for name, count in made.actions.items())
    print(f"wrote {command.out}: {counted(len(made.frame), 'decision')} ({words})")
    if made.dropped:
        be = "is" if made.dropped == 1 else "are"
        print(f"{counted(made.dropped, 'row')} {be} left out because a value is missing")
    tell_filled(made.filled, made.new)
    tell_unseen(made.unseen)
    strange = made.unfamiliar
    if strange is not None:
        be = "is" if strange == 1 else "are"
        print(
            f"{counted(strange, 'state')} ({strange / max(len(made.frame), 1):.1%}) {be} flagged as unfamiliar: above "
            f"percentile {command.unfamiliar:g} by {made.measure}"
        )
    if made.outside is not None:
        have = "has" if made.outside == 1 else "have"
        print(
            f"{counted(made.outside, 'state')} ({made.outside / max(len(made.frame), 1):.1%}) {have} a number outside "
            "its range in training; the column 'outside' names it"
        )
    if made.alarm:
        print(made.alarm)
    if made.measure == WORDS["energy"] and not trains_energy(made.policy):
        print("note: only EDM trains the energy to be low at training states; for other policies it says little")
