"""Pictures of episodes: a film of policies that play side by side."""

from sbil.rendering.film import Film, Progress, make_film, silent
from sbil.rendering.stage import Player

__all__ = ["Film", "Player", "Progress", "make_film", "silent"]
