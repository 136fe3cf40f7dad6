"""The classifiers: scikit-learn's own checks in full, its tools around them, and the policy inside."""

import pickle
import sys

import joblib
import numpy as np
import onnxruntime
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import sbil
from sbil import algorithms, devices
from sbil.dataset import Spec
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.fitting import fit
from sbil.policy.onnx import as_bytes
from sbil.sklearn import AutoClassifier, BCClassifier, EDMClassifier

# Compilation is cheap and computation slow in these tests: short chains, few updates.
SHORT = {"updates": 300, "random_state": 0}
CLASSIFIERS = [
    BCClassifier(updates=500),
    EDMClassifier(updates=300, chain_length=3, buffer_size=256, batch=32, learning_rate=3e-3),
]
IRIS, KIND = load_iris(return_X_y=True, as_frame=True)
SPECIES = load_iris().target_names[KIND]


@parametrize_with_checks(CLASSIFIERS[:1])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture
def few_candidates(monkeypatch):
    """Two candidates of one program instead of all: each check compiles programs for its own sizes."""
    methods = tuple(("bc", "default", {"weight_decay": decay, "hidden": (32,)}) for decay in (0.0, 0.1))
    monkeypatch.setattr("sbil.portfolio.TABLES", methods)


@pytest.mark.usefixtures("few_candidates")
@parametrize_with_checks([AutoClassifier(updates=500)])
def test_scikit_learns_own_checks_of_auto(estimator, check):
    check(estimator)


@pytest.mark.release
@parametrize_with_checks([AutoClassifier(updates=500)])
def test_scikit_learns_own_checks_of_auto_with_all_candidates(estimator, check):
    check(estimator)


@pytest.mark.release
@parametrize_with_checks(CLASSIFIERS[1:])
def test_scikit_learns_own_checks_of_edm(estimator, check):
    check(estimator)


@pytest.mark.release
@parametrize_with_checks([BCClassifier(), EDMClassifier()])
def test_scikit_learns_own_checks_of_the_defaults(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def model():
    return BCClassifier(**SHORT).fit(IRIS, SPECIES)


def test_it_learns_names_from_a_data_frame(model):
    assert model.score(IRIS, SPECIES) > 0.95
    assert list(model.classes_) == ["setosa", "versicolor", "virginica"]
    assert model.policy_.action_names == ("setosa", "versicolor", "virginica")
    assert list(model.feature_names_in_) == list(IRIS.columns) == list(model.policy_.observation_names)
    assert model.n_iter_ == 300
    assert set(model.predict(IRIS[::50])) == set(SPECIES)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(IRIS[IRIS.columns[::-1]])


def test_it_gives_what_its_policy_gives(model):
    np.testing.assert_allclose(model.predict_proba(IRIS), model.policy_.probabilities(IRIS.to_numpy()), atol=1e-6)
    np.testing.assert_allclose(model.energy(IRIS), model.policy_.energy(IRIS.to_numpy()), atol=1e-5)
    np.testing.assert_array_equal(model.score_samples(IRIS), -model.energy(IRIS))
    assert model.energy(IRIS).shape == (150,)


def test_its_policy_is_that_of_fit(model):
    """Each row is an episode, columns are standardised, random_state gives the seed; padding changes nothing."""
    rows = zip(IRIS.to_numpy(np.float32)[:, None], KIND.to_numpy(np.int32)[:, None], strict=True)
    data = Demonstrations(tuple(Trajectory(o, a) for o, a in rows), tuple(model.classes_), tuple(IRIS.columns))
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    expected = fit("bc", data, seed=int(seed), updates=300, standardise=True)
    assert model.policy_.provenance == expected.provenance
    assert model.policy_.provenance["data"]["trajectories"] == 150
    np.testing.assert_array_equal(model.policy_.logits(IRIS.to_numpy()), expected.logits(IRIS.to_numpy()))


def test_its_policy_can_be_saved_and_exported(model, tmp_path):
    model.policy_.save(tmp_path / "policy")
    loaded = sbil.Policy.load(tmp_path / "policy")
    np.testing.assert_array_equal(loaded.logits(IRIS.to_numpy()), model.policy_.logits(IRIS.to_numpy()))
    session = onnxruntime.InferenceSession(as_bytes(model.policy_), providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"observation": IRIS.to_numpy(np.float32)})
    np.testing.assert_allclose(probabilities, model.predict_proba(IRIS), atol=1e-5)


