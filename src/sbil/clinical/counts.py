"""Counts as they are printed."""

SMALL = 10


def shown(count: int) -> str:
    """A count as it is printed: those from 1 to 9 could point at single patients."""
    return f"< {SMALL}" if 0 < count < SMALL else f"{count:,}"
