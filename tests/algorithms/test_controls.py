"""The controls, which learn next to nothing; and what each algorithm requires of its data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import probes
from sbil.algorithms import ALGORITHMS, require
from sbil.algorithms.bc import BCConfig, bc
from sbil.algorithms.controls import MajorityConfig, RandomConfig, majority, random
from sbil.dataset import Rows, Spec, make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.training import train_one

DEMONSTRATIONS = probes.demonstrations()
SPEC, DATASET = spec_of(DEMONSTRATIONS), make_dataset(DEMONSTRATIONS)
OBSERVATIONS = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), jnp.float32)
STEPS = np.arange(DEMONSTRATIONS.steps)


@jax.jit
def majority_policy(prior, dataset):
    algorithm = majority(SPEC, MajorityConfig(prior=prior))
    return jax.nn.softmax(algorithm.logits(algorithm.init(jax.random.key(0), dataset), OBSERVATIONS))


@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=20), st.floats(0.1, 10))
def test_majority_is_the_frequency_of_the_actions(rows, prior):
    """(count + prior) / (n + A prior), at every state; the padding after the rows is never counted."""
    padded = np.full(20, STEPS[-1])
    padded[: len(rows)] = rows
    policy = majority_policy(prior, DATASET._replace(labelled=Rows(jnp.asarray(padded), jnp.int32(len(rows)))))
    counts = np.bincount(np.asarray(DATASET.pool.action)[rows], minlength=3)
    expected = (counts + prior) / (len(rows) + 3 * prior)
    np.testing.assert_allclose(policy, np.tile(expected, (5, 1)), rtol=1e-5)
    assert set(np.asarray(policy).argmax(axis=1)) <= set(np.flatnonzero(counts == counts.max()))


def test_an_action_never_taken_keeps_a_probability():
    """Twice "left" and never "right", with a prior of 1: 3/4 and 1/4."""
    pairs = Demonstrations((Trajectory(np.zeros((2, 1), np.float32), np.zeros(2, int)),), ("left", "right"))
    algorithm = majority(Spec((1,), 2), MajorityConfig())
    state, metrics = train_one(algorithm, 2, jax.random.key(0), make_dataset(pairs))
    np.testing.assert_allclose(jax.nn.softmax(algorithm.logits(state, jnp.ones((1, 1)))), [[0.75, 0.25]], rtol=1e-6)
    np.testing.assert_allclose(metrics["policy_loss"], -np.log([0.75, 0.75]), rtol=1e-6)


def test_random_is_the_network_that_bc_starts_from():
    """Its weights are those of BC bit for bit, and an update does not change them."""
    key = jax.random.key(7)
    algorithm = random(SPEC, RandomConfig(hidden=(8, 4)))
    state = algorithm.init(key, DATASET)
    start = bc(SPEC, BCConfig(hidden=(8, 4))).init(key, DATASET).network
    updated = jax.jit(algorithm.update)(jax.random.key(1), state, DATASET)[0]
    for network in (state.network, updated.network):
        jax.tree.map(np.testing.assert_array_equal, network, start)
    np.testing.assert_array_equal(algorithm.logits(state, OBSERVATIONS), start(OBSERVATIONS))
    other = algorithm.init(jax.random.key(8), DATASET).network
    assert np.any(other(OBSERVATIONS) != start(OBSERVATIONS))


def of_steps(lengths, last_state=False, terminal=False):
    """Trajectories of the given lengths."""
    rng = np.random.default_rng(0)
    states = (rng.normal(size=(length + last_state, 2)).astype(np.float32) for length in lengths)
    trajectories = (Trajectory(s, np.zeros(n, int), terminal) for s, n in zip(states, lengths, strict=True))
    return Demonstrations(tuple(trajectories), ("left", "right"))


ONE_HOT = {name for name, entry in ALGORITHMS.items() if entry.needs == "one-hot pairs"}  # refuse all data here


def refused(dataset):
    """The algorithms that refuse the data, each in one line."""
    lines = {}
    for name in set(ALGORITHMS) - ONE_HOT:
        try:
            require(name, dataset)
        except UserError as error:
            lines[name] = str(error)
    for name, line in lines.items():
        assert "\n" not in line
        assert line.startswith(f"{name} needs {ALGORITHMS[name].needs}") or name in WHOLE
        assert f"({', '.join(PAIRS_ONLY)})" in line  # what would do
    return set(lines)


PAIRS_ONLY = [name for name, entry in ALGORITHMS.items() if entry.needs == "pairs"]
NOT_PAIRS = {name for name, entry in ALGORITHMS.items() if "pairs" not in entry.needs} - ONE_HOT
WHOLE = {name for name, entry in ALGORITHMS.items() if entry.needs in ("trajectories", "quadruples")}


def test_the_needs_on_the_list():
    assert {"bc", "edm", "edm_robust", "majority", "random"} <= set(PAIRS_ONLY)
    assert {"dsfn", "avril"} <= WHOLE
    assert {"edm_exact", "edm_metropolis"} == ONE_HOT


@pytest.mark.parametrize(
    ("demonstrations", "expected"),
    [
        pytest.param(probes.demonstrations(), set(), id="whole trajectories"),
        pytest.param(of_steps((2,)), set(), id="two steps, one successor"),
        pytest.param(of_steps((1, 1, 1)), NOT_PAIRS, id="pairs"),
        pytest.param(of_steps((1, 1, 1), last_state=True), WHOLE, id="triples"),
        pytest.param(of_steps((1, 1, 1), terminal=True), WHOLE, id="ends"),
        pytest.param(of_steps((1, 2, 1)), set(), id="one trajectory of two steps"),
    ],
)
def test_what_is_refused(demonstrations, expected):
    dataset = make_dataset(demonstrations)
    assert refused(dataset) == expected
    # Padding repeats the first step, and never counts.
    draws = [np.arange(len(demonstrations))]
    assert refused(make_dataset(demonstrations, draws, capacity=50)) == expected


def test_thinning_to_one_step_a_trajectory():
    whole = of_steps((6, 5, 4))
    in_a_row = {name for name, entry in ALGORITHMS.items() if entry.needs == "quadruples"}
    assert refused(make_dataset(whole, thin=5)) == in_a_row  # steps 0 and 5 of the first
    assert refused(make_dataset(whole, thin=6)) == WHOLE
    assert refused(make_dataset(whole, thin=4, thin_offset=3)) == WHOLE
    assert refused(make_dataset(of_steps((4, 4)), thin=4, thin_offset=3)) == NOT_PAIRS  # last steps only


def test_one_run_among_many_decides():
    """Trajectory 0 is whole, 1 and 2 are single steps; every run's padding repeats the first step of trajectory 0."""
    demonstrations = of_steps((4, 1, 1))
    both, whole, single = np.array([1, 0]), np.array([0]), np.array([1, 2])
    assert refused(make_dataset(demonstrations, [both, whole])) == set()
    assert refused(make_dataset(demonstrations, [both, single, whole])) == NOT_PAIRS
    triples = of_steps((4, 1, 1), last_state=True)
    assert refused(make_dataset(triples, [both, whole])) == set()
    assert refused(make_dataset(triples, [whole, single])) == WHOLE


def test_an_unknown_algorithm_is_named():
    with pytest.raises(UserError, match="dsnf"):
        require("dsnf", DATASET)
