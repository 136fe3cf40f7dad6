"""The calibration curve by hand and as scikit-learn's; the temperature against SciPy's minimiser."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.calibration import calibration_curve

from sbil.evaluation import calibration
from sbil.evaluation.calibration import HIGHEST, LOWEST, fit_temperature, reliability
from sbil.evaluation.decided import Decided, softmax
from sbil.evaluation.matching import scores


def loss(logits, actions, temperature):
    scaled = logits / temperature
    return float((logsumexp(scaled, axis=1) - scaled[np.arange(len(scaled)), actions]).mean())


def test_curve_by_hand():
    chance = np.array([0.5, 0.55, 0.95, 1.0])
    d = Decided(np.stack([chance, 1 - chance], axis=1), np.array([0, 1, 0, 0]), np.arange(4))
    first, last = reliability(d, 10)
    assert first == (0.5, 0.6, 2, pytest.approx(0.525), 0.5)
    assert last == (0.9, 1.0, 2, pytest.approx(0.975), 1.0)


def test_curve_is_scikit_learns_and_sums_to_the_expected_error():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], size=500)
    d = Decided(p, rng.integers(3, size=500), np.arange(500))
    rows = reliability(d)
    accuracy, confidence = calibration_curve(d.right, p.max(axis=1), n_bins=15)
    np.testing.assert_allclose([row.accuracy for row in rows], accuracy)
    np.testing.assert_allclose([row.confidence for row in rows], confidence)
    assert sum(row.decisions for row in rows) == 500
    error = sum(row.decisions * abs(row.accuracy - row.confidence) for row in rows) / 500
    assert scores(d)["ece"] == pytest.approx(error)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("chunk", [7, 2**18])
def test_temperature_is_scipys(monkeypatch, temperature, chunk):
    """Actions are drawn at a known temperature. Our search finds it as closely as SciPy does."""
    monkeypatch.setattr(calibration, "CHUNK", chunk)
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(3000, 4)) * 2
    actions = np.array([rng.choice(4, p=p) for p in softmax(logits, temperature)])
    found = fit_temperature(logits, actions)
    best = minimize_scalar(lambda t: loss(logits, actions, np.exp(t)), bounds=(-5, 5), options={"xatol": 1e-10})
    assert found == pytest.approx(np.exp(best.x), rel=1e-5)
    assert found == pytest.approx(temperature, rel=0.15)


@given(st.integers(1, 20), st.integers(2, 4), st.floats(-3, 4), st.integers(0, 1000))
def test_temperature_never_makes_it_worse(rows, actions, scale, seed):
    rng = np.random.default_rng(seed)
    logits, taken = rng.normal(size=(rows, actions)) * 10**scale, rng.integers(actions, size=rows)
    found = fit_temperature(logits, taken)
    assert LOWEST <= found <= HIGHEST
    assert loss(logits, taken, found) <= loss(logits, taken, 1.0) * (1 + 1e-12)
    for other in (LOWEST, 0.2, 0.9, 1.1, 3.0, 50.0, HIGHEST):
        assert loss(logits, taken, found) <= loss(logits, taken, other) + 1e-9 * (1 + abs(loss(logits, taken, other)))


def test_extremes_stay_within_bounds():
    sure = np.array([[5.0, 0.0], [0.0, 5.0]])
    assert fit_temperature(sure, np.array([0, 1])) == pytest.approx(LOWEST)  # all are matched: the most certain
    assert fit_temperature(sure, np.array([1, 0])) == pytest.approx(HIGHEST)  # none is matched: the least certain
    assert fit_temperature(np.zeros((3, 2)), np.array([0, 1, 0])) == 1.0  # all temperatures are equal
    assert fit_temperature(np.float32(sure), np.array([0, 0])) > 1  # single precision is accepted


def test_log_probabilities_will_do_for_logits():
    rng = np.random.default_rng(2)
    logits, taken = rng.normal(size=(200, 3)) * 3, rng.integers(3, size=200)
    assert fit_temperature(np.log(softmax(logits)), taken) == pytest.approx(fit_temperature(logits, taken), rel=1e-9)
