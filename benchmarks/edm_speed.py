"""Seconds per EDM run: sbil's `train_many` against the released recipe in PyTorch, in turns."""

from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks import machine
from benchmarks.settings import Keep, Record, Settings
from benchmarks.tables import line, number, show, spread
from benchmarks.torch_recipe import TorchRun, available_devices
from benchmarks.workload import FULL_RUN, RELEASED, SIZE, Timing, demonstrations, make_cell, time_chunks


def run(settings: Settings, keep: Keep) -> None:
    """Measure and print."""
    if not machine.has("torch"):
        line('PyTorch is not installed: pip install "sbil[bench]" gives the comparison; JAX alone is timed.')
    records = []
    for batch in (32,) if settings.quick else (32, 64):
        for runs in settings.runs or _default_runs(settings):
            records.append(_measure(settings, batch, runs))
            keep(records[-1])
    _print(records)


def _default_runs(settings: Settings) -> tuple[int, ...]:
    if settings.quick:
        return (10,)
    return (1, 100, 1000) if settings.gpu else (1, 10, 50)


def _measure(settings: Settings, batch: int, runs: int) -> Record:
    """Alternate one chunk of R runs in JAX with some updates of one run on each PyTorch device."""
    length = settings.updates or (50 if settings.quick else 500)
    # On a GPU PyTorch needs ten seconds or more for 500 updates: a fifth of them is enough.
    torch_length = min(length, 100) if settings.gpu else length
    repeats = settings.repeats or (2 if settings.quick else 3 if settings.gpu else 5)
    torch_runs = _torch_runs(batch)
    torch_seconds: dict[str, list[float]] = {device: [] for device in torch_runs}

    def between() -> None:
        for device, torch_run in torch_runs.items():
            torch_seconds[device].append(torch_run.advance(torch_length))

    timing = time_chunks(make_cell(runs), replace(RELEASED, batch=batch), length, repeats, between)
    sizes = {"batch": batch, "runs": runs, "jax updates timed": length, "torch updates timed": torch_length}
    return {**sizes, **_seconds_per_run(runs, length, torch_length, timing, torch_seconds)}


def _torch_runs(batch: int) -> dict[str, TorchRun]:
    if not machine.has("torch"):
        return {}
    steps = demonstrations().select(np.arange(SIZE)).flat()
    return {device: TorchRun(steps.observation, steps.action, 2, batch, device) for device in available_devices()}


def _seconds_per_run(
    runs: int, length: int, torch_length: int, timing: Timing, torch_seconds: dict[str, list[float]]
) -> Record:
    """Return the raw seconds, the seconds scaled to a whole run, and the ratios of PyTorch to JAX per turn."""
    jax_run = [seconds * FULL_RUN / length / runs for seconds in timing.chunks]
    torch_run = {k: [s * FULL_RUN / torch_length for s in seconds] for k, seconds in torch_seconds.items()}
    return {
        "jax chunk seconds": timing.chunks,
        "torch seconds": torch_seconds,
        "jax seconds per run": jax_run,
        "torch seconds per run": torch_run,
        "compile and set-up seconds": timing.first - median(timing.chunks),
        "ratio of medians": {k: median(seconds) / median(jax_run) for k, seconds in torch_run.items()},
        "ratios": {k: [t / j for t, j in zip(seconds, jax_run, strict=True)] for k, seconds in torch_run.items()},
    }


def _print(records: list[Record]) -> None:
    device = machine.jax_device()
    torch_devices = list(records[0]["torch seconds"])
    columns = ["batch", "runs at once", f"JAX, {device['devices']} {device['platform']}", "compile"]
    for name in torch_devices:
        columns += ["PyTorch, 1 thread" if name == "cpu" else f"PyTorch, {name}", "ratio"]
    rows = []
    for record in records:
        row = [str(record["batch"]), str(record["runs"]), spread(record["jax seconds per run"])]
        row.append(number(record["compile and set-up seconds"]))
        for name in torch_devices:
            row += [spread(record["torch seconds per run"][name]), spread(record["ratios"][name])]
        rows.append(row)
    show("Seconds per EDM run of 10,000 updates", columns, rows, _caption(records[0]))


def _caption(record: Record) -> str:
    device = machine.jax_device()
    turns, length = len(record["jax chunk seconds"]), record["jax updates timed"]
    text = f"Median (smallest to largest) of {turns} turns of {length} updates in JAX"
    if record["torch seconds"]:
        text += f" and {record['torch updates timed']} in PyTorch"
    text += ", scaled linearly to 10,000; compilation and set-up apart."
    if record["torch seconds"] and device["platform"] == "cpu" and device["devices"] > 1:
        text += (
            f" JAX spreads the runs over {device['devices']} cores. That many PyTorch processes side by side"
            " would train as many runs in the time of one, if they did not slow each other: divide the ratio"
            f" by {device['devices']} for cells of many runs."
        )
    return text
