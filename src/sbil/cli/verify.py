"""sbil verify: a policy folder and its data -> whether training again gives the same policy."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sbil.cli.columns import ColumnOptions
from sbil.cli.options import Folder, Printed, call

if TYPE_CHECKING:
    from sbil.api.verify import Verification

EXAMPLES = ("sbil verify policy/ --data stays.csv", "sbil verify policy/ --data demos.npz --json")


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions, Printed):
    """Train a policy again from its data, with the settings in its folder, and compare the two.

    On one machine, with the same versions, they are the same byte for byte. On another they may differ: then it says
    what differs and how far apart the decisions are, and the exit status is 1.
    """

    policy: Folder
    data: str
    """The data that `sbil train` was given: all of it, also if a part was held out. Give --exclude and --schema again
    if they were given then."""


def run(command: Command) -> None:
    """Train again, compare, and exit with 1 if the two differ."""
    from sbil.api.verify import verify
    from sbil.cli.progress import bar

    with bar(1, f"{command.policy} again") as advance:
        found = call(verify, command, watch=advance)
    print(json.dumps(found.as_json(), allow_nan=False) if command.json else in_words(found))
    if not found.same:
        sys.exit(1)


def in_words(found: "Verification") -> str:
    """The comparison in one line."""
    from sbil.text import counted

    episodes = counted(len(found.training), found.training.words[0])
    learned = f"trained again from {episodes}, {counted(found.decisions, 'decision')}, as the policy was"
    if found.same:
        return f"{learned}: the same policy, byte for byte"
    others = ", ".join(f"{name} was {then}, is {now}" for name, (then, now) in found.changed.items())
    return (
        f"{learned}: these parts differ: {', '.join(found.differs)}; the preferred action differs at "
        f"{found.other_choices:,} of these decisions, and probabilities differ by at most "
        f"{found.largest_difference:.1g} ({others or 'the folder names this version and kind of device'})"
    )
