"""The rows of a table without the episodes that a person excludes."""

from collections.abc import Iterator, Sequence

import numpy as np

from sbil.demonstrations.table import Batch
from sbil.demonstrations.values import Levels, has_no_text
from sbil.errors import UserError


def without(
    batches: Iterator[Batch], episode: str | None, names: Sequence[str], gone: dict[str, int] | None = None
) -> Iterator[Batch]:
    """Yield the batches without the rows of these episodes. Refuse, at the end, episodes that the table does not have.

    gone: receives the counts of rows that were left out.
    """
    if not names:
        yield from batches
        return
    if episode is None:
        raise UserError("episodes are excluded by name, and these data have none; name their column (--episode).")
    unwanted = {*names[1:]} if names[0] == episode else {*names}
    levels, left, rows = Levels(episode), 0, 0
    for batch in batches:
        if has_no_text(batch.frame[episode]):
            raise UserError(f"column '{episode}': holds lists, objects or durations; save plain values.")
        codes = levels.codes(batch.frame[episode], batch.decimal)
        keep = ~np.isin(codes, [number for name, number in levels.index.items() if name in unwanted])
        left, rows = left + int(keep.sum()), rows + len(keep)
        if keep.any():
            yield batch._replace(frame=batch.frame.filter(keep), rows=batch.rows[keep])
    strangers = sorted(unwanted - levels.index.keys())
    if strangers:
        example = f"for example '{strangers[0][:60]}'; correct the list"
        raise UserError(f"{len(strangers)} of the episodes to exclude are not in the data, {example}.")
    if not left:
        raise UserError("every episode is excluded; none is left.")
    if gone is not None:
        gone |= {"excluded episodes": len(unwanted), "excluded rows": rows - left}
