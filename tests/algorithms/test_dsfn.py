"""Deep successor features against the exact tables of a small finite problem, and their parts taken apart.

Successor features, feature expectations and values are all (1 - discount) times the usual ones.
"""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import probes
from sbil.algorithms import dsfn
from sbil.algorithms.dsfn import (
    DSFNConfig,
    StepTable,
    bounds,
    descend,
    discounted_weights,
    nearest_in_hull,
    q_learning,
    successor_features,
)
from sbil.dataset import Pool, Rows, Spec, make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.networks import MLP, Dense, Scaling
from sbil.training import train_one

STATES, ACTIONS, DISCOUNT = 4, 3, 0.8
STATE, ACTION = np.divmod(np.arange(STATES * ACTIONS), ACTIONS)  # every pair once
# A deterministic problem: where each pair leads, and the one pair that ends it.
LEADS_TO = np.array([[1, 3, 0], [2, 0, 1], [3, 2, 0], [1, 2, 3]])
ENDS = np.zeros((STATES, ACTIONS), bool)
ENDS[2, 1] = True
FOLLOWS = np.eye(STATES)[LEADS_TO] * ~ENDS[..., None]  # [s, a, s'], nothing follows an end
KEY = jax.random.key(0)
EVERY = Rows(jnp.arange(STATES * ACTIONS), jnp.int32(STATES * ACTIONS))
FIT = DSFNConfig(
    **{"hidden": (32,), "discount": DISCOUNT, "learning_rate": 0.003, "target_rate": 0.1},
    **{"feature_updates": 2000, "feature_batch": 64, "value_updates": 2000, "value_batch": 64},
)


def exact(follows, policy, values, discount=DISCOUNT):
    """(1 - discount) (I - discount P)^-1 values, for values [s, a, ...] and P from pair to pair."""
    pairs = policy.size
    chain = np.einsum("sat,tb->satb", follows, policy).reshape(pairs, pairs)
    solved = np.linalg.solve(np.eye(pairs) - discount * chain, values.reshape(pairs, -1))
    return (1 - discount) * solved.reshape(values.shape)


def occupancy(follows, policy, initial, discount=DISCOUNT):
    """(1 - discount) sum_t discount^t P(s_t = s, a_t = a); it sums to 1 where nothing ends."""
    chain = np.einsum("sa,sat->st", policy, follows)
    visited = np.linalg.solve(np.eye(len(initial)) - discount * chain.T, (1 - discount) * initial)
    return visited[:, None] * policy


def toy():
    """The seed-0 problem of the worked numbers, its random numbers drawn in their order."""
    rng = np.random.default_rng(0)
    follows, initial = rng.dirichlet(np.ones(5), (5, 3)), rng.dirichlet(np.ones(5))
    _, policy = rng.dirichlet(np.full(3, 2.0), 5), rng.dirichlet(np.full(3, 2.0), 5)
    rng.normal(size=45)  # what other checks draw
    features, reward = rng.normal(size=(5, 3, 4)), rng.normal(size=4)
    corners, point = rng.normal(size=(6, 4)), rng.normal(size=4) * 3
    return follows, initial, policy, features, reward, corners, point


def whole_table(features):
    """Every pair of the problem as one row, states as one-hot vectors."""
    pair = STATE, ACTION
    rows, action, ends = jnp.arange(len(STATE)), jnp.eye(ACTIONS)[ACTION], jnp.asarray(ENDS[pair])
    visited = jnp.eye(STATES)[np.stack([STATE, LEADS_TO[pair]], axis=1).ravel()]
    pool = Pool(visited, 2 * rows, jnp.asarray(ACTION), jnp.ones(len(rows), bool), ends, 0 * rows, rows)
    nothing = Scaling(jnp.zeros(STATES), jnp.ones(STATES))
    return StepTable(pool, nothing, rows, action, ends, jnp.float32(features[pair]))


@jax.jit
def fit_features(features, policy, rows, config):
    """psi of the policy at every pair, learnt from the given rows; four times."""
    table = whole_table(features)
    arguments = Spec((STATES,), ACTIONS), table, rows, policy[LEADS_TO[STATE, ACTION]], config
    pairs = jnp.concatenate([table.state(jnp.arange(len(STATE))), table.action], axis=-1)
    psi = jax.vmap(lambda key: successor_features(key, *arguments)[0](pairs))(jax.random.split(KEY, 4))
    return psi.reshape(4, *features.shape)


