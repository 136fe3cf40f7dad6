"""`python -m studies.choosing`: train and play, measure, or copy what was measured into results/choosing/."""

from typing import Any

import tyro

from sbil.errors import program
from studies.choosing.run import Measure, Run, Take, measure, run, take


def main() -> None:
    """Do what the first word says."""
    words: dict[str, Any] = {"run": Run, "measure": Measure, "take": Take}
    asked = tyro.extras.subcommand_cli_from_dict(words, prog="python -m studies.choosing")
    if isinstance(asked, Take):
        take(asked)
    elif isinstance(asked, Measure):
        measure(asked)
    else:
        run(asked)


if __name__ == "__main__":
    program("choosing", main)
