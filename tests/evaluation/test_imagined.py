"""Where a policy would go: a known system, in which it stays or walks away, and the reasons why there is no model."""

import json
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from sbil import choosing
from sbil.dataset import Standardisation
from sbil.demonstrations import Column, Demonstrations, Schema, Trajectory
from sbil.dynamics.model import learn
from sbil.errors import UserError
from sbil.evaluation.imagined import FIRSTS, LEVELS, Unimaginable, _apart, _since, imagined, imagined_or_why
from sbil.networks import MLP, Dense
from sbil.policy import Policy

NAMES = ("height [cm]", "shade", "room=a", "room=b")


@pytest.fixture(autouse=True, scope="module")
def quick():
    """The system is linear, so the networks need few updates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choosing, "learn", partial(learn, updates=20))
        yield


def walks(episodes=40, length=30, seed=0, ends=False) -> Demonstrations:
    """A height is held near 100: it moves by 2 up or down, mostly toward 100, and falls back a little."""
    random, found = np.random.default_rng(seed), []
    for number in range(episodes):
        states, actions = [[100 + random.normal() * 3, random.normal(), number % 2, 1 - number % 2]], []
        while len(actions) < length and not (ends and states[-1][0] > 103):
            height, shade, *room = states[-1]
            up = (height < 100) ^ (random.random() < 0.2)
            after = height + 0.02 * (100 - height) + (2 if up else -2) + 0.1 * random.normal()
            states.append([after, 0.9 * shade + 0.01 * random.normal(), *room])
            actions.append(int(up))
        if actions:
            end = ends and states[-1][0] > 103
            found.append(Trajectory(np.float32(states), np.array(actions), terminal=end, truncated=not end))
    columns = (Column("height", unit="cm"), Column("shade"), Column("room", "one-hot", ("a", "b")))
    schema = Schema("move", columns, actions=("down", "up"))
    return Demonstrations(tuple(found), ("down", "up"), NAMES, schema=schema)


def policy(slope: float, bias: float = 0.0, standardised: bool = False) -> Policy:
    """Up where slope * (height - 100) + bias is positive."""
    scale = 4.0 if standardised else 1.0
    weight = jnp.zeros((4, 2)).at[0, 1].set(slope * scale)
    level = bias if standardised else bias - 100 * slope
    network = MLP((Dense(weight, jnp.array([0.0, level])),), "elu")
    given = Standardisation(np.float32([100, 0, 0, 0]), np.float32([4, 1, 1, 1])) if standardised else None
    return Policy(network, NAMES, ("down", "up"), given)


STAYS, WALKS = policy(-1.0), policy(0.0, 1.0)


@pytest.fixture(scope="module")
def stays():
    return imagined(STAYS, walks())


@pytest.fixture(scope="module")
def leaves():
    return imagined(WALKS, walks())


def test_a_policy_that_stays_is_near(stays):
    assert 10 <= stays.horizon <= 30
    assert stays.warning == ""
    assert stays.left.value <= 0.1
    assert stays.drift.low <= stays.drift.value <= stays.drift.high
    assert stays.drift.value < 2 * stays.recorded
    assert stays.model["r2_of_next_state"] > 0.95
    assert set(stays.model["r2_of_step"]) == set(NAMES)
    assert stays.model["r2_after"][0] > 0.95
    assert stays.ended is None
    assert "warning" not in str(stays)


def test_a_policy_that_walks_away_is_reported(stays, leaves):
    assert leaves.left.value > 0.9
    assert 1 < leaves.left_at < leaves.horizon
    assert leaves.warning.startswith("The policy leaves the recorded states: after")
    assert f"half of these since step {leaves.left_at}." in leaves.warning
    assert str(leaves).endswith(f"warning: {leaves.warning}")
    assert leaves.drift.low > stays.drift.high
    assert leaves.energy > stays.energy


def test_the_fan_has_the_units_of_the_data(leaves):
    data, (fan, *others) = walks(), leaves.fans
    assert (fan.column, [other.column for other in others]) == ("height [cm]", ["shade"])  # rooms are discrete
    assert fan.drift > 2 > others[0].drift
    firsts = np.array([one.observations[0, 0] for one in data.trajectories])
    assert len(firsts) <= FIRSTS
    np.testing.assert_allclose(fan.recorded[:, 0], np.quantile(firsts, LEVELS), rtol=1e-5)
    np.testing.assert_allclose(fan.imagined[:, 0], fan.recorded[:, 0], rtol=1e-5)
    height, middle = np.quantile(firsts, 0.5), [np.quantile(firsts, 0.5)]
    for _ in range(leaves.horizon):
        height += 0.02 * (100 - height) + 2
        middle.append(height)
    np.testing.assert_allclose(fan.imagined[2, : leaves.horizon + 1], middle, atol=1)
    assert fan.recorded.shape == fan.imagined.shape == (5, 1 + min(30, 2 * leaves.horizon))


def test_the_units_of_the_policy_do_not_matter(stays):
    same = imagined(policy(-1.0, standardised=True), walks())
    assert same.horizon == stays.horizon
    assert same.drift.value == pytest.approx(stays.drift.value, rel=0.05)
    np.testing.assert_allclose(same.fans[0].imagined[:, 0], stays.fans[0].imagined[:, 0], rtol=1e-5)


def test_it_is_plain_and_the_same_every_time(leaves):
    text = json.dumps(leaves.as_json(), allow_nan=False)
    found = json.loads(text)
    assert found["left"] == leaves.left.as_json()
    assert found["warning"] == leaves.warning
    assert found["fans"][0]["column"] == "height [cm]"
    assert text == json.dumps(imagined(WALKS, walks()).as_json())


def test_ends_are_compared():
    data = walks(ends=True)
    found = imagined(WALKS, data)
    recorded = [one.terminal and len(one) <= found.horizon for one in data.trajectories]
    assert found.recorded_ended == pytest.approx(np.mean(recorded))
    assert 0 <= found.ended.low <= found.ended.value <= found.ended.high <= 1
    assert "ended by then" in str(found)
    json.dumps(found.as_json(), allow_nan=False)


def without_successors(data):
    flat = [(one.observations[i : i + 1], one.actions[i : i + 1]) for one in data.trajectories for i in range(len(one))]
    return replace(data, trajectories=tuple(Trajectory(*pair) for pair in flat))


def few(data):
    return replace(data, trajectories=(Trajectory(data.trajectories[0].observations[:5], np.array([0, 1, 0, 1])),))


def noise(data):
    random = np.random.default_rng(0)
    drawn = [random.normal(size=one.observations.shape).astype(np.float32) for one in data.trajectories]
    pairs = zip(drawn, data.trajectories, strict=True)
    return replace(data, trajectories=tuple(Trajectory(own, one.actions) for own, one in pairs), schema=None)


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        (without_successors, "no decision has its next state recorded"),
        (few, "only 4 next states recorded, and a model needs 10"),
        (noise, "the model of the dynamics predicts too little"),
    ],
)
def test_why_there_is_no_model(spoiled, why):
    data = spoiled(walks(episodes=8))
    with pytest.raises(Unimaginable, match=f"^where the policy would go cannot be imagined: {why}.*[.]$"):
        imagined(STAYS, data)
    assert why in imagined_or_why(STAYS, data)


def test_images_have_no_model():
    from sbil.fitting import fit

    images = np.random.default_rng(0).integers(0, 255, (13, 40, 40, 1)).astype(np.uint8)
    data = Demonstrations((Trajectory(images, np.arange(12) % 2),), ("a", "b"))
    assert "the observations are images" in imagined_or_why(fit("bc", data, updates=1, batch=2), data)


def test_other_columns_are_refused():
    with pytest.raises(UserError, match="bring the same columns"):
        imagined(replace(STAYS, observation_names=("a", "b", "c", "d")), walks(episodes=2))


def test_since_when_an_episode_is_outside():
    outside = np.array([[0, 1, 1, 0], [0, 1, 0, 1], [1, 1, 1, 0]], bool)
    assert _since(outside[:, :2]) == 2  # since 3 and since 1
    assert _since(outside[:, 2:3]) == 3  # it came back once
    assert _since(outside[:, 3:]) is None


def test_recorded_states_are_compared_with_those_of_others():
    from sbil.dataset import make_dataset
    from sbil.dynamics.rollouts import Reference

    rows = np.float32([[0], [1], [2], [10], [11], [12]])
    reference = Reference(jnp.asarray(rows), jnp.ones(6, bool))
    two = Demonstrations((Trajectory(rows[:3], np.zeros(3, int)), Trajectory(rows[3:], np.zeros(3, int))), ("a", "b"))
    one = Demonstrations((Trajectory(rows, np.zeros(6, int)),), ("a", "b"))
    place = np.arange(6)
    assert _apart(reference, place, make_dataset(two), None).tolist() == [10, 9, 8, 8, 9, 10]
    assert _apart(reference, place, make_dataset(one), None).tolist() == [2, 1, 1, 1, 1, 2]  # thirds


def test_the_card_warns_of_a_policy_that_was_chosen_and_leaves_all_the_same(leaves):
    from sbil.api.train import with_warning
    from sbil.policy.card import card

    data, chosen = walks(), {"algorithm": "auto", "selection": {"criterion": "imagined", "words": "chose the best"}}
    warned = with_warning(replace(WALKS, provenance=chosen), data)
    assert warned.provenance["selection"] == {**chosen["selection"], "warning": leaves.warning}
    assert "Warning: The policy leaves the recorded states" in card(warned)
    near = with_warning(replace(STAYS, provenance=chosen), data)
    assert near.provenance == chosen
    assert "Warning" not in card(near)
    assert with_warning(WALKS, data) is WALKS
