"""Malformed inputs, each made from a good one by its number, and a process that gives them to the readers.

    python tests/fuzz.py FOLDER START STOP [--real]

For every number it prints two lines of JSON: the input before it is tried, and the outcome. The readers run in this
process because one reader process per file would take an hour. The caller sees which input ended the process or took
too long, and can try that one again with the real reader process (`--real`).
"""

import gzip
import hashlib
import io
import json
import math
import os
import shutil
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import probes
from sbil import demonstrations
from sbil.cli.show import facts
from sbil.demonstrations import Column, Schema, check, read, read_observations, reader_process
from sbil.errors import UserError
from sbil.policy import DESCRIPTION, WEIGHTS, Policy, Standardisation
from sbil.policy.folder import sealed
from sbil.policy.onnx import export

CANARY = "Quasimodo"  # stands in cells; no message may quote it
LONGEST = 400  # characters of a message
NAMES = ("stay", "hour", "pulse", "sex", "treat", "end", "note")
ROWS = [
    [
        stay,
        hour,
        60.5 + 3 * stay + hour,
        "mf"[stay % 2],
        ("none", "fluid", "vaso")[(stay + hour) % 3],
        hour // 2,
        CANARY,
    ]
    for stay, hour in product(range(1, 6), range(3))
]
RIGHT = {"episode": "stay", "time": "hour", "action": "treat", "terminal": "end", "one_hot": ["sex"]}
RIGHT |= {"observations": ["pulse"]}
WRONG: list[dict[str, Any]] = [
    *({}, {"action": "treatment"}, {"action": "treat", "time": "hour"}, {"action": "pulse", "episode": "stay"}),
    *({"action": "treat", "episode": "treat"}, {"action": "treat", "observations": ["sex", "sex"]}),
    {"action": "treat", "episode": "hour", "time": "stay", "terminal": "sex"},
    {"action": "treat", "observations": ["note"], "group": "end"},
    {"action": "treat", "categories": ["sex"], "one_hot": ["sex"]},
    {"action": "treat", "missing": "guess"},
    {"action": "end", "categories": ["treat"], "missing": "last", "episode": "stay"},
    {"action": "treat", "missing": "mean", "group": "stay", "units": {"pulse": "1/min"}},
    {"action": "treat", "missing": "drop", "episode": "stay", "units": {"nothing": "m"}},
]
SCHEMA = Schema(
    action="treat",
    columns=(Column("pulse", unit="1/min", fill=70.0), Column("sex", "one-hot", ("f", "m"))),
    actions=("fluid", "none", "vaso"),
    **{"episode": "stay", "time": "hour", "terminal": "end", "missing": "mean"},  # type: ignore[arg-type]
)


class Input(NamedTuple):
    """One malformed input."""

    kind: str
    path: Path
    roles: dict[str, Any]


def make(number: int, folder: Path) -> Input:
    """The input with a number, written to `folder`."""
    rng = Random(number)
    kind = rng.choice(("csv",) * 8 + ("parquet",) * 5 + ("npz",) * 2 + ("schema",) * 2 + ("policy",) * 3)
    roles = RIGHT if rng.random() < 0.7 else rng.choice(WRONG)
    path = folder / f"{number}"
    content: bytes
    if kind == "csv":
        path, content = path.with_suffix(".csv"), table_of_text(rng)
        if rng.random() < 0.1:
            path, content = path.with_suffix(".csv.gz"), some(rng, gzip.compress(content, 1), BYTES, 0, 1)
    elif kind == "parquet":
        path, content = path.with_suffix(".parquet"), parquet(rng)
    elif kind == "npz":
        path, content = path.with_suffix(".npz"), (ours if rng.random() < 0.5 else plain)(rng, folder)
        roles = roles if rng.random() < 0.1 else {}
    elif kind == "schema":
        path, content = path.with_suffix(".json"), bad_json(rng, SCHEMA.as_json())
    else:
        description, weights = policy(rng, folder)
        path.mkdir(exist_ok=True)
        (path / WEIGHTS).write_bytes(weights)
        (path / DESCRIPTION).write_bytes(description)
        return Input(kind, path, {})
    path.write_bytes(content)
    return Input(kind, path, roles)


