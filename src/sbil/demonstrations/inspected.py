"""What the rules of `check` judge: a whole table as it was read, counted and sampled."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sbil.demonstrations.checking import Check
from sbil.demonstrations.columns import Gathered
from sbil.demonstrations.counting import TableCounts
from sbil.demonstrations.sample import Sampled

OBSERVED = ("observation", "category", "one-hot")  # roles


class Inspected(NamedTuple):
    """A whole table as `check` saw it."""

    found: Check  # without problems
    counts: TableCounts
    read: Gathered | None  # None if the roles contradict each other
    sample: Sampled | None = None  # None if the rows have no order, or no known action

    @property
    def roles(self) -> Mapping[str, str | None]:
        """The column of each role."""
        return self.found.roles

    def codes(self, role: str) -> np.ndarray | None:
        """[n] the number of the episode or group of each row."""
        name = self.roles[role]
        return None if self.read is None or name not in self.read.codes else self.read.codes[name].all()
