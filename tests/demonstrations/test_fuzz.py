"""Any input gives data or a one-line error: no traceback, no hang, no recorded value in the message.

`SBIL_FUZZ=2500 pytest tests/demonstrations/test_fuzz.py` tries that many inputs; the default is 150.
"""

import csv
import json
import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuzz
import probes
from probes import refused
from sbil.demonstrations import Demonstrations, Schema, check, read, reader_process
from sbil.errors import UserError
from sbil.policy import Policy, Standardisation

COUNT = int(os.environ.get("SBIL_FUZZ", "150"))
PATIENCE = 20.0  # seconds for one input; a machine may be busy
START = 120.0  # seconds for the process to be ready


def driven(folder: Path, start: int, stop: int, *more: str) -> Iterator[dict[str, Any]]:
    """The lines of the driver, which is ended if it is silent for too long."""
    command = [sys.executable, fuzz.__file__, str(folder), str(start), str(stop), *more]
    with (folder / "stderr").open("ab") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)
    lines: queue.Queue[bytes] = queue.Queue()
    assert process.stdout is not None
    listener = threading.Thread(target=_listen, args=(process.stdout, lines), daemon=True)
    listener.start()
    patience = START
    try:
        while line := lines.get(timeout=patience):
            yield json.loads(line)
            patience = PATIENCE if not more else START
    except queue.Empty:
        return
    finally:
        process.kill()
        process.wait()
        listener.join()
        process.stdout.close()


def _listen(source: Any, lines: "queue.Queue[bytes]") -> None:
    for line in source:
        lines.put(line)
    lines.put(b"")


def tried(folder: Path, start: int, stop: int, *more: str) -> tuple[dict[int, dict[str, Any]], list[int]]:
    """The outcome of each input by its number, and the inputs that ended the driver or took too long."""
    found: dict[int, dict[str, Any]] = {}
    fatal: list[int] = []
    while start < stop:
        number = None
        for said in driven(folder, start, stop, *more):
            number = said["number"]
            found.setdefault(number, {}).update(said)
        if number is None:
            pytest.fail((folder / "stderr").read_text()[-2000:])
        if "calls" not in found[number]:
            fatal.append(number)
        start = number + 1
    return found, fatal


def faults(found: dict[int, dict[str, Any]]) -> list[tuple[int, str, str, str]]:
    """Every call that neither succeeded nor was refused properly."""
    calls = [(n, of["kind"], call, line) for n, of in found.items() for call, line in of.get("calls", {}).items()]
    return [entry for entry in calls if entry[3].startswith("FAULT")]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The outcomes in the driver's own process, the inputs that ended it, and their folder."""
    folder = tmp_path_factory.mktemp("inputs")
    return (*tried(folder, 0, COUNT), folder)


def test_malformed_inputs_are_read_or_refused_in_one_line(outcomes):
    found, fatal, folder = outcomes
    for number in fatal:  # as people use it: the reader is a process of its own
        again, lost = tried(folder, number, number + 1, "--real")
        assert not lost, f"input {number} ({found[number]['kind']}) ends the process or hangs"
        found = found | again
    assert faults(found) == []
    assert len(found) == COUNT
    first = [(of["kind"], next(iter(of["calls"].values())) == "read") for of in found.values()]
    counts = Counter(first)
    print(f"{COUNT} inputs; fatal to a reader: {fatal}; (kind, read): {dict(sorted(counts.items()))}")
    assert sum(not was_read for _, was_read in first) >= COUNT / 4
    assert sum(was_read for _, was_read in first) >= 5
    if COUNT >= 300:
        assert {kind for kind, _ in first} == {"csv", "parquet", "npz", "schema", "policy"}


def test_the_real_reader_says_the_same(outcomes):
    """The inputs above are read in the driver's own process; a few are read as people do, by the reader process."""
    found, _, folder = outcomes
    there, fatal = tried(folder, 0, 3, "--real")
    assert fatal == []
    assert there == {number: found[number] for number in range(3)}


def test_the_driver_sees_faults():
    """The check above finds a leaked value, a second line and a traceback."""

    def outcome(error: Exception) -> str:
        def call() -> None:
            raise error

        return fuzz.outcome(call)

    assert outcome(fuzz.UserError("one line.")) == "one line."
    leak = outcome(fuzz.UserError(f"line 3 holds '{fuzz.CANARY}'."))
    assert "a recorded value" in leak
    assert leak.startswith("FAULT")
    assert outcome(KeyError("pulse")).startswith("FAULT KeyError")


FATAL = """
import json, os, sys, time
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    print(json.dumps({"number": number, "kind": "csv"}), flush=True)
    if number == 2:
        os.abort()
    if number == 4:
        time.sleep(600)
    print(json.dumps({"number": number, "calls": {"read": "read"}}), flush=True)
"""


def test_an_input_that_ends_the_driver_or_keeps_it_is_noted(tmp_path, monkeypatch):
    driver = tmp_path / "driver.py"
    driver.write_text(FATAL)
    monkeypatch.setattr(fuzz, "__file__", str(driver))
    monkeypatch.setitem(globals(), "PATIENCE", 1.0)
    found, fatal = tried(tmp_path, 0, 6)
    assert fatal == [2, 4]
    assert sorted(found) == [0, 1, 2, 3, 4, 5]


# Cells of any text


@pytest.fixture
def _here(monkeypatch):
    monkeypatch.setattr(reader_process, "elsewhere", fuzz.in_process)


