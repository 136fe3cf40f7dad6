"""Which part of the data is learned from, which is held out, and how a policy folder records it."""

import csv
import io
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from sbil.demonstrations import Demonstrations
from sbil.errors import UserError, flag, share, whole


class Parts(NamedTuple):
    """The data of one training: to learn from, to score, and to fit a temperature to."""

    training: Demonstrations
    held_out: Demonstrations | None
    calibration: Demonstrations | None


@dataclass
class Split:
    """Which part of the data is learned from.

    trajectories: how many are drawn; 0 means all.
    held_out: the share of what was drawn that is not learned from.
    calibrate: fit a temperature to one half of what is held out, and score the other half.
    draw_seed: the seed of these draws.
    """

    trajectories: int = 0
    held_out: float = 0.0
    calibrate: bool = False
    draw_seed: int = 0

    def __post_init__(self) -> None:
        self.trajectories, self.held_out = whole("trajectories", self.trajectories), share("held_out", self.held_out)
        self.calibrate, self.draw_seed = flag("calibrate", self.calibrate), whole("draw_seed", self.draw_seed)
        if self.calibrate and not self.held_out:
            raise UserError("calibration needs decisions that are held out; give held_out as well, for example 0.2.")

    @classmethod
    def recorded(cls, facts: Any) -> "Split":
        """The split that a policy records under "data"; what cannot be its fields is refused."""
        content = facts.get("drawn", asdict(cls()))
        try:
            if {*content} == {*asdict(cls())}:
                return cls(**content)
        except (TypeError, UserError):
            pass
        raise UserError("policy.json does not say which part of the data was drawn; the folder is damaged.")

    def parts(self, data: Demonstrations) -> Parts:
        if self.trajectories:
            data = data.select(data.draw(self.trajectories, self.draw_seed))
        if not self.held_out:
            return Parts(data, None, None)
        training, held_out = data.split(self.held_out, self.draw_seed)
        if not self.calibrate:
            return Parts(training, held_out, None)
        scored, calibration = held_out.split(0.5, self.draw_seed)
        return Parts(training, scored, calibration)


def names_of_episodes(held_out: Demonstrations | None) -> str:
    """The names of held-out episodes, one per line, under the name of their column."""
    if held_out is None:
        raise UserError("nothing is held out, so there are no episodes to list; give held_out (--held-out) as well.")
    if held_out.ids is None or held_out.schema is None:
        raise UserError("the held-out episodes have no names to list; name the column of the episode (--episode).")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([name] for name in (held_out.schema.episode, *held_out.ids))
    return text.getvalue()
