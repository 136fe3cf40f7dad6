"""Tables of hand-made results."""

import csv
import io
import re

import numpy as np
import pytest

from handmade import BASE, result
from sbil import statistics
from sbil.errors import UserError
from sbil.experiments import Method, Result
from sbil.reports import paper_numbers, tables
from sbil.reports.cells import setting_of, strata
from sbil.reports.differences import FEWEST_DRAWS, difference, differences, verdict
from sbil.reports.names import NAMES, name_of, place_of
from sbil.reports.rows import aggregates, cell_rows, run_rows


@pytest.fixture
def with_unlabelled(results) -> list[Result]:
    """The same, and EDM with further trajectories that show only their states."""
    return [*results, result("edm", 1, BASE + 0.2, unlabelled=1), result("edm", 1, BASE + 0.3, unlabelled=2)]


def test_scores_are_scaled_returns(results):
    np.testing.assert_allclose(results[0].scores, BASE, atol=1e-6)


def test_differences_are_paired(results):
    rows = {row["size"]: row for row in differences(results)}
    # Each run differs from its partner by the same amount, so the interval has no width.
    assert (rows[1]["mean"], rows[1]["low"], rows[1]["high"]) == pytest.approx((0.1, 0.1, 0.1))
    assert (rows[3]["mean"], rows[3]["low"], rows[3]["high"]) == pytest.approx((-0.3, -0.3, -0.3))
    assert verdict(rows[1]) == "above"
    assert verdict(rows[3]) == "below"
    assert verdict({"draws": 2, "low": 1, "high": 2, "p": 0.01}).startswith("too few")
    assert verdict({"draws": 9, "low": -1, "high": 2, "p": 0.01}) == "no clear difference"
    assert verdict({"draws": 9, "low": 1, "high": 2, "p": 0.06}) == "no clear difference"


def test_differences_become_a_row_that_can_be_judged():
    """The rule for a clear difference, applied to values that are in no table."""
    rows = [difference(np.full((6, 2), value)) for value in (0.1, -0.1, 0.0)]
    assert [verdict(row) for row in rows] == ["above", "below", "no clear difference"]
    assert verdict(difference(np.full((5, 2), 0.1))) == "too few draws to tell (5)"
    mixed = difference(np.array([0, 0, 0, 0, 0, 0, 0, 0.03, 0.43, 0.68])[:, None])
    assert mixed["low"] >= 0
    assert verdict(mixed) == "no clear difference"  # the interval alone would let it pass


def test_a_difference_needs_the_same_runs(results):
    fewer = result("rcal", 1, BASE[:3])
    elsewhere = result("rcal", 1, BASE, demonstrator="dqn", mode="greedy")
    assert differences([*results, fewer, elsewhere]) == differences(results)


def test_diverged_runs_are_shown(results):
    text = tables.markdown(results)
    assert "(3 of 12 diverged)" in text
    assert text.count("diverged") == 1
    assert "| bc | 0.500 ± 0.057 | 0.600 ± 0.057 |" in text
    assert [row["diverged"] for row in cell_rows(results)] == [0, 0, 0, 3]


def test_a_losing_cell_is_printed_like_the_others(results):
    assert "0.300" in tables.markdown(results)


def test_a_single_run_has_neither_error_nor_interval():
    alone = result("bc", 1, np.array([[0.5]]))
    assert (tables.with_error(alone), tables.with_interval(alone)) == ("0.500", "0.500")


def test_rows_of_runs(results):
    rows = run_rows(results)
    assert len(rows) == 48
    assert rows[13] == {
        "environment": "CartPole-v1",
        "demonstrator": "ppo",
        "mode": "sampled",
        "thin": 20,
        "method": "bc",
        "size": 3,
        "unlabelled": 0,
        "draw": 0,
        "initialisation": 1,
        "return": pytest.approx(results[1].returns[1].mean(), abs=1e-3),
        "score": pytest.approx(0.2 + 0.6 / 11 + 0.1, abs=1e-5),
        "diverged_at": -1,
        "chosen": "",
    }
    assert tables.csv_text(rows).count("\n") == 49


def test_rows_of_runs_say_what_was_chosen():
    made = result("bc+weight_decay=0/1", 1, BASE[:1])
    chose = Result(made.cell, made.returns, made.scale, made.diverged_at, chosen=("weight_decay=0", "weight_decay=1"))
    assert [row["chosen"] for row in run_rows([chose])] == ["weight_decay=0", "weight_decay=1"]


def test_unlabelled_trajectories_stay_out_of_ordinary_tables(results, with_unlabelled):
    assert tables.markdown(with_unlabelled) == tables.markdown(results)
    assert tables.grid(with_unlabelled, tables.with_error) == tables.grid(results, tables.with_error)
    assert differences(with_unlabelled) == differences(results)
    assert aggregates(with_unlabelled) == aggregates(results)
    assert tables.latex(with_unlabelled) == tables.latex(results)
    assert [row["unlabelled"] for row in cell_rows(with_unlabelled)] == [0, 0, 0, 0, 1, 2]


