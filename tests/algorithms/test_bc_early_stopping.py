"""Early stopping: the iterate with the least held-out loss, chosen on whole trajectories."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from sbil.algorithms.bc import BCConfig, bc
from sbil.algorithms.bc_early_stopping import BCEarlyStoppingConfig, bc_early_stopping, held_out_loss, split
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations
from sbil.training import pick, train_many

DATA = probes.demonstrations()  # trajectories of 7, 5, 9, 6, 4 and 8 steps
SPEC = spec_of(DATA)
DATASET = make_dataset(DATA, [np.arange(6), np.array([2]), np.array([4, 0])])
KEYS = jax.random.split(jax.random.key(0), 3)
SMALL = {"hidden": (8,), "batch": 16, "learning_rate": 0.03}


def parts(run):
    """The trajectories and the steps in time that a run learns from, and those that it holds out."""
    found = split(probes.run_of(DATASET, run), 5)
    rows = [np.asarray(part.indices)[: int(part.size)] for part in (found.training, found.held_out)]
    pool = DATASET.pool
    return [(set(np.asarray(pool.trajectory)[steps].tolist()), np.asarray(pool.time)[steps].tolist()) for steps in rows]


def test_whole_trajectories_are_held_out():
    training, held_out = parts(0)
    assert training[0] | held_out[0] == set(range(6))
    assert not training[0] & held_out[0]
    assert len(held_out[0]) == 1
    assert len(training[1]) + len(held_out[1]) == 39
    assert [len(part[0]) for part in parts(2)] == [1, 1]


def test_the_last_steps_of_a_single_trajectory_are_held_out():
    training, held_out = parts(1)
    assert training == ({2}, [0, 1, 2, 3, 4, 5, 6, 7])
    assert held_out == ({2}, [8])


def test_a_single_step_is_not_held_out():
    rows = DATASET.labelled._replace(size=jnp.ones(3, jnp.int32))
    found = split(probes.run_of(DATASET._replace(labelled=rows), 0), 5)
    assert found.nothing
    assert found.training.size == 1


def test_without_a_held_out_part_it_is_bc_bit_for_bit():
    ours = BCEarlyStoppingConfig(**SMALL, folds=1, steps=1, rounds=20)
    stopped = train_many(bc_early_stopping, SPEC, ours, DATASET, KEYS, 20).states
    cloned = train_many(bc, SPEC, BCConfig(**SMALL), DATASET, KEYS, 20).states
    probes.assert_same_bits(stopped.network, cloned.network)
    np.testing.assert_array_equal(stopped.stopped_at, 20)


@pytest.fixture(scope="module")
def rounds():
    """The states after each of 12 rounds of 5 steps. Labels are random, so the held-out loss soon rises."""
    make, config = bc_early_stopping, BCEarlyStoppingConfig(**SMALL, steps=5, rounds=11)
    return [train_many(make, SPEC, config, DATASET, KEYS, count, chunk=1).states for count in range(1, 13)]


@pytest.mark.parametrize("run", [0, 1, 2])
def test_the_best_iterate_is_kept(rounds, run):
    states = [pick(state, run) for state in rounds]
    data = probes.run_of(DATASET, run)
    losses = [float(held_out_loss(s.learner.network, s.split.held_out, data)) for s in states[:11]]
    best = int(np.argmin(losses))
    np.testing.assert_allclose(states[-1].best, losses[best], rtol=1e-5)
    assert states[-1].stopped_at == 5 * (best + 1)
    probes.assert_same_bits(states[-1].network, states[best].learner.network)


def test_somebody_stops_before_the_end(rounds):
    assert (np.asarray(rounds[-1].stopped_at) < 55).any()


def test_a_loss_that_falls_throughout_keeps_the_last_iterate():
    """Points on either side of a line, the same in every trajectory: the held-out part is learned as well."""
    (whole,) = probes.separable().trajectories
    same = Demonstrations((whole, whole), ("left", "right"))
    config = BCEarlyStoppingConfig(hidden=(8,), batch=16, learning_rate=0.003, steps=20, rounds=6)
    data = make_dataset(same, [np.arange(2)])
    found = train_many(bc_early_stopping, spec_of(same), config, data, KEYS[:1], 6, chunk=1)
    assert found.states.stopped_at.tolist() == [120]
    assert (np.diff(found.metrics["held_out_loss"][:, 0]) < 0).all()


def test_learning_ends_after_its_rounds(rounds):
    probes.assert_same_bits(rounds[11].learner, rounds[10].learner)
