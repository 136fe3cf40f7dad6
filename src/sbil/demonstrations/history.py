"""What a row observes of the rows before it in its episode: their numbers, and the previous action."""

import numpy as np

from sbil.demonstrations.schema import Schema

BLOCK = 100_000  # rows written at a time


def add_rows(out: np.ndarray, first: np.ndarray, schema: Schema) -> None:
    """Write the numbers of the rows before each row beside its own.

    Where the episode has fewer rows before, they are those of its first row.

    out: [n, numbers] that a policy sees, of which those of the row itself are written.
    first: [n] the place of the first row of each row's episode.
    """
    width = len(schema.names_of_row)
    for back in range(1, schema.history + 1):
        source = np.maximum(np.arange(len(out)) - back, first)
        for start in range(0, len(out), BLOCK):
            part = slice(start, start + BLOCK)
            out[part, back * width : (back + 1) * width] = out[source[part], :width]


def add_actions(out: np.ndarray, first: np.ndarray, action: np.ndarray, actions: int) -> None:
    """Write the action of the row before each row as 0 and 1 into the last columns; the first of them means none.

    out: [n, numbers] that a policy sees.
    first: [n] the place of the first row of each row's episode.
    action: [n] the number of the action of each row; it is not read in the last row of an episode.
    actions: how many there are.
    """
    before = np.append(-1, action[:-1])
    before[first == np.arange(len(out))] = -1
    for start in range(0, len(out), BLOCK):
        part = slice(start, start + BLOCK)
        out[part, -(1 + actions) :] = np.equal.outer(before[part], np.arange(-1, actions))
