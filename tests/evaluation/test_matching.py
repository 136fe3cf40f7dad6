"""Action matching: numbers worked out by hand, scikit-learn's metrics, and a bootstrap that resamples row by row."""

import dataclasses
import warnings

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st

import probes
from sbil import statistics
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.evaluation import decided as deciding
from sbil.evaluation.decided import Decided, decided
from sbil.evaluation.matching import METRICS, Agreement, confusion, differences, intervals, per_action, scores
from sbil.policy import Policy, Standardisation


def handmade() -> Decided:
    """Four decisions among three actions, the last of which is never taken."""
    probabilities = np.array([[0.5, 0.3, 0.2], [0.2, 0.7, 0.1], [0.5, 0.4, 0.1], [0.3, 0.3, 0.4]])
    return Decided(probabilities, np.array([0, 1, 1, 0]), np.array([0, 0, 1, 1]))


def random(rows=60, actions=3, episodes=8, seed=0, levels=None) -> Decided:
    """Decisions that are right more often than by chance; with few `levels` of probabilities there are many ties."""
    rng = np.random.default_rng(seed)
    taken = rng.integers(actions, size=rows)
    powers = rng.gamma(1.0, size=(rows, actions)) + 1.5 * np.eye(actions)[taken]
    if levels:
        powers = 1 + np.floor(powers * levels)
    return Decided(powers / powers.sum(axis=1, keepdims=True), taken, rng.integers(episodes, size=rows))


@st.composite
def many(draw) -> Decided:
    """Decisions with ties, certain and impossible actions, and actions never taken."""
    actions, rows = draw(st.integers(2, 5)), draw(st.integers(1, 30))
    powers = draw(
        st.lists(st.lists(st.integers(0, 3), min_size=actions, max_size=actions), min_size=rows, max_size=rows)
    )
    table = np.array(powers, float)
    table[table.sum(axis=1) == 0] = 1
    taken = draw(st.lists(st.integers(0, actions - 1), min_size=rows, max_size=rows))
    episodes = draw(st.lists(st.integers(3, 7), min_size=rows, max_size=rows))
    return Decided(table / table.sum(axis=1, keepdims=True), np.array(taken), np.array(episodes))


def learned(d: Decided) -> dict[str, float]:
    """The same metrics by scikit-learn and, where it has none, by a loop."""
    p, a, labels = d.probabilities, d.actions, np.arange(d.probabilities.shape[1])
    present, chosen = np.unique(a), p.argmax(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about actions that are chosen and never taken
        balanced = sk.balanced_accuracy_score(a, chosen)
    one = len(present) > 1
    gap = 0.0
    for lower in np.arange(15):
        inside = [i for i in range(len(a)) if min(int(p[i].max() * 15), 14) == lower]
        if inside:
            gap += len(inside) / len(a) * abs((chosen[inside] == a[inside]).mean() - p[inside].max(axis=1).mean())
    return {
        "accuracy": sk.accuracy_score(a, chosen),
        "balanced_accuracy": balanced,
        "auc": np.mean([sk.roc_auc_score(a == k, p[:, k]) for k in present]) if one else np.nan,
        "apr": np.mean([sk.average_precision_score(a == k, p[:, k]) for k in present]) if one else np.nan,
        "log_loss": sk.log_loss(a, p, labels=labels),
        "brier": sk.brier_score_loss(a, p, labels=labels, scale_by_half=False),
        "ece": gap,
    }


def test_by_hand():
    """Action 0 was given .5, .3 when taken and .2, .5 when not; action 1 was given .7, .4 and .3, .3."""
    found = scores(handmade())
    assert found["accuracy"] == 0.5
    assert found["balanced_accuracy"] == 0.5
    assert found["auc"] == pytest.approx(((0.5 + 1 + 0 + 1) / 4 + 1) / 2)
    assert found["apr"] == pytest.approx(((1 / 2 + 2 / 3) / 2 + 1) / 2)
    assert found["log_loss"] == pytest.approx(-np.log([0.5, 0.7, 0.4, 0.3]).mean())
    errors = [0.25 + 0.09 + 0.04, 0.04 + 0.09 + 0.01, 0.25 + 0.36 + 0.01, 0.49 + 0.09 + 0.16]
    assert found["brier"] == pytest.approx(np.mean(errors))
    assert found["ece"] == pytest.approx((abs(1 - 1.0) + abs(1 - 0.7) + abs(0 - 0.4)) / 4)
    assert confusion(handmade()).tolist() == [[1, 0, 1], [1, 1, 0], [0, 0, 0]]


def test_rows_of_actions_by_hand():
    first, second, third = per_action(handmade())
    assert first == (2, 0.5, 0.5, 0.5, pytest.approx(0.625), pytest.approx(7 / 12))
    assert second == (2, 1.0, 0.5, pytest.approx(2 / 3), 1.0, 1.0)
    assert third[:4] == (0, 0.0, pytest.approx(np.nan, nan_ok=True), 0.0)
    assert np.isnan(third[4:]).all()


@settings(max_examples=100)
@given(many())
def test_as_scikit_learn(d):
    found, expected = scores(d), learned(d)
    assert tuple(found) == METRICS
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12, err_msg=name)


