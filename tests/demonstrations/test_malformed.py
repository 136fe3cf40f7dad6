"""Tables that cannot be read as they are: each is refused in one line that says what, where and what to do."""

import gzip
import io
import os
import pickle
import zipfile

import numpy as np
import polars as pl
import pytest
from tables import GOOD, ROLES, in_process

from probes import refused
from sbil.demonstrations import Column, Schema, check, read, read_observations, reader_process

SECRET = "Quasimodo"  # a text in cells, which no message may quote


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setattr(reader_process, "elsewhere", in_process)


def changed(old, new, count=1):
    assert old in GOOD
    return GOOD.replace(old, new, count)


def xlsx():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return content.getvalue()


def wide(rows):
    return "stay,hour,pulse,sex,treat\n" + "".join(rows)


# name -> (content, words that must be in the message)
BYTES = {
    "empty": (b"", "empty"),
    "blank": (b" \n\n", "empty"),
    "header only": ("stay,hour,pulse,sex,treat\n", "no rows"),
    "header without newline": ("stay,hour,pulse,sex,treat", "no rows"),
    "NUL bytes": (changed("60", "6\0"), "line 2 NUL"),
    "only NUL bytes": (bytes(1000), "NUL"),
    "noise": (bytes(range(256)) * 8, "text"),
    "not cp1252": (b"stay,hour,pulse,sex,treat\n1,0,60,\x81\xff,none\n", "UTF-8"),
    "gzip": (gzip.compress(GOOD.encode()), "gzip .csv.gz"),
    "zip": (xlsx(), "ZIP Excel"),
    "old Excel": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), "Excel"),
    "Parquet": (b"PAR1" + bytes(100), "Parquet"),
    "NumPy": (b"\x93NUMPY" + bytes(100), "NumPy"),
    "HDF5": (b"\x89HDF\r\n" + bytes(100), "HDF5"),
    "PDF": (b"%PDF-1.7\n", "PDF"),
    "HTML": ("<!DOCTYPE html>\n<html><body>Login</body></html>\n", "web page login"),
    "XML": ('<?xml version="1.0"?>\n<rows/>\n', "XML"),
    "JSON": ('{"stay": [1, 2]}\n', "JSON"),
    "JSON lines": ('[{"stay": 1}]\n', "JSON"),
    "Git LFS": ("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "LFS pull"),
    "pickle": (pickle.dumps({"a": [1, 2]}), ""),
    "comment": ("# exported today\n" + GOOD, "comment header"),
    "short row first": (changed("1,0,60,m,none", "1,0,60,m"), "line 2 4 cells header 5"),
    "short row last": (GOOD + "3,0,60\n", "line 6 3 cells"),
    "long row": (changed("2,0,80,f,none", "2,0,80,f,none,9"), "line 4 6 cells quotes"),
    "long row without newline": (GOOD + "3,0,60,m,none,1", "line 6 6 cells"),
    "comment line inside": (changed("1,1,61", "# note\n1,1,61"), "line 3 1 cells"),
    "ragged after a quoted newline": (GOOD + '3,0,60,"a\nb",none\n3,1\n', "line 8 2 cells"),
    "ragged after blank lines": (GOOD + "\n\n3,0\n", "line 8 2 cells"),
    "unterminated quote": (changed("2,0,80,f", '2,0,80,"f'), "line 4 quote never closed"),
    "quote inside": (changed("61,m", '61,m"x"'), "line 3 quote inside"),
    "text after a quote": (changed("61,m", '61,"m"x'), "line 3 quote inside"),
    "duplicate header": (changed("sex", "pulse"), "two columns 'pulse'"),
    "empty header name": (changed("stay,", ","), "column 1 no name index=False"),
    "trailing delimiter in the header": (changed("treat\n", "treat,\n"), "column 6 no name"),
    "blank header name": (changed("sex", "  "), "column 4 no name"),
    "header of numbers": ("1,2,3\n4,5,6\n", "line 1 numbers header"),
    "UTF-8, then not": ("é".encode() + GOOD.encode() + b"\xe9\xff" * 10, ""),
    "one column": ("a:b:c\n1:2:3\n", "no column 'stay' separated tab"),
    "bare CR ragged": (GOOD.replace("\n", "\r") + "9,9\r", "line 6 2 cells"),
    "UTF-16 ragged": ((GOOD + "9,9\n").encode("utf-16"), "line 6 2 cells"),
    "UTF-16 cut": (GOOD.encode("utf-16")[:-1], ""),
}