def test_two_cells_for_one_place_are_refused(results):
    with pytest.raises(UserError, match="CartPole-v1-ppo-sampled-thin20 bc n=1 is there twice"):
        tables.markdown([*results, result("bc", 1, BASE, updates=500)])


def test_rows_of_cells_by_hand(with_unlabelled):
    rows = {(row["method"], row["size"], row["unlabelled"]): row for row in cell_rows(with_unlabelled)}
    error = BASE.std(ddof=1) / np.sqrt(12)
    row = rows["edm", 3, 0]
    assert (row["runs"], row["diverged"]) == (12, 3)
    assert (row["mean"], row["standard_error"]) == pytest.approx((0.3, error), abs=1e-6)
    assert row["low"] < row["mean"] < row["high"]
    assert row["iqm"] == pytest.approx(0.3, abs=1e-6)  # evenly spread scores
    assert row["iqm_low"] < row["iqm"] < row["iqm_high"]
    assert [row[f"difference{end}"] for end in ("", "_low", "_high")] == pytest.approx([-0.3] * 3)
    assert (row["p"], row["verdict"]) == (2 / 2**6, "below")  # six draws that all go down
    assert (row["printed_mean"], row["printed_standard_error"], row["differs"]) == (0.900, 0.029, True)
    baseline = rows["bc", 1, 0]
    assert [baseline[name] for name in ("difference", "difference_low", "p", "verdict")] == [None] * 4
    more = rows["edm", 1, 2]  # against BC that has the same decisions
    assert (more["difference"], more["verdict"], more["printed_mean"], more["differs"]) == (0.3, "above", None, None)


def test_rows_of_cells_as_csv(results):
    alone = result("random", 1, np.array([[0.5]]))
    lines = list(csv.DictReader(io.StringIO(tables.csv_text(cell_rows([*results, alone])))))
    assert len(lines) == 5
    assert lines[2]["setting"] == "CartPole-v1, ppo demonstrator (sampled), every 20th step"
    assert (lines[2]["difference"], lines[2]["verdict"]) == ("0.1", "above")
    assert (lines[4]["mean"], lines[4]["standard_error"], lines[4]["low"], lines[4]["p"]) == ("0.5", "", "", "")


def test_printed_values_stand_beside_ours(results):
    lines = tables.markdown([*results, result("bc:decay", 1, BASE)], tables.with_printed).splitlines()
    assert lines[4].startswith("| bc | 0.500 ± 0.057 (printed: 0.321 ± 0.026) † | 0.600 ± 0.057 (printed: 0.607")
    assert lines[4].endswith(") |")  # 0.600 and 0.607 do not differ
    assert lines[6] == "| bc:decay | 0.500 ± 0.057 |  |"


def test_aggregates_by_hand(results):
    rows = {row["method"]: row for row in aggregates([*results, result("rcal", 1, BASE + 0.2)])}
    assert list(rows) == ["bc", "rcal", "edm"]  # as tables have them
    edm = rows["edm"]
    assert (edm["group"], edm["cells"], edm["runs"], edm["diverged"]) == (setting_of(results[0]), 2, 24, 3)
    assert (edm["mean"], edm["difference"]) == pytest.approx((0.45, -0.1))
    assert (edm["difference_low"], edm["difference_high"]) == pytest.approx((-0.1, -0.1))
    assert edm["iqm"] == pytest.approx(statistics.iqm(np.concatenate([BASE.ravel() + 0.1, BASE.ravel() - 0.2])))
    assert (edm["compared"], edm["above"], edm["below"]) == (2, 1, 1)
    # Scores are steps of 0.6 / 11 apart: 0.1 is between one and two steps, 0.3 between five and six.
    wins = [np.mean(BASE.ravel()[:, None] + shift > BASE.ravel()) for shift in (0.1, -0.3)]
    assert edm["improvement"] == pytest.approx(np.mean(wins))
    assert [rows["rcal"][name] for name in ("cells", "compared", "above", "below")] == [1, 1, 1, 0]
    assert (rows["bc"]["compared"], rows["bc"]["difference"], rows["bc"]["improvement_low"]) == (0, None, None)


def test_aggregates_over_an_environment(results):
    other = [result("edm", 1, BASE - 0.1, mode="greedy"), result("bc", 1, BASE, mode="greedy")]
    apart = aggregates([*results, *other])
    assert [row["cells"] for row in apart] == [2, 2, 1, 1]
    together = aggregates([*results, *other], by=lambda result: result.cell.task.environment)
    assert [(row["group"], row["method"], row["cells"]) for row in together] == [
        ("CartPole-v1", "bc", 3),
        ("CartPole-v1", "edm", 3),
    ]
    assert together[1]["difference"] == pytest.approx((0.1 - 0.3 - 0.1) / 3)


def test_draws_of_one_environment_are_resampled_together(results):
    cells = [results[0], results[1], result("bc", 1, BASE, mode="greedy"), result("bc", 7, BASE[:3])]
    acrobot = result("bc", 1, BASE, environment="Acrobot-v1", thin=1)
    assert [part.shape for part in strata([acrobot, *cells])] == [(1, 6, 2), (3, 6, 2), (1, 3, 2)]
    (doubled,) = strata(cells[:2], lambda result: 2 * result.scores)  # other values than scores
    np.testing.assert_allclose(doubled, [2 * BASE, 2 * (BASE + 0.1)], atol=1e-6)


