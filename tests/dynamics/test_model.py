"""What a model learns of systems that are known, and what it says of itself."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import systems

from sbil.demonstrations import Demonstrations, Trajectory
from sbil.dynamics.model import MEMBERS, Trust, follow, learn


def low(random):
    return np.array([random.uniform(-0.5, 0.5), random.normal(), random.normal()])


def without_successors(triples):
    nothing = jnp.zeros_like(triples.has_next)
    return triples._replace(has_next=nothing, terminal=nothing, following=jnp.full_like(triples.following, -1))


@cache
def everything():
    """{name: (triples, model, trust)}: all systems, learned by one program."""
    linear = systems.triples(systems.demonstrations())
    risen = systems.demonstrations(systems.rising, 12, 10, ends=lambda state: state[0] > 1, first=low)
    cut = systems.demonstrations(systems.rising, 12, 10, first=low)
    made = {
        "linear": linear,
        "steered": systems.triples(systems.demonstrations(systems.steered)),
        "nonlinear": systems.triples(systems.demonstrations(systems.nonlinear)),
        "still": systems.triples(systems.demonstrations(systems.still)),
        "thinned": systems.triples(systems.demonstrations(), thin=3),
        "terminal": systems.triples(risen),
        "truncated": systems.triples(cut),
        "one trajectory": systems.triples(systems.demonstrations(count=1, length=60)),
        "one triple": systems.triples(systems.demonstrations(count=1, length=1)),
        "no successor": without_successors(linear),
    }
    short = systems.triples(systems.demonstrations(count=3))
    made |= {f"padded by {filler}": systems.padded(short, filler) for filler in (0, 1e30, np.nan)}
    made = {name: systems.padded(triples) for name, triples in made.items()}
    models, trust = systems.learned(list(made.values()))
    learned = (systems.only((models, trust), number) for number in range(len(made)))
    return {name: (triples, *found) for (name, triples), found in zip(made.items(), learned, strict=True)}


def after(model, states, actions):
    """[members, n, inputs], plain, and whether it ends."""
    states = jnp.broadcast_to(model.standardised(jnp.asarray(states)), (MEMBERS, *np.shape(states)))
    action = jnp.broadcast_to(jax.nn.one_hot(jnp.asarray(actions), systems.ACTIONS), (*states.shape[:2], 2))
    found, ends = follow(model, states, action)
    return np.asarray(model.plain(found)), np.asarray(ends)


def test_a_linear_system_is_recovered():
    _, model, trust = everything()["linear"]
    np.testing.assert_allclose(trust.r2, 1, atol=1e-4)
    np.testing.assert_allclose(trust.r2_after[:30], 1, atol=1e-3)
    assert np.isnan(trust.r2_after[30:]).all()  # no trajectory is longer
    random = np.random.default_rng(7)
    states, actions = random.normal(size=(50, 3)), random.integers(2, size=50)
    truth = [systems.linear(state, action, None) for state, action in zip(states, actions, strict=True)]
    alone = model._replace(helps=jnp.zeros(3))
    np.testing.assert_allclose(after(alone, states, actions)[0], np.broadcast_to(truth, (MEMBERS, 50, 3)), atol=2e-3)


def test_an_action_may_decide_how_the_state_matters():
    _, _, trust = everything()["steered"]
    np.testing.assert_allclose(trust.r2, 1, atol=0.01)


def test_networks_help_where_a_regression_cannot():
    triples, model, trust = everything()["nonlinear"]
    assert model.helps[0] == 1
    assert trust.r2[0] > 0.9
    alone = model._replace(helps=jnp.zeros(3))
    errors = [
        np.square(after(m, triples.state, triples.action)[0] - triples.after)[..., 0].mean() for m in (model, alone)
    ]
    assert errors[0] < 0.2 * errors[1]
    assert trust.disagreement > 0


def test_a_random_walk_is_not_trusted():
    _, _, trust = everything()["nonlinear"]
    assert trust.r2[1] < 0.1


def test_columns_whose_steps_are_all_equal_have_no_r2():
    _, model, trust = everything()["still"]
    assert np.isnan(trust.r2).tolist() == [True, True, False]
    assert np.isfinite(trust.step)
    found, _ = after(model, [[50.0, 3.0, 0.1]], [0])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:, 0, 1], 4, rtol=1e-3)  # it grew by 1 every time


def test_columns_that_repeat_earlier_rows_do_not_count():
    trust = Trust(np.array([0.1, 1.0, 1.0]), np.array([[0.1, 1.0, 1.0]]), np.array(0.0))
    assert trust.after == 1.0
    assert trust.without_last(2).after == pytest.approx(0.1)
    assert trust.without_last(2).step == pytest.approx(0.1)
    assert trust.without_last(0).after == 1.0


@pytest.mark.parametrize("name", ["one triple", "no successor"])
def test_where_nothing_can_be_compared_there_is_no_r2(name):
    triples, model, trust = everything()[name]
    assert np.isnan(trust.r2).all()
    assert np.isnan(trust.step)
    assert np.isnan(trust.r2_after).all()
    assert trust.disagreement == 0
    state = np.asarray(triples.state[0])
    found, ends = after(model, state[None], [0])
    assert np.isfinite(found).all()
    assert not ends.any()


def test_without_successors_nothing_moves():
    _, model, _ = everything()["no successor"]
    np.testing.assert_array_equal(after(model, np.zeros((1, 3)), [1])[0], 0)


def test_every_model_is_finite():
    for _, model, trust in everything().values():
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model._replace(levels=None)))
        assert np.isfinite(trust.disagreement)


def test_a_single_trajectory_is_compared_within_stretches():
    triples, _, trust = everything()["one trajectory"]
    np.testing.assert_array_equal(triples.fold[:60], np.repeat([0, 1, 2], 20))
    np.testing.assert_allclose(trust.r2, 1, atol=1e-3)
    np.testing.assert_allclose(trust.r2_after[:20], 1, atol=1e-2)
    assert np.isnan(trust.r2_after[20:]).all()  # the stretch is over


def test_thinned_data_tell_of_one_step_only():
    triples, _, trust = everything()["thinned"]
    assert (triples.following == -1).all()
    np.testing.assert_allclose(trust.r2_after[0], 1, atol=1e-3)
    assert np.isnan(trust.r2_after[1:]).all()


def test_padding_is_never_read():
    plain, *others = (found[1:] for name, found in everything().items() if name.startswith("padded"))
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, plain, other)


def test_ends_are_learned_where_the_process_ended():
    _, terminal, _ = everything()["terminal"]
    _, truncated, _ = everything()["truncated"]
    states = np.stack([np.linspace(-0.5, 0.8, 14), np.zeros(14), np.zeros(14)], axis=1)
    assert not after(terminal, states, np.zeros(14, int))[1].any()  # none of them exceeds 1 by a slow step
    assert after(terminal, [[0.99, 0, 0], [1.0, 0, 0]], [1, 1])[1].all()
    assert (truncated.ends, terminal.ends) == (0, 1)
    assert not after(truncated, [[0.99, 0, 0], [3.0, 0, 0]], [1, 1])[1].any()


def test_states_far_out_are_stopped():
    triples, model, _ = everything()["linear"]
    found, _ = after(model, np.array([[1e30, -1e30, 0], [np.inf, 0, 0], [np.nan, 0, 0]], np.float32), [0, 1, 0])
    seen = np.concatenate([triples.state[triples.known], triples.after[triples.has_next]])
    room = 3.01 * np.ptp(seen, axis=0)
    assert np.isfinite(found).all()
    assert (found >= seen.min(axis=0) - room).all()
    assert (found <= seen.max(axis=0) + room).all()


def test_draws_learned_together_are_learned_as_one_by_one():
    triples, model, trust = everything()["steered"]
    alone, own = learn(jax.random.key(0), triples, systems.ACTIONS, 200)
    one, other = (after(found, triples.state[:99], triples.action[:99])[0] for found in (alone, model))
    np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_allclose(own.r2, trust.r2, atol=1e-5)
    np.testing.assert_allclose(own.r2_after, trust.r2_after, atol=1e-4)


def ward(random, length):
    """A place of three, as one-hot columns; a switch; a number."""
    place, switch, number = 0, 0, 0.0
    states, actions = [], random.integers(2, size=length)
    for action in [*actions, 0]:
        states.append([*np.eye(3)[place], switch, number])
        place, switch, number = (place + action) % 3, int(action), 0.9 * number + random.normal()
    return Trajectory(np.array(states, np.float32), actions.astype(np.int32))


def test_discrete_columns_stay_on_their_values():
    random = np.random.default_rng(0)
    made = Demonstrations(tuple(ward(random, 20) for _ in range(6)), tuple("ab"))
    triples = systems.triples(made, one_hot=[[0, 1, 2]])
    model, trust = learn(jax.random.key(0), triples, systems.ACTIONS, 200)
    assert model.discrete.tolist() == [True] * 4 + [False]
    states = triples.state + 0.3 * random.normal(size=triples.state.shape).astype(np.float32)
    for _ in range(3):
        found, _ = after(model, states, triples.action)
        np.testing.assert_allclose(found[..., :4], np.round(found[..., :4]), atol=1e-5)
        np.testing.assert_allclose(found[..., :3].sum(axis=-1), 1, atol=1e-5)
        assert (np.abs(found[..., :4] - 0.5) < 0.51).all()
        states = found[0]
    found, _ = after(model, triples.state, triples.action)
    np.testing.assert_allclose(found[0, :, :4], triples.after[:, :4], atol=1e-5)  # which the action decides
    assert trust.r2[3] > 0.99


def test_equal_numbers_leave_one_1_in_a_group():
    triples = systems.triples(systems.demonstrations(count=2, length=4), one_hot=[[0, 2]])
    model = everything()["linear"][1]._replace(
        helps=jnp.zeros(3), linear=jnp.zeros((11, 3)), levels=triples.levels, groups=triples.groups
    )
    found, _ = after(model, [[0.3, 0.7, 0.3]], [0])
    np.testing.assert_allclose(found[0, 0], [1, 0.7, 0], atol=1e-6)
