"""Real data that are too large for the repository, or not ours to pass on.

They lie in a folder `shared/` beside the checkout, or where SBIL_SHARED says. A test that needs them is marked
`@pytest.mark.shared("mimic-iii-demo")`. Where they are absent, it is skipped, and the last lines of pytest say so.
"""

import os
from pathlib import Path

ROOT = Path(os.environ.get("SBIL_SHARED", Path(__file__).parents[2] / "shared"))


def path(*parts: str) -> Path:
    """Where a data set, or a file of one, should lie."""
    return ROOT.joinpath("data", *parts)