def test_the_same_random_state_gives_the_same_model(model):
    again = clone(model).fit(IRIS, SPECIES)
    np.testing.assert_array_equal(again.predict_proba(IRIS), model.predict_proba(IRIS))
    other = clone(model).set_params(random_state=1).fit(IRIS, SPECIES)
    assert np.abs(other.predict_proba(IRIS) - model.predict_proba(IRIS)).max() > 1e-4
    order = np.random.default_rng(0).permutation(150)
    shuffled = clone(model).fit(IRIS.iloc[order], SPECIES[order])
    assert (shuffled.predict(IRIS) == model.predict(IRIS)).mean() > 0.95


def test_others_can_pickle_it(model, tmp_path):
    expected = model.predict_proba(IRIS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(IRIS), expected)
    joblib.dump(model, tmp_path / "model")
    np.testing.assert_array_equal(joblib.load(tmp_path / "model").predict_proba(IRIS), expected)


def test_scikit_learns_tools_take_it():
    pipeline = make_pipeline(StandardScaler(), BCClassifier(**SHORT, standardise=False))
    assert cross_val_score(pipeline, IRIS, SPECIES, cv=3).mean() > 0.9
    grid = {"bcclassifier__learning_rate": [1e-6, 1e-3], "bcclassifier__updates": np.array([300])}
    search = GridSearchCV(pipeline, grid, cv=3, scoring="neg_log_loss").fit(IRIS, SPECIES)
    assert search.best_params_["bcclassifier__learning_rate"] == 1e-3
    assert type(search.best_estimator_[-1].policy_.provenance["updates"]) is int
    calibrated = CalibratedClassifierCV(BCClassifier(**SHORT), cv=3).fit(IRIS, SPECIES)
    assert calibrated.score(IRIS, SPECIES) > 0.9
    np.testing.assert_allclose(calibrated.predict_proba(IRIS).sum(axis=1), 1, atol=1e-6)


def test_edm_knows_what_is_unfamiliar():
    """Far from the data the energy is higher than at nearly all of the data."""
    edm = EDMClassifier(updates=500, chain_length=10, random_state=0).fit(IRIS, SPECIES)
    assert edm.score(IRIS, SPECIES) > 0.9
    inside = edm.score_samples(IRIS)
    outside = edm.score_samples(IRIS + 8 * IRIS.std().to_numpy() * [1, -1, 1, -1])
    assert (outside < np.quantile(inside, 0.05)).mean() > 0.9


# What people bring


ROWS = np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize("Classifier", [BCClassifier, EDMClassifier])
def test_unusual_data(Classifier):
    model = Classifier(
        updates=2, hidden=(4,), random_state=0, **({"buffer_size": 64} if Classifier is EDMClassifier else {})
    )
    constant = model.fit(ROWS, ["only"] * 20)
    assert set(constant.predict(ROWS)) == {"only"}
    np.testing.assert_array_equal(constant.predict_proba(ROWS), 1)
    assert model.fit(ROWS[:1], [3]).predict(ROWS[:1]) == [3]
    flat = model.fit(np.ones((20, 2)), np.arange(20) % 2)
    assert np.isfinite(flat.predict_proba(ROWS)).all()
    assert np.isfinite(flat.energy(ROWS)).all()
    objects = model.fit(ROWS.astype(object), np.arange(20) % 2).predict_proba(ROWS)
    np.testing.assert_array_equal(objects, model.fit(ROWS, np.arange(20) % 2).predict_proba(ROWS))


def test_auto_blends_by_held_out_decisions(few_candidates):
    model = AutoClassifier(**SHORT).fit(IRIS, SPECIES)
    assert model.score(IRIS, SPECIES) > 0.9
    record = model.policy_.provenance["selection"]
    losses = record["held_out_log_loss"]
    assert list(losses) == ["bc+weight_decay=0+hidden=32", "bc+weight_decay=0.1+hidden=32", "blend"]
    assert losses["blend"] <= min(losses.values()) + 0.001
    assert sum(record["weights"].values()) == pytest.approx(1, abs=1e-3)
    np.testing.assert_array_equal(clone(model).fit(IRIS, SPECIES).predict_proba(IRIS), model.predict_proba(IRIS))
    assert model.get_params().keys() == {"updates", "standardise", "random_state"}
    assert set(model.fit(ROWS, ["only"] * 20).predict(ROWS)) == {"only"}
    assert model.fit(ROWS[:1], [3]).predict(ROWS[:1]) == [3]


