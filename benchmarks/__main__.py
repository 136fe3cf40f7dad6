"""`python -m benchmarks`: measure the parts asked for, print tables, write the raw numbers."""

import importlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any, Literal

import tyro

Part = Literal[
    "edm",
    "methods",
    "choosing",
    "environments",
    "host",
    "images",
    "tables",
    "scaling",
    "memory",
    "runner",
    "determinism",
    "all",
]
MODULES = {
    "edm": "edm_speed",
    "methods": "methods",
    "choosing": "choosing",
    "environments": "environment_speed",
    "host": "host_speed",
    "images": "image_speed",
    "tables": "table_size",
    "scaling": "scaling",
    "memory": "memory",
    "runner": "runner",
    "determinism": "determinism",
}


@dataclass(frozen=True)
class Options:
    """Measure sbil on this machine. Nothing else should be running on it."""

    parts: tyro.conf.Positional[tuple[Part, ...]] = ("all",)
    """What to measure; several may be named."""
    updates: int | None = None
    """Updates in each timed piece of training (default: 500; fewer in parts with many pieces)."""
    runs: tuple[int, ...] | None = None
    """Runs in one program, for edm (default: 1 10 50, on a GPU 1 100 1000) and determinism (1 7 25 50)."""
    repeats: int | None = None
    """Timed repeats of everything (default: 3 to 5)."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the machine's facts and every raw repeat to this file."""
    quick: bool = False
    """Shrink everything to about a minute: shows that it works, but the times are rough."""


def main() -> int:
    """Run the parts one after another; if a part fails, report it and continue."""
    options = tyro.cli(Options, prog="python -m benchmarks", config=(tyro.conf.FlagCreatePairsOff,))
    given = (options.updates, options.repeats, *(options.runs or ()))
    if any(value is not None and value < 1 for value in given):
        print("--updates, --repeats and --runs take whole numbers from 1.", file=sys.stderr)
        return 2
    if not options.quick:
        return _run(options)
    with _shared_programs():
        return _run(options)


@contextmanager
def _shared_programs() -> Iterator[None]:
    """Keep compiled programs in a folder for this call, so that its child processes need not compile again."""
    with TemporaryDirectory() as folder:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder  # JAX reads it when it is imported, which comes later
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.5"
        yield


def _run(options: Options) -> int:
    # Imported here because the worker processes of gymnasium import this file too.
    from benchmarks import machine
    from benchmarks.settings import Record, Settings
    from benchmarks.tables import line

    results: dict[str, Any] = {"machine": machine.facts(), "options": _plain(options), "parts": {}}
    _describe(results["machine"])
    gpu = results["machine"]["jax device"]["platform"] != "cpu"
    settings = Settings(options.quick, gpu, options.updates, options.runs, options.repeats)
    failed = False
    for part in MODULES if "all" in options.parts else dict.fromkeys(options.parts):
        measured: Record = {"records": []}
        results["parts"][part] = measured

        def keep(record: Record, measured: Record = measured) -> None:
            measured["records"].append(record)
            _write(options.json, results)  # at once, so that an interrupted call leaves what it has measured

        started = perf_counter()
        try:
            importlib.import_module(f"benchmarks.{MODULES[part]}").run(settings, keep)
        except Exception as error:
            failed = True
            measured["error"] = f"{type(error).__name__}: {error}"
            line(f"{part} failed: {measured['error'].splitlines()[0]}")
        measured["seconds"] = perf_counter() - started
        results["machine"]["load after"] = machine.load()
        _write(options.json, results)
    return int(failed)


def _plain(options: Options) -> dict[str, Any]:
    return {name: value for name, value in vars(options).items() if name != "json"}


def _write(path: Path | None, results: dict[str, Any]) -> None:
    if path:
        path.write_text(json.dumps(results, indent=1) + "\n")


def _describe(facts: dict[str, Any]) -> None:
    from benchmarks.tables import line

    device, packages = facts["jax device"], facts["packages"]
    line(f"{facts['cpu']}, {facts['cores']} cores")
    line(f"sbil {facts['sbil']}, JAX {packages['jax']} on {device['devices']} x {device['kind']}")
    line(f"PyTorch {packages['torch'] or 'missing'}, gymnasium {packages['gymnasium'] or 'missing'}")
    if facts["load before"] and facts["load before"] > 0.5:
        line(f"The machine is busy (load {facts['load before']}): the times below will be too long.")


if __name__ == "__main__":
    sys.exit(main())