@pytest.mark.parametrize("case", BYTES)
def test_bytes(tmp_path, case):
    content, words = BYTES[case]
    path = tmp_path / "stays.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = refused(lambda path: read(path, **ROLES), path)
    assert all(word in line for word in words.split()), line
    assert len(line) - len(str(path)) < 250


ONE_HOT = {"one_hot": ["sex"]}
LISTED = Schema("treat", (Column("pulse"), Column("sex", "one-hot", ("f", "m"))), ("none", "fluid"), "stay", "hour")

# name -> (content, arguments beside the roles, words that must be in the message)
MEANING = {
    "no action": (GOOD, {"action": None}, "which column action 'stay', 'hour', 'pulse', 'sex', 'treat'"),
    "misspelt action": (GOOD, {"action": "treta"}, "no column 'treta' (action) did you mean 'treat'?"),
    "misspelt episode": (GOOD, {"episode": "stays"}, "'stays' (episode) 'stay'?"),
    "unknown time": (GOOD, {"time": "zzz"}, "'zzz' (time) there are 'stay'"),
    "unknown observation": (GOOD, {"observations": ["puls"]}, "'puls' 'pulse'?"),
    "unknown category": (GOOD, {"categories": ["sexx"]}, "'sexx' 'sex'?"),
    "unknown group": (GOOD, {"group": "xyz"}, "'xyz' (group)"),
    "unknown terminal": (GOOD, {"terminal": "xyz"}, "'xyz' (terminal)"),
    "unit of nothing": (GOOD, {"units": {"pulze": "1/min"}}, "'pulze' 'pulse'?"),
    "two roles": (GOOD, {"time": "stay"}, "'stay' two roles"),
    "action observed": (GOOD, {"observations": ["treat"]}, "'treat' action observed"),
    "observed twice": (GOOD, {"observations": ["pulse", "pulse"]}, "'pulse' twice"),
    "category and one-hot": (GOOD, {"categories": ["sex"], "one_hot": ["sex"]}, "'sex' category one-hot"),
    "time without episode": (GOOD, {"episode": None}, "time episode"),
    "a text for a list": (GOOD, {"observations": "pulse"}, "['pulse']"),
    "unknown rule": (GOOD, {"missing": "guess"}, "missing 'guess'"),
    "nothing to observe": ("stay,hour,treat\n1,0,a\n1,1,b\n", {}, "no column of numbers"),
    "missing number": (changed("60", ""), {}, "line 2 'pulse' 1 in all mean, last or drop"),
    "missing numbers": (changed("60", "NA").replace("82", "n/a"), {}, "line 2 'pulse' 2 in all"),
    "missing in two columns": (changed("82,f", "?,").replace("60", "-"), ONE_HOT, "line 2 'pulse' 3 in all 'sex' 1"),
    "null action": (changed("fluid", ""), {}, "line 3 'treat' drop for missing values"),
    "null action, filled": (changed("fluid", "NULL"), {"missing": "mean"}, "line 3 'treat' drop for missing values"),
    "null episode": (changed("2,0", ",0"), {}, "line 4 'stay'"),
    "null time": (changed("2,0", "2,"), {"missing": "last"}, "line 4 'hour'"),
    "null category": (changed("61,m", "61,"), ONE_HOT, "line 3 'sex'"),
    "null category, mean": (changed("61,m", "61,"), {**ONE_HOT, "missing": "mean"}, "line 3 'sex' mean level drop"),
    "null category at first": (changed("60,m", "60,"), {**ONE_HOT, "missing": "last"}, "line 2 'sex' none before"),
    "null column": ("stay,hour,x,y,treat\n1,0,,1,a\n1,1,,2,b\n", {"missing": "mean"}, "'x' no value leave"),
    "null everywhere": ("stay,hour,x,y,treat\n1,0,,1,a\n1,1,,2,b\n", {"missing": "drop"}, "'x' no value leave"),
    "text in numbers": (changed("61", SECRET), {}, "line 3 'pulse' not a number"),
    "text column observed": (GOOD, {"observations": ["sex"]}, "line 2 'sex' category"),
    "decimal comma among points": (
        changed("61", '"61,5"').replace("60", "60.5").replace("80", "80.5"),
        {},
        "line 3 'pulse' decimal point",
    ),
    "thousands in quotes": (changed("61", '"1,061"'), {}, "line 3 'pulse' decimal point thousands"),
    "thousands between tabs": (
        "x\tc\ttreat\n1,061\t1\ta\n2\t3\tb\n",
        {"episode": None, "time": None},
        "line 2 'x' thousands",
    ),
    "more codes than laboratory values": (
        "stay;hour;icd;drg;pulse;treat\n1;0;250.01;1.5;60,5;a\n1;1;401.9;2.5;61,5;b\n",
        {},
        "line 2 'pulse' decimal point",
    ),
    "only German thousands": (
        GOOD.replace(",", ";").replace("6", "1.06").replace("8", "1.00") + "3;0;6,5;m;a\n",
        {},
        "line 2 'pulse' thousands",
    ),
    "codes among decimal commas": (
        "stay;hour;icd;crea;pulse;treat\n1;0;250.01;1,5;60,5;a\n1;1;401.9;2,5;61,5;b\n",
        {},
        "line 2 'icd' decimal comma category",
    ),
    "thousands": (changed("61", '"1,061.5"'), {}, "line 3 'pulse' thousands"),
    "German thousands": (GOOD.replace(",", ";").replace("61", "1.061,5").replace("60", "6,5"), {}, "line 3 'pulse'"),
    "point among decimal commas": (GOOD.replace(",", ";").replace("61", "1.5,1").replace("60", "6,5"), {}, "line 3"),
    "currency": (changed("61", "$61"), {}, "line 3 'pulse'"),
    "per cent": (changed("61", "61%"), {}, "line 3 'pulse'"),
    "less than": (changed("61", "<61"), {}, "line 3 'pulse'"),
    "a date in numbers": (changed("61", "2020-01-01"), {}, "line 3 'pulse'"),
    "1e400": (changed("61", "1e400"), {}, "line 3 'pulse' too large"),
    "1e39": (changed("61", "1e39"), {}, "line 3 'pulse' float32"),
    "inf": (changed("61", "inf"), {}, "line 3 'pulse' infinite"),
    "-Infinity": (changed("61", "-Infinity"), {}, "line 3 'pulse' infinite"),
    "units row": (changed("1,0,60", "-,h,bpm,,\n1,0,60"), {}, "line 2 units"),
    "total row": (GOOD + "Total,,283,,\n", {}, "line 6 'hour' missing"),
    "action 2.5": (changed("fluid", "2.5").replace("none", "1"), {}, "line 3 'treat' fraction"),
    "action in numbers": (
        wide(f"1,{i},60,m,{i}\n" for i in range(1_001)),
        {},
        "'treat' more than 1,000 number ranges",
    ),
    "category of names": (
        wide(f"1,{i},60,{SECRET}{i},a\n" for i in range(1_001)),
        ONE_HOT,
        "'sex' more than 1,000",
    ),
    "same time": (changed("2,1", "2,0"), {}, "line 5 'hour' line 4 same episode"),
    "same row twice": (GOOD + "2,1,82,f,none\n", {}, "line 6 line 5"),
    "text for a time": (changed("2,1", f"2,{SECRET}"), {}, "line 5 'hour' not a time"),
    "mixed times": (changed("2,1", "2,2020-01-01"), {}, "line 5 'hour' not a time"),
    "infinite time": (changed("2,1", "2,inf"), {}, "'hour' not a time"),
    "ambiguous dates": (
        GOOD.replace(",0,", ",1/3/2020,").replace(",1,", ",2/1/2020,"),
        {},
        "'hour' 03/04/2026 --dates day-first month-first 2026-04-03",
    ),
    "the other order of dates": (
        GOOD.replace(",0,", ",1/31/2020,").replace(",1,", ",2/1/2020,"),
        {"dates": "day-first"},
        "line 2 'hour' not a time",
    ),
    "no order of dates": (GOOD, {"dates": "year-first"}, "order of dates 'year-first' did you mean"),
    "times of day": (
        GOOD.replace(",0,", ",08:30,").replace(",1,", ",09:30,"),
        {},
        "line 2 'hour' 2020-01-31 31.01.2020 31/01/2020 1/31/2020 31 Jan 2020 a time of day needs its date",
    ),
    "two digits of a year": (
        GOOD.replace(",0,", ",1/31/20,").replace(",1,", ",2/1/20,"),
        {},
        "line 2 'hour' not a time",
    ),
    "zones and none": (
        GOOD.replace(",0,", ",2020-01-01 10:00:00Z,").replace(",1,", ",2020-01-01 11:00:00,"),
        {},
        "'hour' time zone",
    ),
    "terminal of words": (GOOD, {"terminal": "sex"}, "line 2 'sex' 0 or 1"),
    "after the end": (
        "stay,hour,x,done,treat\n1,0,1,1,a\n1,1,2,0,b\n",
        {"terminal": "done"},
        "line 2 'done' only the last row",
    ),
    "missing end": ("stay,hour,x,done,treat\n1,0,1,,a\n1,1,2,0,b\n", {"terminal": "done"}, "line 2 'done' missing"),
    "terminal 2": ("stay,hour,x,done,treat\n1,0,1,2,a\n1,1,2,0,b\n", {"terminal": "done"}, "line 2 'done' 0 or 1"),
    "torn group": (changed("61,m", "61,f"), {"group": "sex"}, "line 3 'sex' group changes"),
    "new level": (changed("82,f", "82,x"), {"schema": LISTED}, "line 5 'sex' level 'x' not in the schema 'f', 'm'"),
    "new action": (changed("fluid", "cut"), {"schema": LISTED}, "line 3 'treat' action 'cut' 'none', 'fluid'"),
    "column of the schema is gone": (changed("pulse", "puls"), {"schema": LISTED}, "no column 'pulse' 'puls'?"),
    "mixed types after many rows": (
        wide([*(f"1,{i},60,m,a\n" for i in range(20_000)), f"1,20000,{SECRET},m,a\n"]),
        {},
        "line 20002 'pulse' not a number",
    ),
    "mixed types in a later block": (
        wide([*(f"1,{i},60,{'m' * 400},a\n" for i in range(11_000)), f"1,20000,{SECRET},m,a\n"]),
        {},
        "line 11002 'pulse'",
    ),
}