def some(rng: Random, thing: Any, changes: tuple[Callable[..., Any], ...], least: int, most: int) -> Any:
    """A thing after a few of the changes."""
    for _ in range(rng.randint(least, most)):
        thing = rng.choice(changes)(rng, thing)
    return thing


# Bytes


def flip(rng: Random, content: bytes) -> bytes:
    """Some bits turned over, most often near the end, where formats keep what matters."""
    changed = bytearray(content or b"?")
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = int(len(changed) * rng.random() ** rng.choice((1, 0.2)))
        changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(rng: Random, content: bytes) -> bytes:
    """The beginning, or the end."""
    place = rng.randint(0, len(content))
    return content[:place] if rng.random() < 0.8 else content[place:]


def splice(rng: Random, content: bytes) -> bytes:
    """A part of it again somewhere else, over what stood there or between it."""
    a, b, c = (rng.randint(0, len(content)) for _ in range(3))
    part = content[min(a, b) : max(a, b)]
    return content[:c] + part + content[c + (len(part) if rng.random() < 0.5 else 0) :]


def insert(rng: Random, content: bytes) -> bytes:
    """Bytes that were not there."""
    odd = (
        b"\0",
        bytes(100),
        b"\xff\xfe",
        b'"',
        b"\r",
        b"\x1a",
        b"\xef\xbb\xbf",
        b"\x80\x81",
        rng.randbytes(9),
        b",,,,",
    )
    place = rng.choice((0, rng.randint(0, len(content)), len(content)))
    return content[:place] + rng.choice(odd) + content[place:]


def remove(rng: Random, content: bytes) -> bytes:
    """A few bytes less."""
    place = rng.randint(0, len(content))
    return content[:place] + content[place + rng.choice((1, 4, 30)) :]


BYTES = (flip, truncate, splice, insert, remove)


# Text

Cells = list[list[str]]
NUMBERS = (
    *("", "NA", "nan", "inf", "-inf", "1e999", "1e39", "-1e39", "0x1F", "1_000", "1,5", "1.234,5", "--5", "5-", "٣"),
    *("１２", " 7 ", "1e", "+", ".", "-0", "9" * 400, CANARY, "\u202e5", "=1+1", "true", "'5'", "1e-400", "½", "-999"),
    *("\x1b[31m5", "5\u2028", "\x0b", "5 mmHg", f"5 {CANARY}", "<5", "1/2", "None", "?"),
)
TIMES = (
    *("2020-02-30", "2020-13-01", "25:00", "31.12.1999 10:00", "2020-01-01T00:00:00Z", "2020-01-01 00:00:00+99:00"),
    *("99999-01-01", "1e18", "0000-00-00", "-292277022657-01-27", "9223372036854775808", "0.1", "1.0", CANARY, "", "T"),
)
EPISODES = ("", "1e20", "1.0", "01", "NA", "-1", "9223372036854775808", CANARY, "1\n2", "x" * 100_000, " ", "\u00a0")
ACTIONS = ("", "2.5", "fluid ", "FLUID", "x" * 5_000, "none\nfluid", "=HYPERLINK(1)", "NA", "\u202e", "0", "-1")
ACTIONS += ("1e400", "9" * 5_000, "9" * 5_000 + ".0")
HEADS = (
    *("", "pulse", "treat", " stay ", "7", "a\nb", "x" * 5_000, "=cmd|' /C calc'!A0", "\u2028", "pulse,", 'a"b'),
    *("\x1b[2J", "\u202epulse", "stay=m", "sex=m", "sex=f", "{}", "%s", "'", "../../etc", "NaN", "\ufeffstay"),
)


def odd_cell(rng: Random, rows: Cells) -> Cells:
    """A value that the column cannot hold, or only looks as if it could."""
    place = rng.choice((0, 1, 2, 2, 3, 4, 5))
    odd = {0: EPISODES, 1: TIMES, 4: ACTIONS}.get(place, NUMBERS)
    for row in rng.sample(rows[1:], min(rng.choice((1, 1, 2, 20)), len(rows) - 1)):
        if place < len(row):
            row[place] = rng.choice(odd)
    return rows


