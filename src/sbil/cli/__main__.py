"""python -m sbil.cli."""

from sbil.cli import main

main()
