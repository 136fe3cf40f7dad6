"""The study of tables: how its rows are made, and how its lines become tables."""

import polars as pl

from studies.on_tables.data import acted, windows, with_last
from studies.on_tables.tables import METHODS, rows, table


def test_a_row_has_the_last_value_before_it_and_the_hours_since_then():
    asked = pl.DataFrame({"stay": [1, 1, 2], "minute": [60, 360, 60]})
    events = pl.DataFrame({"stay": [1, 1, 2], "minute": [0, 60, 90], "series": ["HR"] * 3, "value": [80.0, 90.0, 70.0]})
    found = with_last(asked, events)
    assert found["HR"].to_list() == [80.0, 90.0, None]  # what is charted at the minute itself or later is not known
    assert found["HR since"].to_list() == [1.0, 5.0, 48.0]


def test_windows_end_with_the_stay():
    found = windows(pl.DataFrame({"stay": [1, 2], "minutes": [725, 100]}), 6)
    assert found.rows() == [(1, 0), (1, 360)]


def test_the_action_is_what_happens_within_the_window():
    asked = pl.DataFrame({"stay": [1, 1], "minute": [0, 360]})
    events = pl.DataFrame({"stay": [1, 2], "minute": [360, 5]})
    assert acted(asked, events, 6, "act", ("no", "yes"))["act"].to_list() == ["no", "yes"]


def test_a_method_that_differs_clearly_from_auto_is_bold(tmp_path):
    lines = ["cell,seed,method,log_loss"]
    for seed in range(5):
        noise = seed / 1000
        lines += [
            f"a,{seed},auto,{0.3 + noise}",
            f"a,{seed},trees,{0.5 + 2 * noise}",
            f"a,{seed},bc,{0.3 + (-1) ** seed * 0.1}",
        ]
    path = tmp_path / "lines.csv"
    path.write_text("\n".join(lines))
    printed = table(rows(path), "log_loss").splitlines()[-1]
    cells = dict(
        zip(("table", "seeds", *METHODS), (cell.strip() for cell in printed.strip("|").split("|")), strict=True)
    )
    assert cells["auto"] == "0.302"
    assert cells["trees"] == "**0.504**"
    assert cells["bc"] == "0.320"
    assert cells["edm"] == "-"
    assert rows(tmp_path / "none.csv") == []
