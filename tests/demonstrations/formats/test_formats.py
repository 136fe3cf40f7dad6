"""The same table in every format gives the same demonstrations, and the same one-line errors."""

import builtins
import sqlite3
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import duckdb
import numpy as np
import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from written import ROLES, ROWS, SEVERAL, WRITERS, duck, sqlite

import fuzz
from probes import refusal
from sbil import cli
from sbil.demonstrations import check, formats, read, read_observations, reader_process
from sbil.demonstrations.formats import excel as excel_format
from sbil.demonstrations.formats import jsonl as jsonl_format
from sbil.demonstrations.formats import sqlite as sqlite_format
from sbil.demonstrations.table import of_values
from sbil.errors import UserError
from sbil.policy.outputs import must_be_free

NEW = [".jsonl", ".xlsx", ".sqlite", ".duckdb"]


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    """Read in this process, which saves time."""
    monkeypatch.setattr(reader_process, "elsewhere", fuzz.in_process)


def written(folder, ending, *arguments, **more):
    path = folder / f"stays{ending}"
    WRITERS[ending](path, *arguments, **more)
    return path


def values(data):
    return [(t.observations.tolist(), t.actions.tolist()) for t in data.trajectories], data.ids, data.action_names


@pytest.mark.parametrize("ending", NEW)
def test_the_same_rows_are_the_same_demonstrations(tmp_path, ending):
    plain, path = read(written(tmp_path, ".csv"), **ROLES), written(tmp_path, ending)
    data = read(path, **ROLES)
    assert values(data) == values(plain)
    assert data.schema == plain.schema
    assert data.provenance["source"] == [path.name]
    assert len(data.provenance["sha256"]) == 64
    found = check(path, **ROLES)
    assert (found.rows, found.episodes.count, found.blocked) == (5, 2, False)
    rows = read_observations(path, data.schema)
    np.testing.assert_array_equal(rows.observations, data.flat().observation)
    first = 2 if ending == ".xlsx" else 1
    assert rows.rows.tolist() == list(range(first, first + 5))


@pytest.mark.parametrize("ending", NEW)
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS[:2], (2, 0, None, "f", "none")], "column 'pulse': missing value"),
        ([*ROWS[:3], (2, 0, 81.0, "f", "none")], "column 'hour': the same time as in"),
    ],
)
def test_a_cell_that_cannot_be_used_is_named(tmp_path, ending, rows, message):
    path = written(tmp_path, ending, rows)
    with pytest.raises(UserError) as refused:
        read(path, **ROLES)
    number = {".jsonl": f"line {len(rows)}", ".xlsx": f"row {len(rows) + 1}"}.get(ending, f"row {len(rows)}")
    assert str(refused.value).startswith(f"{path}, {number}, ")
    assert message in str(refused.value)


@pytest.mark.parametrize("ending", [".jsonl", ".xlsx", ".sqlite"])
def test_text_among_numbers_is_no_number(tmp_path, ending):
    path = written(tmp_path, ending, [*ROWS[:4], (2, 2, "high", "f", "none")])
    with pytest.raises(UserError, match="column 'pulse': not a number"):
        read(path, **ROLES)