@settings(max_examples=60)
@given(many())
def test_rows_of_actions_as_scikit_learn(d):
    labels = np.arange(d.probabilities.shape[1])
    nan = {"zero_division": np.nan, "labels": labels}
    expected = sk.precision_recall_fscore_support(d.actions, d.probabilities.argmax(axis=1), **nan)
    rows = per_action(d)
    for place, name in enumerate(("precision", "recall", "f1", "taken")):
        np.testing.assert_allclose([getattr(row, name) for row in rows], expected[place], err_msg=name)
    table = sk.confusion_matrix(d.actions, d.probabilities.argmax(axis=1), labels=labels)
    np.testing.assert_array_equal(confusion(d), table)
    known = [row for row in rows if row.taken]
    found = scores(d)
    np.testing.assert_allclose(np.mean([row.auc for row in known]), found["auc"])
    np.testing.assert_allclose(np.mean([row.apr for row in known]), found["apr"])


def test_single_precision_is_clipped_as_such():
    d = Decided(np.array([[0, 1], [1, 0]], np.float32), np.array([0, 0]), np.arange(2))
    assert scores(d)["log_loss"] == pytest.approx(sk.log_loss(d.actions, d.probabilities, labels=[0, 1]), rel=1e-6)
    assert scores(d)["log_loss"] == pytest.approx(-np.log(np.finfo(np.float32).eps) / 2, rel=1e-6)


def test_policies_of_different_folds_are_not_ranked_against_each_other():
    """An action that is common in a fold is rare in the others: pooled, such frequencies rank worse than chance."""
    taken, folds = np.array([0, 0, 0, 1, 0, 1, 1, 1, 1]), np.array([0, 0, 0, 0, 1, 1, 1, 1, 1])
    chance = np.where(folds == 0, 0.2, 0.75)
    d = Decided(np.stack([chance, 1 - chance], axis=1), taken, np.arange(9))
    assert scores(d)["auc"] < 0.3
    assert scores(d._replace(folds=folds))["auc"] == 0.5
    apr = ((3 * 3 / 4 + 1 * 1 / 5) / 4 + (1 * 1 / 4 + 4 * 4 / 5) / 5) / 2
    assert scores(d._replace(folds=folds))["apr"] == pytest.approx(apr)


def test_areas_within_folds_are_means_over_pairs_and_positives():
    d = random(levels=3)
    folds = np.arange(60) % 3
    found, rows = scores(d._replace(folds=folds)), per_action(d._replace(folds=folds))
    for action, row in enumerate(rows):
        y, p = d.actions == action, d.probabilities[:, action]
        pairs = [y[folds == f].sum() * (~y[folds == f]).sum() for f in range(3)]
        roc = [sk.roc_auc_score(y[folds == f], p[folds == f]) for f in range(3)]
        precision = [sk.average_precision_score(y[folds == f], p[folds == f]) for f in range(3)]
        assert row.auc == pytest.approx(np.average(roc, weights=pairs))
        assert row.apr == pytest.approx(np.average(precision, weights=[y[folds == f].sum() for f in range(3)]))
    assert found["auc"] == pytest.approx(np.mean([row.auc for row in rows]))
    assert found["apr"] == pytest.approx(np.mean([row.apr for row in rows]))
    same = scores(d._replace(folds=np.full(60, 7)))
    assert same == pytest.approx(scores(d), abs=1e-15)


