"""What every test runs under: two devices, cheap compilation, reproducible examples; absent data are announced."""

import gc
import os
import signal
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import settings

import shared

# Every machine has two devices here, so that runs are always spread and padded.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
# Most of the time of these tests is compilation. These flags make it four times as fast. Set XLA_FLAGS (even to
# nothing) to test the code as it runs elsewhere. XLA ends the process at a flag it does not know, hence the version.
CHEAP = ["--xla_backend_optimization_level=0"]
if version("jax").startswith("0.10."):
    CHEAP += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ.setdefault("XLA_FLAGS", " ".join(CHEAP))

# Commands that tests start as processes share their compiled programs.
os.environ.setdefault("SBIL_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "programs"))

# A shell starts background jobs with Ctrl-C ignored. The processes that tests start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("sbil", deadline=None, derandomize=True, database=None, print_blob=False)
settings.load_profile("sbil")

# Files that wait much or take long start first, so that no worker of pytest-xdist ends with one of them alone.
FIRST = (
    *("test_ray.py", "test_kills.py", "test_contract.py", "test_commands.py", "test_choosing.py", "test_tutorial.py"),
    *("test_table_commands.py", "test_adding.py", "test_python_page.py", "test_fuzz.py", "test_sklearn.py"),
)
# Linux allows a process 65,530 memory maps. Every compiled program takes some; a process without any left crashes.
MANY_MAPS = 20_000


def pytest_collection_modifyitems(items):
    """Move the files of FIRST to the front and keep the order otherwise."""
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(FIRST)))


def pytest_collection_finish():
    """Look for garbage more rarely, and not among what was imported: this saves a tenth of the time of these tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_runtest_setup(item):
    """Skip a test whose real data are not on this machine."""
    for mark in item.iter_markers("shared"):
        if not (path := shared.path(*mark.args)).exists():
            pytest.skip(f"shared data not found: {path}")


def pytest_terminal_summary(terminalreporter):
    """Say once how many tests were skipped because real data are absent."""
    reports = terminalreporter.stats.get("skipped", [])
    absent = sum("shared data not found" in str(report.longrepr) for report in reports)
    if absent:
        terminalreporter.section("real data")
        terminalreporter.line(f"shared data not found: {absent} tests skipped; set SBIL_SHARED (now {shared.ROOT})")


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The environment of processes that keep compiled programs for each other."""
    folder = str(tmp_path_factory.mktemp("programs"))
    return {**os.environ, "JAX_COMPILATION_CACHE_DIR": folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


@pytest.fixture(autouse=True, scope="module")
def _few_memory_maps():
    """Forget compiled programs between files when they hold many memory maps."""
    yield
    maps = Path("/proc/self/maps")
    if "jax" in sys.modules and maps.exists() and maps.read_bytes().count(b"\n") > MANY_MAPS:
        sys.modules["jax"].clear_caches()
