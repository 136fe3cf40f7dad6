"""ValueDICE, drawn and exact: the saddle point on a finite problem whose every number is known, and its parts."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

import probes
from sbil.algorithms.value_dice import (
    ValueDICEConfig,
    gradient_penalty,
    gumbel_softmax,
    objective,
    orthogonality,
    share_of_endings,
    triples,
    value_dice,
)
from sbil.algorithms.value_dice_exact import ValueDICEExactConfig, nu, value_dice_exact
from sbil.dataset import Pool, make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.networks import MLP, Dense, Scaling
from sbil.training import train_one

STATES, ACTIONS, DISCOUNT = 5, 3, 0.9
BOTH = [(value_dice, ValueDICEConfig), (value_dice_exact, ValueDICEExactConfig)]
both = pytest.mark.parametrize(("make", "settings"), BOTH, ids=["drawn", "exact"])

_rng = np.random.default_rng(0)
DYNAMICS = _rng.dirichlet(np.ones(STATES), (STATES, ACTIONS))  # [s, a, s']
START = _rng.dirichlet(np.ones(STATES))
EXPERT, POLICY = (_rng.dirichlet(np.full(ACTIONS, 2.0), STATES) for _ in range(2))  # [s, a]; the demonstrator, another


def occupancy(policy):
    """d(s, a) = (1 - discount) sum_t discount^t Pr(s_t = s, a_t = a)."""
    chain = jnp.einsum("sa,sat->st", policy, DYNAMICS)
    states = jnp.linalg.solve(jnp.eye(STATES) - DISCOUNT * chain.T, (1 - DISCOUNT) * START)
    return states[:, None] * policy


def differences(policy):
    """The matrix that makes nu - discount E nu(s', a') of nu, both as one long row."""
    after = jnp.einsum("sat,tb->satb", DYNAMICS, policy).reshape(STATES * ACTIONS, -1)
    return jnp.eye(STATES * ACTIONS) - DISCOUNT * after


def exact(table, policy, start, demonstrated):
    """The objective with all expectations exact."""
    critic = probes.table(table)
    state, action = np.indices(table.shape).reshape(2, -1)
    values = nu(critic, np.eye(STATES), policy)
    here = nu(critic, np.eye(STATES)[state], np.eye(ACTIONS)[action])
    difference = here - DISCOUNT * DYNAMICS.reshape(-1, STATES) @ values
    return objective(difference, values, DISCOUNT, demonstrated.ravel(), start)


def drawn(table, policy, start, demonstrated):
    """The objective with s' and a' drawn, as in minibatches: one row for each s, a, s', a'."""
    critic = probes.table(table)
    rows = np.indices((STATES, ACTIONS, STATES, ACTIONS)).reshape(4, -1)
    here, after = (nu(critic, np.eye(STATES)[s], np.eye(ACTIONS)[a]) for s, a in (rows[:2], rows[2:]))
    weight = demonstrated[:, :, None, None] * DYNAMICS[..., None] * policy
    first_weight = (start[:, None] * policy).ravel()
    return objective(here - DISCOUNT * after, table.ravel(), DISCOUNT, weight.ravel(), first_weight)


SLOPES = {each: jax.jit(jax.value_and_grad(each)) for each in (exact, drawn)}


def best(function, *args):
    """(place, value) of the minimum over tables of a function that gives (value, slope)."""

    def of(flat):
        value, slope = function(jnp.asarray(flat.reshape(STATES, ACTIONS)), *args)
        return float(value), np.asarray(slope).ravel()

    found = minimize(of, np.zeros(STATES * ACTIONS), jac=True, method="BFGS", options={"gtol": 1e-9})
    return found.x.reshape(STATES, ACTIONS), found.fun


def test_smallest_value_is_minus_the_divergence():
    """V1: and there nu - discount E nu(s', a') is the log ratio, but for a constant."""
    with jax.enable_x64(True):
        ours, theirs = (np.asarray(occupancy(policy)) for policy in (POLICY, EXPERT))
        table, value = best(SLOPES[exact], POLICY, START, theirs)
        found = np.asarray(differences(POLICY)) @ table.ravel()
    ratio = np.log(ours / theirs)
    np.testing.assert_allclose(value, [-(ours * ratio).sum(), -0.192242522466], atol=1e-10)
    assert np.ptp(found - ratio.ravel()) < 1e-6 < 0.1 < np.ptp(ratio)


def test_drawn_successors_inside_the_exponential_raise_the_smallest_value():
    """V1: the single-sample objective is too high at another policy, and right at the demonstrator's."""
    with jax.enable_x64(True):
        theirs = occupancy(EXPERT)
        _, other = best(SLOPES[drawn], POLICY, START, theirs)
        same = [best(slope, EXPERT, START, theirs)[1] for slope in SLOPES.values()]
    np.testing.assert_allclose(other, -0.10125471, atol=1e-7)
    np.testing.assert_allclose(same, 0, atol=1e-10)


