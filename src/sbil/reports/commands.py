"""The commands that run the cells of a report again."""

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from sbil.experiments import Cell
from sbil.experiments.environment import played
from sbil.reports.labels import PROTOCOL, protocol_of
from sbil.reports.names import place_of

Call = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # protocol, sizes, numbers of unlabelled trajectories
SCRIPT = """from pathlib import Path
from sbil.experiments import Experiment, Method
from sbil.experiments.run import run_grid
from sbil.experiments.store import Store

experiments = [
{}
]
cells = [cell for experiment in experiments for cell in experiment.cells()]
list(run_grid(cells, Store(Path("runs/"))))"""


def commands(cells: Sequence[Cell]) -> list[str]:
    """Return the calls of `sbil reproduce` that run the cells of one setting: one per protocol and choice of sizes.

    Cells with another seed or with every state are left out, because the command has no option for them. See
    `from_python`.
    """
    plain = [cell for cell in cells if not _needs_python(cell)]
    return [_command(plain[0], methods, call) for call, methods in _calls(plain).items()]


def from_python(cells: Sequence[Cell]) -> str:
    """Return a script that runs the cells of one setting for which there is no command, or "" if there are none."""
    lines = []
    for every_state in (False, True):
        mine = [cell for cell in cells if _needs_python(cell) and cell.task.every_state == every_state]
        lines += [f"    {_experiment(mine[0], methods, call)}," for call, methods in _calls(mine).items()]
    return SCRIPT.format("\n".join(lines)) if lines else ""


def _needs_python(cell: Cell) -> bool:
    return bool(cell.task.seed or cell.task.every_state)


def _calls(cells: Sequence[Cell]) -> dict[Call, list[str]]:
    """Return the methods to run by call. Each cell is run once."""
    asked: dict[tuple[Any, ...], dict[int, set[int]]] = {}
    for cell in cells:
        key = protocol_of(cell), place_of(str(cell.method))
        asked.setdefault(key, {}).setdefault(cell.task.unlabelled, set()).add(cell.size)
    calls: dict[Call, list[str]] = {}
    for (protocol, (_, method)), found in sorted(asked.items()):
        for sizes in dict.fromkeys(tuple(sorted(found[unlabelled])) for unlabelled in sorted(found)):
            levels = tuple(unlabelled for unlabelled in sorted(found) if found[unlabelled] == set(sizes))
            calls.setdefault((protocol, sizes, levels), []).append(method)
    return calls


def _experiment(cell: Cell, methods: Iterable[str], call: Call) -> str:
    protocol, sizes, levels = call
    task = played(cell)
    options = {"thin": task.thin, "sizes": sizes, "unlabelled": levels, "every_state": task.every_state}
    options |= {"seed": task.seed, **dict(zip(PROTOCOL, protocol, strict=True))}
    parsed = "".join(f"Method.parse({method!r}), " for method in methods)
    words = [repr(task.environment), f"(({task.demonstrator!r}, {task.mode!r}),)", f"({parsed.rstrip()})"]
    return f"Experiment({', '.join([*words, *(f'{name}={value!r}' for name, value in options.items())])})"


def _command(cell: Cell, methods: Iterable[str], call: Call) -> str:
    (draws, initialisations, updates, episodes), sizes, levels = call
    task = played(cell)
    options = {
        "env": task.environment,
        "thin": task.thin,
        "demonstrators": f"{task.demonstrator}:{task.mode}",
        "algorithms": ",".join(methods),
        "sizes": ",".join(map(str, sizes)),
        **({"unlabelled": ",".join(map(str, levels))} if any(levels) else {}),
    }
    options |= {"draws": draws, "seeds": initialisations, "updates": updates, "episodes": episodes, "out": "runs/"}
    return "sbil reproduce " + " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in options.items())
