"""The settings of every part, and how a part hands in its measurements."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]
Keep = Callable[[Record], None]  # takes a record as soon as it is measured


@dataclass(frozen=True)
class Settings:
    """The choices all parts share; a part picks its own sizes from them. None: the part's own default."""

    quick: bool
    gpu: bool  # JAX runs on a GPU
    updates: int | None = None  # in a timed piece of training
    runs: tuple[int, ...] | None = None  # in one program
    repeats: int | None = None