def odd_name(rng: Random, rows: Cells) -> Cells:
    """Another name of a column."""
    if rows and rows[0]:
        rows[0][rng.randrange(len(rows[0]))] = rng.choice(HEADS)
    return rows


def times(rng: Random, rows: Cells) -> Cells:
    """All times written in another way, and one of them not."""
    ways = ("2020-01-{0:02}", "{0:02}.01.2020", "2020-01-01 {0:02}:00", "2020-01-01T{0:02}:00:00Z", "{0}.5", "{0}e0")
    way = rng.choice(ways)
    for number, row in enumerate(rows[1:], 1):
        if len(row) > 1:
            row[1] = way.format(number)
    return odd_cell(rng, rows) if rng.random() < 0.5 else rows


def rows_changed(rng: Random, rows: Cells) -> Cells:
    """Rows lost, doubled, torn, blank, in another order; the header again, or not at all."""
    place = rng.randrange(len(rows)) if rows else 0
    what = rng.randrange(10)
    if what == 0:
        return rows[:place]
    if what == 1:
        return rows[:place] + rows[place : place + 1] * 2 + rows[place:]
    if what == 2 and len(rows) > 2:
        rng.shuffle(rows[1:])
        return [rows[0], *rng.sample(rows[1:], len(rows) - 1)]
    if what == 3 and rows:
        return [*rows[:place], rows[place][: rng.randrange(8)], *rows[place + 1 :]]
    if what == 4:
        return [*rows[:place], rows[place] + [CANARY] * rng.choice((1, 3)), *rows[place + 1 :]] if rows else rows
    if what == 5:
        return [*rows[:place], [], [""], *rows[place:]]
    if what == 6:
        return rows[1:]
    if what == 7:
        return rows[:1] + rows
    if what == 8:
        return [*rows[:place], *rows[:1], *rows[place:]]
    return rows[:2]


def columns_changed(rng: Random, rows: Cells) -> Cells:
    """A column lost, doubled or moved; or ten thousand more."""
    place, what = rng.randrange(7), rng.randrange(4)
    if what == 0:
        return [row[:place] + row[place + 1 :] for row in rows]
    if what == 1:
        return [row[:place] + row[place : place + 1] * 2 + row[place:] for row in rows]
    if what == 2:
        return [row[place:] + row[:place] for row in rows]
    more = rng.choice((3, 30, 300, 300, 1_000, 10_000))
    return [[*row, *(f"c{i}" if not number else str(i % 7) for i in range(more))] for number, row in enumerate(rows)]


def huge_cell(rng: Random, rows: Cells) -> Cells:
    """A cell of a million characters."""
    row = rng.choice(rows) if rows else []
    if row:
        row[rng.randrange(len(row))] = rng.choice(("9", "x", '"', "\n", "é")) * 1_000_000
    return rows


def lone_quote(rng: Random, text: str) -> str:
    """A quote where none should be."""
    place = rng.randint(0, len(text))
    return text[:place] + rng.choice(('"', '""', "'", '",', '\\"', '"\n')) + text[place:]


def line_ends(rng: Random, text: str) -> str:
    """Other line ends, here and there or everywhere."""
    ends = rng.choice((("\r\n",), ("\r",), ("\r\n", "\n", "\r"), ("\n\n",), ("\n\r",), ("\u2028",), ("\x0b",)))
    return "".join(rng.choice(ends) if letter == "\n" else letter for letter in text)


def before(rng: Random, text: str) -> str:
    """Something before the header."""
    return (
        rng.choice(("# a comment\n", "\n\n", "sep=,\n", "\ufeff", "\ufeff\ufeff", "title\n", " ", "PK", "{", "<"))
        + text
    )


def delimiters(rng: Random, text: str) -> str:
    """Other delimiters, here and there or everywhere."""
    new = rng.choice((";", "\t", "|", " ", ":", ",,", ", "))
    return text.replace(",", new) if rng.random() < 0.5 else text.replace(",", new, rng.randint(1, 40))


def decimals(rng: Random, text: str) -> str:
    """The decimal comma, with semicolons or without."""
    return (text.replace(",", ";") if rng.random() < 0.8 else text).replace(".", ",", rng.choice((1, 100)))


