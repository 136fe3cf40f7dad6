"""What playing on the host gives back."""

from typing import NamedTuple

import numpy as np


class Recorded(NamedTuple):
    """What was seen and done in one episode."""

    observations: np.ndarray  # [T + 1, ...]; of images single frames, uint8
    actions: np.ndarray  # [T]
    terminal: bool  # otherwise the time limit ended it


class Played(NamedTuple):
    """What R policies reached in E episodes each."""

    returns: np.ndarray  # [R, E], float64
    episodes: list[list[Recorded]]  # [R][E]; empty unless asked for
