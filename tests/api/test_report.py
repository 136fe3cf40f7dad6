"""The report and the page of episodes from Python."""

import json

import pytest

import sbil
from handmade import made
from probes import demonstrations
from sbil.experiments import store
from sbil.reports.tables import json_text


@pytest.fixture
def grid(tmp_path):
    cells = [made("bc", 1, 0.4), made("edm", 1, 0.6), made("edm", 1, 0.5, thin=1)]
    store.write(tmp_path / "grid" / "cells.parquet", cells)
    return tmp_path / "grid"


def test_a_report_returns_what_the_page_says(grid, tmp_path):
    found = sbil.report([str(grid)], tmp_path / "report.html")
    assert found.summary == "3 cells, 2 methods, 2 settings, 36 runs"
    assert found.written == [tmp_path / "report.html"]
    assert len(found.cells) == 3
    assert next(iter(found.verdict)) == "all settings"
    assert len(found.verdict) == 3
    assert "above" in found.verdict["all settings"][0]
    assert set(json.loads(json_text(found.as_json()))) == {"verdict", "cells", "written"}


def test_a_report_needs_results(tmp_path):
    with pytest.raises(sbil.UserError, match="say what to report on"):
        sbil.report([])
    with pytest.raises(sbil.UserError, match="is a folder"):
        sbil.report([tmp_path], tmp_path)


def test_a_view_counts_what_it_shows(tmp_path):
    data = demonstrations()
    found = sbil.view(data, tmp_path / "view.html", episodes=2)
    assert (found.shown, found.episodes, found.decisions) == (2, len(data), data.steps)
    assert found.bytes == (tmp_path / "view.html").stat().st_size
    assert found.as_json()["file"] == str(tmp_path / "view.html")
    with pytest.raises(sbil.UserError, match="--overwrite"):
        sbil.view(data, tmp_path / "view.html")