CELLS = (odd_cell, odd_cell, odd_cell, odd_name, times, rows_changed, rows_changed, columns_changed, huge_cell)
TEXTS = (lone_quote, lone_quote, line_ends, before, delimiters, decimals)
ENCODINGS = ("utf-8",) * 10 + ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "cp1252", "cp037")


def table_of_text(rng: Random) -> bytes:
    """CSV that is wrong in its cells, its text or its bytes."""
    where = rng.choice(("cells", "cells", "text", "bytes", "all"))
    rows = [list(NAMES), *([str(cell) for cell in row] for row in ROWS)]
    if where in ("cells", "all"):
        rows = some(rng, rows, CELLS, 1, 2)
    quoted = rng.random() < 0.2
    text = "\n".join(",".join(map(quote, row) if quoted else row) for row in rows) + "\n" * (rng.random() < 0.8)
    if where in ("text", "all"):
        text = some(rng, text, TEXTS, 1, 2)
    content = text.encode(rng.choice(ENCODINGS), errors="replace")
    return some(rng, content, BYTES, 1, 3) if where in ("bytes", "all") else content


def quote(cell: str) -> str:
    """A cell in quotes."""
    return '"' + cell.replace('"', '""') + '"'


# Parquet


def typed(rng: Random, frame: pl.DataFrame) -> pl.DataFrame:
    """A column of a type that it should not have."""
    name, n = rng.choice(NAMES), frame.height
    odd: list[Callable[[], pl.Series]] = [
        lambda: pl.Series([[1, 2]] * n),
        lambda: pl.Series([{"a": 1, "b": CANARY}] * n),
        lambda: pl.Series([[]] * n, dtype=pl.List(pl.Null)),
        lambda: pl.Series([Decimal("1.50")] * n),
        lambda: pl.Series([datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=i) for i in range(n)]),
        lambda: pl.Series([datetime(2020, 1, 1) + timedelta(hours=i) for i in range(n)]).dt.cast_time_unit("ns"),
        lambda: pl.Series([date(2020, 1, 1)] * n),
        lambda: pl.Series([time(1, 2)] * n),
        lambda: pl.Series([timedelta(seconds=i) for i in range(n)]),
        lambda: pl.Series([CANARY if i % 2 else "b" for i in range(n)], dtype=pl.Categorical),
        lambda: pl.Series(["a"] * n, dtype=pl.Enum(["a", CANARY])),
        lambda: pl.Series([None] * n),
        lambda: pl.Series([None if i % 3 else 1.0 for i in range(n)], dtype=pl.Float64),
        lambda: pl.Series([CANARY.encode()] * n),
        lambda: pl.Series([math.nan, math.inf, -math.inf, 1e39, -0.0][i % 5] for i in range(n)),
        lambda: pl.Series([2**64 - 1 - i for i in range(n)], dtype=pl.UInt64),
        lambda: pl.Series([bool(i % 2) for i in range(n)]),
        lambda: pl.Series([rng.choice((*NUMBERS, *TIMES)) for _ in range(n)]),
        lambda: pl.Series(np.arange(n * 4, dtype=np.float32).reshape(n, 4)),
        lambda: pl.Series(range(n), dtype=pl.Int8),
        lambda: pl.Series(["\0"] * n),
    ]
    return frame.with_columns(rng.choice(odd)().alias(name))