def naive(d: Decided, resamples: int, seed: int) -> dict[str, list[float]]:
    """Every resample written out row by row and scored anew."""
    names = np.unique(d.episodes)
    rows = [np.flatnonzero(d.episodes == name) for name in names]
    found = {name: [] for name in METRICS}
    for drawn in np.random.default_rng(seed).integers(len(names), size=(resamples, len(names))):
        taken = np.concatenate([rows[unit] for unit in drawn])
        for name, value in scores(Decided(*(column[taken] for column in d))).items():
            found[name].append(value)
    return found


def with_action(d: Decided, action: int, resamples: int, seed: int) -> np.ndarray:
    """[resamples] whether some decision in it took the action."""
    names = np.unique(d.episodes)
    drawn = np.random.default_rng(seed).integers(len(names), size=(resamples, len(names)))
    return np.array([(d.actions[np.isin(d.episodes, names[units])] == action).any() for units in drawn])


@pytest.mark.parametrize("block", [1, 150, 2**19])
@pytest.mark.parametrize("levels", [None, 2])
def test_bootstrap_as_written_out(monkeypatch, block, levels):
    monkeypatch.setattr(statistics, "ROWS_AT_ONCE", block)
    d = random(levels=levels)
    d.actions[d.actions == 2] = 0
    d.actions[0] = 2  # so rare that some resamples lack it
    d = d._replace(folds=d.episodes % 2)
    found, expected, whole = intervals(d, resamples=40, seed=3), naive(d, 40, 3), with_action(d, 2, 40, 3)
    assert found.resamples == 40
    assert 0 < whole.sum() < 40
    for name, (value, low, high) in found.metrics.items():
        assert value == scores(d)[name]
        counted = np.array(expected[name])[whole if name in ("balanced_accuracy", "auc", "apr") else ...]
        np.testing.assert_allclose((low, high), np.quantile(counted, statistics.TAILS), rtol=1e-12, atol=1e-12)
        assert low < high


def test_differences_are_paired():
    ours, theirs = (random(levels=3)._replace(folds=np.zeros(60, int)) for _ in range(2))
    theirs = theirs._replace(probabilities=np.roll(ours.probabilities, 1, axis=0))
    found, a, b = differences(ours, theirs, 30, seed=1), naive(ours, 30, 1), naive(theirs, 30, 1)
    for name, (value, low, high) in found.metrics.items():
        assert value == pytest.approx(scores(ours)[name] - scores(theirs)[name], abs=1e-12)
        np.testing.assert_allclose(
            (low, high), np.quantile(np.subtract(a[name], b[name]), statistics.TAILS), atol=1e-12
        )
    assert set(differences(ours, ours).metrics.values()) == {(0.0, 0.0, 0.0)}
    with pytest.raises(UserError, match="same decisions"):
        differences(ours, theirs._replace(actions=ours.actions[::-1]))


def test_one_episode_has_no_interval():
    d = random()._replace(episodes=np.zeros(60, int))
    for value, low, high in intervals(d).metrics.values():
        assert np.isfinite(value)
        assert np.isnan([low, high]).all()


def test_one_action_has_no_areas():
    """If all decisions took the same action, there is nothing to rank."""
    d = random()._replace(actions=np.zeros(60, int))
    found, (first, *_) = intervals(d, 20).metrics, per_action(d)
    assert np.isnan([found["auc"], found["apr"]]).all()
    assert np.isnan([first.auc, first.apr]).all()
    assert first.recall == found["accuracy"].value


def test_resamples_of_one_action_do_not_count():
    """Two episodes have one action each. Half of the resamples have both actions, and all of these score the same."""
    d = Decided(np.array([[0.6, 0.4], [0.3, 0.7], [0.8, 0.2]]), np.array([0, 1, 1]), np.array([0, 1, 1]))
    apr = (1 / 2 + (1 + 2 / 3) / 2) / 2  # action 0 is second of three; action 1 first and third
    assert intervals(d, 50).metrics["apr"] == pytest.approx((apr, apr, apr))


def test_folds_of_one_action_do_not_count():
    """Action 0 is second of three in the first fold; in the second everyone took it."""
    chance = np.array([0.6, 0.3, 0.8, 0.1, 0.2])
    d = Decided(np.stack([chance, 1 - chance], axis=1), np.array([0, 1, 1, 0, 0]), np.arange(5))
    rows = per_action(d._replace(folds=np.array([0, 0, 0, 1, 1])))
    assert [row.apr for row in rows] == pytest.approx([1 / 2, (1 + 2 / 3) / 2])
    assert [row.auc for row in rows] == pytest.approx([1 / 2, 1 / 2])


