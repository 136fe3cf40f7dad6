"""Sentences about hand-made results, worked out by hand: wins, losses, and any set of results."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handmade import made
from sbil.reports.names import NAMES
from sbil.reports.sentences import baselines, comparisons, sentences

CHOSEN = "bc+weight_decay=0/0.1/0.3/1/3/10"


def about(start: str, results) -> str:
    (found,) = [sentence for sentence in sentences(results) if sentence.startswith(start)]
    return found


def test_wins_losses_and_draws_are_counted():
    results = [made("bc", size, 0.5) for size in (1, 3, 7)]
    results += [made("edm", 1, 0.6), made("edm", 3, 0.3), made("edm", 7, 0.5)]
    assert about("EDM", results) == (
        "EDM (our default): against BC clearly above in 1 of 3 cells, below in 1 (by -0.200 to +0.100)."
    )


def test_a_loss_is_worded_like_a_win():
    won = [*(made("bc", size, 0.5) for size in (1, 3)), made("edm", 1, 0.6), made("edm", 3, 0.7)]
    lost = [*(made("bc", size, 0.5) for size in (1, 3)), made("edm", 1, 0.4), made("edm", 3, 0.3)]
    assert about("EDM", won).endswith("clearly above in 2 of 2 cells, below in none (by +0.100 to +0.200).")
    assert about("EDM", lost).endswith("clearly above in none of 2 cells, below in 2 (by -0.200 to -0.100).")
    assert about("EDM", [*won[:1], *won[2:3]]) == "EDM (our default): against BC clearly above (by +0.100)."
    assert about("EDM", [*lost[:1], *lost[2:3]]) == "EDM (our default): against BC clearly below (by -0.100)."


def test_a_difference_that_is_not_clear_is_not_one():
    """Two of six draws differ: with random signs, a difference this large has a probability of at least 1/4."""
    scores = np.full((6, 2), 0.5)
    better = scores + np.array([0, 0, 0, 0, 0.2, 0.4])[:, None]
    found = about("EDM", [made("bc", scores=scores), made("edm", scores=better)])
    assert found == "EDM (our default): against BC no clear difference (by +0.100)."


def test_few_draws_tell_nothing():
    few = [made("bc", draws=4), made("edm", score=0.9, draws=4)]
    assert about("EDM", few) == "EDM (our default): against BC too few draws to tell (by +0.400)."
    enough = [made("bc", 3, draws=6), made("edm", 3, 0.9, draws=6)]
    found = about("EDM", [*few, *enough])
    assert "clearly above in 1 of 2 cells, below in none, too few draws to tell in 1 (by" in found


def test_every_form_is_held_against_every_control():
    methods = {"bc": 0.5, "bc:decay": 0.7, CHOSEN: 0.6, "edm": 0.6, "edm:released": 0.8, "edm:paper": 0.0}
    results = [made(method, size, score) for method, score in methods.items() for size in (1, 3)]
    found = sentences(results)
    assert found[0] == (
        "EDM (our default): against BC clearly above in 2 of 2 cells, below in none (by +0.100 to +0.100); "
        "against BC with weight decay clearly above in none, below in 2 (by -0.100 to -0.100); "
        "against BC with chosen weight decay clearly above in none, below in none (by +0.000 to +0.000)."
    )
    assert found[1].startswith("EDM, released code: against BC clearly above in 2 of 2 cells")
    assert found[2].startswith("EDM, as printed: against BC clearly above in none of 2 cells, below in 2")
    assert len(comparisons(results)) == 3 * 3 * 2


def test_only_a_choice_of_decay_alone_is_that_control():
    names = ["bc", "bc+weight_decay=3", CHOSEN, "bc+weight_decay=0/1+batch=8", "bc:decay", "rcal+weight_decay=0/1"]
    assert baselines([made(name) for name in names]) == ["bc", "bc:decay", CHOSEN]


def test_diverged_runs_are_counted():
    results = [made("bc"), made("edm"), made("edm:paper", diverged=5), made("edm:paper", 3, diverged=12)]
    assert about("Diverged", results) == "Diverged runs: EDM (our default) none of 12; EDM, as printed 17 of 24."
    assert about("Diverged", [*results[:2], made("dsfn", diverged=1)]) == (
        "Diverged runs: DSFN 1 of 12; EDM (our default) none of 12."
    )
    assert about("Diverged", results[:2]) == "Diverged runs: none."


def test_the_print_is_missed_above_and_below():
    """The paper prints 0.321 ± 0.026, 0.607 ± 0.048 and 0.819 ± 0.041 for BC from 1, 3 and 7 trajectories."""
    results = [made("bc", 1, 0.6), made("bc", 3, 0.607), made("bc", 7, 0.5), made("bc:decay", 1, 0.9)]
    assert about("The paper's numbers", results) == (
        "The paper's numbers: of 3 cells that it prints too, 2 lie more than two standard errors from them: "
        "1 above, 1 below."
    )
    assert about("The paper's numbers", results[1:2]) == (
        "The paper's numbers: of 1 cell that it prints too, none lie more than two standard errors from them."
    )


def test_the_ranking_of_the_paper():
    """First: above every other method of the paper. Tied: level with the best of them. Controls do not count."""
    results = [made("bc", size, 0.5) for size in (1, 3, 7)] + [made("bc:decay", size, 0.99) for size in (1, 3, 7)]
    results += [made("edm", 1, 0.6), made("edm", 3, 0.5), made("edm", 7, 0.4), made("edm:paper", 1, 0.1)]
    assert about("The paper's ranking", results) == (
        "The paper's ranking, EDM first: by their means EDM (our default) is first in 1 of 3 cells, tied in 1; "
        "EDM, as printed is first in none of 1 cell, tied in none."
    )
    assert not [s for s in sentences([made("edm")]) if "ranking" in s]  # there is nothing to be first of


def test_an_environment_that_the_paper_does_not_have():
    results = [made(method, environment="Elsewhere-v0") for method in ("bc", "edm")]
    assert not [sentence for sentence in sentences(results) if "paper" in sentence]


def test_what_is_missing_is_said():
    assert "No form of EDM is among these results." in sentences([made("bc")])
    alone = sentences([made("edm")])
    assert alone[0] == "No cell of BC has the same setting, size and runs, so EDM cannot be compared."
    assert sentences([made("edm", 1), made("bc", 3)])[0] == alone[0]
    assert sentences([made("edm", draws=5), made("bc", draws=6)])[0] == alone[0]


def test_cells_with_unlabelled_trajectories_are_another_matter():
    results = [made("bc", 1, 0.5), made("edm", 1, 0.6)]
    more = [made("edm", 1, 0.1, unlabelled=3), made("bc", 1, 0.9, unlabelled=3)]
    assert about("EDM", [*results, *more]) == about("EDM", results)


cells = st.lists(
    st.tuples(st.sampled_from([*NAMES, "bc+x=<b>"]), st.sampled_from([1, 3]), st.integers(0, 3)),
    min_size=1,
    unique=True,
)


@pytest.mark.filterwarnings("error")
@given(cells, st.sampled_from([1, 2, 5]), st.integers(0, 12))
def test_something_true_can_be_said_of_any_results(chosen, draws, score):
    results = [made(m, n, score / 12, draws=draws, initialisations=1, unlabelled=u) for m, n, u in chosen]
    found = sentences(results)
    assert found
    assert all(re.fullmatch(r"[A-Z][^\n]*\.", sentence) for sentence in found)
    assert "nan" not in " ".join(found)
