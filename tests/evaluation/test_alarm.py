"""The alarm for a whole table: silent for data of the same kind, loud for other data, and exact in its bounds."""

import json

import numpy as np
import pytest
from scipy.stats import binom

import probes
from sbil.evaluation import alarm as module
from sbil.evaluation.alarm import moved
from sbil.policy import Policy
from sbil.policy.guard import learned
from sbil.statistics import least_share

NAMES = ("pulse", "oxygen", "count")


def rows(count, seed):
    rng = np.random.default_rng(seed)
    pulse, oxygen = rng.normal(80, 12, count), 0.21 + 0.79 * rng.beta(1, 4, count)
    return np.column_stack([pulse, oxygen, rng.integers(0, 5, count)]).astype(np.float32)


GUARD = learned(rows(4000, 0), np.arange(4000))


def alarm(policy, observations, percentiles, units=None, above=99.0):
    return module.alarm(policy, observations, percentiles, units, above)


POLICY = Policy(probes.network(3, 4, 2), NAMES, ("a", "b"), guard=GUARD)


@pytest.mark.parametrize("count", [1, 5, 40, 3000])
def test_tables_of_the_same_kind_raise_none(count):
    rng = np.random.default_rng(count)
    for seed in range(1, 30):
        found = alarm(POLICY, rows(count, seed), rng.uniform(0, 100, count))
        assert not found.raised, str(found)
        assert found.moved == ()
        assert str(found).startswith("This table is like the training data")


def test_a_column_in_percent_is_named():
    new = rows(200, 1)
    new[:, 1] *= 100
    found = alarm(POLICY, new, np.full(200, 100.0))
    assert found.raised
    assert [column.column for column in found.moved] == ["oxygen"]
    assert found.outside == {"oxygen": 200}
    assert found.moved[0].middle == pytest.approx(100 * found.moved[0].before, rel=0.1)
    assert str(found).startswith("ALARM: this table is unlike the training data: 100.0% of 200 states are flagged")
    assert "outside their range: 'oxygen' 100.0%; moved: 'oxygen' (median " in str(found)
    assert json.loads(json.dumps(found.as_json()))["sentence"] == str(found)


def test_a_shift_inside_the_range_is_found():
    """Every pulse is 20 higher: nearly all are inside the range, and no state is unfamiliar."""
    new = rows(300, 2)
    new[:, 0] += 20
    found = alarm(POLICY, new, np.full(300, 50.0))
    assert found.raised
    assert [column.column for column in found.moved] == ["pulse"]
    assert found.moved[0].share > 0.4


def test_many_unfamiliar_states_raise_it_alone():
    percentiles = np.where(np.arange(400) < 40, 100.0, 50.0)
    found = alarm(POLICY, rows(400, 3), percentiles)
    assert found.raised
    assert (found.flagged, found.expected) == (40, pytest.approx(0.01))
    assert not alarm(POLICY, rows(400, 3), percentiles, above=80).raised
    assert not alarm(POLICY, rows(400, 3), np.where(np.arange(400) < 8, 100.0, 50.0)).raised


def test_states_of_one_episode_count_as_one():
    """A hundred hours of one patient say no more about the table than one hour."""
    patient = np.repeat(rows(1, 5) + np.array([25, 0, 0]), 100, axis=0).astype(np.float32)
    percentiles = np.full(100, 100.0)
    assert alarm(POLICY, patient, percentiles).raised
    assert not alarm(POLICY, patient, percentiles, ["a"] * 100).raised
    assert alarm(POLICY, patient, percentiles, [*"ab"] * 50).raised


def test_columns_are_ordered_and_only_some_are_named():
    wide = learned(np.tile(rows(1000, 0)[:, :1], (1, 8)), np.arange(1000))
    names = tuple("abcdefgh")
    new = rows(500, 1)[:, :1] + 15 + 2 * np.arange(8)
    found = moved(wide, names, new, 500)
    assert [column.column for column in found] == list(reversed(names))
    policy = Policy(probes.network(8, 4, 2), names, ("a", "b"), guard=wide)
    assert "and 3 more" in str(alarm(policy, new, np.full(500, 50.0)))


def test_the_smallest_share_is_exact():
    for hits, count in ((1, 10), (7, 100), (100, 100)):
        share = least_share(hits, count, 0.001)
        assert binom.sf(hits - 1, count, share) == pytest.approx(0.001, rel=1e-6)
    assert least_share(0, 10, 0.001) == 0


def test_many_rows_are_looked_at_in_parts(monkeypatch):
    new = rows(500, 6)
    new[:200, 1] *= 100
    whole = alarm(POLICY, new, np.full(500, 50.0))
    scores = GUARD.beyond(new)
    monkeypatch.setattr(module, "BLOCK", 7)
    monkeypatch.setattr("sbil.policy.guard_measures.BLOCK", 11)
    assert alarm(POLICY, new, np.full(500, 50.0)) == whole
    np.testing.assert_array_equal(GUARD.beyond(new), scores)


def test_no_ranges_and_no_states_say_nothing():
    assert alarm(Policy(probes.network(3, 4, 2), NAMES, ("a", "b")), rows(5, 1), np.zeros(5)) is None
    assert alarm(POLICY, rows(5, 1)[:0], np.zeros(0)) is None
