"""Excel workbooks: one sheet, FILE::SHEET. The first row that is not empty holds the names of the columns.

Cells are read as text, as in a CSV: dates as 2026-01-31 13:45:00, true and false as words. What a formula gave is read,
not the formula. A cell with an error, such as #DIV/0!, is a missing value.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sbil.demonstrations.formats import Format, chosen, file_and_table
from sbil.demonstrations.table import CELLS, Batch, Table, checked_names
from sbil.errors import UserError


def table(path: Path) -> Table:
    """The rows of a sheet. A sheet has at most a million rows, so it is held as a whole."""
    book = _book(file_and_table(path)[0])
    name = chosen(path, book.sheet_names, "sheet")
    cells = book.load_sheet(name, header_row=None, skip_rows=0, dtypes="string").to_polars()
    there = cells.select(pl.all().str.strip_chars().fill_null("") != "").to_numpy()
    rows = np.flatnonzero(there.any(axis=1))
    if not len(rows):
        raise UserError(f"sheet '{name}' is empty; nothing to read.")
    cells = cells[:, there.any(axis=0).tolist()]
    names = checked_names([(cell or "").strip() for cell in cells.row(int(rows[0]))])
    cells.columns = list(names)
    step = max(CELLS // len(names), 1)

    def batches() -> Iterator[Batch]:
        for start in range(1, len(rows), step):
            part = rows[start : start + step]
            yield Batch(cells[part], part + 1, str(path))

    return Table(names, batches, f"Excel, sheet '{name}'")


def _book(file: Path) -> Any:
    try:
        import fastexcel
    except ImportError:
        raise UserError("Excel files need fastexcel; install it with: pip install 'sbil[excel]'") from None
    try:
        return fastexcel.read_excel(file)
    except fastexcel.FastExcelError:
        what = "is not an Excel workbook, or it is damaged or has a password"
        raise UserError(f"{what}; save the sheet again as .xlsx or CSV.") from None


FORMAT = Format("Excel", (".xlsx", ".xlsm"), table=table, several=True)
