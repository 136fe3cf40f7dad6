"""EDM on finitely many states: its gradient by hand and by differences, its optimum, and its sampled twin."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.stats import chisquare

import probes
from sbil.algorithms import ALGORITHMS, require
from sbil.algorithms.bc import BCConfig, bc, policy_loss
from sbil.algorithms.edm import EDMConfig, edm
from sbil.algorithms.edm_exact import EDMExactConfig, edm_exact, state_loss, table
from sbil.algorithms.edm_metropolis import EDMMetropolisConfig, edm_metropolis, metropolis
from sbil.dataset import Spec, make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.fitting import fit
from sbil.networks import energy, policy_network
from sbil.selection import Candidate, select
from sbil.training import train_one

VISITED = np.array([0, 1, 3])  # of four states
THREE = probes.finite(((3, 1), (2, 4), (1, 5)))
THREE = THREE._replace(observation=THREE.observation @ np.eye(4, dtype=np.float32)[VISITED])
LOGITS = np.log([[1.0, 2.0], [3.0, 4.0], [2.0, 8.0]])  # energies -log 3, -log 7, -log 10: p = 0.15, 0.35, 0.5


def test_state_loss_worked_by_hand():
    """States 0, 0, 1 seen: L_rho = -(2 log 3 + log 7) / 3 + 0.15 log 3 + 0.35 log 7 + 0.5 log 10."""
    network = probes.table(LOGITS)
    p = jax.nn.softmax(-energy(table(network)))
    np.testing.assert_allclose(p, [0.15, 0.35, 0.5], rtol=1e-6)
    loss = state_loss(network, jnp.eye(3)[np.array([0, 0, 1])], p)
    logs = np.log([3, 7, 10])
    np.testing.assert_allclose(loss, np.dot([0.15 - 2 / 3, 0.35 - 1 / 3, 0.5], logs), rtol=1e-5)


def test_gradient_worked_by_hand():
    """dL_rho / df(s)[a] = (p(s) - seen(s)) pi(a|s): with p = 0.15, 0.35, 0.5 and a third of each state seen."""
    network = probes.table(LOGITS)
    p = jax.nn.softmax(-energy(table(network)))
    gradient = jax.grad(state_loss)(network, jnp.eye(3), p).layers[0].weight
    expected = (np.array([0.15, 0.35, 0.5]) - 1 / 3)[:, None] * np.array([[1 / 3, 2 / 3], [3 / 7, 4 / 7], [0.2, 0.8]])
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_gradient_is_that_of_minus_log_p_by_differences():
    """With hidden layers: -mean log p(s), normalised over all states, differenced along every parameter."""
    seen = np.array([0, 1, 1, 3])
    with jax.enable_x64(True):
        network = probes.network(4, 5, 2)
        numbers, network_of = ravel_pytree(network)

        def likelihood(numbers):
            return -jax.nn.log_softmax(-energy(network_of(numbers)(jnp.eye(4))))[seen].mean()

        steps = 1e-5 * jnp.eye(len(numbers))
        differences = jax.jit(jax.vmap(lambda step: likelihood(numbers + step) - likelihood(numbers - step)))(steps)
        p = jax.nn.softmax(-energy(table(network)))
        gradient, _ = ravel_pytree(jax.grad(state_loss)(network, jnp.eye(4)[seen], p))
    np.testing.assert_allclose(gradient, np.asarray(differences) / 2e-5, atol=1e-8)
    assert np.abs(gradient).max() > 0.01


@pytest.mark.parametrize("hidden", [(), (6,), (6, 5)])
def test_table_is_the_network_at_every_unit_vector(hidden):
    network = policy_network(jax.random.key(0), spec_of(THREE.demonstrations), hidden)
    np.testing.assert_allclose(table(network), network(jnp.eye(4)), atol=1e-6)


def run(make, config, demonstrations, updates, key=7):
    """(network, metrics of every update)."""
    algorithm, dataset = make(spec_of(demonstrations), config), make_dataset(demonstrations)
    state, metrics = jax.jit(lambda key: train_one(algorithm, updates, key, dataset))(jax.random.key(key))
    return state.network, metrics


# Minibatches so large that their noise stays below the tolerance.
LEARN = {"hidden": (), "batch": 512, "learning_rate": 0.02}
UPDATES = 500


@pytest.fixture(scope="module")
def learned():
    """An unrestricted table that has learned the four states."""
    return run(edm_exact, EDMExactConfig(**LEARN), THREE.demonstrations, UPDATES)


def test_unrestricted_optimum_is_the_empirical_law_and_bc(learned):
    """On visited states p(s) and pi(a|s) are the frequencies in the data, as in BC; other states have p(s) = 0."""
    network, metrics = learned
    p = np.asarray(jax.nn.softmax(-energy(table(network))))
    np.testing.assert_allclose(p[VISITED], THREE.frequency, atol=0.01)
    assert p[2] < 0.01  # on its way to 0, as one over the number of updates
    policy = jax.nn.softmax(table(network))
    np.testing.assert_allclose(policy[VISITED], THREE.policy, atol=0.02)
    cloned, _ = run(bc, BCConfig(**LEARN), THREE.demonstrations, UPDATES)
    np.testing.assert_allclose(jax.nn.softmax(table(cloned))[VISITED], policy[VISITED], atol=0.02)
    entropy = -(THREE.frequency * np.log(THREE.frequency)).sum()
    np.testing.assert_allclose(metrics["state_loss"][-100:].mean(), entropy, atol=0.01)


def test_weight_zero_is_behavioural_cloning():
    settings = {"hidden": (6,), "batch": 8}
    network, _ = run(edm_exact, EDMExactConfig(weight=0.0, **settings), THREE.demonstrations, 5)
    expected, _ = run(bc, BCConfig(**settings), THREE.demonstrations, 5)
    for ours, theirs in zip(jax.tree.leaves(network), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_state_term_flattens_the_policy_where_nothing_was_seen():
    """dL_rho / df(s)[a] = p(s) pi(a|s) there: larger logits fall faster. BC leaves such a state as it began."""
    start = policy_network(jax.random.key(0), spec_of(THREE.demonstrations), ())
    gradient = jax.grad(state_loss)(start, jnp.eye(4)[np.array([0, 1, 3])], jax.nn.softmax(-energy(table(start))))
    falls, policy = gradient.layers[0].weight[2], jax.nn.softmax(table(start))[2]
    np.testing.assert_allclose(falls / falls.sum(), policy, rtol=1e-5)
    assert falls.min() > 0


# The sampled twin

ENERGIES = np.array([0.3, -1.2, 0.8, -0.4, 1.5])
LAW = np.exp(-ENERGIES) / np.exp(-ENERGIES).sum()


def moved(key, here, length):
    """Where chains that stand at `here` are after some steps under ENERGIES."""
    return metropolis(key, jnp.asarray(ENERGIES), here, length)


def test_stationary_law_is_p():
    """40,000 chains, from one state: after 60 steps the frequencies are those of exp(-E) / Z (chi-squared)."""
    ends = moved(jax.random.key(0), jnp.zeros(40_000, int), 60)
    counts = np.bincount(ends, minlength=5)
    assert chisquare(counts, 40_000 * LAW).pvalue > 0.001
    early = np.bincount(moved(jax.random.key(0), jnp.zeros(40_000, int), 1), minlength=5)
    assert chisquare(early, 40_000 * LAW).pvalue < 1e-9  # what the test can tell apart


def test_one_step_has_the_probabilities_of_metropolis():
    """From state 0 of five: to s with 1/5 min(1, exp(E(0) - E(s)))."""
    ends = np.bincount(moved(jax.random.key(1), jnp.zeros(50_000, int), 1), minlength=5)
    moves = np.minimum(1, np.exp(ENERGIES[0] - ENERGIES)) / 5
    moves[0] = 1 - moves[1:].sum()
    assert chisquare(ends, 50_000 * moves).pvalue > 0.001


def test_detailed_balance():
    """A state drawn from p and moved one step gives (s, t) as often as (t, s)."""
    here = jax.random.categorical(jax.random.key(2), -ENERGIES, shape=(200_000,))
    there = moved(jax.random.key(3), here, 1)
    pairs = np.zeros((5, 5))
    np.add.at(pairs, (np.asarray(here), np.asarray(there)), 1)
    above = np.triu_indices(5, 1)
    difference = (pairs - pairs.T)[above] / np.sqrt((pairs + pairs.T)[above])
    assert np.abs(difference).max() < 4


def test_gradient_nears_the_exact_one_as_chains_lengthen():
    """The mean over 20,000 chains from one state: the error falls with the length, down to what chance leaves."""
    network = probes.network(5, 6, 3, seed=2)
    network = jax.tree.map(lambda leaf: 2.0 * leaf.astype(jnp.float32), network)
    energies = energy(table(network))
    seen = jnp.eye(5)[np.array([0, 3])]
    gradient = jax.jit(jax.grad(state_loss))
    exact = gradient(network, seen, jax.nn.softmax(-energies))

    def error(length):
        ends = metropolis(jax.random.key(length), energies, jnp.full(20_000, int(energies.argmax())), length)
        found = gradient(network, seen, jnp.bincount(ends, length=5) / len(ends))
        differences = jax.tree.map(lambda one, other: ((one - other) ** 2).sum(), found, exact)
        return float(np.sqrt(sum(jax.tree.leaves(differences))))

    size = float(np.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(exact))))
    errors = [error(length) / size for length in (1, 5, 60)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[0] > 0.2
    assert errors[2] < 0.03


def test_twin_learns_what_the_exact_form_learns(learned):
    config = EDMMetropolisConfig(**LEARN, chains=512, chain_length=3)
    network, metrics = run(edm_metropolis, config, THREE.demonstrations, UPDATES)
    exact, _ = learned
    np.testing.assert_allclose(
        jax.nn.softmax(-energy(table(network))), jax.nn.softmax(-energy(table(exact))), atol=0.015
    )
    np.testing.assert_allclose(jax.nn.softmax(table(network))[VISITED], THREE.policy, atol=0.02)
    assert np.abs(metrics["energy_gap"][-200:]).mean() < 0.05


def test_chains_persist_and_stay_in_the_state_space():
    algorithm = edm_metropolis(spec_of(THREE.demonstrations), EDMMetropolisConfig(hidden=(), chains=50, chain_length=1))
    dataset = make_dataset(THREE.demonstrations)
    before = jax.jit(algorithm.init)(jax.random.key(0), dataset)
    after, _ = jax.jit(algorithm.update)(jax.random.key(1), before, dataset)
    assert set(np.unique(before.chains)) == {0, 1, 2, 3}
    assert ((after.chains >= 0) & (after.chains < 4)).all()
    assert (after.chains == before.chains).any()
    assert (after.chains != before.chains).any()


def test_samples_of_langevin_are_not_states():
    """The samples of `edm` on such data lie between and beyond the states: almost none is near a unit vector."""
    algorithm, dataset = edm(spec_of(THREE.demonstrations), EDMConfig(hidden=(8,))), make_dataset(THREE.demonstrations)
    state, _ = jax.jit(lambda key: train_one(algorithm, 200, key, dataset))(jax.random.key(0))
    distance = np.abs(np.asarray(state.buffer)[:, None] - np.eye(4)).max(axis=-1).min(axis=-1)
    assert (distance < 0.2).mean() < 0.03
    assert np.median(distance) > 0.4


def test_settings_of_one_hot_data_can_be_chosen():
    dataset = make_dataset(THREE.demonstrations, [np.arange(16)])
    configs = [EDMExactConfig(hidden=(), weight=weight) for weight in (0.0, 1.0)]
    candidates = [Candidate("edm_exact", config, 5) for config in configs]
    found = select(spec_of(THREE.demonstrations), candidates, dataset, jax.random.split(jax.random.key(0), 1))
    assert np.isfinite(found.losses).all()
    assert found.losses[0, 0] != found.losses[0, 1]


# What is refused

ONE_HOT = [name for name, entry in ALGORITHMS.items() if entry.needs == "one-hot pairs"]


def of_states(states):
    return Demonstrations((Trajectory(np.asarray(states, np.float32), np.zeros(len(states), np.int32)),), ("a", "b"))


@pytest.mark.parametrize("name", ONE_HOT)
@pytest.mark.parametrize(
    "states",
    [
        [[1, 0, 0], [0, 1, 1]],
        [[1, 0, 0], [0, 0, 0]],
        [[1, 0, 0], [0, 2, 0]],
        [[1, 0, 0], [2, -1, 0]],
        [[1, 0, 0], [0, 0.5, 0.5]],
        [[0.3, 1.2, 7.0]],
    ],
)
def test_states_that_are_not_one_hot_are_refused_in_a_line(name, states):
    with pytest.raises(UserError, match=f"^{name} needs one-hot pairs") as raised:
        fit(name, of_states(states), updates=1)
    assert "\n" not in str(raised.value)
    assert "edm" in str(raised.value)


@pytest.mark.parametrize("name", ONE_HOT)
def test_one_hot_states_are_taken(name):
    require(name, make_dataset(of_states(np.eye(3))))
    require(name, make_dataset(THREE.demonstrations, [np.array([0]), np.array([3, 4])], capacity=9))


def test_states_without_decisions_must_be_one_hot_too():
    good, bad = of_states(np.eye(3)).trajectories[0], of_states([[0, 2, 0]]).trajectories[0]
    dataset = make_dataset(Demonstrations((good, bad), ("a", "b")), [np.array([0])], unlabelled=[np.array([1])])
    with pytest.raises(UserError, match="one-hot"):
        require("edm_exact", dataset)
    require("edm_exact", make_dataset(Demonstrations((good, bad), ("a", "b")), [np.array([0])]))


def test_images_are_refused():
    with pytest.raises(UserError, match="Got images"):
        edm_exact(Spec((36, 36, 2), 2), EDMExactConfig())


def test_fit_gives_a_policy():
    policy = fit("edm_exact", THREE.demonstrations, preset="table", updates=5)
    assert policy.probabilities(np.eye(4)).shape == (4, 2)


# The class in which EDM's policy stays wrong: examples/restricted_class.py, docs/exact_edm.md

EXAMPLE = Path(__file__).parents[2] / "examples" / "restricted_class.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("restricted_class", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def restricted(t):
    """f(A) = (0, t), f(B) = (t, t)."""
    return probes.table(jnp.array([[0.0, 1.0], [1.0, 1.0]]) * t)


@pytest.mark.parametrize("counts", [(4, 6, 1), (360, 540, 100), (5, 2, 9)])
def test_estimates_of_the_example_are_the_optima_of_the_losses(example, counts):
    """In the class, EDM's and BC's losses of this package have slope 0 where the example says, from its counts."""
    state, action = np.repeat([0, 0, 1], counts), np.repeat([0, 1, 0], counts)
    batch = probes.transitions(np.eye(2, dtype=np.float32)[state], action.astype(np.int32))

    def edm_loss(t):
        network = restricted(t)
        p = jax.nn.softmax(-energy(table(network)))
        return policy_loss(network, batch) + state_loss(network, batch.observation, p)

    def bc_loss(t):
        return policy_loss(restricted(t), batch)

    for loss, estimate in ((edm_loss, example.edm), (bc_loss, example.bc)):
        found = float(estimate(*map(np.array, counts)))
        t = np.log(found / (1 - found))
        assert abs(jax.grad(loss)(t)) < 1e-5
        assert jax.grad(loss)(t - 0.1) < -1e-3 < 1e-3 < jax.grad(loss)(t + 0.1)


def test_limits_of_the_example(example):
    np.testing.assert_allclose(example.limit(1 / 10), 16 / 43)
    np.testing.assert_allclose(example.limit(6 / 11), 3 / 5)
    np.testing.assert_allclose(example.limit(0), 1 / 3)


def test_the_error_stays_in_the_restricted_class(example):
    """BC's falls as one over the root of the decisions; EDM's stays at 3/5 - 16/43, and prefers the wrong action."""
    found = example.errors(1 / 10, (100, 10_000, 1_000_000), 300)
    bc_error, edm_error = np.median(found["BC"], axis=1), np.median(found["EDM"], axis=1)
    np.testing.assert_allclose(bc_error[:-1] / bc_error[1:], 10, rtol=0.4)
    np.testing.assert_allclose(edm_error, 3 / 5 - 16 / 43, rtol=0.1)
    assert (found["EDM"][-1] > 0.1).all()


def test_where_the_states_fit_edm_is_the_more_precise(example):
    """At q = 6/11 both are consistent; their variances are as 6/55 to 18/121, the information on t."""
    found = example.errors(6 / 11, (10_000,), 4000)
    ratio = (found["EDM"][0] ** 2).mean() / (found["BC"][0] ** 2).mean()
    np.testing.assert_allclose(ratio, (6 / 55) / (18 / 121), rtol=0.1)


def test_the_example_runs(example, tmp_path, capsys):
    example.main(["--out", str(tmp_path / "figure.png"), "--repeats", "20", "--largest", "1000"])
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert "limit   0.0000   0.2279" in capsys.readouterr().out