def test_the_table_of_aggregates(results):
    lines = tables.aggregate_markdown(results).splitlines()
    assert lines[0] == "**CartPole-v1, ppo demonstrator (sampled), every 20th step**"
    assert lines[4].startswith("| BC | 2 | 0.550 [")
    assert lines[4].endswith("|  |  |  |  |")
    assert "(3 of 24 runs diverged)" in lines[5]
    assert "| -0.100 [-0.100, -0.100] |" in lines[5]
    assert lines[5].endswith("| 1 of 2 | 1 of 2 |")
    assert len({line.count("|") for line in lines[2:]}) == 1


def test_latex(results):
    text = tables.latex([*results, result("bc:decay", 1, BASE), result("x_1&2", 3, BASE)])
    lines = text.splitlines()
    assert r"BC & $0.500 \pm 0.057^\dagger$ & $0.600 \pm 0.057$ \\" in lines
    assert r"BC, weight decay 1 & $0.500 \pm 0.057$ &  \\" in lines
    assert r"EDM (our default) & $0.600 \pm 0.057^\dagger$ & $0.300 \pm 0.057^\dagger$ [3] \\" in lines
    assert r"x\_1\&2 &  & $0.500 \pm 0.057$ \\" in lines
    assert r"printed: BC & $0.321 \pm 0.026$ & $0.607 \pm 0.048$ \\" in lines
    order = [text.index(word) for word in (r"\toprule", "\nBC &", "\nBC, weight decay", "\nEDM", "\nprinted: BC")]
    assert order == sorted(order)
    assert lines.count(r"\midrule") == 2
    assert [text.count(name) for name in (r"\begin{table}", r"\begin{tabular}{lrr}", r"\bottomrule")] == [1, 1, 1]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in lines if line.endswith(r"\\")} == {2}
    assert text.count("{") == text.count("}")
    assert "In brackets: runs that diverged." in text
    assert "diverged" not in tables.latex(results[:3])


def test_latex_has_a_table_a_setting_and_the_print_where_there_is_any(results):
    text = tables.latex([*results, result("bc", 2, BASE, mode="greedy")])
    assert [text.count(rf"\label{{tab:CartPole-v1-ppo-{mode}-thin20}}") for mode in ("sampled", "greedy")] == [1, 1]
    assert text.count("printed: BC") == 1  # the paper has no two trajectories


def test_cells_are_told_apart_from_the_printed_ones():
    """The paper prints 0.321 ± 0.026 for BC from one CartPole trajectory, and nothing for two."""
    spread = np.array([[-0.05, 0.05]] * 5)  # a standard error of 0.0167; with the paper's, two are 0.062
    assert paper_numbers.printed("CartPole-v1", 1, "bc") == (0.321, 0.026)
    assert not paper_numbers.differs(result("bc", 1, 0.321 + 0.06 + spread))
    assert paper_numbers.differs(result("bc", 1, 0.321 + 0.064 + spread))
    assert paper_numbers.differs(result("bc", 1, 0.321 - 0.064 + spread))
    assert paper_numbers.printed("CartPole-v1", 2, "bc") is None
    assert not paper_numbers.differs(result("bc", 2, spread))
    assert not paper_numbers.differs(result("majority", 1, spread))
    every = [
        paper_numbers.printed(task, n, m)
        for task in ("CartPole-v1", "Acrobot-v1")
        for n in (1, 15)
        for m in paper_numbers.METHODS
    ]
    assert None not in every


def test_only_the_papers_methods_have_a_counterpart():
    assert paper_numbers.counterpart(result("edm", 1, BASE)) == paper_numbers.counterpart(result("edm:paper", 1, BASE))
    assert paper_numbers.counterpart(result("edm", 1, BASE)) == paper_numbers.printed("CartPole-v1", 1, "edm")
    for other in (result("bc:decay", 1, BASE), result("edm:released", 1, BASE), result("edm", 1, BASE, unlabelled=1)):
        assert paper_numbers.counterpart(other) is None
        assert not paper_numbers.differs(other)


def test_names_of_methods():
    assert name_of("bc:decay") == "BC, weight decay 1"
    assert name_of("mine+step=2") == "mine+step=2"
    assert len(set(NAMES.values())) == len(NAMES)
    assert sorted(["z", "random", "a", "edm", "bc"], key=place_of) == ["bc", "edm", "random", "a", "z"]
    for method in NAMES:
        assert str(Method.parse(method)) == method


def test_no_verdict_without_enough_draws_for_a_small_p():
    enough, few = (statistics.sign_flip(np.ones(FEWEST_DRAWS - less)) for less in (0, 1))
    assert enough < 0.05 <= few


def test_texts_that_look_like_formulas_are_inert_in_csv():
    text = tables.csv_text([{"method": "=cmd|' /C calc'!A0", "score": -1.5, "chosen": "@x"}])
    assert text.splitlines()[1] == "'=cmd|' /C calc'!A0,-1.5,'@x"
