"""python -m sbil."""

from sbil.cli import program

program()
