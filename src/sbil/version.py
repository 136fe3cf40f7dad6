"""The version of the package, in one place."""

__version__ = "0.1.0"
# Raised by every change from here on after which the same command gives other numbers. What changed before there was
# this number is in the changelog: work that was stored by such code is still taken up, and must be deleted by hand.
RESULTS = 0
MADE_BY = __version__ + f", results {RESULTS}" * (RESULTS > 0)  # work that was stored by another is not taken up