def test_the_exact_tables_satisfy_their_identities():
    """What the learnt networks are compared with: Q = w.psi, and the mean of psi is that of phi as it is visited."""
    follows, initial, policy, features, reward, _, _ = toy()
    psi = exact(follows, policy, features, 0.9)
    np.testing.assert_allclose(psi @ reward, exact(follows, policy, features @ reward, 0.9), atol=1e-13)
    visits = occupancy(follows, policy, initial, 0.9)
    np.testing.assert_allclose(visits.sum(), 1)
    at_start = np.einsum("s,sa,saf->f", initial, policy, psi)
    np.testing.assert_allclose(at_start, np.einsum("sa,saf->f", visits, features), atol=1e-13)


@pytest.mark.parametrize("chance", [False, True])
def test_learnt_successor_features_are_the_fixed_point(chance):
    """If the policy draws its actions, the tolerance allows for the noise of the last draws."""
    rng, policy = np.random.default_rng(1), np.eye(ACTIONS)[[1, 2, 1, 0]]
    policy, config = (0.7 * policy + 0.1, dataclasses.replace(FIT, learning_rate=0.001)) if chance else (policy, FIT)
    features, reward = rng.normal(size=(STATES, ACTIONS, 4)) / 2, rng.normal(size=4)
    tolerance = 0.05 if chance else 1e-4
    expected, psi = exact(FOLLOWS, policy, features), np.asarray(fit_features(features, policy, EVERY, config))
    psi = psi.mean(axis=0) if chance else psi
    np.testing.assert_allclose(psi, np.broadcast_to(expected, psi.shape), atol=tolerance)
    value = np.broadcast_to(exact(FOLLOWS, policy, features @ reward), psi.shape[:-1])
    np.testing.assert_allclose(psi @ reward, value, atol=tolerance * np.abs(reward).sum())
    # No network that is linear in (s, a) comes close, and neither do values that ignore the end.
    additive = np.hstack([np.eye(STATES)[STATE], np.eye(ACTIONS)[ACTION]])
    wanted = expected.reshape(len(additive), -1)
    assert np.abs(additive @ np.linalg.lstsq(additive, wanted, rcond=None)[0] - wanted).max() > 3 * tolerance
    assert np.abs(exact(np.eye(STATES)[LEADS_TO], policy, features) - expected).max() > 3 * tolerance


def test_successor_features_of_the_demonstrator_are_monte_carlo():
    """Learnt from its own steps alone, 60 of them from each of two states; the rest of the sum is 0.8^60 = 2e-6."""
    action = np.array([0, 0, 0, 2])  # 0 to 1 to 2 to 3 and there for ever
    features, summed = np.random.default_rng(4).normal(size=(STATES, ACTIONS, 4)), 0
    for start in (0, 2):
        state = start
        for time in range(60):
            summed += (1 - DISCOUNT) * DISCOUNT**time * features[state, action[state]] / 2
            state = LEADS_TO[state, action[state]]
    own = action[STATE] == ACTION
    features[~own.reshape(features.shape[:2])] = np.nan
    psi = fit_features(features, np.eye(ACTIONS)[action], EVERY.where(jnp.asarray(own)), FIT)
    np.testing.assert_allclose((psi[:, 0, action[0]] + psi[:, 2, action[2]]) / 2, np.tile(summed, (4, 1)), atol=1e-4)


@jax.jit
def fit_values(reward, config):
    q, loss = q_learning(KEY, Spec((STATES,), ACTIONS), whole_table(reward[..., None]), EVERY, reward.ravel(), config)
    return q(jnp.eye(STATES)), loss


def value_iteration(reward):
    best = np.zeros((STATES, ACTIONS))
    for _ in range(300):
        best = (1 - DISCOUNT) * reward + DISCOUNT * FOLLOWS @ best.max(axis=1)
    return best


