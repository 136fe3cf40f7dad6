"""What the tests of tables and of figures share."""

import pytest
from handmade import BASE, result

from sbil.experiments import Result


@pytest.fixture
def results() -> list[Result]:
    return [
        result("bc", 1, BASE),
        result("bc", 3, BASE + 0.1),
        result("edm", 1, BASE + 0.1),
        result("edm", 3, BASE - 0.2, diverged=3),
    ]
