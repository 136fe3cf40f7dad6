"""`python -m studies.choosing`: run the study, or copy its runs into results/choosing/."""

import tyro

from sbil.errors import program
from studies.choosing.run import Run, Take, run, take


def main() -> None:
    """Do what the first word says."""
    asked = tyro.extras.subcommand_cli_from_dict({"run": Run, "take": Take}, prog="python -m studies.choosing")
    if isinstance(asked, Run):
        run(asked)
    else:
        take(asked)


if __name__ == "__main__":
    program("choosing", main)
