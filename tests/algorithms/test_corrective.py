"""Corrective labels: known dynamics by hand, which labels are accepted, the model beside the policy, and BC without."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from sbil.algorithms.bc import BCConfig, bc
from sbil.algorithms.corrective import (
    FORGET,
    CorrectiveConfig,
    Labels,
    Shown,
    accepted,
    back_tracked,
    chosen,
    corrective,
    corrective_loss,
    enumerated,
    errors_of,
    led_back,
    median_step,
    model_of,
    running_mean,
    shown_of,
    steepness,
)
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.environments.cartpole import step as cartpole
from sbil.errors import UserError
from sbil.networks import Scaling
from sbil.spectral import bounded
from sbil.training import train_one

SMALL = probes.small(CorrectiveConfig)  # its tolerance is large
DEMONSTRATIONS = probes.demonstrations()  # some of its steps have no successor
SPEC, DATASET = spec_of(DEMONSTRATIONS), make_dataset(DEMONSTRATIONS)
KEY = jax.random.key(7)
AS_THEY_ARE = Scaling(jnp.zeros(1), jnp.ones(1))


@partial(jax.jit, static_argnums=(0, 2))
def run(make, config, updates=50, dataset=DATASET):
    """(state, metrics) after some updates from one key; configs that differ in floats share a program."""
    return train_one(make(SPEC, config), updates, KEY, dataset)


def changed(**settings):
    return dataclasses.replace(SMALL, **settings)


def assert_same_bits(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.fixture(scope="module")
def cloned():
    return run(bc, BCConfig(hidden=(8,), batch=8))[0].network


@pytest.mark.parametrize("actions", ["taken", "every"])
@pytest.mark.parametrize("neutral", [{"weight": 0.0}, {"tolerance": 0.0}])
def test_without_labels_it_is_behavioural_cloning(cloned, actions, neutral):
    state, metrics = run(corrective, changed(actions=actions, **neutral))
    assert_same_bits(state.network, cloned)
    assert metrics["accepted"].any() == ("weight" in neutral)


def test_labels_change_what_is_learnt(cloned):
    networks = [cloned, *(run(corrective, changed(actions=actions))[0].network for actions in ("taken", "every"))]
    weights = [np.asarray(network.layers[0].weight) for network in networks]
    assert all((one != other).any() for one, other in zip(weights, [weights[-1], *weights], strict=False))


def test_it_starts_as_behavioural_cloning_and_stays_it_for_fewer_than_five_steps(cloned):
    """Before the model has learnt, its error is a whole step. Without a held-out step nothing says that it has."""
    _, metrics = run(corrective, changed(tolerance=0.5))
    assert not metrics["accepted"][0]
    assert metrics["model_error_0"][0] > 0.9
    few = DATASET._replace(labelled=DATASET.labelled._replace(size=jnp.int32(4)))
    state, metrics = run(corrective, changed(tolerance=0.99), 50, few)
    assert not metrics["accepted"].any()
    assert_same_bits(state.network, run(bc, BCConfig(hidden=(8,), batch=8), 50, few)[0].network)


def line(states):
    """One action on a line: g(s) = 1 - s / 10."""
    return (1 - 0.1 * states)[..., None, :]


@pytest.mark.parametrize(("refine", "state", "error"), [(1, 1.2, 0.08), (2, 1.12, 0.008)])
def test_the_bound_is_tight_where_the_model_is_linear_and_exact(refine, state, error):
    target, action = jnp.array([[2.0]]), jnp.array([0])
    found, moved = led_back(line, target, action, refine)
    np.testing.assert_allclose(found, [[state]], rtol=1e-6)
    np.testing.assert_allclose(found + line(found)[0] - target, [[error]], rtol=1e-4)
    np.testing.assert_allclose(steepness(line, target)[:, 0] * moved, [error], rtol=1e-4)


def cart(states):
    """The true steps of CartPole, per action."""
    step = lambda s, a: cartpole(s, a)[0] - s  # noqa: E731
    return jax.vmap(jax.vmap(step, (None, 0)), (0, None))(states.reshape(-1, 4), jnp.arange(2)).reshape(
        *states.shape[:-1], 2, 4
    )


def test_cartpole_at_rest():
    """What leads to rest by a push to the right: a cart that moves left, with a pole that falls to the right."""
    rest, right = jnp.zeros((1, 4)), jnp.array([1])
    np.testing.assert_allclose(chosen(cart(rest), right)[0], [0, 0.195122, 0, -0.292683], atol=1e-6)
    found, moved = led_back(cart, rest, right, 1)
    np.testing.assert_allclose(found[0], [0, -0.195122, 0, 0.292683], atol=1e-6)
    np.testing.assert_allclose((found + chosen(cart(found), right))[0], [-0.003902, 0, 0.005854, 0], atol=1e-6)
    lipschitz = np.linalg.norm(jax.jacfwd(lambda s: cartpole(s, jnp.int32(1))[0] - s)(rest[0]), 2)
    np.testing.assert_allclose([lipschitz, moved[0], lipschitz * moved[0]], [0.3158, 0.3518, 0.1111], atol=1e-4)
    np.testing.assert_allclose(steepness(cart, rest)[0, 1], 0.317102, atol=1e-6)  # the Frobenius norm is not smaller
    errors = []
    for refine in range(1, 5):
        found, _ = led_back(cart, rest, right, refine)
        errors.append(float(jnp.linalg.norm(found + chosen(cart(found), right))))
    np.testing.assert_allclose(errors, [0.007035, 0.001842, 0.000037, 0.000012], atol=6e-7)
    assert errors[0] < lipschitz * moved[0]


def triples(states, actions, following, terminal=(), unknown=()):
    """A minibatch on a line; `terminal` and `unknown` are numbers of rows."""
    rows = np.arange(len(states))
    column = lambda values: np.array(values, np.float32)[:, None]  # noqa: E731
    return probes.triples(
        column(states), np.array(actions), column(following), ~np.isin(rows, unknown), np.isin(rows, terminal)
    )


def shown(states, actions, count=None):
    """Demonstrated states on a line; those after the first `count` are padding."""
    mask = np.arange(len(states)) < (len(states) if count is None else count)
    return Shown(*map(jnp.asarray, (np.array(states, np.float32)[:, None], np.array(actions), mask, mask)))


def two(states):
    """Two actions on a line: +1, and twice the state."""
    return jnp.stack([jnp.ones_like(states), 2 * states], axis=-2)


def test_labels_that_lead_to_demonstrated_states_by_hand():
    """In units of a scale of 2 around 1. Without a recorded successor the model knows nothing of that decision."""
    batch = triples([3.0, 3.0, 5.0], [0, 1, 1], [9.0, 9.0, 9.0], unknown=[2], terminal=[1])
    found = back_tracked(two, batch, Scaling(jnp.array([1.0]), jnp.array([2.0])), jnp.array([0.25, 0.5]), 1)
    np.testing.assert_allclose(found.state[:, 0], [1 - 1, 1 - 2, 2 - 4])
    np.testing.assert_allclose(found.distance, [1, 2, 4])
    np.testing.assert_allclose(found.bound, [0.25, 0.5 + 2 * 2, 0.5 + 2 * 4])
    assert found.action.tolist() == [0, 1, 1]
    assert found.known.tolist() == [True, True, False]


def test_labels_of_every_action_by_hand():
    """The bound adds twice the steepness times the distance to where the action was demonstrated."""
    batch = triples([0.0, 0.0, 0.0], [0, 1, 0], [1.0, 3.0, 5.0], terminal=[1], unknown=[2])
    others = shown([0.5, 4.0, 2.0], [1, 1, 0], count=2)
    found = enumerated(two, batch, AS_THEY_ARE, jnp.array([0.25, 0.5]), 1, others)
    assert found.action.tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(found.state[:, 0], [0, 2, 4, -1, -3, -5])
    np.testing.assert_allclose(found.bound[3], 0.5 + 2 * 2 * 0.5 + 2 * 2)
    assert found.known.tolist() == [
        False,
        False,
        False,
        True,
        False,
        False,
    ]  # 0 is in padding only
    near = enumerated(two, batch, AS_THEY_ARE, jnp.array([0.25, 0.5]), 1, shown([0.0], [0]))
    assert near.known.tolist() == [True, False, False, False, False, False]
    np.testing.assert_allclose(near.bound[0], 0.25)  # a step that is the same everywhere needs no neighbour


def test_labels_are_accepted_within_the_bound_unless_another_action_is_nearer():
    labels = Labels(
        state=jnp.array([[0.0], [0.0], [0.0], [0.0]]),
        action=jnp.array([0, 0, 1, 0]),
        distance=jnp.array([1.0, 3.0, 3.0, 1.0]),
        bound=jnp.array([0.4, 0.4, 0.4, 0.5]),
        known=jnp.array([True, True, True, True]),
    )
    trusted, kept = accepted(labels, shown([2.0, 0.1], [1, 1], count=1), jnp.float32(0.5))
    assert trusted.tolist() == [True, True, True, False]
    assert kept.tolist() == [True, False, True, False]
    unknown = labels._replace(known=jnp.zeros(4, bool))
    assert not accepted(unknown, shown([9.0], [0]), jnp.float32(0.5))[0].any()


def test_the_loss_is_a_mean_over_the_labels_that_are_kept():
    table = probes.table(np.array([[1.0, 0.0], [0.0, 3.0]]))
    states, action = jnp.eye(2)[jnp.array([0, 1, 1])], jnp.array([0, 1, 0])
    loss = corrective_loss(table, states, action, jnp.array([True, True, False]))
    np.testing.assert_allclose(loss, (np.log1p(np.exp(-1)) + np.log1p(np.exp(-3))) / 2, rtol=1e-6)
    assert corrective_loss(table, states, action, jnp.zeros(3, bool)) == 0


def test_errors_by_hand():
    batch = triples([1.0, 1.0, 1.0], [0, 1, 1], [3.0, 2.0, np.nan], unknown=[2])
    found = errors_of(two, Scaling(jnp.zeros(1), jnp.full(1, 0.5)), batch)
    np.testing.assert_allclose(found, [4 - 1, 4 - 2, 0])


def test_the_running_mean_moves_for_actions_that_were_seen():
    found = running_mean(
        jnp.array([1.0, 2.0, 3.0]), jnp.array([5.0, 7.0, 9.0]), jnp.array([0, 0, 1]), jnp.array([True, True, False])
    )
    np.testing.assert_allclose(found, [1 + FORGET * (6 - 1), 2, 3], rtol=1e-6)


def test_the_median_step_and_the_states_shown():
    demonstrations = Demonstrations(
        (
            Trajectory(np.array([[0.0], [1.0], [3.0], [9.0]], np.float32), np.array([0, 1, 0])),
            Trajectory(np.array([[4.0]], np.float32), np.array([1])),
        ),
        ("a", "b"),
    )
    dataset = make_dataset(demonstrations)
    half = Scaling(jnp.array([1.0]), jnp.array([2.0]))
    np.testing.assert_allclose(median_step(dataset, half), 1.0)  # of 0.5, 1 and 3; the last step has no successor
    some = shown_of(dataset, half, 2)
    np.testing.assert_allclose(some.state[:, 0], [-0.5, 1.0])
    everything = shown_of(dataset, half)
    assert everything.action.tolist() == [0, 1, 0, 1]
    assert everything.followed.tolist() == [True, True, True, False]


def test_the_policy_does_not_move_the_model():
    one, other = (run(corrective, changed(weight=weight))[0].helper for weight in (0.0, 3.0))
    assert_same_bits(one, other)


def test_the_model_does_not_learn_from_held_out_steps():
    """The fifth step is held out: going the other way there changes the error, and nothing in the model."""
    five = DATASET._replace(labelled=DATASET.labelled._replace(size=jnp.int32(5)))
    row = int(DATASET.pool.row[DATASET.labelled.indices[4]])
    seen = np.array(DATASET.pool.observations)
    seen[row + 1] = 2 * seen[row] - seen[row + 1]  # steps have the same size
    turned = five._replace(pool=five.pool._replace(observations=jnp.asarray(seen)))
    one, other = (run(corrective, SMALL, 50, data)[0].helper for data in (five, turned))
    for ours, theirs in zip(jax.tree.leaves(one.dynamics), jax.tree.leaves(other.dynamics), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.abs(one.error - other.error).max() > 0.01


@pytest.fixture(scope="module")
def pushed():
    """A demonstrator that pushes towards the middle of a line, and sometimes away; steps are shorter far outside."""
    rng = np.random.default_rng(3)
    trajectories = []
    for _ in range(12):
        states, actions = [rng.uniform(-8, 8, 1)], []
        for _ in range(15):
            actions.append(int(states[-1][0] < 0) ^ int(rng.random() < 0.1))
            states.append(after(states[-1], actions[-1]))
        trajectories.append(Trajectory(np.array(states, np.float32), np.array(actions)))
    return Demonstrations(tuple(trajectories), ("left", "right"))


def after(state, action):
    return 0.98 * state + np.where(action == 1, 0.5, -0.5)


def test_accepted_labels_lead_back_by_the_true_dynamics(pushed):
    config = CorrectiveConfig(hidden=(16,), dynamics_learning_rate=0.01, dynamics_hidden=(16,), actions="every")
    algorithm, dataset = corrective(spec_of(pushed), config), make_dataset(pushed)
    state, metrics = jax.jit(lambda key: train_one(algorithm, 800, key, dataset))(KEY)
    assert metrics["accepted"][0] == 0
    kept, refused = (metrics[name][-50:].mean() for name in ("accepted", "contradicted"))
    assert kept > 0.1
    assert refused > 0.1  # the demonstrator sometimes decides otherwise nearby
    assert kept + refused > 0.9
    assert metrics["model_error_0"][-1] < 0.3
    batch = dataset.batch(KEY, 200)
    model = model_of(bounded(state.helper.dynamics, state.helper.vectors, config.spectral), state.units)
    labels = enumerated(model, batch, state.units.scaling, state.helper.error, 1, state.shown)
    _, kept = accepted(labels, state.shown, config.tolerance * state.step)
    plain = np.asarray(state.units.plain(labels.state))[:, 0]
    miss = np.abs(after(plain, np.asarray(labels.action)) - np.tile(np.asarray(batch.next_observation)[:, 0], 2))
    step = float(state.step * state.units.scaling.scale[0])
    assert (miss[np.asarray(kept)] < 0.5 * step).mean() > 0.95
    assert len(set(np.asarray(labels.action)[np.asarray(kept)])) == 2


def test_the_layers_of_the_model_stay_below_the_bound(pushed):
    config = CorrectiveConfig(hidden=(8,), dynamics_learning_rate=0.01, dynamics_hidden=(8,), spectral=0.3)
    algorithm, dataset = corrective(spec_of(pushed), config), make_dataset(pushed)
    helper = jax.jit(lambda key: train_one(algorithm, 300, key, dataset)[0].helper)(KEY)

    def norms(dynamics):
        return [np.linalg.norm(layer.weight, 2) for layer in (dynamics.linear, *dynamics.heads.layers)]

    assert max(norms(bounded(helper.dynamics, helper.vectors, 0.3))) < 0.3 * 1.02
    assert max(norms(helper.dynamics)) > 0.35


def test_images_are_refused():
    film = Trajectory(np.zeros((3, 36, 36), np.uint8), np.array([0, 1, 0], np.int32))
    pictures = Demonstrations((film,), ("a", "b"), stack=2)
    with pytest.raises(UserError, match="corrective needs rows of numbers, not images") as raised:
        corrective(spec_of(pictures), SMALL).init(KEY, make_dataset(pictures))
    assert "\n" not in str(raised.value)
