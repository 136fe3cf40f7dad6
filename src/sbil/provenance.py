"""What made a result: the versions of this package and its libraries, and the commit of the code."""

import os
import platform
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

from sbil.version import __version__

NAMES = ("jax", "jaxlib", "equinox", "optax", "numpy", "polars", "safetensors")


@cache
def versions() -> dict[str, str]:
    """Return the versions by name, without libraries that are not installed as packages."""
    found = {"sbil": __version__, "python": platform.python_version()}
    for name in NAMES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@cache
def commit() -> str:
    """Return the commit of the checkout that this package runs from, with "+" if the code was changed since.

    Without a checkout this is the environment variable SBIL_COMMIT, or "".
    """
    root = Path(__file__).resolve().parents[2]
    git = shutil.which("git")
    if git and (root / ".git").exists() and (root / "src" / "sbil").is_dir():
        with suppress(OSError, subprocess.SubprocessError):
            name = _ask(git, root, "rev-parse", "HEAD")
            return name + ("+" if _ask(git, root, "status", "--porcelain", "--untracked-files=no", "src") else "")
    return os.environ.get("SBIL_COMMIT", "")


def _ask(git: str, root: Path, *words: str) -> str:
    asked = subprocess.run([git, "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True)
    return asked.stdout.strip()
