"""Seconds per EDM run: sbil's `train_many` against the released recipe in PyTorch, in turns on one machine."""

from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.settings import Settings
from benchmarks.tables import line, middle, number, show, spread
from benchmarks.torch_recipe import TorchRun, available_devices
from benchmarks.workload import FULL_RUN, SIZE, Timing, demonstrations, make_cell, time_chunks
from sbil import devices
from sbil.algorithms.edm import PRESETS

TITLE = "Seconds per EDM run of 10,000 updates"


def run(settings: Settings) -> dict[str, Any]:
    """Measure, print, and return the raw seconds."""
    if not machine.has("torch"):
        line('PyTorch is not installed: pip install "sbil[bench]" gives the comparison; JAX alone is timed.')
    batches = (32,) if settings.quick else (32, 64)
    counts = settings.runs or _default_runs(settings)
    records = [_measure(settings, batch, runs) for batch in batches for runs in counts]
    _print(records)
    return {"records": records}


def _default_runs(settings: Settings) -> tuple[int, ...]:
    if settings.quick:
        return (1, 10)
    return (1, 100, 1000) if settings.gpu else (1, 10, 50)


def _measure(settings: Settings, batch: int, runs: int) -> dict[str, Any]:
    """Alternate one chunk of R runs in JAX with some updates of one run on each PyTorch device."""
    length = settings.updates or (100 if settings.quick else 500)
    # 10,000 updates take PyTorch minutes on a GPU, so a piece of them is timed there.
    torch_length = min(length, 20) if settings.quick else min(length, 100) if settings.gpu else length
    repeats = settings.repeats or (2 if settings.quick else 3 if settings.gpu else 5)
    torch_runs = _torch_runs(batch)
    torch_seconds: dict[str, list[float]] = {device: [] for device in torch_runs}

    def between() -> None:
        for device, torch_run in torch_runs.items():
            torch_seconds[device].append(torch_run.advance(torch_length))

    timing = time_chunks(make_cell(runs), replace(PRESETS["released"], batch=batch), length, repeats, between)
    return _record(batch, runs, length, torch_length, timing, torch_seconds)


def _torch_runs(batch: int) -> dict[str, TorchRun]:
    if not machine.has("torch"):
        return {}
    steps = demonstrations().select(np.arange(SIZE)).flat()
    return {
        device: TorchRun(steps.observation, steps.action, 2, batch, device) for device in available_devices()
    }


def _record(
    batch: int,
    runs: int,
    length: int,
    torch_length: int,
    timing: Timing,
    torch_seconds: dict[str, list[float]],
) -> dict[str, Any]:
    jax_run = [seconds * FULL_RUN / length / runs for seconds in timing.chunks]
    torch_run = {k: [s * FULL_RUN / torch_length for s in seconds] for k, seconds in torch_seconds.items()}
    return {
        "batch": batch,
        "runs": runs,
        "jax updates timed": length,
        "torch updates timed": torch_length,
        "jax chunk seconds": timing.chunks,
        "torch seconds": torch_seconds,
        "jax seconds per run": jax_run,
        "torch seconds per run": torch_run,
        "compile and set-up seconds": timing.first - median(timing.chunks),
        "ratio": {device: median(seconds) / median(jax_run) for device, seconds in torch_run.items()},
        "ratio of each repeat": {
            device: [t / j for t, j in zip(seconds, jax_run, strict=True)]
            for device, seconds in torch_run.items()
        },
    }


def _print(records: list[dict[str, Any]]) -> None:
    device = devices.describe()
    torch_devices = list(records[0]["torch seconds"])
    columns = [
        "batch",
        "runs at once",
        f"JAX, {device['devices']} {device['platform']}",
        "spread",
        "compile s",
    ]
    for name in torch_devices:
        columns += [f"PyTorch, {_where(name)}", "spread", "ratio", "spread"]
    rows = []
    for record in records:
        seconds = record["jax seconds per run"]
        row = [str(record["batch"]), str(record["runs"]), middle(seconds), spread(seconds)]
        row.append(number(record["compile and set-up seconds"]))
        for name in torch_devices:
            seconds = record["torch seconds per run"][name]
            row += [middle(seconds), spread(seconds), number(record["ratio"][name])]
            row.append(spread(record["ratio of each repeat"][name]))
        rows.append(row)
    show(TITLE, columns, rows, _caption(records[0], device))


def _where(torch_device: str) -> str:
    return "1 thread" if torch_device == "cpu" else torch_device


def _caption(record: dict[str, Any], device: dict[str, Any]) -> str:
    timed = (
        f"Medians of {len(record['jax chunk seconds'])} turns of {record['jax updates timed']} updates in JAX"
    )
    if not record["torch seconds"]:
        return f"{timed}, scaled linearly to 10,000; compilation apart."
    text = f"{timed} and {record['torch updates timed']} in PyTorch, scaled linearly to 10,000; compilation apart."
    if device["platform"] == "cpu" and device["devices"] > 1:
        text += (
            f" JAX uses {device['devices']} cores; as many PyTorch processes side by side, if they did not slow each"
            f" other, would divide the ratio by {device['devices']} (for runs of 2 and more)."
        )
    return text
