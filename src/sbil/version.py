"""The version of the package, in one place."""

__version__ = "0.1.0"
# Every change after which the same command gives other numbers raises this. The changelog lists the changes that were
# made before this number existed: stored work that they touch is still reused, so it must be deleted by hand.
RESULTS = 0
MADE_BY = __version__ + f", results {RESULTS}" * (RESULTS > 0)  # stored work with another label is not reused