def test_intervals_hold_the_truth_as_often_as_they_say():
    """The four decisions of an episode are all right or all wrong: resampled rows give too narrow intervals."""
    rng, inside, alone, trials = np.random.default_rng(0), 0, 0, 200
    for trial in range(trials):
        chance = np.repeat(rng.beta(2.0, 1.0, size=60), 4)  # the mean accuracy is 2/3
        right = rng.random(240) < chance
        d = Decided(np.eye(2)[np.where(right, 0, 1)], np.zeros(240, int), np.repeat(np.arange(60), 4))
        _, low, high = intervals(d, 100, seed=trial).metrics["accuracy"]
        inside += low <= 2 / 3 <= high
        _, low, high = intervals(d._replace(episodes=np.arange(240)), 100, seed=trial).metrics["accuracy"]
        alone += low <= 2 / 3 <= high
    assert 0.90 <= inside / trials <= 0.98
    assert alone < inside


def test_very_many_decisions_take_fewer_resamples(monkeypatch):
    monkeypatch.setattr(statistics, "WORK", 60 * 6 * 150)
    assert intervals(random(), 1000).resamples == 150
    monkeypatch.setattr(statistics, "WORK", 1)
    assert intervals(random(), 1000).resamples == 100
    assert intervals(random(), 30).resamples == 30


def policy(temperature=1.0) -> Policy:
    standardisation = Standardisation(np.full(3, 0.5, np.float32), np.full(3, 2.0, np.float32))
    names = tuple(f"observation_{i}" for i in range(3))
    made = Policy(probes.network(3, 8, 3), names, tuple(f"action {i}" for i in range(3)), standardisation)
    return dataclasses.replace(made, temperature=temperature)


@pytest.mark.parametrize("chunk", [1, 12 * 12, 2**25])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_decided_is_what_the_policy_says(monkeypatch, chunk, temperature):
    """The size of a chunk does not matter; images have their own chunks."""
    monkeypatch.setattr(deciding, "CHUNK", chunk)
    demonstrations = probes.demonstrations()
    flat, found = demonstrations.flat(), decided(policy(temperature), demonstrations)
    np.testing.assert_allclose(found.probabilities, policy(temperature).probabilities(flat.observation), atol=1e-6)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-15)
    np.testing.assert_array_equal(found.actions, flat.action)
    np.testing.assert_array_equal(found.episodes, flat.trajectory)
    thinned = decided(policy(temperature), demonstrations, 3, 1)
    np.testing.assert_array_equal(thinned.actions, demonstrations.flat(3, 1).action)
    np.testing.assert_allclose(thinned.probabilities, found.probabilities[flat.time % 3 == 1], atol=1e-6)


def test_groups_are_resampled_whole():
    grouped = dataclasses.replace(probes.demonstrations(), groups=np.array([5, 5, 9, 9, 9, 5]))
    found = decided(policy(), grouped)
    np.testing.assert_array_equal(found.episodes, grouped.groups[grouped.flat().trajectory])


def test_large_tables_are_kept_in_single_precision(monkeypatch):
    exact = decided(policy(), probes.demonstrations())
    monkeypatch.setattr(deciding, "LARGE", 10)
    small = decided(policy(), probes.demonstrations())
    assert small.probabilities.dtype == np.float32
    np.testing.assert_array_equal(small.probabilities, exact.probabilities.astype(np.float32))
    for name, value in scores(small).items():
        assert value == pytest.approx(scores(exact)[name], abs=1e-6)


def test_other_actions_are_refused():
    other = Demonstrations((Trajectory(np.zeros((1, 3), np.float32), np.zeros(1, int)),), ("left", "right"))
    with pytest.raises(UserError, match="same task"):
        decided(policy(), other)


def test_agreement_is_a_part_of_the_scores():
    demonstrations = probes.demonstrations()
    made = decided(policy(), demonstrations)
    found, whole = Agreement.of(made), scores(made)
    assert found.accuracy == whole["accuracy"]
    assert found.log_loss == whole["log_loss"]
    actions = demonstrations.flat().action
    assert found.majority_accuracy == np.bincount(actions).max() / len(actions)
    assert found.steps == len(actions)
