"""Compiled programs are kept between commands, so that the same program is not compiled again."""

import hashlib
import os
import platform
import warnings
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

VARIABLE = "SBIL_CACHE"  # a folder, or "off"
LARGEST = 1 << 30  # bytes; the programs that were not used for longest make room
SHORTEST = 0.3  # seconds: what compiles faster is not kept


def keep() -> None:
    """Tell JAX, before it starts, to keep compiled programs in the user's cache folder. JAX's own variables win."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or not (given := home()):
        return
    folder = given / _processor()
    with suppress(OSError):  # without a folder, programs are compiled again
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _forget_half_written(folder)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(LARGEST))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(SHORTEST))
        # A program that cannot be read or written is compiled again; nobody needs to know.
        warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")


def home() -> Path | None:
    """Return the folder of compiled programs, or None if they are not kept."""
    given = os.environ.get(VARIABLE) or str(user_cache_path("sbil") / "programs")
    return None if given == "off" else Path(given)


def _processor() -> str:
    """Name the kind of processor: a program that was compiled for one may not run on another."""
    described = platform.machine() + platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        described += "".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def _forget_half_written(folder: Path) -> None:
    """Remove programs whose process was killed while it wrote them: JAX writes the time of use last."""
    for program in folder.glob("*-cache"):
        if not program.with_name(program.name.removesuffix("-cache") + "-atime").exists():
            program.unlink(missing_ok=True)