@pytest.mark.parametrize("case", MEANING)
def test_meaning(tmp_path, case):
    content, arguments, words = MEANING[case]
    path = tmp_path / "stays.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=r".*") as raised:
        read(path, **{**ROLES, **arguments})
    line = str(raised.value).replace(str(path), "stays.csv")  # the name of the folder has a number in it
    assert "\n" not in line
    assert SECRET not in line
    assert all(word in line for word in words.split()), line


def frame(**changes):
    columns = {"stay": [1, 1, 2], "hour": [0, 1, 0], "pulse": [60.0, 61.0, 80.0], "treat": ["a", "b", "a"], **changes}
    return pl.DataFrame({name: values for name, values in columns.items() if values is not None})


# name -> (columns changed, words)
TYPES = {
    "list": ({"pulse": [[1], [2], [3]]}, {"observations": ["pulse"]}, "row 1 'pulse' no number"),
    "struct": ({"pulse": [{"a": 1}] * 3}, {"observations": ["pulse"]}, "row 1 'pulse'"),
    "list of actions": ({"treat": [["a"], ["b"], ["a"]]}, {}, "'treat' lists"),
    "dates observed": ({"pulse": pl.Series(["2020-01-01"] * 3).str.to_date()}, {"observations": ["pulse"]}, "'pulse'"),
    "null type": ({"pulse": [None] * 3}, {}, "'pulse' no value in any row"),
    "NaN": ({"pulse": [1.0, float("nan"), 2.0]}, {}, "row 2 'pulse' missing 1 in all"),
    "infinite": ({"pulse": [1.0, float("inf"), 2.0]}, {}, "row 2 'pulse' infinite"),
    "too large": ({"pulse": [1.0, 1e300, 2.0]}, {}, "row 2 'pulse' float32"),
    "fraction": ({"treat": [1.0, 2.5, 1.0]}, {}, "row 2 'treat' fraction"),
    "only nested": ({"pulse": [[1], [2], [3]]}, {}, "no column of numbers"),
    "binary action": ({"treat": [b"a", b"b", b"a"]}, {}, "'treat'"),
}


