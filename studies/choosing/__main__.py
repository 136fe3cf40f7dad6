"""`python -m studies.choosing`: run the study."""

import tyro

from sbil.errors import program
from studies.choosing.run import Run, run


def main() -> None:
    """Do what the first word says."""
    run(tyro.extras.subcommand_cli_from_dict({"run": Run}, prog="python -m studies.choosing"))


if __name__ == "__main__":
    program("choosing", main)