def test_q_learning_is_value_iteration():
    reward = np.random.default_rng(2).normal(size=(STATES, ACTIONS))
    (found, loss), best = fit_values(reward, FIT), value_iteration(reward)
    np.testing.assert_allclose(found, best, atol=1e-3)
    np.testing.assert_array_equal(found.argmax(axis=1), best.argmax(axis=1))
    assert loss < 1e-5
    assert (best.argmax(axis=1) != reward.argmax(axis=1)).any()  # the largest reward is not always best
    assert best[2].max() > 0.1  # large enough to show bootstrapping from an end


def test_targets_are_of_a_network_that_stays_behind():
    """With a target that never moves, the network learns one step from its initial values, clipped to the bounds."""
    never, nothing = dataclasses.replace(FIT, target_rate=0.0), dataclasses.replace(FIT, learning_rate=1e-12)
    features, action = np.random.default_rng(5).normal(size=(STATES, ACTIONS, 4)) / 10, np.array([1, 2, 1, 0])
    psi, first = (fit_features(features, np.eye(ACTIONS)[action], EVERY, config) for config in (never, nothing))
    low, high = np.minimum(features.min(axis=(0, 1)), 0), np.maximum(features.max(axis=(0, 1)), 0)
    after = DISCOUNT * first[:, LEADS_TO, action[LEADS_TO]].clip(low, high) * ~ENDS[..., None]
    np.testing.assert_allclose(psi, (1 - DISCOUNT) * features + after, atol=1e-3)
    # The same holds for Q. The network itself picks the action at the next state: double Q-learning.
    (q, _), (first, _) = (fit_values(features[..., 0], config) for config in (never, nothing))
    after = DISCOUNT * first[LEADS_TO, q.argmax(axis=1)[LEADS_TO]].clip(low[0], high[0]) * ~ENDS
    np.testing.assert_allclose(q, (1 - DISCOUNT) * features[..., 0] + after, atol=1e-3)
    assert (first.argmax(axis=1) != q.argmax(axis=1)).any()


def largest_margin(point, corners):
    """(t, w) of max t with w.(point - corner) >= t for every corner and |w| <= 1, by SLSQP."""
    start = point - corners.mean(axis=0)
    apart = {"type": "ineq", "fun": lambda z: (point - corners) @ z[:-1] - z[-1]}
    short = {"type": "ineq", "fun": lambda z: 1 - z[:-1] @ z[:-1]}
    start, options = np.append(start / np.linalg.norm(start), 0), {"ftol": 1e-14, "maxiter": 1000}
    found = minimize(lambda z: -z[-1], start, constraints=[apart, short], method="SLSQP", options=options).x
    return found[-1], found[:-1]


@pytest.mark.parametrize(("precision", "tolerance"), [(np.float64, 1e-6), (np.float32, 1e-3)])
def test_nearest_point_is_the_reward_of_largest_margin(precision, tolerance):
    """Random hulls: corners absent, given twice, or alone; then the one with a worked number, and a point inside."""
    rng = np.random.default_rng(7)
    corners, points, present = rng.normal(size=(42, 6, 4)), rng.normal(size=(42, 4)), rng.random((42, 6)) < 0.8
    corners[:40:4, 1] = corners[:40:4, 0]
    present[:5], present[5:40, 2] = np.eye(6, dtype=bool)[:5], True
    *_, corners[40], points[40] = toy()
    corners[41] = np.vstack([np.zeros(4), np.eye(4), np.full(4, 5.0)])
    points[41], present[40:] = np.array([0.1, 0.2, 0.3, 0.1, 0.3]) @ corners[41, :5], [[True] * 6, [True] * 5 + [False]]
    with jax.enable_x64(True):
        known = np.where(present[..., None], corners, np.nan)
        nearest = jnp.vectorize(nearest_in_hull, signature="(f),(n,f),(n)->(n)")
        weights = np.asarray(nearest(points.astype(precision), known.astype(precision), present))
    assert weights.dtype == precision
    assert weights.min() == 0
    assert not weights[~present].any()
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    apart = points - np.einsum("bn,bnf->bf", weights, corners)
    for each, point, corner, here in zip(apart[:41], points, corners, present, strict=False):
        margin, reward = largest_margin(point, corner[here])
        np.testing.assert_allclose(np.linalg.norm(each), margin, atol=tolerance)
        np.testing.assert_allclose(each, margin * reward, atol=tolerance)
    np.testing.assert_allclose(np.linalg.norm(apart[40:], axis=1), [4.7674256955, 0], atol=tolerance)