@pytest.mark.parametrize("case", TYPES)
def test_parquet_types(tmp_path, case):
    changes, arguments, words = TYPES[case]
    path = tmp_path / "stays.parquet"
    frame(**changes).write_parquet(path)
    line = refused(lambda path: read(path, **ROLES, **arguments), path)
    assert all(word in line for word in words.split()), line


def test_parquet_without_rows_or_columns(tmp_path):
    path = tmp_path / "none.parquet"
    frame().clear().write_parquet(path)
    assert "no rows" in refused(lambda path: read(path, **ROLES), path)
    pl.DataFrame().write_parquet(path)
    refused(lambda path: read(path, **ROLES), path)


def test_parquet_damaged(tmp_path):
    """Cut anywhere, or with bytes changed anywhere, a file is read or refused in one line."""
    path = tmp_path / "stays.parquet"
    frame().write_parquet(path)
    content = path.read_bytes()
    for length in range(0, len(content), max(len(content) // 20, 1)):
        path.write_bytes(content[:length])
        refused(lambda path: read(path, **ROLES), path)
    path.write_text(GOOD)
    assert "not a Parquet file" in refused(lambda path: read(path, **ROLES), path)


def plain(path, **arrays):
    np.savez(path, **arrays)
    return path


SEEN, TAKEN = np.zeros((4, 2)), np.array([0, 1, 1, 0])
PLAIN = {
    "no observations": ({"actions": TAKEN}, "'observations' missing"),
    "object actions": ({"observations": SEEN, "actions": TAKEN.astype(object)}, "'actions'"),
    "text actions": ({"observations": SEEN, "actions": TAKEN.astype(str)}, "'actions' plain numbers"),
    "complex": ({"observations": SEEN.astype(complex), "actions": TAKEN}, "'observations'"),
    "structured": ({"observations": SEEN, "actions": TAKEN.view([("a", TAKEN.dtype)])}, "'actions'"),
    "fractions": ({"observations": SEEN, "actions": TAKEN + 0.5}, "'actions' fractions"),
    "fewer observations": ({"observations": SEEN[:3], "actions": TAKEN}, "'observations' shape"),
    "no axis": ({"observations": SEEN, "actions": np.int64(3)}, "'actions'"),
    "table of actions": ({"observations": SEEN, "actions": TAKEN[:, None]}, "'actions' shape"),
    "flat observations": ({"observations": SEEN[:, 0], "actions": TAKEN}, ""),
    "nothing": ({"observations": SEEN[:0], "actions": TAKEN[:0]}, "no actions"),
    "episodes of another length": ({"observations": SEEN, "actions": TAKEN, "episodes": TAKEN[:2]}, "'episodes'"),
    "end inside": (
        {"observations": SEEN, "actions": TAKEN, "episodes": TAKEN * 0, "terminals": np.array([1, 0, 0, 0])},
        "'terminals' before",
    ),
    "not a number": ({"observations": SEEN * np.nan, "actions": TAKEN}, "finite"),
    "too large": ({"observations": SEEN + 1e300, "actions": TAKEN}, "finite"),
    "too many actions": ({"observations": np.zeros((1_001, 1)), "actions": np.arange(1_001)}, "1,000"),
}


@pytest.mark.parametrize("case", PLAIN)
def test_plain_npz(tmp_path, case):
    arrays, words = PLAIN[case]
    line = refused(read, plain(tmp_path / "plain.npz", **arrays))
    assert all(word in line for word in words.split()), line


def test_plain_npz_damaged(tmp_path):
    path = plain(tmp_path / "plain.npz", observations=SEEN, actions=TAKEN)
    content = path.read_bytes()
    for length in range(0, len(content), 37):
        path.write_bytes(content[:length])
        refused(read, path)
    path.write_bytes(pickle.dumps([1]))
    refused(read, path)


def test_roles_are_for_tables(tmp_path):
    path = plain(tmp_path / "plain.npz", observations=SEEN, actions=TAKEN)
    assert "table" in refused(lambda path: read(path, action="a"), path)


def test_places(tmp_path):
    """Paths that are not files, or not the right files."""
    with_roles = lambda path: read(path, **ROLES)  # noqa: E731
    assert "no such file" in refused(with_roles, tmp_path / "nowhere.csv")
    assert "no table in this folder" in refused(with_roles, tmp_path)
    assert "no table matches" in refused(with_roles, tmp_path / "*.csv")
    (tmp_path / "stays.xlsx").write_bytes(xlsx())
    assert "not an Excel workbook" in refused(with_roles, tmp_path / "stays.xlsx")
    (tmp_path / "stays.feather").write_bytes(b"ARROW1")
    assert ".parquet" in refused(with_roles, tmp_path / "stays.feather")
    (tmp_path / "folder.csv").mkdir()
    assert "no table" in refused(with_roles, tmp_path / "folder.csv")
    os.symlink(tmp_path / "loop.csv", tmp_path / "loop.csv")
    assert "cannot be read" in refused(with_roles, tmp_path / "loop.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    assert "pipe" in refused(with_roles, tmp_path / "pipe.csv")
    os.symlink(tmp_path / "gone", tmp_path / "dangling.csv")
    assert "no such file" in refused(with_roles, tmp_path / "dangling.csv")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no devices here")
def test_devices_are_refused(tmp_path):
    os.symlink("/dev/zero", tmp_path / "zero.csv")
    assert "device" in refused(lambda path: read(path, **ROLES), tmp_path / "zero.csv")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_unreadable(tmp_path):
    path = tmp_path / "stays.csv"
    path.write_text(GOOD)
    path.chmod(0)
    assert "Permission" in refused(lambda path: read(path, **ROLES), path)


def test_gzip_damaged(tmp_path):
    path = tmp_path / "stays.csv.gz"
    content = gzip.compress(GOOD.encode() * 1)
    for length in (0, 1, 5, 12, len(content) // 2, len(content) - 4):
        path.write_bytes(content[:length])
        refused(lambda path: read(path, **ROLES), path)
    path.write_text(GOOD)
    assert "gzip" in refused(lambda path: read(path, **ROLES), path)


def test_parts_that_differ(tmp_path):
    (tmp_path / "1.csv").write_text(GOOD)
    (tmp_path / "2.csv").write_text(changed("pulse", "puls"))
    with pytest.raises(ValueError, match=r"2\.csv: has column 'puls', which 1\.csv lacks"):
        read(tmp_path, **ROLES)
    (tmp_path / "2.csv").write_text("stay,hour,sex,treat\n3,0,m,none\n")
    with pytest.raises(ValueError, match=r"2\.csv: column 'pulse' is missing, which 1\.csv has"):
        read(tmp_path, **ROLES)
    (tmp_path / "2.csv").write_text(GOOD.replace("61", "x").replace("\n1,", "\n3,").replace("\n2,", "\n4,"))
    with pytest.raises(ValueError, match=r"2\.csv, line 3, column 'pulse'"):
        read(tmp_path, **ROLES)
    (tmp_path / "2.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match="both CSV and Parquet"):
        read(tmp_path, **ROLES)


@pytest.mark.parametrize("source", [None, 3, [1], {"a": [1]}, np.zeros(3)], ids=str)
def test_no_table(source):
    with pytest.raises(ValueError, match="a table is a path, or a Pandas, Polars or Arrow table"):
        read(source, **ROLES)


OBSERVED = {
    "missing column": ("hour,sex\n0,m\n", "no column 'pulse'"),
    "renamed column": ("puls,sex\n60,m\n", "did you mean 'puls'?"),
    "new level": ("pulse,sex\n60,x\n", "line 2 'sex' 'x'"),
    "missing number": ("pulse,sex\n60,m\n,m\n", "line 3 'pulse' missing"),
    "text": (f"pulse,sex\n60,m\n{SECRET},m\n", "line 3 'pulse' number"),
}


@pytest.mark.parametrize("case", OBSERVED)
def test_observations_refused(tmp_path, case):
    content, words = OBSERVED[case]
    path = tmp_path / "new.csv"
    path.write_text(content)
    line = refused(lambda path: read_observations(path, LISTED), path)
    assert all(word in line for word in words.split()), line
    assert SECRET not in line


@pytest.mark.parametrize("case", [case for case in MEANING if MEANING[case][1] in ({}, ONE_HOT)])
def test_check_counts_bad_cells_and_does_not_raise(tmp_path, case):
    path = tmp_path / "stays.csv"
    path.write_text(MEANING[case][0])
    found = check(path, **ROLES, **MEANING[case][1])
    assert found.rows > 0
    assert SECRET not in repr(found)
    if case not in ("nothing to observe", "category of names"):
        assert found.problems[0].severity == "stops", found.problems