@pytest.mark.parametrize("ending", NEW)
@pytest.mark.parametrize("damage", ["cut", "empty", "text", "noise"])
def test_damaged_files_are_refused_in_one_line(tmp_path, ending, damage):
    path = written(tmp_path, ending)
    whole = path.read_bytes()
    noise = np.random.default_rng(0).integers(0, 256, 2_000, np.uint8).tobytes()
    path.write_bytes({"cut": whole[: len(whole) // 2 - 3], "empty": b"", "text": b"hello\n", "noise": noise}[damage])
    with pytest.raises(UserError) as refused:
        read(path, **ROLES)
    assert str(refused.value).startswith(f"{path}: ")
    assert "another program" not in str(refused.value)


# ---- several tables in a file


@pytest.mark.parametrize("ending", SEVERAL)
def test_a_table_of_a_file_is_named(tmp_path, ending, capsys):
    path = written(tmp_path, ending)
    WRITERS[ending](path, [(1, 2)], ("a", "b"), table="other one")
    word = "sheet" if ending == ".xlsx" else "table"
    with pytest.raises(UserError, match=f"holds 2 {word}s .*'stays'.*; name one of them, as in '.*::"):
        read(path, **ROLES)
    with pytest.raises(UserError, match=f"unknown {word} 'stay'; did you mean 'stays'"):
        read(f"{path}::stay", **ROLES)
    data = read(f"{path}::stays", **ROLES)
    assert data.steps == 5
    assert data.provenance["source"] == [f"{path.name}::stays"]
    assert [column.name for column in check(f"{path}::other one").columns] == ["a", "b"]
    assert check(f"{path}::stays", **ROLES).command.startswith(f"sbil train edm --data {path}::stays ")
    line = refusal(capsys, "check", f"{path}::stays", "--action", "nothing")
    assert line.startswith(f"sbil: {path}::stays: there is no column 'nothing'")
    assert "there is no such file" in refusal(capsys, "check", f"{tmp_path}/none{ending}::stays")
    with pytest.raises(UserError, match="is also an input file"):
        must_be_free(path, True, (f"{path}::stays",))


def test_several_files_with_the_same_table(tmp_path):
    for number in (1, 2):
        rows = [(number, *row[1:]) for row in ROWS[:2]]
        sqlite(tmp_path / f"{number}.sqlite", rows)
        sqlite(tmp_path / f"{number}.sqlite", [(1,)], ("x",), table="other")
    assert read(f"{tmp_path}/*.sqlite::stays", **ROLES).ids == ("1", "2")


def test_a_name_with_the_mark_that_is_no_database(tmp_path):
    assert formats.file_and_table("a::b.csv") == (Path("a::b.csv"), None)
    with pytest.raises(UserError, match="there is no such file"):
        read(tmp_path / "stays.csv::stays", action="treat")


@pytest.mark.parametrize("ending", SEVERAL)
def test_a_file_without_a_table(tmp_path, ending):
    path = tmp_path / f"stays{ending}"
    if ending == ".xlsx":
        openpyxl.Workbook().save(path)
    elif ending == ".sqlite":
        with sqlite3.connect(path) as database:
            database.execute("create table a (b)")
            database.execute("drop table a")
        database.close()
    else:
        duckdb.connect(str(path)).close()
    with pytest.raises(UserError, match="is empty; nothing to read" if ending == ".xlsx" else "holds no table"):
        read(path, **ROLES)


@pytest.mark.parametrize(("ending", "package"), [(".xlsx", "fastexcel"), (".duckdb", "duckdb")])
def test_a_package_that_is_not_installed(tmp_path, ending, package, monkeypatch):
    path, plain = written(tmp_path, ending), builtins.__import__

    def without(name, *rest):
        if name == package:
            raise ImportError(name)
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    extra = ending[1:] if package == "duckdb" else "excel"
    with pytest.raises(UserError, match=rf"stays{ending}: .*install it with: pip install 'sbil\[{extra}\]'"):
        read(path, **ROLES)


def test_the_whole_way_through_the_reader_process(tmp_path, monkeypatch, capsys):
    monkeypatch.undo()
    words = [word for role, column in ROLES.items() for word in (f"--{role.replace('_', '-')}", *np.atleast_1d(column))]
    for ending in NEW:
        cli.main(["check", str(written(tmp_path, ending)), *words])
        assert "5 rows, 5 columns" in capsys.readouterr().out


# ---- JSON lines


def lines(path, *texts):
    path.write_bytes(b"\n".join(text if isinstance(text, bytes) else text.encode() for text in texts) + b"\n")
    return path


GOOD = '{"x": 1.5, "act": "a"}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"x": 1', "line 2 is not JSON; damaged or incomplete"),
        ("[1, 2]", "line 2 is no JSON object; write one object per line"),
        ('{"x": 1, "x": 2}', "line 2 has the same key twice"),
        (b'{"x": "\xff"}', "line 2 is not UTF-8"),
        ("[" * 100_000, "line 2 is not JSON"),
        ('{"": 1}', "column 3 has no name"),
    ],
)
def test_lines_that_are_no_rows(tmp_path, line, message):
    with pytest.raises(UserError, match=message):
        read(lines(tmp_path / "a.jsonl", GOOD, line), action="act")


def test_keys_may_be_missing_come_late_and_lines_may_be_empty(tmp_path):
    path = lines(tmp_path / "a.ndjson", GOOD, "", '{"act": "b", "y": 2, "x": 3}', '{"act": "b", "y": 4, "x": NaN}')
    data = read(path, action="act", missing="mean")
    assert data.observation_names == ("x", "y")
    assert data.flat().observation.tolist() == [[1.5, 3], [3, 2], [2.25, 4]]
    with pytest.raises(UserError, match=r"a\.ndjson, line 1, column 'y': missing value"):
        read(path, action="act")


def test_lists_are_refused(tmp_path):
    path = lines(tmp_path / "a.jsonl", GOOD, '{"x": 2, "act": ["b"]}')
    with pytest.raises(UserError, match="column 'act': holds lists"):
        read(path, action="act")


def test_more_rows_than_a_batch(tmp_path, monkeypatch):
    for module in (jsonl_format, sqlite_format, excel_format):
        monkeypatch.setattr(module, "CELLS" if module is excel_format else "ROWS", 7)
    rows = [(i // 10, i % 10, i / 4, "fm"[i % 2], "ab"[i % 2]) for i in range(100)]
    found = [
        values(read(written(tmp_path, ending, rows), **ROLES)) for ending in (".csv", ".jsonl", ".sqlite", ".xlsx")
    ]
    assert all(one == found[0] for one in found)


# ---- values of Python

PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3))


@given(st.lists(PLAIN, max_size=6))
def test_no_value_is_lost_in_a_column(cells):
    """Whatever types are mixed, each cell stays the value that it was; text stays as it is."""
    column = of_values("x", cells)
    assert len(column) == len(cells)
    for before, after in zip(cells, column.to_list(), strict=True):
        assert (before is None) == (after is None)
        if isinstance(after, str) and not isinstance(before, str):
            assert after == str(before).lower() or after == str(before)
        elif before is not None:
            assert after == before