def shaped(rng: Random, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows or columns lost, or many more of them, or columns by other names."""
    what = rng.randrange(6)
    if what == 0:
        return frame.clear()
    if what == 1:
        return frame.select([])
    if what == 2:
        return frame.drop(rng.choice(frame.columns)) if frame.width else frame
    if what == 3:
        return frame.rename({rng.choice(frame.columns): f"{rng.choice(HEADS)} "}) if frame.width else frame
    if what == 4:
        return frame.with_columns(pl.lit(i).alias(f"c{i}") for i in range(rng.choice((50, 2_000))))
    return frame.sample(frame.height, shuffle=True, seed=rng.randrange(99)).head(rng.randrange(16))


def parquet(rng: Random) -> bytes:
    """Parquet of strange types and shapes, or damaged."""
    frame = pl.DataFrame(ROWS, schema=NAMES, orient="row")
    structure = rng.random() < 0.5
    if structure:
        frame = rng.choice((typed, typed, shaped))(rng, frame)
    file = io.BytesIO()
    packing: Any = rng.choice(("uncompressed", "uncompressed", "snappy", "zstd", "gzip", "lz4"))
    frame.write_parquet(file, compression=packing, statistics=rng.random() < 0.5, row_group_size=rng.choice((None, 4)))
    content = file.getvalue()
    if not structure or rng.random() < 0.1:
        content = some(rng, content, (*BYTES, flip, flip, footer, twice), 1, 2)
    return content


def footer(rng: Random, content: bytes) -> bytes:
    """A footer of another length, which Parquet says in the last eight bytes."""
    length = rng.choice(
        (0, 1, 7, len(content), len(content) * 2, 2**31 - 1, 2**32 - 1, rng.randrange(len(content) + 1))
    )
    return content[:-8] + length.to_bytes(4, "little") + content[-4:]


def twice(_: Random, content: bytes) -> bytes:
    """Two columns of one name, which no writer would write."""
    return content.replace(b"hour", b"stay")


# NPZ


class Trap:
    """What a pickle would run: if it is ever loaded, a file says so."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.path,))


def arrays(rng: Random, good: dict[str, np.ndarray], folder: Path) -> bytes:
    """NPZ with an array of another type, shape or name, or damaged."""
    name = rng.choice(sorted(good))
    old = good[name]
    odd: list[Callable[[], Any]] = [
        lambda: np.array([Trap(folder / "sprung")] * len(old), dtype=object),
        lambda: np.array([CANARY] * len(old)),
        lambda: old.astype(np.complex64),
        lambda: old.astype(">f8"),
        lambda: old.astype(np.float16),
        lambda: np.full(old.shape, np.nan, np.float32),
        lambda: np.full(old.shape, np.inf, np.float64),
        lambda: np.full(old.shape, 1e300),
        lambda: np.full(old.shape, -1, np.int64),
        lambda: np.full(old.shape, 2**63 - 1, np.int64),
        lambda: np.full(old.shape, 2**64 - 1, np.uint64),
        lambda: old[:-1],
        lambda: old[:0],
        lambda: np.array(5),
        lambda: old[None],
        lambda: np.asfortranarray(np.stack([old, old])),
        lambda: np.zeros((len(old), 0)),
        lambda: old.astype("datetime64[s]"),
        lambda: np.zeros(len(old), [("a", int), ("b", float)]),
        lambda: old.astype(bool),
        lambda: old + np.arange(old.size).reshape(old.shape),
    ]
    if rng.random() < 0.55:
        good = {**good, name: rng.choice(odd)()}
    elif rng.random() < 0.3:
        good = {key: array for key, array in good.items() if key != name}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for key, array in good.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=True)
            content = member.getvalue()
            archive.writestr(f"{key}.npy", some(rng, content, BYTES, 1, 1) if rng.random() < 0.1 else content)
    return some(rng, file.getvalue(), BYTES, 0, 1)


def plain(rng: Random, folder: Path) -> bytes:
    """Arrays as people write them."""
    seen = np.array([[row[1], row[2]] for row in ROWS])
    taken, stays, ends = (np.array([row[place] for row in ROWS]) for place in (5, 0, 5))
    return arrays(rng, {"observations": seen, "actions": taken, "episodes": stays, "terminals": ends}, folder)


def ours(rng: Random, folder: Path) -> bytes:
    """A file of demonstrations of ours."""
    with zipfile.ZipFile(folder / "good.npz") as archive:
        good = {name.removesuffix(".npy"): np.load(io.BytesIO(archive.read(name))) for name in archive.namelist()}
    if rng.random() < 0.5:
        header = bad_json(rng, json.loads(good["header"].tobytes()))
        good["header"] = np.frombuffer(header, np.uint8)
    return arrays(rng, good, folder)


# JSON and policies

