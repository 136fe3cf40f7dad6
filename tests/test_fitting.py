"""From demonstrations to a policy: what is standardised, what the policy carries, and what does not change it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbil.dataset import make_pool, standardisation_of
from sbil.demonstrations import Column, Demonstrations, Schema, Trajectory
from sbil.demonstrations.fingerprint import twins
from sbil.errors import UserError
from sbil.fitting import fit

RNG = np.random.default_rng(5)
NAMES = ("pulse", "constant", "weight")


def table(scale=(1.0, 1.0, 1.0), shift=(0.0, 0.0, 0.0), schema=True):
    """Ten episodes in which the sign of the first column decides; the second never changes."""
    rng = np.random.default_rng(1)
    trajectories = []
    for _ in range(10):
        states = rng.normal(size=(12, 3))
        states[:, 1] = 2.0
        actions = (states[:, 0] > 0).astype(int)
        trajectories.append(Trajectory((states * scale + shift).astype(np.float32), actions))
    meaning = Schema("treatment", tuple(map(Column, NAMES)), ("no", "yes"), episode="stay")
    return Demonstrations(tuple(trajectories), ("no", "yes"), NAMES, schema=meaning if schema else None)


def rows(demonstrations):
    return demonstrations.flat().observation


def test_the_standardisation_is_the_mean_and_the_deviation_of_the_training_states():
    data = table(scale=(3.0, 1.0, 1e-3), shift=(1e4, 0.0, -5.0))
    mean, scale = standardisation_of(data)
    np.testing.assert_allclose(mean, rows(data).astype(float).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(scale[[0, 2]], rows(data).astype(float).std(axis=0)[[0, 2]], rtol=1e-3)
    assert scale[1] == 1  # a column that never changes is only moved


def test_it_is_that_of_the_steps_that_are_kept():
    data = table()
    kept = np.concatenate([t.observations[1::3] for t in data.trajectories]).astype(float)
    mean, scale = standardisation_of(data, thin=3, thin_offset=1)
    np.testing.assert_allclose(mean, kept.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scale[[0, 2]], kept.std(axis=0)[[0, 2]], rtol=1e-5)


def test_the_pool_holds_standardised_states_and_the_demonstrations_stay_as_they_are():
    data = table(scale=(3.0, 1.0, 7.0), shift=(100.0, 0.0, -5.0))
    before = rows(data).copy()
    seen = np.asarray(make_pool(data, standardisation_of(data)).observations)
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(seen.std(axis=0), [1, 0, 1], atol=1e-4)
    np.testing.assert_array_equal(rows(data), before)


@settings(max_examples=5, deadline=None)
@given(st.floats(-3, 3), st.floats(-50, 50))
def test_units_do_not_matter(power, shift):
    """In grams or kilograms, Celsius or Fahrenheit, the policy decides the same for the same patient."""
    scale = 10.0**power
    plain, other = table(), table(scale=(scale, 1.0, 1.0), shift=(shift * scale, 0.0, 0.0))
    one, two = (fit("bc", data, updates=50) for data in (plain, other))
    np.testing.assert_allclose(one.probabilities(rows(plain)), two.probabilities(rows(other)), atol=5e-3)


def test_tables_are_standardised_and_recordings_of_environments_are_not():
    assert fit("bc", table(), updates=5).standardisation is not None
    assert fit("bc", table(schema=False), updates=5).standardisation is None
    assert fit("bc", table(), updates=5, standardise=False).standardisation is None
    assert fit("bc", table(schema=False), updates=5, standardise=True).standardisation is not None


def test_images_are_not_standardised():
    frames = RNG.integers(0, 256, (13, 36, 36), dtype=np.uint8)
    data = Demonstrations((Trajectory(frames, RNG.integers(0, 2, 12)),), ("no", "yes"), stack=2)
    with pytest.raises(UserError, match="images are not standardised"):
        fit("bc", data, updates=1, standardise=True)


@pytest.mark.parametrize("algorithm", ["bc", "edm"])
def test_a_policy_knows_the_energies_of_its_training_states(algorithm):
    data = table()
    policy = fit(algorithm, data, updates=20)
    energies = policy.energy(rows(data))
    np.testing.assert_allclose(policy.energies[[0, 500, -1]], np.quantile(energies, [0, 0.5, 1]), rtol=1e-5)
    percentiles = policy.percentile(rows(data))
    assert percentiles.max() <= 100
    np.testing.assert_allclose(np.median(percentiles), 50, atol=2)
    assert policy.schema == data.schema


def test_of_very_many_states_some_are_looked_at(monkeypatch):
    data = table()
    policy = fit("bc", data, updates=5)
    everything = policy.energies
    monkeypatch.setattr("sbil.policy.training_states.SEEN", 60)
    some = fit("bc", data, updates=5).energies
    assert abs(np.median(some) - np.median(everything)) < 0.2 * np.ptp(everything)
    assert np.isin(np.round(some[[0, -1]], 4), np.round(policy.energy(rows(data)), 4)).all()


def test_the_schema_goes_with_the_policy_through_its_folder(tmp_path):
    policy = fit("bc", replace(table(), provenance={"source": ["stays.csv"]}), updates=5)
    policy.save(tmp_path / "policy")
    loaded = type(policy).load(tmp_path / "policy")
    assert loaded.schema == policy.schema
    np.testing.assert_array_equal(loaded.probabilities(rows(table())), policy.probabilities(rows(table())))


def test_twins_are_the_same_in_every_value():
    data = table()
    first, *others = data.trajectories
    nearly = replace(first, observations=np.nextafter(first.observations, np.float32(9)))
    decided = replace(first, actions=1 - first.actions)
    assert twins(data, data) == 10
    assert twins(data, replace(data, trajectories=(first, others[3]))) == 2
    assert twins(data, replace(data, trajectories=(nearly, decided))) == 0
