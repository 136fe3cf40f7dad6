"""Familiarity: cases whose answer is known, scikit-learn's neighbours and areas, and what the sentence claims."""

import json

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

import probes
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.evaluation import familiarity as module
from sbil.evaluation.decided import Decided
from sbil.evaluation.familiarity import (
    SHARES,
    Coverage,
    Detection,
    KnownStates,
    coverage,
    detection,
    familiarity,
    measures,
    sentence,
    shifted,
)
from sbil.policy import Policy
from sbil.statistics import TAILS, Interval


def table(rows, episodes=10, actions=None, names=("no", "yes")) -> Demonstrations:
    """Rows as episodes of the same length."""
    rows = np.asarray(rows, np.float32)
    actions = np.zeros(len(rows), int) if actions is None else actions
    parts = np.array_split(np.arange(len(rows)), episodes)
    return Demonstrations(tuple(Trajectory(rows[part], actions[part]) for part in parts), names)


def normal(count=400, columns=3, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, columns)) * [1.0, 10.0, 0.1][:columns]


def matched(right) -> Decided:
    """Decisions that are matched where `right` says so. Each is an episode."""
    right = np.asarray(right, bool)
    return Decided(np.eye(2)[np.where(right, 0, 1)], np.zeros(len(right), int), np.arange(len(right)))


class Ball:
    """A policy whose energy is the distance from 0, and which gives both actions the same probability everywhere."""

    action_names = ("no", "yes")
    temperature = 1.0

    def __init__(self, columns=3):
        self.observation_names = tuple(f"observation_{column}" for column in range(columns))

    def energy(self, observations):
        return np.linalg.norm(observations, axis=1).astype(np.float32)

    def logits(self, observations):
        return np.zeros((len(observations), 2), np.float32)


def test_states_by_hand():
    found = KnownStates.of(table([[0, 5], [2, 5], [4, 5], [6, 5]], episodes=2))
    assert found.mean.tolist() == [3, 5]
    np.testing.assert_allclose(found.deviation, [np.sqrt(5), 0])
    assert (found.low.tolist(), found.high.tolist()) == ([0, 5], [6, 5])
    np.testing.assert_allclose(found.sample, [[-3 / 5**0.5, 0], [-1 / 5**0.5, 0], [1 / 5**0.5, 0], [3 / 5**0.5, 0]])


def test_sample_is_drawn_and_the_range_is_of_all(monkeypatch):
    monkeypatch.setattr(module, "MOST_STATES", 50)
    rows = normal()
    found, again, other = (KnownStates.of(table(rows), seed) for seed in (0, 0, 1))
    assert found.sample.shape == (50, 3)
    np.testing.assert_array_equal(found.sample, again.sample)
    assert not np.array_equal(found.sample, other.sample)
    np.testing.assert_array_equal(found.low, rows.astype(np.float32).min(axis=0))
    back = found.sample * found.deviation + found.mean
    assert (np.abs(back[:, None] - rows).max(axis=2).min(axis=1) < 1e-5).all()


@pytest.mark.parametrize("neighbours", [1, 10, 1000])
def test_distances_are_scikit_learns(monkeypatch, neighbours):
    monkeypatch.setattr(module, "BLOCK", 7)
    states, rows = KnownStates.of(table(normal(100))), normal(30, seed=1)
    scaled = (rows - states.mean) / states.deviation
    expected = NearestNeighbors(n_neighbors=min(neighbours, 100)).fit(states.sample).kneighbors(scaled)[0][:, -1]
    np.testing.assert_allclose(states.distance(rows, neighbours), expected, rtol=1e-9)


def test_a_training_state_is_near_itself():
    rows = normal(50)
    states = KnownStates.of(table(rows))
    assert (states.distance(rows.astype(np.float32), neighbours=1) < 1e-6).all()


