"""Where the numbers of a column are cut into ranges that hold about as many rows each."""

import math

import numpy as np

DIGITS = 6  # of a cut, at most


def cuts(numbers: np.ndarray, count: int) -> tuple[float, ...]:
    """Return the rounded quantiles between `count` ranges; fewer if many numbers are equal, none if all are.

    A range begins with its cut. The first and the last range hold at least one number.
    """
    known = numbers[~np.isnan(numbers)].astype(np.float64)
    if not len(known) or known.min() == known.max():
        return ()
    low, high = known.min(), known.max()
    above = known[known > low]
    found = np.maximum(np.quantile(known, np.arange(1, count) / count), above.min())
    bottom, top = np.quantile(known, (0.05, 0.95))
    step = 10.0 ** (math.floor(math.log10(float(top - bottom if top > bottom else high - low) / count)) - 1)
    rounded = {float(f"{cut:.{DIGITS}g}") for cut in np.round(found / step) * step}
    return tuple(sorted(cut for cut in rounded if low < np.float32(cut) <= high)) or (float(above.min()),)
