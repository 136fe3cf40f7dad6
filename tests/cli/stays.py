"""Tables of stays as files."""

import csv


def write_table(path, lines, names):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *lines])
    return path


def changed(path, new, place, value, row=6):
    """A copy of a table with one other cell."""
    with path.open(newline="") as file:
        lines = list(csv.reader(file))
    lines[row][lines[0].index(place)] = value
    return write_table(new, lines[1:], lines[0])
