"""The version of the package, in one place."""

__version__ = "0.1.0"
RESULTS = 0  # raised by every change after which the same command gives other numbers
MADE_BY = __version__ + f", results {RESULTS}" * (RESULTS > 0)  # work that was stored by another is not taken up