# The whole algorithm, on walks through the finite problem: one program for all that follows but the last.
SMALL = dataclasses.replace(
    FIT,
    **{"trunk": (6, 4), "head": (5,), "warm_updates": 50, "warm_batch": 16},
    **{"rounds": 3, "margin": 0.0, "held_out": 0.0, "feature_updates": 1000, "value_updates": 1000},
)


def walk(rng, number):
    """Random steps from state 0 or 1; some walks end, some break off with their last state recorded, some without."""
    visited, actions, ended = [number % 3 % 2], [], False
    while not ended and len(actions) < 12:
        actions.append(rng.integers(ACTIONS))
        ended = bool(ENDS[visited[-1], actions[-1]])
        visited.append(LEADS_TO[visited[-1], actions[-1]])
    seen = np.eye(STATES, dtype=np.float32)[visited[:-1] if ended or number % 2 else visited]
    return Trajectory(seen, np.array(actions, np.int32), terminal=ended, truncated=not ended)


WALKS = tuple(map(walk, [np.random.default_rng(0)] * 8, range(8)))
DEMONSTRATIONS = Demonstrations(WALKS, ("a", "b", "c"))
SPEC = spec_of(DEMONSTRATIONS)
init = jax.jit(lambda config, key, data: dsfn(SPEC, config).init(key, data))
update = jax.jit(lambda config, key, state, data: dsfn(SPEC, config).update(key, state, data))


def walks(draw=range(8), **options):
    """What one run learns from, padded."""
    capacity = DEMONSTRATIONS.steps + 3
    return probes.run_of(make_dataset(DEMONSTRATIONS, [np.array(draw)], capacity=capacity, **options), 0)


def phi(state):
    """phi(s,a) at every pair."""
    features = state.heads.features(state.scaling(jnp.eye(STATES)))
    return np.concatenate([features[STATE], np.eye(ACTIONS)[ACTION]], axis=1).reshape(STATES, ACTIONS, -1)


@pytest.mark.parametrize(("thin", "offset", "draw"), [(1, 0, [5, 2, 0]), (3, 0, [6, 7, 5]), (3, 2, [6, 1, 0])])
def test_feature_expectations_of_the_demonstrator_are_monte_carlo(thin, offset, draw):
    """Time starts at 0 at the first kept step of each trajectory. A kept step stands for `thin` steps; the last one
    of a trajectory that did not end stands for all steps that would have followed."""
    state = init(SMALL, KEY, walks(draw, thin=thin, thin_offset=offset))
    features, total = phi(state), 0
    for number in draw:
        for step in range(offset, len(WALKS[number]), thin):
            pair = WALKS[number].observations[step].argmax(), WALKS[number].actions[step]
            cut = step + thin >= len(WALKS[number]) and not (WALKS[number].terminal and step == len(WALKS[number]) - 1)
            total += (1 if cut else 1 - DISCOUNT**thin) * DISCOUNT ** (step - offset) * features[pair]
    np.testing.assert_allclose(state.demonstrated, total / len(draw), atol=1e-5)


def test_one_round_and_the_next():
    """Feature expectations are means over visits: of the warm start, up to noise, then of the policy greedy in Q."""
    start = init(SMALL, KEY, walks())
    firsts = [update(SMALL, key, start, walks())[0] for key in jax.random.split(KEY, 4)]
    features, states = phi(start), start.scaling(jnp.eye(STATES))
    initial = np.mean([each.observations[0] for each in WALKS], axis=0)

    def expected(policy, initial=initial):
        return np.einsum("sa,saf->f", occupancy(FOLLOWS, policy, initial), features)

    policy = np.asarray(jax.nn.softmax(start.heads.policy(states)))
    np.testing.assert_allclose(np.mean([state.found[0] for state in firsts], axis=0), expected(policy), atol=0.02)
    assert np.abs(expected(policy, np.full(STATES, 0.25)) - expected(policy)).max() > 0.04
    first, apart = firsts[0], np.asarray(firsts[0].demonstrated - firsts[0].found[0])
    best = value_iteration(features @ apart / np.linalg.norm(apart))
    np.testing.assert_allclose(first.values(states), best, atol=0.005)
    second, metrics = update(SMALL, KEY, first, walks())
    np.testing.assert_allclose(second.found[1], expected(np.eye(ACTIONS)[best.argmax(axis=1)]), atol=0.005)
    margin, reward = largest_margin(np.asarray(first.demonstrated, float), np.asarray(second.found[:2], float))
    np.testing.assert_allclose(metrics["margin"], margin, atol=1e-4)
    np.testing.assert_allclose(second.values(states), value_iteration(features @ reward), atol=0.01)


