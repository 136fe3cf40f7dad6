"""Real data that are too large for the repository, or not ours to pass on.

They lie where SBIL_SHARED says, or in a folder `shared/` in the checkout or beside it. A test that needs them is marked
`@pytest.mark.shared("mimic-iii-demo")`. Where they are absent, it is skipped, and the last lines of pytest say so.
"""

import os
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
USUAL = [folder / "shared" for folder in (CHECKOUT, CHECKOUT.parent)]
ROOT = Path(os.environ.get("SBIL_SHARED") or next(filter(Path.is_dir, USUAL), USUAL[0]))


def path(*parts: str) -> Path:
    """Where a data set, or a file of one, should lie."""
    return ROOT.joinpath("data", *parts)
