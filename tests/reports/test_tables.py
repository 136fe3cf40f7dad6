"""Tables and figures of hand-made results."""

import numpy as np
import pytest

from sbil import environments
from sbil.experiments import Cell, Method, Result
from sbil.reports import figures, paper, tables


def result(method: str, size: int, scores: np.ndarray, diverged: int = 0) -> Result:
    """A result on CartPole whose runs score what is wanted."""
    draws, initialisations = scores.shape
    cell = Cell("CartPole-v1", "ppo", "sampled", 20, Method.parse(method), size, draws, initialisations, episodes=2)
    low, high = environments.scale("CartPole-v1", "ppo", "sampled")
    returns = low + scores.reshape(-1, 1) * (high - low) + np.array([-1.0, 1.0])
    diverged_at = np.where(np.arange(scores.size) < diverged, 500, -1)
    return Result(cell, returns, diverged_at, {}, {"training": 1.0, "evaluation": 1.0})


@pytest.fixture
def results() -> list[Result]:
    base = np.linspace(0.2, 0.8, 12).reshape(6, 2)
    return [
        result("bc", 1, base),
        result("bc", 3, base + 0.1),
        result("edm", 1, base + 0.1),
        result("edm", 3, base - 0.2, diverged=3),
    ]


def test_scores_are_scaled_returns(results):
    np.testing.assert_allclose(results[0].scores, np.linspace(0.2, 0.8, 12).reshape(6, 2), atol=1e-6)


def test_differences_are_paired(results):
    rows = {row["size"]: row for row in tables.differences(results)}
    # Each run differs from its partner by the same amount, so the interval has no width.
    assert (rows[1]["mean"], rows[1]["low"], rows[1]["high"]) == pytest.approx((0.1, 0.1, 0.1))
    assert (rows[3]["mean"], rows[3]["low"], rows[3]["high"]) == pytest.approx((-0.3, -0.3, -0.3))
    assert tables.verdict(rows[1]) == "above"
    assert tables.verdict(rows[3]) == "below"
    assert tables.verdict({"draws": 2, "low": 1, "high": 2, "p": 0.01}).startswith("too few")
    assert tables.verdict({"draws": 9, "low": -1, "high": 2, "p": 0.01}) == "no clear difference"
    assert tables.verdict({"draws": 9, "low": 1, "high": 2, "p": 0.06}) == "no clear difference"


def test_diverged_runs_are_shown(results):
    text = tables.markdown(results)
    assert "(3 of 12 diverged)" in text
    assert text.count("diverged") == 1
    assert "| bc | 0.500 ± 0.057 | 0.600 ± 0.057 |" in text
    assert [row["diverged"] for row in tables.rows(results)] == [0, 0, 0, 3]


def test_a_losing_cell_is_printed_like_the_others(results):
    assert "0.300" in tables.markdown(results)


def test_rows_of_runs(results):
    rows = tables.run_rows(results)
    assert len(rows) == 48
    assert rows[13] == {
        "environment": "CartPole-v1",
        "demonstrator": "ppo",
        "mode": "sampled",
        "thin": 20,
        "method": "bc",
        "size": 3,
        "draw": 0,
        "initialisation": 1,
        "return": pytest.approx(results[1].returns[1].mean(), abs=1e-3),
        "score": pytest.approx(0.2 + 0.6 / 11 + 0.1, abs=1e-5),
        "diverged_at": -1,
        "chosen": "",
    }
    assert tables.csv_text(rows).count("\n") == 49


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_figures_are_whole_and_byte_stable(results, tmp_path, kind):
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for name in ("a", "b"):
        figures.write(figures.against_size(results), tmp_path / f"{name}.{kind}")
    content = (tmp_path / f"a.{kind}").read_bytes()
    assert content.startswith(starts[kind])
    assert content == (tmp_path / f"b.{kind}").read_bytes()


def test_the_figure_draws_every_method_and_size(results):
    (panel,) = figures.against_size(results).axes
    assert [label.get_text() for label in panel.get_xticklabels()] == ["1", "3"]
    assert panel.get_legend_handles_labels()[1] == ["bc", "edm"]
    means = [container.lines[0].get_ydata() for container in panel.containers]
    np.testing.assert_allclose(np.array(means, float), [[0.5, 0.6], [0.6, 0.3]], atol=1e-6)


def test_runs_that_all_score_alike_can_be_drawn():
    """Rounding may put the ends of their interval on the wrong side of the mean."""
    alike = [result("random", size, np.full((6, 2), score)) for size, score in ((1, -0.1 / 3), (3, 0.7), (7, 1 / 3))]
    assert figures.against_size(alike).axes


def test_cells_are_told_apart_from_the_printed_ones():
    """The paper prints 0.321 ± 0.026 for BC from one CartPole trajectory, and nothing for two."""
    spread = np.array([[-0.05, 0.05]] * 5)  # a standard error of 0.0167; with the paper's, two are 0.062
    assert paper.printed("CartPole-v1", 1, "bc") == (0.321, 0.026)
    assert not paper.differs(result("bc", 1, 0.321 + 0.06 + spread))
    assert paper.differs(result("bc", 1, 0.321 + 0.064 + spread))
    assert paper.differs(result("bc", 1, 0.321 - 0.064 + spread))
    assert paper.printed("CartPole-v1", 2, "bc") is None
    assert not paper.differs(result("bc", 2, spread))
    assert not paper.differs(result("majority", 1, spread))
    every = [
        paper.printed(task, n, m) for task in ("CartPole-v1", "Acrobot-v1") for n in (1, 15) for m in paper.METHODS
    ]
    assert None not in every
