"""What the command line asks of every part."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """The choices all parts share; a part picks its own sizes from them."""

    quick: bool
    gpu: bool  # JAX runs on a GPU
    updates: int | None = None  # updates in a timed piece of training; None: what the part thinks best
    runs: tuple[int, ...] | None = None  # runs in one program; None: what the part thinks best
    repeats: int | None = None
