"""The clinical tables in the report."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sbil.cli import main
from sbil.evaluation.matching import METRICS
from sbil.experiments import Cell, Method, Result, TableTask
from sbil.experiments.store import read, read_all, write
from sbil.reports import clinical
from studies.pages import inserted
from studies.tables import for_clinical_page

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted((ROOT / "results" / "clinical").glob("*.parquet"))
DEMO = ROOT / "tests" / "clinical" / "mimic-iii-demo.parquet"  # the tables of docs/clinical.md that are no result


def results(name="Ward", **accuracies):
    """Results in which every metric of a method has the values of its accuracy; NaN where it diverged."""
    task = TableTask(name, name, "0")
    found = []
    for method, each in accuracies.items():
        values = np.array(each, float)
        learned = method not in ("majority", "previous_action")
        cell = Cell(
            task,
            Method.parse(method.replace("previous_action", "previous action")),
            0,
            len(values),
            1,
            10_000 * learned,
        )
        metrics = dict.fromkeys(METRICS, values)
        lost = np.where(np.isnan(values), 500, -1)
        found.append(Result(cell, np.zeros((len(values), 0)), task.scale, lost, fingerprint=method, metrics=metrics))
    return found


def only(results):
    (found,) = clinical.tables(results)
    return found


def section(name="Ward", **accuracies):
    return clinical.section(clinical.tables(results(name, **accuracies)))


def test_the_section_by_hand():
    html = section("MIMIC-III-2a", bc=[0.8, 0.8], edm=[0.74, 0.76], **{"<b>trees</b>": [0.9, np.nan]})
    assert "MIMIC-III-2a: 2 splits, 20 % held out" in html
    assert "0.750 ± 0.010" in html
    assert "−0.0500 (−0.2056 to +0.1056)" in html  # 12.7062 sqrt(0.0002 * 3/4) = 0.1556
    assert "0.891 ± 0.004" in html  # the paper's EDM
    assert "<b>" not in html
    assert "&lt;b&gt;trees&lt;/b&gt; (diverged in 1)" in html


def test_tables_are_found_among_results_and_shown(tmp_path):
    write(tmp_path / "clinical" / "ward.parquet", results(bc=[0.8, 0.9], edm=[0.85, 0.93]))
    tables, played = clinical.apart(read_all([tmp_path]))
    assert not played
    assert [table.task.title for table in tables] == ["Ward"]
    assert "0.890 ± 0.040" in clinical.section(tables)


def test_one_split_and_titles_with_commas():
    title = "PhysioNet-2012, previous action shown"
    two = clinical.tables([*results(title, bc=[0.8]), *results("Ward", bc=[0.8, 0.9])])
    assert f"{title}: 1 split, 20 % held out" in clinical.section(two)
    assert f"<title>sbil report: {title}; Ward</title>" in clinical.build(two)


def test_small_differences_keep_their_digits():
    html = section(bc=[0.8, 0.8], edm=[0.80042, 0.80042])
    assert "+0.0004 (+0.0004 to +0.0004)" in html


def test_a_dataset_that_the_paper_does_not_have_has_no_printed_column():
    assert ", paper" in section("MIMIC-III-2a", bc=[0.8])
    assert ", paper" not in section("PhysioNet-2012", bc=[0.8])


def test_what_is_not_defined_is_a_dash():
    assert '<td class="number">−</td>' in section(edm=[np.nan])


def test_without_tables_there_is_no_section():
    assert clinical.tables([]) == []
    assert clinical.section([]) == ""


def test_the_printed_numbers_are_the_papers():
    assert clinical.printed("MIMIC-III-2a")["edm"]["ACC"] == (0.891, 0.004)
    assert clinical.printed("MIMIC-III-2a")["edm:paper"] == clinical.printed("MIMIC-III-2a")["edm"]
    assert clinical.printed("PhysioNet-2012") == {}


def test_clinical_tables_alone_make_a_page(tmp_path, capsys):
    """`sbil report` shows matched decisions even if nothing was played."""
    folder = tmp_path / "runs"
    write(folder / "clinical" / "a.parquet", results("MIMIC-III-2a", bc=[0.8, 0.9], edm=[0.74, 0.76]))
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


# Markdown and plain values.


def test_the_table_by_hand():
    text = clinical.in_markdown(
        only(results("MIMIC-III-2a", bc=[0.8, 0.9], edm=[0.85, 0.93], previous_action=[0.7, 0.7]))
    )
    assert "| method | ACC | AUC | APR | ACC, paper | AUC, paper | APR, paper |" in text
    assert "| BC | 0.850 ± 0.050 | 0.850 ± 0.050 | 0.850 ± 0.050 | 0.861 ± 0.013 | " in text
    assert "| previous action | 0.700 ± 0.000 |" in text
    # EDM minus BC: 0.05 and 0.03, variance 0.0002, and 12.7062 sqrt(0.0002 * 3/4) = 0.1556.
    assert "| EDM (our default) | +0.0400 (-0.1156 to +0.1956) |" in text


def test_methods_stand_in_the_order_of_tables():
    """Known policies, baselines, algorithms; a variation beside its own kind."""
    names = ("dsfn", "edm", "bc+weight_decay=1", "bc", "edm_exact", "majority")
    made = [results(**{name: [0.5]})[0] for name in names]
    uniform = results(majority=[0.5])[0]
    known = Cell(uniform.cell.task, Method("uniform actions"), 0, 1, 1, 0)
    made.append(Result(known, uniform.returns, uniform.scale, uniform.diverged_at, metrics=uniform.metrics))
    order = ["uniform actions", "majority", "bc", "edm_exact", "bc+weight_decay=1", "edm", "dsfn"]
    assert list(only(made).results) == order


def test_json_is_plain():
    made = only(results(bc=[0.8, 0.9], edm=[np.nan, np.nan])).as_json()
    text = json.dumps(made, allow_nan=False)
    assert json.loads(text) == made
    assert made["splits"] == 2
    assert made["methods"]["bc"]["scores"]["accuracy"]["mean"] == 0.85
    assert made["methods"]["bc"]["minus_bc"]["accuracy"]["mean"] == 0
    assert made["methods"]["edm"]["diverged"] == 2
    assert made["methods"]["edm"]["scores"]["auc"]["mean"] is None
    assert only(results(edm=[0.5])).as_json()["methods"]["edm"]["minus_bc"] is None


def test_a_metric_that_some_splits_do_not_have_says_so():
    bc, majority = results(bc=[0.5, 0.6, 0.7], majority=[0.4, np.nan, 0.4])
    bc.metrics["auc"] = np.array([0.5, np.nan, np.nan])
    lines = clinical.in_markdown(only([bc, majority])).splitlines()
    row = next(line for line in lines if line.startswith("| BC |"))
    assert row.split(" | ")[1:3] == ["0.600 ± 0.058", "0.500 (in 1 of 3 splits)"]
    other = next(line for line in lines if line.startswith("| majority action (diverged in 1)"))
    assert "in 2 of" not in other


# What is published.


def test_every_published_dataset_is_there():
    assert {path.stem for path in PUBLISHED} == {"ICU-Sepsis", "PhysioNet-2012", "PhysioNet-2012-with-previous"}


@pytest.mark.parametrize("path", [*PUBLISHED, DEMO], ids=lambda path: path.stem)
def test_published_means_are_those_of_the_files(path):
    """By hand: the mean over the splits in which a method did not diverge. No file holds a row of a patient."""
    assert not {*pl.read_parquet_schema(path)} & {"stay", "patient", "record", "day", "window"}
    for table in clinical.tables(list(read(path))):
        for method, values in table.as_json()["methods"].items():
            metrics = table.results[method].metrics
            known = ~np.isnan(metrics["accuracy"])
            assert values["diverged"] == values["splits"] - known.sum()
            for metric, score in values["scores"].items():
                mean = metrics[metric][known].mean() if known.any() else None
                assert score["mean"] is None if mean is None else abs(score["mean"] - mean) < 1e-6
            assert {*metrics} == {*table.metrics, "trajectories", "held_out_trajectories", "held_out_decisions"}


def test_the_tables_of_the_docs_are_what_the_files_say():
    page = ROOT / "docs" / "clinical.md"
    tables = for_clinical_page()
    assert len(tables) == 5
    assert inserted(page, tables) == page.read_text()


def test_the_action_before_in_the_docs_is_what_the_file_says():
    shown = only(list(read(ROOT / "results" / "clinical" / "PhysioNet-2012-with-previous.parquet")))
    page = (ROOT / "docs" / "clinical.md").read_text()
    for method in ("bc", "logistic regression"):
        found = [f"{shown.score(method, metric).mean:.3f}" for metric in clinical.METRICS]
        assert all(number in page for number in found)
    assert f"{shown.score('bc', 'accuracy').mean:.3f}" == "0.895"