def test_the_loop_stops_where_no_reward_separates():
    config = dataclasses.replace(SMALL, margin=2.0)
    state, metrics = update(config, KEY, init(config, KEY, walks()), walks())
    assert 0 < metrics["margin"] <= 2.0
    assert (bool(state.stopped), int(state.round)) == (True, 1)
    jax.tree.map(np.testing.assert_array_equal, update(config, jax.random.key(1), state, walks())[0], state)


def test_the_policy_of_the_best_round_acts():
    config, data = dataclasses.replace(SMALL, held_out=0.4), walks()
    states, agreements = [init(config, KEY, data)], []
    for number in range(3):
        assert not states[-1].stopped
        state, metrics = update(config, jax.random.key(number), states[-1], data)
        steps = data.pool.transitions(data.labelled.indices[state.held_out.indices[: state.held_out.size]])
        right = state.values(state.scaling(steps.observation)).argmax(axis=-1) == steps.action
        np.testing.assert_allclose(metrics["agreement"], right.mean(), atol=1e-6)
        agreements.append(metrics["agreement"])
        states.append(state)
    best = int(np.argmax(agreements))
    assert min(agreements) < agreements[best] == state.agreement
    jax.tree.map(np.testing.assert_array_equal, state.chosen, states[best + 1].values)
    # There is no fourth round.
    after, metrics = update(config, jax.random.key(3), state, data)
    jax.tree.map(np.testing.assert_array_equal, after._replace(stopped=state.stopped), state)
    assert metrics["rounds"] == 3
    # What is saved takes observations as they are, and has one output an action.
    observations = jnp.float32(np.random.default_rng(0).normal(size=(5, STATES)))
    expected = state.chosen(state.scaling(observations))
    np.testing.assert_allclose(state.network(observations), expected, atol=1e-5)
    assert expected.shape == (5, ACTIONS)


@pytest.mark.parametrize(("share", "count"), [(0.25, 18), (1.0, 71)])
def test_held_out_steps_are_not_learnt_from(share, count):
    """All other steps with a known successor are. Another key holds out other steps."""
    data, config, seen = walks(), dataclasses.replace(SMALL, held_out=share), set()
    known = set(np.flatnonzero(data.pool.known).tolist())
    assert len(known) < DEMONSTRATIONS.steps == 72
    for seed in range(3):
        state = init(config, jax.random.key(seed), data)
        training, held_out = (set(np.asarray(r.indices[: r.size]).tolist()) for r in (state.training, state.held_out))
        assert len(held_out) == count
        assert training == known - held_out
        learnt_from = data.pool.row[jnp.array(sorted(set(range(72)) - held_out))]
        np.testing.assert_allclose(state.scaling.mean, data.pool.observations[learnt_from].mean(axis=0), atol=1e-6)
        seen.add(frozenset(held_out))
    assert len(seen) == 3


def test_held_out_decisions_change_nothing_but_the_choice():
    data, config = walks(), dataclasses.replace(SMALL, held_out=0.25)
    state = init(config, KEY, data)
    rows = state.held_out.indices[: state.held_out.size]
    action = data.pool.action.at[rows].set((data.pool.action[rows] + 1) % ACTIONS)
    other = data._replace(pool=data.pool._replace(action=action))
    jax.tree.map(np.testing.assert_array_equal, init(config, KEY, other), state)
    (one, metrics), (another, other_metrics) = (update(config, KEY, state, each) for each in (data, other))
    jax.tree.map(np.testing.assert_array_equal, another._replace(agreement=one.agreement), one)
    assert metrics["agreement"] != other_metrics["agreement"]


