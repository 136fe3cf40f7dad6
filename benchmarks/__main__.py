"""`python -m benchmarks`: measure the parts asked for, print tables, write the raw numbers."""

import importlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal

import tyro

Part = Literal["edm", "environments", "scaling", "memory", "determinism", "all"]
MODULES = {
    "edm": "edm_speed",
    "environments": "environment_speed",
    "scaling": "scaling",
    "memory": "memory",
    "determinism": "determinism",
}


@dataclass(frozen=True)
class Options:
    """Measure sbil on this machine. Nothing else should be running on it."""

    parts: tyro.conf.Positional[tuple[Part, ...]] = ("all",)
    """What to measure."""
    updates: int | None = None
    """Updates in each timed piece of training (default: 500, fewer where a part needs many pieces)."""
    runs: tuple[int, ...] | None = None
    """Runs in one program, for edm and determinism (default: 1 10 50, on a GPU 1 100 1000)."""
    repeats: int | None = None
    """Timed repeats of everything (default: 3 to 5)."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the machine's facts and every raw repeat to this file."""
    quick: bool = field(default=False)
    """Shrink everything to under a minute: shows that it works, measures nothing well."""


def main() -> int:
    """Run the parts one after another; a part that fails is reported and the others go on."""
    options = tyro.cli(Options, prog="python -m benchmarks", config=(tyro.conf.FlagCreatePairsOff,))
    # Imported here because worker processes of the environments import this file too.
    from benchmarks import machine
    from benchmarks.settings import Settings
    from benchmarks.tables import line

    facts = machine.facts()
    _describe(facts)
    gpu = facts["jax device"]["platform"] != "cpu"
    settings = Settings(options.quick, gpu, options.updates, options.runs, options.repeats)
    results: dict[str, Any] = {"machine": facts, "options": {**vars(options), "json": None}, "parts": {}}
    failed = False
    for part in MODULES if "all" in options.parts else dict.fromkeys(options.parts):
        started = perf_counter()
        try:
            measured = importlib.import_module(f"benchmarks.{MODULES[part]}").run(settings)
        except Exception as error:
            failed = True
            measured = {"error": f"{type(error).__name__}: {error}"}
            line(f"{part} failed: {measured['error'].splitlines()[0]}")
        measured["seconds"] = perf_counter() - started
        results["parts"][part] = measured
        facts["load after"] = machine.load()
        if options.json:  # after every part, so that an interrupted call leaves what it has measured
            options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(failed)


def _describe(facts: dict[str, Any]) -> None:
    from benchmarks.tables import line

    device, packages = facts["jax device"], facts["packages"]
    line(
        f"{facts['cpu']}, {facts['cores']} cores; JAX {packages['jax']} on {device['devices']} x {device['kind']}"
    )
    line(
        f"PyTorch {packages['torch'] or '-'}, gymnasium {packages['gymnasium'] or '-'}, sbil {facts['sbil']}"
    )
    if facts["load before"] and facts["load before"] > 0.5:
        line(f"The machine is busy (load {facts['load before']}): the times below will be too long.")


if __name__ == "__main__":
    sys.exit(main())
