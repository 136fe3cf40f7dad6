"""The study of ICU-Sepsis: its exact scores by hand, and a small one from beginning to end."""

from importlib.util import find_spec

import numpy as np
import pytest

from sbil.clinical import icu_sepsis as process
from sbil.environments import icu_sepsis
from sbil.errors import UserError
from studies import icu_sepsis as study

needs_package = pytest.mark.skipif(find_spec("icu_sepsis") is None, reason="icu-sepsis is not installed")

# The scores, worked by hand on a process of three living states.


@pytest.fixture
def small(monkeypatch):
    """From state 0 action 0 leads to 1, action 1 to 2; 1 survives with 3/4, 2 with 1/4; clinicians: 0.8, 1/2, 1/2."""
    transition = np.zeros((5, 2, 5))
    transition[0, 0, 1] = transition[0, 1, 2] = 1
    transition[1, :, 4], transition[1, :, 3] = 0.75, 0.25
    transition[2, :, 4], transition[2, :, 3] = 0.25, 0.75
    policy = np.array([[0.8, 0.2], [0.5, 0.5], [0.5, 0.5], [0, 0], [0, 0]])
    tables = icu_sepsis.Tables(transition, np.array([1.0, 0, 0, 0, 0]), policy)
    for module in (study, process):
        for name, value in {"tables": lambda: tables, "DEATH": 3, "SURVIVAL": 4, "STATES": 5}.items():
            monkeypatch.setattr(module, name, value, raising=False)
    return tables


def test_scores_worked_by_hand(small):
    """Half of the visits are at 0, 0.4 at 1, 0.1 at 2. A policy that is sure by odds of 3 to 1 of action 1 at 0."""
    np.testing.assert_allclose(process.visits(small.clinicians), [1, 0.8, 0.2])
    np.testing.assert_allclose(process.survival(small.clinicians), 0.8 * 0.75 + 0.2 * 0.25)
    logits = np.zeros((5, 2))
    logits[0, 1] = np.log(3)
    found = study.score(logits)
    np.testing.assert_allclose(found["match"], 0.5 * 0.2 + 0.5 * 0.5)
    np.testing.assert_allclose(found["log_loss"], 0.5 * -(0.8 * np.log(0.25) + 0.2 * np.log(0.75)) + 0.5 * np.log(2))
    np.testing.assert_allclose(found["divergence"], 0.5 * (0.8 * np.log(0.8 / 0.25) + 0.2 * np.log(0.2 / 0.75)))
    np.testing.assert_allclose(found["survival"], 0.25 * 0.75 + 0.75 * 0.25)
    np.testing.assert_allclose(found["greedy_survival"], 0.25)
    np.testing.assert_allclose(study.distance(np.array([0.5, 0.3, 0.2, 0, 0])), 0.1)


def test_of_several_likeliest_actions_any_is_taken(small):
    """Always action 0 would match 0.65 of the decisions and save 0.75."""
    found = study.score(np.zeros((5, 2)))
    np.testing.assert_allclose(found["match"], 0.5 * 0.5 + 0.5 * 0.5)
    np.testing.assert_allclose(found["greedy_survival"], 0.5)
    np.testing.assert_array_equal(process.likeliest(np.array([[3, 1, 3], [0, 2, 1]])), [[0.5, 0, 0.5], [0, 1, 0]])


# The study.


def asked(out, **changes):
    return study.Command(**{"out": out, "sizes": (20,), "draws": 2, "methods": ("bc", "edm_exact")} | changes)


def test_what_a_study_refuses(tmp_path):
    for wrong in ({"sizes": ()}, {"sizes": (0,)}, {"draws": 0}, {"methods": ("edm exact",)}):
        with pytest.raises(UserError):
            study.run(asked(tmp_path, **wrong))


@pytest.mark.release
@needs_package
def test_a_small_study(tmp_path, capsys):
    """Two methods from 20 trajectories: both match decisions better than uniform actions do. Nothing is run twice."""
    small = asked(tmp_path, updates=100, episodes=50)
    bc, edm = study.run(small)
    told = capsys.readouterr().out
    assert [line.split(":")[0] for line in told.splitlines()] == [
        *("clinicians", "uniform actions"),
        *(f"{method} n=20 draw {draw}" for method in ("bc", "edm_exact") for draw in range(2)),
    ]
    assert all("survival" in line for line in told.splitlines())
    references = study.references(50)
    uniform = references["uniform actions"]
    assert abs(references["clinicians"]["divergence"]) < 1e-6
    np.testing.assert_allclose(uniform["log_loss"], np.log(25), rtol=1e-6)
    assert all((result.metrics["divergence"] < uniform["divergence"]).all() for result in (bc, edm))
    assert len(set(bc.metrics["log_loss"])) == 2
    assert "states" not in bc.metrics
    assert ((edm.metrics["states"] > 0) & (edm.metrics["states"] < 1)).all()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
    study.run(small)
    assert capsys.readouterr().out == told
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
