"""python -m sbil."""

from sbil.cli import main

main()