def test_measures_are_the_policys():
    names = tuple(f"observation_{i}" for i in range(3))
    policy = Policy(probes.network(3, 8, 2), names, ("no", "yes"), temperature=2.0)
    rows = normal(20)
    states = KnownStates.of(table(normal(40)))
    found = measures(policy, rows, states)
    np.testing.assert_array_equal(found["energy"], -policy.energy(rows))
    np.testing.assert_allclose(found["probability"], policy.probabilities(rows).max(axis=1), atol=1e-6)
    np.testing.assert_array_equal(found["neighbours"], -states.distance(rows))
    assert list(measures(policy, rows)) == ["energy", "probability"]


def test_shifts_are_what_they_say():
    rows, states = normal(2000), KnownStates.of(table(normal(2000)))
    rng = np.random.default_rng(0)
    noise = shifted(rows, "noise", rng, states) - rows
    np.testing.assert_allclose(noise.std(axis=0) / states.deviation, 1, atol=0.05)
    permuted = shifted(rows, "permuted", rng, states)
    np.testing.assert_array_equal(np.sort(permuted, axis=0), np.sort(rows, axis=0))
    assert (permuted != rows).mean() > 0.99
    assert len(np.unique(np.argsort(permuted, axis=0), axis=1).T) == 3  # each column in an order of its own
    outside = shifted(rows, "out_of_range", rng, states)
    moved = outside != rows
    assert (moved.sum(axis=1) == 1).all()
    assert (moved.mean(axis=0) > 0.3).all()
    beyond = np.where(outside > rows, outside - states.high, states.low - outside) / states.deviation
    np.testing.assert_allclose(beyond[moved], 5.0)
    assert 0.4 < (outside > rows)[moved].mean() < 0.6
    with pytest.raises(UserError, match="permuted"):
        shifted(rows, "permute", rng, states)


def test_columns_that_do_not_vary_are_left_alone():
    rows = np.column_stack([normal(50, 1), np.full(50, 7.0)])
    states, rng = KnownStates.of(table(rows)), np.random.default_rng(0)
    for kind in ("noise", "out_of_range", "permuted"):
        assert (shifted(rows, kind, rng, states)[:, 1] == 7).all()
    assert np.isfinite(states.distance(rows)).all()


def test_coverage_by_hand():
    """Ten decisions, the five most familiar of which are matched."""
    found = coverage(matched([1] * 5 + [0] * 5), {"energy": -np.arange(10.0), "none": np.zeros(10)})
    assert [curve.value for curve in found.accuracy["energy"].values()] == [0.5, *(5 / k for k in (9.5, 9, 8, 7, 5))]
    assert tuple(found.accuracy["energy"]) == SHARES
    assert {curve.value for curve in found.accuracy["none"].values()} == {0.5}  # kept in equal parts
    assert found.area["energy"].value == pytest.approx((5 + sum(5 / k for k in range(6, 11))) / 10)
    assert found.area["none"] == found.accuracy["none"][1.0]
    assert found.differences["none"].value == pytest.approx(found.area["energy"].value - 0.5)
    assert found.differences["none"].low > 0


@settings(max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 4)), min_size=2, max_size=20))
def test_coverage_as_written_out(rows):
    """A loop over decisions with every order of ties averaged, resampled row by row."""
    right, score, episode = (np.array(column) for column in zip(*rows, strict=True))
    made = matched(right)._replace(episodes=episode)
    found = coverage(made, {"energy": score.astype(float)}, resamples=12, seed=4)
    names = np.unique(episode)
    drawn = np.random.default_rng(4).integers(len(names), size=(12, len(names)))
    samples = [np.concatenate([np.flatnonzero(episode == names[u]) for u in draw]) for draw in drawn]

    def curve(taken, share):
        left, hits = share * len(taken), 0.0
        for level in np.unique(score[taken])[::-1]:
            tie = right[taken][score[taken] == level]
            kept = min(left, len(tie))
            hits, left = hits + kept * tie.mean(), left - kept
        return hits / (share * len(taken))

    def area(taken):
        return np.mean([right[taken][score[taken] >= level].mean() for level in score[taken]])

    everything = np.arange(len(rows))
    for share, (value, low, high) in found.accuracy["energy"].items():
        assert value == pytest.approx(curve(everything, share), abs=1e-12)
        if len(names) > 1:
            expected = np.quantile([curve(taken, share) for taken in samples], TAILS)
            np.testing.assert_allclose((low, high), expected, atol=1e-12)
    assert found.area["energy"].value == pytest.approx(area(everything), abs=1e-12)
    if len(names) > 1:
        expected = np.quantile([area(taken) for taken in samples], TAILS)
        np.testing.assert_allclose(found.area["energy"][1:], expected, atol=1e-12)


