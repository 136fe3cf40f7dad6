"""The guard: ranges that hide every single value, hold nearly all states, and find what is absurd."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import probes
from sbil.demonstrations import Column, Schema
from sbil.errors import UserError
from sbil.policy import Policy
from sbil.policy.guard import FEW, LEVELS, Guard, learned
from sbil.policy.guard_measures import CENTRES, NAMES, Measure, fitted, in_words, quantiles_of

RNG = np.random.default_rng(7)


def stays(count=300, hours=12):
    """Heart rate, fraction of oxygen, glucose, a sign of 0 or 1, a ward of three codes; rows of a stay are alike."""
    own = RNG.normal(size=(count, 1, 3)) + 0.5 * RNG.normal(size=(count, hours, 3))
    own = own.reshape(-1, 3) / 1.25**0.5
    pulse, oxygen, glucose = (
        80 + 12 * own[:, 0],
        0.21 + 0.79 / (1 + np.exp(2 - own[:, 1])),
        110 * np.exp(0.3 * own[:, 2]),
    )
    sign, ward = RNG.random(len(own)) < 0.02, RNG.integers(0, 3, len(own))
    return np.column_stack([pulse, oxygen, glucose, sign, ward]), np.repeat(np.arange(count), hours)


ROWS, STAYS = stays()
NEW, _ = stays()
CODES = (0, 0, 0, 0, 3)
KNOWN = learned(ROWS, STAYS, CODES)


def changed(column, instead):
    rows = NEW.copy()
    rows[:, column] = instead(rows[:, column])
    return rows


@pytest.mark.parametrize(
    ("column", "instead"),
    [
        *((column, lambda values: np.full_like(values, 99_999)) for column in range(5)),
        *((column, lambda values: np.full_like(values, -99_999)) for column in range(5)),
        (1, lambda values: 100 * values),  # percent
        (2, lambda values: values / 18),  # mmol/l
        (0, lambda values: 0 * values),
        (4, lambda values: values + 0.5),  # between two codes
        (4, lambda values: values + 3),
    ],
)
def test_what_is_absurd_is_outside_and_in_which_column(column, instead):
    found = KNOWN.outside(changed(column, instead))
    assert found[:, column].mean() >= 0.99
    assert found[:, np.arange(5) != column].mean() <= 0.01
    assert (KNOWN.beyond(changed(column, instead)) > 1).mean() >= 0.99


def test_new_states_of_the_same_kind_are_inside():
    assert KNOWN.outside(NEW).any(axis=1).mean() <= 0.02
    assert 0.98 <= KNOWN.inside <= (~KNOWN.outside(ROWS).any(axis=1)).mean()
    assert not KNOWN.outside(NEW)[:, 3:].any()


def test_ranges_and_quantiles_are_in_the_units_of_the_data():
    assert 20 < KNOWN.low[0] < ROWS[:, 0].min() + 8
    assert ROWS[:, 0].max() - 8 < KNOWN.high[0] < 140
    assert (KNOWN.low[3:].tolist(), KNOWN.high[3:].tolist()) == ([0, 0], [1, 2])
    assert KNOWN.low[2] >= 0, "no glucose is negative"
    np.testing.assert_allclose(KNOWN.quantiles[0], np.quantile(ROWS[:, 0], LEVELS), atol=0.5)
    np.testing.assert_allclose(KNOWN.shares[:3], np.tile(LEVELS, (3, 1)), atol=0.02)


@given(st.integers(0, 2**32 - 1), st.sampled_from([40, 150, 1200]), st.floats(1, 1e5), st.floats(-1e3, 1e3))
@settings(max_examples=60, deadline=None)
def test_no_recorded_extreme_can_be_found(seed, count, scale, shift):
    """The value of a single trajectory moves no end of a range, however far out it is.

    Only that no value is negative, or none is positive, is told.
    """
    rng = np.random.default_rng(seed)
    rows, units = rng.standard_t(4, (count, 1)) * scale + shift, np.arange(count)
    guard = learned(rows, units)
    odd = rows.copy()
    odd[rows.argmax()] += abs(rows).max() * 1000 * (rows.max() > 0)
    odd[rows.argmin()] -= abs(rows).max() * 1000 * (rows.min() < 0)
    again = learned(odd, units)
    assert (guard.low, guard.high) == (again.low, again.high)
    assert not np.isin(np.concatenate([guard.low, guard.high]), rows.astype(np.float32)).any()
    assert guard.low <= guard.quantiles[0, 0] <= guard.quantiles[0, -1] <= guard.high
    beyond = np.sort(rows[:, 0])[::-1][FEW - 1], np.sort(rows[:, 0])[FEW - 1]
    assert guard.high >= beyond[0] * (1 - 1e-6 * np.sign(beyond[0]))
    assert guard.low <= beyond[1] * (1 + 1e-6 * np.sign(beyond[1]))


def test_a_long_stay_counts_once():
    """Nine stays of a thousand hours at 500 do not move the end of the range of 400 other stays."""
    rows = np.concatenate([RNG.normal(80, 10, 400), np.full(9000, 500.0)])[:, None]
    units = np.concatenate([np.arange(400), np.repeat(np.arange(400, 409), 1000)])
    assert learned(rows, units).high < 200
    assert learned(rows, np.arange(9400)).high >= 500


def test_a_column_of_which_most_values_are_equal():
    """A laboratory value that was measured in 3 % of the stays, and else filled with its mean."""
    rows, units = np.full((3600, 1), 180.0), np.repeat(np.arange(300), 12)
    measured = np.isin(units, np.arange(0, 300, 33))
    rows[measured, 0] = RNG.normal(180, 40, measured.sum())
    guard = learned(rows, units)
    assert guard.low < 100
    assert guard.high > 260
    assert guard.outside(np.array([[1800.0], [10.0]])).all()
    bounded = np.minimum(rows, 180)  # nothing is above, so nothing is expected there
    assert learned(bounded, units).high == pytest.approx(180, rel=1e-3)


def test_columns_that_do_not_vary():
    rows = np.column_stack([np.full(50, 37.0), np.zeros(50), np.ones(50), np.full(50, -0.1), np.full(50, 1e-40)])
    guard = learned(rows, np.arange(50))
    assert not guard.outside(rows).any()
    other = rows + np.array([1, 2, 1, 1, 1])
    assert guard.outside(other).all()
    assert guard.beyond(rows).max() <= 1
    assert (guard.beyond(other) > 1).all()


@pytest.mark.parametrize("size", [1e30, 3e38, 1e-30])
def test_huge_and_tiny_numbers(size):
    rows = RNG.uniform(-1, 1, (100, 2)) * size
    guard = learned(rows, np.arange(len(rows)))
    assert np.isfinite([guard.low, guard.high]).all()
    assert np.isfinite(guard.beyond(rows)).all()
    assert guard.outside(rows).mean() < 0.2


def test_too_few_states_have_no_guard():
    assert learned(ROWS[:39], STAYS[:39]) is None
    assert isinstance(learned(ROWS[:40], STAYS[:40]), Guard)


def test_small_counts_are_hidden():
    """Nine of a hundred have the sign, three the code 0, and nobody is outside: none of these can be read."""
    sign, code = np.arange(100) < 9, np.where(np.arange(100) < 3, 0, np.arange(100) % 2 + 1)
    guard = learned(np.column_stack([sign, code, RNG.normal(size=100)]), np.arange(100), (0, 3, 0))
    assert set(guard.shares[0].tolist()) <= {0.0, 1.0}
    assert ((guard.shares[1] == 0) | (guard.shares[1] >= np.float32(0.1))).all()
    assert guard.inside <= 0.9


# Measures


def test_no_score_beyond_the_tenth_is_kept():
    for count in (40, 300, 5000):
        scores = RNG.exponential(size=count)
        found = quantiles_of(scores)
        assert (np.diff(found) >= 0).all()
        tail = np.sort(scores)[-9:]
        assert not np.isin(found, tail.astype(np.float32)).any()
        odd = np.where(scores == scores.max(), 1e6, scores)
        np.testing.assert_array_equal(quantiles_of(odd), found)
        exact = np.quantile(scores, np.linspace(0, 1, 1001))
        usual = np.linspace(0, 1, 1001) <= 1 - 10 / count
        np.testing.assert_allclose(found[usual], np.minimum(exact, np.sort(scores)[-10])[usual], rtol=1e-6)
        assert (scores > found[990]).mean() == pytest.approx(0.01, abs=0.03)
    assert (quantiles_of(np.ones(50)) == 1).all()
    assert np.isfinite(quantiles_of(np.full(50, 1e38) * np.arange(50))).all()


@pytest.mark.parametrize("name", ["mahalanobis", "distance"])
def test_measures_of_columns_rise_away_from_the_data(name):
    measure = fitted(name, ROWS)
    real, far = measure.score(NEW), measure.score(NEW + np.array([0, 0, 0, 30, 0]))
    assert (far > real).all()
    assert measure.score(NEW[:0]).shape == (0,)
    measure = replace(measure, scores=np.quantile(real, np.linspace(0, 1, 1001)).astype(np.float32))
    assert measure.percentile(far).min() == 100
    assert abs(measure.percentile(real).mean() - 50) < 1


def test_the_mahalanobis_distance_is_that_of_the_textbook():
    """Up to the ridge of 0.01: a covariance worked out by NumPy."""
    rows = RNG.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 5000)
    inverse = np.linalg.inv(np.cov(rows.T, bias=True) + 0.01 * np.diag(rows.var(axis=0)))
    away = rows - rows.mean(axis=0)
    expected = np.sqrt(np.einsum("ni,ij,nj->n", away, inverse, away))
    np.testing.assert_allclose(fitted("mahalanobis", rows).score(rows), expected, rtol=1e-3, atol=1e-3)


def test_a_centre_is_no_single_state():
    centres = fitted("distance", ROWS).parts["centres"]
    assert 1 < len(centres) <= CENTRES
    scaled = (ROWS - ROWS.mean(axis=0)) / ROWS.std(axis=0)
    nearest = np.array([np.abs(scaled - centre).max(axis=1).min() for centre in centres])
    assert (nearest > 1e-4).all()
    assert fitted("distance", ROWS[:19]) is None
    assert fitted("mahalanobis", np.zeros((30, 300))) is None


def test_a_measure_says_how_it_was_chosen():
    found = {"times 100": 0.9, "absurd": 1.0}
    rates = {
        "range": {"clean": 0.01, "found": found, "area": 0.97},
        "energy": {"clean": 0.01, "found": found, "area": 0.4},
    }
    record = {"states": 500, "held_out": True, "asked": 0.01, "outside": 0.012, "measures": rates}
    words = in_words(Measure("range", record=record))
    assert "Of 500 held-out states it flags 1.0%" in words
    assert "90.0% with a number times 100" in words
    assert "the energy 95.0% (without a fault 1.0%), which is worse than chance" in words
    assert words.count("worse than chance") == 1
    assert "outside its range in 1.2% of these states" in words
    assert in_words(Measure("range")).endswith("no other measure was tried.")
    assert "flag:" not in in_words(Measure("range", record={**record, "measures": {"range": rates["range"]}}))


# In a policy


SCHEMA = Schema(
    "drug",
    (
        Column("pulse", unit="1/min"),
        *map(Column, ("oxygen", "glucose", "sign")),
        Column("ward", "category", ("a", "b", "c")),
    ),
    ("none", "some"),
)


def policy(measure="range"):
    made = replace(fitted(measure, ROWS), scores=np.linspace(0, 1.2, 1001).astype(np.float32))
    guard = replace(KNOWN, measure=made)
    return Policy(probes.network(5, 4, 2), SCHEMA.observation_names, SCHEMA.actions, schema=SCHEMA, guard=guard)


@pytest.mark.parametrize("measure", NAMES)
def test_a_guard_comes_back_from_its_folder(tmp_path, measure):
    made = policy(measure)
    made.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    np.testing.assert_array_equal(loaded.outside(NEW), made.outside(NEW))
    np.testing.assert_array_equal(loaded.unfamiliarity(NEW), made.unfamiliarity(NEW))
    np.testing.assert_array_equal(loaded.percentile(NEW), made.percentile(NEW))
    assert loaded.guard.as_json() == made.guard.as_json()
    assert np.ptp(made.unfamiliarity(NEW)) > 0


def test_one_observation_and_many():
    made = policy()
    rows = changed(2, lambda values: values * 100)
    assert made.outside(rows[0]).tolist() == [False, False, True, False, False]
    assert made.outside_names(rows)[:2] == [("glucose",), ("glucose",)]
    assert made.outside_names(rows[0]) == [("glucose",)]
    assert made.percentile(rows[0]) == made.percentile(rows)[0] == 100
    assert made.unfamiliarity(rows[0]) == pytest.approx(made.unfamiliarity(rows)[0])
    odd = np.where(np.arange(5) < 2, 1e6, NEW[0])
    assert made.outside_names(odd) == [("pulse [1/min]", "oxygen")]
    for name in ("mahalanobis", "probability", "energy"):
        assert policy(name).unfamiliarity(rows[0]).shape == ()


def test_a_policy_without_a_guard_says_so():
    bare = replace(policy(), guard=None)
    with pytest.raises(UserError, match="ranges of its columns; train it again"):
        bare.outside(NEW)
    with pytest.raises(UserError, match="sees 5 numbers"):
        policy().outside(NEW[:, :4])


def test_the_check_needs_no_jax():
    code = "import sys; from sbil.policy.guard import learned; assert not {'jax', 'polars'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)
