"""The clinical tables in the report."""

import json

import pytest

from sbil.cli import main
from sbil.errors import UserError
from sbil.reports import clinical


def score(mean, error=0.01):
    return {"mean": mean, "standard_error": error, "low": mean - 0.02, "high": mean + 0.02}


def table(name="MIMIC-III-2a", **methods):
    methods = methods or {"bc": 0.8, "edm": 0.75, "<b>trees</b>": 0.9}
    return {
        "name": name,
        "splits": 10,
        "held_out": 0.2,
        "methods": {
            method: {
                "diverged": 2 if method == "edm" else 0,
                "scores": {metric: score(value) for metric in clinical.METRICS},
                "minus_bc": {metric: score(value - 0.8) for metric in clinical.METRICS},
            }
            for method, value in methods.items()
        },
    }


def written(folder, content):
    (folder / clinical.FOLDER).mkdir()
    (folder / clinical.FOLDER / "table.json").write_text(content)
    return folder


def test_tables_are_found_beside_the_results_and_shown(tmp_path):
    found = clinical.found([written(tmp_path, json.dumps(table())), tmp_path / "a-file.parquet"])
    assert found == [table()]
    html = clinical.section(found)
    assert "MIMIC-III-2a: 10 splits, 20 % held out" in html
    assert "0.750 ± 0.010" in html
    assert "−0.0500 [−0.0700, −0.0300]" in html
    assert "EDM (our default) (diverged in 2)" in html
    assert "0.891 ± 0.004" in html  # the paper's EDM
    assert "<b>" not in html
    assert "&lt;b&gt;trees" in html


def test_one_split_and_titles_with_commas():
    two = [{**table("PhysioNet-2012, previous action shown"), "splits": 1}, table("ICU-Sepsis")]
    assert "PhysioNet-2012, previous action shown: 1 split, 20 % held out" in clinical.section(two)
    assert "<title>sbil report: PhysioNet-2012, previous action shown; ICU-Sepsis</title>" in clinical.build(two)


def test_small_differences_keep_their_digits():
    small = table(bc=0.8, edm=0.8)
    small["methods"]["edm"]["minus_bc"]["auc"] = {"mean": 0.00042, "low": -0.00013, "high": -0.000001}
    html = clinical.section([small])
    assert "+0.0004 [−0.0001, +0.0000]" in html
    assert "+0.0000 [−0.0200, +0.0200]" in html


def test_a_dataset_that_the_paper_does_not_have_has_no_printed_column():
    assert "printed ACC" not in clinical.section([table("PhysioNet-2012")])


def test_what_is_not_defined_is_a_dash():
    lost = table(edm=0.7)
    lost["methods"]["edm"]["scores"] = {key: {"mean": None, "standard_error": None} for key in clinical.METRICS}
    lost["methods"]["edm"]["minus_bc"] = None
    assert '<td class="number">–</td>' in clinical.section([lost])


def test_without_tables_there_is_no_section(tmp_path):
    assert clinical.found([tmp_path]) == []
    assert clinical.section([]) == ""


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"methods": {"bc": {}}}', json.dumps({**table(), "held_out": "x"})]
)
def test_other_files_are_refused_by_name(tmp_path, content):
    with pytest.raises(UserError, match=r"table\.json: not a table"):
        clinical.found([written(tmp_path, content)])


def test_the_printed_numbers_are_the_papers():
    assert clinical.printed("MIMIC-III-2a")["edm"]["ACC"] == (0.891, 0.004)
    assert clinical.printed("MIMIC-III-2a")["edm:paper"] == clinical.printed("MIMIC-III-2a")["edm"]
    assert clinical.printed("PhysioNet-2012") == {}


def test_clinical_tables_alone_make_a_page(tmp_path, capsys):
    """Nothing was played: `sbil report` still says what was matched."""
    folder = written(tmp_path, json.dumps(table()))
    main(["report", str(folder), "--out", str(tmp_path / "page.html")])
    assert "MIMIC-III-2a" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert "0.750 ± 0.010" in page
    assert "Content-Security-Policy" in page
    assert "$" not in page.split("<script>")[0].replace("$(", "")
    main(["report", str(folder), "--out", str(tmp_path / "page.html"), "--json"])
    assert json.loads(capsys.readouterr().out) == {
        "clinical": ["MIMIC-III-2a"],
        "written": [str(tmp_path / "page.html")],
    }


def test_a_folder_without_anything_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")])
    assert leaving.value.code == 2
    assert "no results here" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