def test_detection_by_hand():
    """3, 2 and 1 against 2 and 0: of 6 pairs 4 are in order and one is a tie."""
    inside, outside = {"energy": np.array([3.0, 2, 1])}, {"energy": np.array([2.0, 0])}
    found = detection(inside, outside, np.arange(3), np.arange(2))
    assert found.auroc["energy"].value == pytest.approx((2 + 1.5 + 1) / 6)
    assert found.differences == {}


@pytest.mark.parametrize("own", [False, True])
def test_detection_as_written_out(own):
    """Resampled row by row, made from the same rows or not, by scikit-learn."""
    rng = np.random.default_rng(0)
    size = 25 if own else 40
    episodes, others = rng.integers(6, size=40), rng.integers(5, size=25)
    inside = {name: np.round(rng.normal(size=40) + 1, 1) for name in ("energy", "probability")}
    outside = {name: np.round(rng.normal(size=size), 1) for name in ("energy", "probability")}
    found = detection(inside, outside, episodes, others if own else None, resamples=30, seed=2)

    def area(name, taken, drawn):
        truth = [1] * len(taken) + [0] * len(drawn)
        return sk.roc_auc_score(truth, np.concatenate([inside[name][taken], outside[name][drawn]]))

    def samples(units, count, seed):
        draws = np.random.default_rng(seed).integers(count, size=(30, count))
        return [np.concatenate([np.flatnonzero(units == unit) for unit in draw]) for draw in draws]

    first = samples(episodes, 6, 2)
    second = samples(others, 5, 3) if own else first
    areas = {name: [area(name, a, b) for a, b in zip(first, second, strict=True)] for name in inside}
    for name, (value, low, high) in found.auroc.items():
        assert value == pytest.approx(area(name, np.arange(40), np.arange(size)), abs=1e-12)
        np.testing.assert_allclose((low, high), np.quantile(areas[name], TAILS), atol=1e-12)
    gaps = np.subtract(areas["energy"], areas["probability"])
    np.testing.assert_allclose(found.differences["probability"][1:], np.quantile(gaps, TAILS), atol=1e-12)


def test_an_energy_that_knows():
    """These states are unfamiliar because they are far from the middle; equal probabilities tell nothing."""
    rows = np.random.default_rng(0).normal(size=(300, 4))
    right = np.linalg.norm(rows, axis=1) < 2
    held_out = table(rows, 30, np.where(right, 0, 1))
    training = table(np.random.default_rng(1).normal(size=(300, 4)), 30)
    far = np.full((50, 4), 9.0)
    found = familiarity(Ball(4), held_out, training, far, resamples=200)
    assert list(found.detection) == ["noise", "out_of_range", "permuted", "another"]
    for kind, least in {"noise": 0.65, "out_of_range": 0.99, "another": 1.0}.items():
        assert found.detection[kind].auroc["energy"].value >= least
        assert found.detection[kind].auroc["probability"] == (0.5, 0.5, 0.5)
        assert found.detection[kind].differences["probability"].low > 0
    assert found.detection["another"].auroc["neighbours"].value == 1.0
    assert abs(found.detection["permuted"].auroc["energy"].value - 0.5) < 0.05  # columns were independent
    assert found.coverage.accuracy["energy"][0.5].value == 1.0
    assert found.coverage.accuracy["probability"][0.5].value == pytest.approx(right.mean())
    assert found.sentence.startswith(
        "The energy is not the best measure of familiarity here: compared with the largest"
    )
    assert "it is better at noise, one value out of range and the other table, not clearly" in found.sentence
    assert found.notes == ()
    again = familiarity(Ball(4), held_out, training, far, resamples=200)
    assert again == found