def test_demonstrated_states_as_initial_ones():
    """V2: correct if the data are stationary; with discounted data even the demonstrator seems wrong."""
    stationary = np.linalg.matrix_power(np.einsum("sa,sat->st", EXPERT, DYNAMICS), 1_000)[0]
    with jax.enable_x64(True):
        _, right = best(SLOPES[exact], EXPERT, stationary, stationary[:, None] * EXPERT)
        theirs = occupancy(EXPERT)
        _, wrong = best(SLOPES[exact], EXPERT, theirs.sum(1), theirs)
    np.testing.assert_allclose(right, 0, atol=1e-10)
    np.testing.assert_allclose(wrong, -0.00538342, atol=1e-7)


def test_best_policy_of_the_saddle_point_is_the_demonstrators():
    """V6: climbing on the objective at the nu that minimises it, known from V1, from the uniform policy."""

    def minus(logits):
        policy, theirs = jax.nn.softmax(logits), occupancy(EXPERT)
        table = jnp.linalg.solve(differences(policy), jnp.log(occupancy(policy) / theirs).ravel())
        # The slope of a minimum is that of the function at its place.
        return -exact(jax.lax.stop_gradient(table.reshape(STATES, ACTIONS)), policy, START, theirs)

    with jax.enable_x64(True):
        logits, value = best(jax.jit(jax.value_and_grad(minus)))
    np.testing.assert_allclose(softmax(logits, axis=1), EXPERT, atol=1e-6)
    np.testing.assert_allclose(value, 0, atol=1e-10)


def test_a_constant_added_to_nu_changes_nothing():
    """V3."""
    with jax.enable_x64(True):
        table, theirs = jnp.asarray(np.random.default_rng(1).normal(size=(STATES, ACTIONS))), occupancy(EXPERT)
        for slope in SLOPES.values():
            one, other = (slope(table + c, POLICY, START, theirs)[0] for c in (0.0, 2.5))
            np.testing.assert_allclose(one, other, atol=1e-13)


def test_objective_has_the_gradient_of_the_surrogate():
    """V4: sum_i stop(softmax D)_i D_i, as in the released code."""

    def surrogate(difference, first):
        return jax.lax.stop_gradient(jax.nn.softmax(difference)) @ difference - (1 - 0.7) * first.mean()

    with jax.enable_x64(True):
        difference, first = jnp.asarray(np.random.default_rng(2).normal(size=(2, 8)))
        ours = jax.jit(jax.grad(objective, argnums=(0, 1)))(difference, first, 0.7)
        theirs = jax.jit(jax.grad(surrogate, argnums=(0, 1)))(difference, first)
    np.testing.assert_allclose(ours, theirs, atol=1e-15)


def test_draws_have_the_frequencies_of_the_policy():
    """V5: 40,000 draws, four standard deviations; the colder, the nearer to a corner."""
    frequency = np.array([0.5, 0.3, 0.2])
    logits = jnp.broadcast_to(jnp.log(frequency), (40_000, 3))
    program = jax.jit(lambda temperature: gumbel_softmax(jax.random.key(3), logits, temperature, False))
    cold, warm, hot = (np.asarray(program(temperature)) for temperature in (0.1, 1.0, 3.0))
    for draws in (cold, warm, hot):
        np.testing.assert_allclose(np.bincount(draws.argmax(1)) / len(draws), frequency, atol=0.01)
        np.testing.assert_allclose(draws.sum(1), 1, atol=1e-5)
        assert 0 <= draws.min() < draws.max() <= 1
    assert cold.max(1).mean() > 0.1 + warm.max(1).mean() > 0.2 + hot.max(1).mean()


