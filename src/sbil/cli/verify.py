"""sbil verify: a policy folder and its data -> whether training again gives the same policy."""

import json
import sys
from dataclasses import dataclass

from sbil.cli.columns import ColumnOptions
from sbil.cli.options import Folder, Printed, with_options

EXAMPLES = ("sbil verify policy/ --data stays.csv", "sbil verify policy/ --data demos.npz --json")


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions, Printed):
    """Train a policy again from its data, with the settings in its folder, and compare the two.

    On one machine, with the same versions, they are the same byte for byte. On another they may differ: then it says
    what differs and how far apart the decisions are, and the exit status is 1.
    """

    policy: Folder
    data: str
    """The data that `sbil train` was given: all of it, also if a part was held out. Give --exclude, --only and --schema
    again if they were given then."""


def run(command: Command) -> None:
    """Train again, compare, and exit with 1 if the two differ."""
    from sbil.api.verify import verify
    from sbil.cli.progress import bar

    with bar(1, f"{command.policy} again") as advance:
        found = with_options(verify, command, watch=advance)
    print(json.dumps(found.as_json(), allow_nan=False) if command.json else found)
    if not found.same:
        sys.exit(1)