ODD = (
    *(None, True, False, 0, 1, -1, 2, 3, 1.5, 1e308, math.nan, math.inf, 10**400, 2**63, 10**9, "", "pulse", "treat"),
    *(
        [],
        {},
        [[]],
        [None],
        ["a", "a"],
        {"name": "x"},
        "x" * 10_000,
        "\ud800",
        "\n",
        "\x1b[2J",
        [1] * 1000,
        "conv",
        "mlp",
    ),
    *("one-hot", "number", "category", "refuse", "sbil-policy", 0.0, -0.5, 1e-320, ["fluid", "none", "vaso"]),
)


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry of a tree of JSON: what holds it, and where."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in entries:
        yield tree, key
        yield from places(value)


def bad_json(rng: Random, tree: Any) -> bytes:
    """JSON with an entry changed, lost, renamed or added; or given twice; or damaged."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        found = list(places(tree))
        if not found:
            break
        holder, key = rng.choice(found)
        what = rng.randrange(6)
        if what == 0:
            del holder[key]
        elif what == 1 and isinstance(holder, dict):
            holder[rng.choice(("kind", "nonsense", key.upper(), "\ud800", "x" * 3_000, "a\nb"))] = holder.pop(key)
        elif what == 2:
            holder[key] = [holder[key]] * rng.choice((1, 2, 500))
        else:
            holder[key] = rng.choice(ODD)
    text = json.dumps(tree, indent=rng.choice((None, 1)))
    what = rng.randrange(20)
    if what == 0:
        text = "[" * 100_000
    elif what == 1:
        text = text.replace("{", '{"action": "treat", ', 1)
    elif what == 2:
        text = json.dumps(rng.choice(ODD))
    elif what == 3:
        text = text.replace("1", "9" * 5_000, 1)
    content = text.encode(rng.choice(("utf-8",) * 8 + ("utf-16", "utf-8-sig")), "surrogatepass")
    return some(rng, content, BYTES, 1, 2) if rng.random() < 0.3 else content


def policy(rng: Random, folder: Path) -> tuple[bytes, bytes]:
    """policy.json and the weights, one of them changed; where it is the weights, often with the hash to them."""
    description, weights = ((folder / "good" / name).read_bytes() for name in (DESCRIPTION, WEIGHTS))
    if rng.random() < 0.6:
        bad = bad_json(rng, json.loads(description))
        return (resealed(bad) if rng.random() < 0.7 else bad), weights
    bad = some(rng, weights, BYTES, 1, 2)
    if rng.random() < 0.7:
        was, now = (hashlib.sha256(content).hexdigest() for content in (weights, bad))
        description = resealed(description.replace(was.encode(), now.encode()))
    return description, bad


def resealed(description: bytes) -> bytes:
    """A policy.json with the right hash of its entries, so that the entries themselves are checked."""
    try:
        entries = json.loads(description)
        return json.dumps(sealed(entries)).encode() if isinstance(entries, dict) else description
    except (ValueError, RecursionError):
        return description


# Trying them


def good(folder: Path) -> None:
    """Valid files, for calls that need a valid file beside the malformed one."""
    rows = [NAMES, *ROWS]
    (folder / "good.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    demonstrations.save(replace(read(folder / "good.csv", **RIGHT), ids=None), folder / "good.npz", overwrite=True)
    rng = np.random.default_rng(0)
    energies = np.sort(rng.normal(size=1001)).astype(np.float32)
    scaling = Standardisation(np.array([70, 0, 0], np.float32), np.ones(3, np.float32))
    names = SCHEMA.observation_names, SCHEMA.actions
    origin = {"trajectories": 5, "steps": 15, "sha256": "0", "provenance": {"source": ["good.csv"]}}
    provenance = {"algorithm": "bc", "seed": 0, "sbil": "1", "settings": {"hidden": [5]}, "data": origin}
    made = Policy(probes.network(3, 5, 3), *names, scaling, provenance, energies=energies, schema=SCHEMA)
    made.save(folder / "good", overwrite=True)


def tried(given: Input, folder: Path) -> dict[str, str]:
    """The outcome of each use of an input: "read", a one-line error, or a fault."""
    path, table = given.path, folder / "good.csv"
    if given.kind == "policy":
        return {"load": outcome(lambda: acted(Policy.load(path), table)), "show": outcome(lambda: shown(path))}
    if given.kind == "schema":
        return {
            "load": outcome(lambda: Schema.load(path)),
            "read": outcome(lambda: sound(read(table, schema=path))),
            "check": outcome(lambda: json.dumps(check(table, schema=path).as_json())),
            "observe": outcome(lambda: finite(read_observations(table, path).observations)),
        }
    calls = {
        "read": outcome(lambda: sound(read(path, **given.roles)), path),
        "check": outcome(lambda: json.dumps(check(path, **given.roles).as_json()), path),
    }
    if given.kind != "npz":
        calls["observe"] = outcome(lambda: finite(read_observations(path, SCHEMA).observations), path)
    return calls


def outcome(call: Callable[[], Any], path: Path | None = None) -> str:
    """The line that a call refuses with, "read", or what is wrong with it."""
    shown = list[str]()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: shown.append(str(message))
            warnings.simplefilter("always")
            call()
    except UserError as error:
        line = str(error)
        faults = {
            "more than one line": len(line.splitlines()) != 1,
            "too long": len(line) > LONGEST,
            "not printable": not line.isprintable(),
            f"warned {shown}": bool(shown),
            "a recorded value": CANARY in line and not (path and named(path)),
        }
        wrong = [fault for fault, there in faults.items() if there]
        return f"FAULT {wrong}: {line[:1000]!r}" if wrong else line
    except Exception as error:
        return f"FAULT {type(error).__name__}: {str(error)[-1500:]}"
    return f"FAULT warned: {shown[0]}" if shown else "read"


def named(path: Path) -> bool:
    """Whether the damage turned a cell into the name of a column, which messages may quote."""
    from sbil.demonstrations.sources import table_of

    try:
        return any(CANARY in name for name in table_of([path]).names)
    except UserError as error:  # about the header, because no cell was read
        return CANARY in str(error)


def sound(found: demonstrations.Demonstrations) -> None:
    """What was read can be learned from: finite numbers, and actions that have a name."""
    assert len(found) > 0
    for trajectory in found.trajectories:
        finite(trajectory.observations)
        assert trajectory.actions.min() >= 0
        assert trajectory.actions.max() < len(found.action_names)


def finite(observations: np.ndarray) -> None:
    """Numbers that a policy can see."""
    assert observations.dtype in (np.float32, np.uint8)
    assert np.isfinite(observations).all()


def acted(made: Policy, table: Path) -> None:
    """A policy that loads acts, on zeros and on a table."""
    seen = np.zeros((2, *made.spec.observation_shape), np.float32)
    if made.schema is not None:
        seen = read_observations(table, made.schema).observations
    probabilities = made.probabilities(seen)
    assert probabilities.shape == (len(seen), len(made.action_names))
    assert np.isfinite(probabilities).all()


def shown(path: Path) -> None:
    """A policy that loads can be shown and exported: its text is text, whatever it says."""
    made = Policy.load(path)
    "".join(facts(made, json.loads((path / DESCRIPTION).read_bytes())).values()).encode()
    export(made, path.parent / "policy.onnx", overwrite=True)


def in_process(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Does the work of the reader process in this process; too little memory is one line here too."""
    try:
        return reader_process.answer(json.loads(json.dumps(request)), folder)
    except MemoryError:
        raise UserError(f"could not read {request['name']}: memory") from None


def main() -> None:
    """Make the inputs from START to STOP and try each."""
    folder, start, stop = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if "--real" not in sys.argv:
        reader_process.limit_memory(24 << 30)
        reader_process.elsewhere = in_process
    good(folder)
    for number in range(start, stop):
        given = make(number, folder)
        print(json.dumps({"number": number, "kind": given.kind, "path": str(given.path)}), flush=True)
        calls = tried(given, folder)
        assert not (folder / "sprung").exists(), f"input {number} was executed"
        print(json.dumps({"number": number, "calls": calls}), flush=True)
        if not any(line.startswith("FAULT") for line in calls.values()):
            shutil.rmtree(given.path) if given.path.is_dir() else given.path.unlink()


if __name__ == "__main__":
    main()