def test_straight_through_draws_are_corners_with_the_gradient_of_the_soft_ones():
    """V5."""
    logits, mark = jnp.asarray(np.random.default_rng(4).normal(size=(2, 6, 3)), jnp.float32)

    def valued(logits, straight_through):
        draws = gumbel_softmax(jax.random.key(5), logits, 0.7, straight_through)
        return (mark * draws).sum(), draws

    slope = jax.jit(jax.grad(valued, has_aux=True), static_argnums=1)
    (soft, relaxed), (hard, corners) = slope(logits, False), slope(logits, True)
    np.testing.assert_allclose(soft, hard, atol=1e-6)
    np.testing.assert_allclose(corners, np.eye(3)[np.asarray(relaxed).argmax(1)], atol=1e-6)
    assert relaxed.max() < 1 < 100 * np.abs(soft).max()


def test_orthogonality_worked_by_hand():
    """V7: 0 where columns are orthogonal, of whatever length; a pair of columns counts twice, biases never."""
    straight = Dense(jnp.array([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]]), jnp.array([5.0, 7.0]))
    skew = Dense(jnp.array([[1.0, 1.0], [2.0, 0.0]]), jnp.array([9.0, 9.0]))  # columns (1, 2) and (1, 0): product 1
    wide = Dense(jnp.array([[1.0, 2.0, 3.0]]), jnp.zeros(3))  # products 2, 3, 6
    for layers, expected in [((straight, straight), 0), ((straight, skew), 2), ((skew, wide), 2 + 2 * (4 + 9 + 36))]:
        assert jax.jit(orthogonality)(MLP(layers, "relu")) == expected


def test_gradient_penalty_worked_by_hand():
    """Slopes of length 5, 1 and 0. The gradient is finite at slope 0 too."""
    slopes = jnp.array([[3.0, 4.0], [0.6, -0.8], [0.0, 0.0]])
    value, gradient = jax.jit(jax.value_and_grad(gradient_penalty))(slopes)
    np.testing.assert_allclose(value, (16 + 0 + 1) / 3, rtol=1e-5)
    np.testing.assert_allclose(gradient, [[2 * 4 * 0.6 / 3, 2 * 4 * 0.8 / 3], [0, 0], [0, 0]], atol=1e-6)


def moments(state):
    """The gradients of an algorithm's first update: Adam's first moments are a tenth of them."""
    optimisers = state.actor_optimiser, state.critic_optimiser
    return [jax.tree.map(lambda m: 10 * m, optax.tree_utils.tree_get(each, "mu")) for each in optimisers]


@both
def test_weight_of_the_gradient_penalty(make, settings):
    """By hand: a linear nu of slope w has the gradient 2 (|w| - 1) w / |w|, and a finite one at w = 0."""
    demonstrations = probes.demonstrations()

    @jax.jit
    def gradient(weight, size, dataset):
        algorithm = make(spec_of(demonstrations), settings(hidden=(), batch=8, gradient_penalty=weight))
        state = algorithm.init(jax.random.key(0), dataset)
        (layer,) = state.critic.layers
        # The exact version has one column per action. With equal columns, every mix of actions has the same slope.
        slope = jnp.broadcast_to(size * jnp.arange(1.0, 1.0 + len(layer.weight))[:, None], layer.weight.shape)
        state = state._replace(critic=MLP((Dense(slope, layer.bias),), "relu"))
        after, _ = algorithm.update(jax.random.key(1), state, dataset)
        return slope[:, 0], moments(after)[1].layers[0].weight.sum(1)

    dataset = make_dataset(demonstrations)
    for size in (0.5, 0.1):
        (slope, plain), (_, penalised) = (gradient(weight, size, dataset) for weight in (0.0, 10.0))
        length = np.linalg.norm(slope)
        np.testing.assert_allclose(penalised - plain, 10 * 2 * (length - 1) * slope / length, rtol=1e-3, atol=1e-4)
    assert np.isfinite(gradient(10.0, 0.0, dataset)[1]).all()


