"""How long policies act in a model: until it has lost half of the variance of the median column."""

import numpy as np
import pytest

from sbil.dynamics.measures import LONGEST, horizons_of
from sbil.dynamics.model import Trust


def horizon(*after):
    """The horizon of a model with these R2 after 1, 2, ... recorded steps."""
    r2_after = np.array([*after, np.nan, np.nan])[None, :, None]
    return horizons_of(Trust(r2=r2_after[:, 0], r2_after=r2_after, disagreement=np.zeros(1)))[0]


@pytest.mark.parametrize(
    ("after", "steps"),
    [
        ((0.98,), 5),  # 1 - 0.02 h^2
        ((0.99, 0.96, 0.92, 0.875), 8),  # 1 - 0.125 (h / 4)^2
        ((0.9, 0.7, 0.4, 0.2), 2),  # it was seen to lose too much in the third step
        ((1.0,), LONGEST),
        ((0.3,), 0),
        ((), 0),
    ],
)
def test_errors_add_up_evenly_beyond_the_steps_that_were_recorded_in_a_row(after, steps):
    assert horizon(*after) == steps
