"""A process of its own for reading foreign files: what crashes, hangs or swells here does not take the caller along.

It imports no JAX, limits its own memory, reads `request.json` in the folder it is given, and leaves arrays and
`result.json` there.
"""

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from sbil.errors import UserError

MEMORY = 8 << 30  # bytes of address space, beside what maps the files themselves
OUT_OF_MEMORY = 77


def main() -> None:
    """Do what the request asks; a mistake of the user is a result as well."""
    folder = Path(sys.argv[1])
    request = json.loads((folder / "request.json").read_bytes())
    _limit(MEMORY + 8 * sum(Path(path).stat().st_size for path in request["files"] if Path(path).is_file()))
    try:
        result = _done(request, folder)
    except UserError as error:
        result = {"error": str(error)}
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    except Exception:
        result = {"fault": traceback.format_exc()}
    (folder / "result.json").write_text(json.dumps(result))


def _done(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    from sbil.demonstrations import table, tasks

    paths = [Path(path) for path in request["files"]]
    result = tasks.run(request, table.of_files(paths), folder)
    return {**result, "sha256": table.sha256(paths)}


def _limit(size: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))


if __name__ == "__main__":
    main()