@both
def test_update_climbs_in_the_policy_and_descends_in_nu(make, settings):
    """The gradients of one update against the objective written out, with a policy that is certain of its actions."""
    demonstrations, exactly = probes.demonstrations(), make is value_dice_exact
    config = settings(hidden=(4,), batch=16, discount=DISCOUNT, gradient_penalty=0.0, orthogonality=0.5)
    algorithm = make(spec_of(demonstrations), config)

    def written_out(actor, critic, batch):
        value = lambda s, a: (critic(s) * a).sum(1) if exactly else critic(jnp.concatenate([s, a], 1))[:, 0]  # noqa: E731
        here, after = jax.nn.softmax(actor(batch.state)), jax.nn.softmax(actor(batch.next_state))
        apart = value(batch.state, batch.action) - DISCOUNT * value(batch.next_state, after)
        return jnp.log(jnp.exp(apart).mean()) - (1 - DISCOUNT) * value(batch.state, here).mean()

    @jax.jit
    def program(key, dataset):
        state = algorithm.init(key, dataset)
        if not exactly:
            first, last = state.actor.layers
            state = state._replace(actor=MLP((first, Dense(1e4 * last.weight, 1e3 * jnp.arange(3.0))), "relu"))
        recorded = dataset.pool.transitions(state.steps.sample(jax.random.fold_in(key, 0), config.batch))
        batch = triples(jax.random.fold_in(key, 1), recorded, state.scaling, state.endings, 3)
        value, slopes = jax.value_and_grad(written_out, argnums=(0, 1))(state.actor, state.critic, batch)
        climb = jax.tree.map(lambda o, g: 0.5 * o - g, jax.grad(orthogonality)(state.actor), slopes[0])
        after, metrics = algorithm.update(key, state, dataset)
        return moments(after), [climb, slopes[1]], metrics["objective"], value, state.actor(batch.state).argmax(1)

    with jax.enable_x64(True):
        ours, theirs, metric, value, choices = program(jax.random.key(0), make_dataset(demonstrations))
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(metric, value, atol=1e-12)
    assert len(np.unique(choices)) > 1


EYE = np.eye(2, dtype=np.float32)
ENDS = Demonstrations(
    (
        Trajectory(2 * EYE[:1], np.array([1]), terminal=True),  # its last state is not recorded
        Trajectory(3 * EYE[[0, 1, 0]], np.array([1, 2]), terminal=True),
        Trajectory(4 * EYE[[0, 1, 1]], np.array([2, 0]), truncated=True),
        Trajectory(5 * EYE[[0, 1, 0]], np.array([1, 1, 1]), truncated=True),  # what follows its last step is not known
    ),
    ("a", "b", "c"),
)
steps_into, transitions = jax.jit(triples, static_argnums=4), jax.jit(Pool.transitions)


def test_triples_worked_by_hand():
    """The end leads to the absorbing state whether or not a last state was recorded, a time limit does not."""
    batch = transitions(make_dataset(ENDS).pool, jnp.arange(5))
    scale = Scaling(jnp.array([1.0, 2.0]), jnp.array([2.0, 4.0]))
    found = steps_into(jax.random.key(0), batch, scale, jnp.array(0.0), 3)
    standard = lambda *states: [[(x - 1) / 2, (y - 2) / 4, 0] for x, y in states]  # noqa: E731
    np.testing.assert_allclose(found.state, standard((2, 0), (3, 0), (0, 3), (4, 0), (0, 4)))
    after = [[0, 0, 1], *standard((0, 3)), [0, 0, 1], *standard((0, 4), (0, 4))]
    np.testing.assert_allclose(found.next_state, after)
    np.testing.assert_array_equal(found.action, np.eye(3)[[1, 1, 2, 2, 0]])
    gone = steps_into(jax.random.key(0), batch, scale, jnp.array(1.0), 3)
    for part, row in [(gone.state, [0, 0, 1]), (gone.action, [1, 0, 0]), (gone.next_state, [0, 0, 1])]:
        np.testing.assert_array_equal(part, [row] * 5)


