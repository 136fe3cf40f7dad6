"""`python -m studies.peers`: run the study, or copy its runs into results/peers/."""

import tyro

from sbil.errors import program
from studies.peers.run import Run, run
from studies.peers.stored import Take, take


def main() -> None:
    """Do what the first word says."""
    asked = tyro.extras.subcommand_cli_from_dict({"run": Run, "take": Take}, prog="python -m studies.peers")
    if isinstance(asked, Run):
        run(asked)
    else:
        take(asked)


if __name__ == "__main__":
    program("peers", main)
