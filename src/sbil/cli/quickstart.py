"""sbil quickstart: train BC and EDM on CartPole and compare them (a few minutes)."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from sbil.cli.options import Printed, with_options

EXAMPLES = ("sbil quickstart", "sbil quickstart --out /tmp/first --runs 20 --json")


@dataclass(frozen=True)
class Command(Printed):
    """Train BC and EDM on CartPole from 1, 3 and 7 thinned demonstrations, 10 runs each, and compare them.

    Every run has the paper's full budget: 10,000 updates, then 300 live episodes. You may interrupt it: the same
    command continues.
    """

    out: Path = Path("quickstart")
    """Folder for the results, the table and the figure."""
    runs: int = 10
    """Runs of each cell, each with its own draw of demonstrations."""
    updates: int = 10_000
    """Gradient updates of each run."""
    episodes: int = 300
    """Live episodes of each finished policy."""


def run(command: Command) -> None:
    """Run it, print it, and say where to go next."""
    from sbil.api.quickstart import quickstart
    from sbil.cli.reproduce import print_results
    from sbil.cli.screen import Screen
    from sbil.reports import tables
    from sbil.reports.rows import cell_rows

    watcher = Screen(command.out / "cells")
    results = with_options(quickstart, command, watcher=watcher).played
    if command.json:
        print(tables.json_text({"cells": cell_rows(results)}))
        return
    print_results(results)
    sbil = "sbil" if shutil.which("sbil") else sys.argv[0]
    print(f"""
The demonstrator scores 1 and a random network 0. Only every 20th decision was given, so one trajectory is 25 pairs.
wrote {command.out}/figure.png (look at it), table.md, and cells/ with the return of every episode

next:
  {sbil} demos collect --env CartPole-v1 --trajectories 20 --out demos.npz    demonstrations in a file
  {sbil} train edm --data demos.npz --thin 20 --out policy/                   one policy from them
  {sbil} evaluate policy/ --env CartPole-v1                                   and how good it is
  {sbil} reproduce --env Acrobot-v1 --algorithms bc,edm --out grid/           the paper's protocol, 50 runs per cell""")
