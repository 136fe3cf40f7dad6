"""`python -m studies.remedies`: run the study, or copy its runs into results/remedies/."""

import tyro

from sbil.errors import program
from studies.remedies.stored import Take, take
from studies.remedies.study import Run, run


def main() -> None:
    """Do what the first word says."""
    asked = tyro.extras.subcommand_cli_from_dict({"run": Run, "take": Take}, prog="python -m studies.remedies")
    if isinstance(asked, Run):
        run(asked)
    else:
        take(asked)


if __name__ == "__main__":
    program("remedies", main)