@pytest.mark.parametrize("data", [walks(), walks([0], thin=12)], ids=["nothing held out", "a single step"])
def test_without_held_out_steps_all_choose(data):
    state = init(SMALL, KEY, data)
    assert state.held_out.indices[: state.held_out.size].tolist() == list(range(data.labelled.size))
    known = np.flatnonzero(data.pool.known[data.labelled.indices[: data.labelled.size]])
    assert state.training.indices[: state.training.size].tolist() == known.tolist()


def test_the_whole_runs_on_a_separable_set():
    (pairs,) = probes.separable().trajectories
    demonstrations = Demonstrations((Trajectory(pairs.observations, pairs.actions[:-1]),), ("left", "right"))
    algorithm = dsfn(spec_of(demonstrations), dataclasses.replace(SMALL, held_out=0.2, feature_updates=20))
    state, metrics = jax.jit(lambda data: train_one(algorithm, 2, KEY, data))(make_dataset(demonstrations))
    assert all(np.isfinite(values).all() for values in metrics.values())
    assert 0 <= min(metrics["agreement"]) <= max(metrics["agreement"]) == state.agreement <= 1
    assert algorithm.logits(state, pairs.observations).shape == (40, 2)


def discounted(time, trajectory, terminal, size):
    """The weights of the first rows, with the discount 1/2."""
    pool = SimpleNamespace(time=jnp.array(time), trajectory=jnp.array(trajectory), terminal=jnp.array(terminal))
    return discounted_weights(pool, Rows(jnp.arange(len(time)), jnp.int32(size)), 0.5)


def test_discounted_weights_worked_by_hand():
    """Two trajectories with padding that looks like more of the second; the same with every second step; pairs."""
    trajectory = [4, 4, 4, 0, 0, 0]
    ends = [False, False, True, False, False, True]  # the first truly ended, the second was cut
    weights, first = discounted([0, 1, 2, 0, 1, 0], trajectory, ends, 5)
    np.testing.assert_allclose(weights, [0.5, 0.25, 0.125, 0.5, 0.5, 0])
    assert first.tolist() == [True, False, False, True, False, False]
    weights, _ = discounted([1, 3, 5, 1, 3, 0], trajectory, ends, 5)
    np.testing.assert_allclose(weights, [0.75, 0.1875, 0.046875, 0.75, 0.25, 0])
    weights, first = discounted([0, 1, 2], [2, 0, 1], [True, False, True], 3)
    np.testing.assert_allclose(weights, [0.5, 1, 0.5])
    assert first.all()
    twice, _ = discounted([0, 1, 0, 1], [0] * 4, [False] * 4, 4)
    np.testing.assert_allclose(twice, [0.5, 0.5, 0.5, 0.5])  # drawn twice: it starts anew


def test_bounds_of_discounted_sums():
    """Zero always lies between the bounds because a sum may end. Padding and rows that are not given are not read."""
    values = np.array([[1.0, -2.0], [3.0, -1.0], [np.nan, np.nan]])
    low, high = bounds(jnp.asarray(values), Rows(jnp.array([0, 1, 0, 2, 2]), jnp.int32(3)))
    np.testing.assert_array_equal([low, high], [[0, -2], [3, 0]])
    low, high = bounds(jnp.array([2.0, -5.0, 9.0]), Rows(jnp.array([1, 0, 2]), jnp.int32(2)))
    assert (low, high) == (-5, 2)


def test_the_target_follows_slowly():
    """On a constant slope Adam moves 0.01 per step; the target lags by the sum of a geometric series."""
    start, zero = MLP((Dense(jnp.zeros((1, 1)), jnp.zeros(1)),), "tanh"), jnp.zeros(1)
    rows, config = Rows(jnp.array([0, 1]), jnp.int32(2)), DSFNConfig(learning_rate=0.01, target_rate=0.1)
    network, last = descend(
        jax.random.key(0), start, lambda x, target, *_: (target(zero) - x(zero)).sum(), rows, 50, 2, config
    )
    np.testing.assert_allclose(network(zero), 0.01 * 50, rtol=1e-5)
    np.testing.assert_allclose(-last, 0.01 * (0.9 ** np.arange(1, 50)).sum(), rtol=1e-5)