NUMBERS = st.floats(width=32).map(str) | st.integers(-(10**6), 10**6).map(str) | st.decimals(-9, 9, places=3).map(str)
CELLS = st.text(max_size=8) | st.sampled_from((*fuzz.NUMBERS, *fuzz.TIMES)) | NUMBERS


@pytest.mark.usefixtures("_here")
def test_cells_of_any_text(tmp_path):
    """A cell is read as the number that Python reads in it, or refused."""
    path, roles = tmp_path / "cells.csv", {"episode": "stay", "action": "treat", "observations": ["pulse"]}
    changes = st.lists(st.tuples(st.integers(0, 14), st.sampled_from([0, 1, 2, 2, 4]), CELLS), min_size=1, max_size=2)
    counts = Counter[bool]()

    @settings(max_examples=COUNT // 2)
    @given(changes, st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    def any_text(changed, quoting):
        rows = [[str(cell) for cell in row] for row in fuzz.ROWS]
        for row, place, cell in changed:
            rows[row][place] = cell
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, quoting=quoting).writerows([fuzz.NAMES, *rows])
        seen: list[Demonstrations] = []
        line = fuzz.outcome(lambda: seen.append(read(path, **roles)), path)
        checked = fuzz.outcome(lambda: check(path, **roles), path)
        assert not line.startswith("FAULT"), line
        assert not checked.startswith("FAULT"), checked
        counts[line == "read"] += 1
        for demonstrations in seen:
            fuzz.sound(demonstrations)
            found = np.sort(demonstrations.flat().observation[:, 0])
            assert found.tolist() == np.sort(np.array([float(row[2]) for row in rows], np.float32)).tolist()

    any_text()
    assert min(counts[True], counts[False]) >= COUNT / 30, counts


# Faults that were found and fixed


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    ("column", "values"),
    {
        "treat": pl.Series([timedelta(hours=row) for row in range(15)]),
        "sex": pl.Series([timedelta(hours=row) for row in range(15)]),
        "hour": pl.Series([2**64 - 1 - row for row in range(15)], dtype=pl.UInt64),
        "end": pl.Series([[]] * 15, dtype=pl.List(pl.Null)),
        "stay": pl.Series(["9" * 5_000 + ".0"] * 15),
    }.items(),
)
def test_columns_of_strange_types(tmp_path, column, values):
    """Polars cannot cast them or Python cannot read them; each was once a traceback."""
    path = tmp_path / "typed.parquet"
    frame = pl.DataFrame(fuzz.ROWS, schema=fuzz.NAMES, orient="row").with_columns(values.alias(column))
    frame.write_parquet(path)
    line = refused(lambda path: read(path, **fuzz.RIGHT), path)
    assert f"column '{column}'" in line or "column 'hour'" in line  # one stay has many rows at one hour
    assert not fuzz.outcome(lambda: check(path, **fuzz.RIGHT), path).startswith("FAULT")


def test_numbers_that_no_float_holds(tmp_path):
    """10 to the power of 400 is valid JSON, but it is neither a temperature nor a fill value."""
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"action": "a", "columns": [{"name": "b", "fill": 10**400}]}))
    assert "the fill of column 'b'" in refused(Schema.load, path)
    fuzz.good(tmp_path)
    described = json.loads((tmp_path / "good" / "policy.json").read_text())
    for temperature in (10**400, 1e39, 1e-40):
        (tmp_path / "good" / "policy.json").write_text(json.dumps({**described, "temperature": temperature}))
        assert "the temperature" in refused(Policy.load, tmp_path / "good")


def test_a_policy_has_a_finite_answer_or_none():
    """An earlier version chose the first action if its probabilities were NaN."""
    scaling = Standardisation(np.zeros(2, np.float32), np.array([1, 0.01], np.float32))
    policy = Policy(probes.network(2, 4, 3), ("age", "pulse"), ("a", "b", "c"), scaling, {})
    assert np.isfinite(policy.probabilities([[1, 1e30]])).all()
    for call in (policy.act, policy.probabilities, policy.energy):
        with pytest.raises(UserError, match=r"no finite answer .* 'pulse' is far too large"):
            call([[1, 1], [1, 3e38]])


@pytest.mark.parametrize(
    "entry", [{"settings": 5}, {"data": [1]}, {"data": {"provenance": 1}}, {"algorithm": "\ud800"}], ids=str
)
def test_provenance_that_no_command_can_show(tmp_path, entry):
    fuzz.good(tmp_path)
    described = json.loads((tmp_path / "good" / "policy.json").read_text())
    described["provenance"] |= entry
    (tmp_path / "good" / "policy.json").write_text(json.dumps(described))
    assert "damaged" in refused(Policy.load, tmp_path / "good")


def test_messages_are_one_line_that_can_be_printed():
    line = str(UserError("no column '\x1b[2Ja\nb\u2028\ud800': " + "x" * 10_000 + "; rename it."))
    assert line.startswith("no column ' [2Ja b  ': xxx")
    assert line.endswith("xxx; rename it.")
    assert len(line) == 400
    assert line.isprintable()
    assert str(UserError("short: é ü 中.")) == "short: é ü 中."


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize("last", ["wü", "wü\n", "wüw\n", "é"])
def test_latin_letters_at_the_very_end(tmp_path, last):
    """An earlier version took them for UTF-8 that was cut at the end of the sample."""
    path = tmp_path / "latin.csv"
    path.write_bytes(f"pulse,treat\n1,none\n2,{last}".encode("cp1252"))
    assert set(read(path, action="treat").action_names) == {"none", last.strip()}
