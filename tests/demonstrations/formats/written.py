"""The same small table in every format."""

import json
import sqlite3

import duckdb
import openpyxl

NAMES = ("stay", "hour", "pulse", "sex", "treat")
ROWS = [
    *((1, 0, 60.5, "m", "none"), (1, 1, 61.0, "m", "fluid")),
    *((2, 0, 80.25, "f", "none"), (2, 1, 82.0, "f", "none"), (2, 2, 79.0, "f", "fluid")),
]
ROLES = {"episode": "stay", "time": "hour", "action": "treat", "one_hot": ["sex"]}


def csv(path, rows=ROWS, names=NAMES):
    lines = [names, *(["" if cell is None else cell for cell in row] for row in rows)]
    path.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))


def jsonl(path, rows=ROWS, names=NAMES):
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))


def excel(path, rows=ROWS, names=NAMES, table="stays"):
    book = openpyxl.load_workbook(path) if path.exists() else openpyxl.Workbook()
    sheet = book.create_sheet(table) if path.exists() else book.active
    sheet.title = table
    for row in [names, *rows]:
        sheet.append(row)
    book.save(path)


def sqlite(path, rows=ROWS, names=NAMES, table="stays"):
    with sqlite3.connect(path) as database:
        database.execute(f'create table "{table}" ({", ".join(names)})')
        database.executemany(f'insert into "{table}" values ({", ".join("?" * len(names))})', rows)
    database.close()


def duck(path, rows=ROWS, names=NAMES, table="stays"):
    kinds = {int: "bigint", float: "double", str: "varchar"}
    columns = ", ".join(f"{name} {kinds[type(cell)]}" for name, cell in zip(names, rows[0], strict=True))
    with duckdb.connect(str(path)) as database:
        database.execute(f'create table "{table}" ({columns})')
        marks = ", ".join("?" * len(names))
        database.executemany(f'insert into "{table}" values ({marks})', [list(row) for row in rows])


WRITERS = {".csv": csv, ".jsonl": jsonl, ".xlsx": excel, ".sqlite": sqlite, ".duckdb": duck}
SEVERAL = (".xlsx", ".sqlite", ".duckdb")  # whose files hold several tables