def test_without_training_demonstrations():
    held_out = table(normal(100), actions=np.arange(100) % 2)
    found = familiarity(Ball(), held_out, resamples=20)
    assert list(found.coverage.area) == ["energy", "probability"]
    assert "no neighbours" in found.notes[0]


def test_many_decisions_are_drawn_and_it_is_said(monkeypatch):
    monkeypatch.setattr(module, "MOST_STATES", 60)
    monkeypatch.setattr(module, "MOST_DECISIONS", 40)
    data = table(normal(100), actions=np.arange(100) % 2)
    found = familiarity(Ball(), data, data, resamples=20)
    assert found.notes == (
        "Neighbours are sought among 60 of 100 training states, drawn at random.",
        "40 of 100 held-out decisions are looked at, drawn at random.",
    )


def claims(*differences, floor=0.6, ceiling=0.7):
    """The sentence for differences from (the probability, the neighbours) at each kind of shift."""
    one = Interval(0.8, 0.7, 0.9)
    curve = {share: one for share in SHARES}
    names = ("probability", "neighbours")
    covered = Coverage(
        {name: curve for name in ("energy", *names)}, {}, {name: Interval(0.0, 0.0, 0.0) for name in names}
    )
    kinds = ("noise", "permuted")[: len(differences)]
    return sentence(
        covered,
        {
            kind: Detection(
                {"energy": Interval(0.6, floor, ceiling)},
                dict(zip(names, (Interval(0.0, *gap) for gap in gaps), strict=True)),
            )
            for kind, gaps in zip(kinds, differences, strict=True)
        },
    )


BETTER, LEVEL, WORSE = (0.1, 0.2), (-0.1, 0.1), (-0.2, -0.1)


def test_the_sentence_follows_the_numbers():
    assert claims((BETTER, BETTER), (BETTER, BETTER)) == (
        "The energy is the best measure of familiarity here: it tells every kind of shifted state better than the "
        "largest probability and the distance to the nearest training states. With the least familiar fifth left to a "
        "human, agreement goes from 80.0% to 80.0% by the energy, 80.0% by the largest probability, 80.0% by the "
        "distance to the nearest training states."
    )
    mixed = claims((BETTER, WORSE), (LEVEL, WORSE))
    assert mixed.startswith(
        "The energy is not the best measure of familiarity here: compared with the largest probability it is better at "
        "noise, not clearly different at columns permuted; compared with the distance to the nearest training states "
        "it is worse at noise and columns permuted. "
    )
    assert " It is not clearly better than chance at noise and columns permuted. " in claims(
        (BETTER, BETTER), (BETTER, BETTER), floor=0.5
    )
    assert "chance" not in mixed
    below = claims((BETTER, BETTER), (BETTER, BETTER), floor=0.3, ceiling=0.4)
    assert " It is worse than chance at noise and columns permuted. " in below
    assert "clearly better than chance" not in below
    unknown = (float("nan"), float("nan"))
    assert "not clearly different at noise" in claims((unknown, unknown))


def test_as_json_is_plain_and_holds_no_observation():
    rows = normal(60) + 12345
    data = table(rows, episodes=1, actions=np.arange(60) % 2)
    text = json.dumps(familiarity(Ball(), data, data, resamples=10).as_json(), allow_nan=False)
    assert json.loads(text)["detection"]["noise"]["auroc"]["energy"]["low"] is None  # one episode
    assert "12345" not in text
    assert "1234" not in text


def test_images_are_refused():
    frames = Trajectory(np.zeros((3, 4, 4), np.uint8), np.zeros(3, int))
    with pytest.raises(UserError, match="images"):
        KnownStates.of(Demonstrations((frames,), ("no", "yes"), stack=2))
