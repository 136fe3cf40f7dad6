"""Fresh Python processes, for what depends on a process: its memory, and its number of devices."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEVICE_COUNT_FLAG = "--xla_force_host_platform_device_count"


def call(module: str, argument: dict[str, Any], cpu_devices: int | None = None) -> dict[str, Any]:
    """Run `python -m module ARGUMENT` on the CPU and read the JSON object of its last line."""
    finished = subprocess.run(
        [sys.executable, "-m", module, json.dumps(argument)],
        env=_environment(cpu_devices), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if finished.returncode:
        last = (finished.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"python -m {module} failed: {last}")
    answer: dict[str, Any] = json.loads(finished.stdout.strip().splitlines()[-1])
    return answer


def _environment(cpu_devices: int | None) -> dict[str, str]:
    environment = dict(os.environ, JAX_PLATFORMS="cpu")
    paths = [str(ROOT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if cpu_devices is not None:
        flags = environment.get("XLA_FLAGS", "").split()
        environment["XLA_FLAGS"] = " ".join(flag for flag in flags if not flag.startswith(DEVICE_COUNT_FLAG))
        environment["JAX_NUM_CPU_DEVICES"] = str(cpu_devices)
    return environment