def test_share_of_the_absorbing_state():
    """Ends / (steps + ends), over steps with a known successor; the padding of a draw, a step that ends, is no step."""
    draws = [np.array([0, 1, 2, 3]), np.array([2, 3]), np.array([3, 1])]
    dataset = make_dataset(ENDS, draws, capacity=12)
    assert dataset.pool.terminal[dataset.labelled.indices[1, -1]]
    init = jax.jit(value_dice(spec_of(ENDS), ValueDICEConfig(hidden=())).init)
    states = [init(jax.random.key(0), probes.run_of(dataset, run)) for run in range(3)]
    assert [int(state.steps.size) for state in states] == [7, 4, 4]
    shares = [float(jax.jit(share_of_endings)(dataset.pool, state.steps)) for state in states]
    assert shares == [float(state.endings) for state in states]
    np.testing.assert_allclose(shares, [2 / (7 + 2), 0, 1 / (4 + 1)], rtol=1e-6)
    batch = transitions(dataset.pool, np.full(20_000, 3))  # a step that goes on
    for share in shares:
        found = steps_into(jax.random.key(1), batch, Scaling(jnp.zeros(2), jnp.ones(2)), jnp.array(share), 3)
        gone = np.asarray(found.state[:, -1])
        np.testing.assert_allclose(gone.mean(), share, atol=0.012 if share else 0)  # four standard deviations
        np.testing.assert_array_equal(found.next_state[:, -1], gone)
        np.testing.assert_array_equal(found.action.argmax(1), np.where(gone == 1, 0, 2))


def test_training_on_one_hot_states_finds_the_frequencies():
    """V6: the whole exact algorithm on a walk that ends where it began; with discount 0 it is behavioural cloning."""
    rng, states, actions = np.random.default_rng(0), [0], []
    while len(actions) < 400 or states[-1] != 0:
        actions.append(int(rng.random() < (0.25, 0.5, 0.75, 0.6)[states[-1]]))
        states.append((states[-1] + 1 + actions[-1]) % 4)
    counts, *_ = np.histogram2d(states[:-1], actions, bins=(4, 2))
    frequency = counts / counts.sum(1, keepdims=True)
    walk = Trajectory(np.eye(4, dtype=np.float32)[states], np.array(actions), truncated=True)
    demonstrations = Demonstrations((walk,), ("one", "two"))
    plain = {"actor_learning_rate": 0.003, "critic_learning_rate": 0.1, "gradient_penalty": 0.0, "orthogonality": 0.0}

    @jax.jit
    def program(discount, key, dataset):
        config = ValueDICEExactConfig(**plain, hidden=(), batch=512, discount=discount)
        algorithm = value_dice_exact(spec_of(demonstrations), config)
        trained, _ = train_one(algorithm, 1_000, key, dataset)
        return [jax.nn.softmax(each.network(jnp.eye(4))) for each in (algorithm.init(key, dataset), trained)]

    for discount in (0.0, 0.9):
        start, policy = program(discount, jax.random.key(0), make_dataset(demonstrations))
        np.testing.assert_allclose(policy, frequency, atol=0.04)
        assert np.abs(start - frequency).max() > 0.15


@both
def test_separable_set_is_learnt(make, settings):
    """The policy takes observations as they are and standardises within; the drawn version's nu has no last bias."""
    found = probes.separable(61)
    observations, actions = 3 * found.trajectories[0].observations + 5, found.trajectories[0].actions[:-1]
    walk = Demonstrations((Trajectory(observations, actions, truncated=True),), found.action_names)
    algorithm = make(spec_of(walk), settings(actor_learning_rate=1e-3, hidden=(16,), batch=32))
    state, _ = jax.jit(lambda key, data: train_one(algorithm, 3_000, key, data))(jax.random.key(0), make_dataset(walk))
    seen = observations[:-1]
    logits = np.asarray(algorithm.logits(state, jnp.asarray(seen)))
    assert (logits.argmax(1) == actions).mean() >= 0.95
    inputs = np.pad((seen - seen.mean(0)) / (seen.std(0) + 1e-3), ((0, 0), (0, 1)))
    np.testing.assert_allclose(logits, state.actor(jnp.asarray(inputs)), rtol=1e-5, atol=1e-5)
    assert [np.any(layer.bias) for layer in state.critic.layers] == [True, make is value_dice_exact]