# ---- SQLite


def test_a_database_that_is_still_written(tmp_path):
    path = written(tmp_path, ".sqlite")
    (tmp_path / "stays.sqlite-wal").write_bytes(b"more")
    with pytest.raises(UserError, match="is still written by another program"):
        read(path, **ROLES)


def test_views_mixed_types_and_odd_names(tmp_path):
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as database:
        database.execute('create table "t""1" (id, "the ""x""", act)')
        database.executemany('insert into "t""1" values (?, ?, ?)', [(1, 1, "a"), (2, 2.5, "b"), (3, 9, "a")])
        database.execute('create view large as select "the ""x""" as x, act from "t""1" where id > 1')
    database.close()
    assert read(f"{path}::large", action="act").flat().observation.tolist() == [[2.5], [9]]
    assert read(f'{path}::t"1', action="act", episode="id").observation_names == ('the "x"',)


def test_a_database_of_the_other_kind(tmp_path):
    duck(tmp_path / "a.duckdb")
    (tmp_path / "a.duckdb").rename(tmp_path / "a.db")
    with pytest.raises(UserError, match=r"is a DuckDB file; its name must end in \.duckdb"):
        read(tmp_path / "a.db", **ROLES)
    sqlite(tmp_path / "b.sqlite")
    (tmp_path / "b.sqlite").rename(tmp_path / "b.duckdb")
    with pytest.raises(UserError, match=r"b\.duckdb: is not a DuckDB file"):
        read(tmp_path / "b.duckdb", **ROLES)


# ---- DuckDB


def test_types_of_duckdb(tmp_path):
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(
            "create table t as select range // 3 as stay, timestamp '2026-01-01' + interval (range) hour as time, "
            "(range * 1.25)::decimal(9, 2) as dose, range::hugeint as big, range % 2 = 0 as flag, "
            "interval (range) day as waited, [1, 2] as list, uuid() as key, "
            "(['none', 'fluid'])[1 + range % 2]::enum('fluid', 'none') as treat from range(9)"
        )
        database.execute("create schema ward")
        database.execute("create view ward.late as select * from t where stay = 2")
    data = read(f"{path}::t", episode="stay", time="time", action="treat", observations=["dose", "big", "flag"])
    assert data.trajectories[1].observations.tolist() == [[3.75, 3, 0], [5, 4, 1], [6.25, 5, 0]]
    assert data.action_names == ("fluid", "none")
    types = {column.name: column.type for column in check(f"{path}::t").columns}
    assert {name for name, type_ in types.items() if type_ == "text"} >= {"waited", "list", "key", "treat"}
    assert check(f"{path}::ward.late").rows == 3


def test_a_database_that_another_program_has_open(tmp_path):
    path = written(tmp_path, ".duckdb")
    holding = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", holding, str(path)], **pipes) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="another program has it open; close that program first"):
            read(path, **ROLES)
        other.communicate()
    assert read(path, **ROLES).steps == 5


def test_a_view_reads_no_other_file(tmp_path):
    (tmp_path / "secret.csv").write_text("x,act\n1,a\n")
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(f"create view v as select * from read_csv('{tmp_path}/secret.csv')")
    with pytest.raises(UserError, match="not a readable table"):
        read(path, action="act")


# ---- Excel


def test_cells_of_excel(tmp_path):
    """Empty rows and columns, dates, true and false, an error, and a number of 17 digits."""
    path, book = tmp_path / "a.xlsx", openpyxl.Workbook()
    sheet = book.active
    rows = [
        *([None] * 5, [" when ", "flag", "x", None, "act"]),
        [datetime(2026, 1, 31, 13, 45), True, 0.1 + 0.2, None, "a"],
        *([None] * 5, [datetime(2026, 1, 31, 14, 0, 30), False, 2, None, "b"]),
        [datetime(2026, 2, 1), True, 3, None, 4],
    ]
    for number, row in enumerate(rows, 1):
        for place, cell in enumerate(row, 1):
            sheet.cell(number, place, cell)
    sheet.cell(6, 3).value, sheet.cell(6, 3).data_type = "#DIV/0!", "e"
    book.save(path)
    found = check(path, action="act", time="when", episode="flag", missing="mean")
    assert [column.name for column in found.columns] == ["when", "flag", "x", "act"]
    problem = next(problem for problem in found.problems if problem.rule == "missing value")
    assert (problem.column, problem.row, problem.numbering) == ("x", 6, "row")
    data = read(path, action="act", time="when", episode="flag", missing="mean")
    assert data.action_names == ("4", "a", "b")
    assert data.trajectories[1].observations.ravel().tolist() == pytest.approx([0.3, 1.15])


def test_the_page_about_tables_names_the_endings():
    page = (Path(__file__).parents[3] / "docs" / "your_data.md").read_text()
    assert not [ending for format_ in formats.every() for ending in format_.endings if f"`{ending}`" not in page]