def test_read_only_files_can_be_learned_from(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS.astype(np.float32))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    model = BCClassifier(updates=2, random_state=0).fit(rows, np.arange(20) % 2)
    assert model.predict(rows).shape == (20,)
    np.testing.assert_array_equal(rows, ROWS.astype(np.float32))


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (sparse.csr_array(ROWS), np.arange(20) % 2, "dense data is required"),
        (np.where(ROWS > 1, np.nan, ROWS), np.arange(20) % 2, "contains NaN"),
        (ROWS * 1e39, np.arange(20) % 2, "too large"),
        (ROWS, np.linspace(0, 1, 20), "Unknown label type"),
        (ROWS[:, :0], np.arange(20) % 2, "0 feature"),
        (ROWS, np.arange(19), "inconsistent numbers of samples"),
    ],
    ids=["sparse", "NaN", "huge", "real labels", "no column", "lengths"],
)
def test_what_cannot_be_learned_from_is_refused(X, y, words):
    with pytest.raises((ValueError, TypeError), match=words):
        BCClassifier(updates=2).fit(X, y)


@pytest.mark.parametrize(
    "wrong",
    [
        {"updates": 0},
        {"updates": 1.5},
        {"learning_rate": -1},
        {"hidden": "wide"},
        {"batch": 0},
        {"preset": "defualt"},
    ],
    ids=str,
)
def test_wrong_parameters_are_named_when_fitting(wrong):
    ((name, _),) = wrong.items()
    with pytest.raises(UserError, match=name):
        BCClassifier(**wrong).fit(ROWS, np.arange(20) % 2)


def test_settings_reach_the_algorithm():
    model = EDMClassifier(updates=1, hidden=[4, 3], weight_decay=np.float64(0.5), preset="released", buffer_size=64)
    made = model.fit(ROWS, np.arange(20) % 2).policy_.provenance
    assert made["settings"]["hidden"] == (4, 3)
    assert made["settings"]["weight_decay"] == 0.5
    assert made["settings"]["start"] == "unit"
    assert made["settings"]["buffer_size"] == 64
    assert made["preset"] == "released"


@pytest.mark.parametrize("Classifier", [BCClassifier, EDMClassifier])
def test_every_setting_is_a_parameter(Classifier):
    settings = algorithms.settings_of(algorithms.configure(Classifier.algorithm))
    own = {"preset", "updates", "standardise", "random_state"}
    assert Classifier().get_params().keys() == settings.keys() | own


def test_nothing_works_before_fitting():
    for method in ("predict", "predict_proba", "energy", "score_samples"):
        with pytest.raises(NotFittedError):
            getattr(BCClassifier(), method)(ROWS)


def test_nearly_equal_sizes_share_a_program():
    """The second fit has another size and compiles no training program again."""
    from sbil.training import _chunk_program

    rows = np.random.default_rng(0).normal(size=(70, 6))
    sizes = set()
    for count in (50, 61, 70):
        BCClassifier(updates=2).fit(rows[:count], np.arange(count) % 2)
        mesh = devices.over_runs(1)
        spec = Spec((6,), 2)
        sizes.add(_chunk_program(algorithms.get("bc").make, spec, mesh, 2)._cache_size())
    assert sizes == {1}


def test_a_data_frame_of_mixed_numbers_is_fine():
    frame = pd.DataFrame({"a": np.arange(20), "b": np.arange(20) % 3 == 0, "c": np.linspace(0, 1, 20)})
    assert BCClassifier(updates=1).fit(frame, np.arange(20) % 2).predict(frame).shape == (20,)


def test_without_scikit_learn_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "sbil.sklearn")
    with pytest.raises(UserError, match=r"^[^\n]*pip install 'sbil\[sklearn\]'$"):
        import sbil.sklearn  # noqa: F401
