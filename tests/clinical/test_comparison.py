"""The clinical table: splits by patient, every number against one made another way, nothing run twice."""

import json
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import probes
import shared
from sbil.clinical import comparison
from sbil.clinical.comparison import BASELINES, LEARNERS, METHODS, Comparison, Splits, run, slug
from sbil.clinical.physionet2012 import extract
from sbil.clinical.table import as_json, markdown, write
from sbil.dataset import make_dataset, standardisation_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.demonstrations.reading import read
from sbil.errors import UserError
from sbil.evaluation.matching import METRICS, decided, scores
from sbil.fitting import fit
from sbil.policy import Policy
from sbil.statistics import estimate_over_splits

SET_A = ("physionet-2012", "set-a.tar.gz")


def patients(count=40, length=6, seed=0, groups=None):
    """Decisions that follow the first of three columns, whose sizes are far apart, with a habit and some noise."""
    rng = np.random.default_rng(seed)
    trajectories = []
    for _ in range(count):
        state = rng.normal(size=(length, 3)).cumsum(axis=0)
        action = (state[:, 0] + 0.5 * rng.normal(size=length) > 0).astype(int)
        trajectories.append(Trajectory((state * [100, 1, 0.01] + [1000, 0, 5]).astype(np.float32), action))
    return Demonstrations(tuple(trajectories), ("no", "yes"), groups=groups)


DATA = patients()


def rooms(seed=0):
    """Walks among three rooms, seen as one-hot rows."""
    rng = np.random.default_rng(seed)
    eye = np.eye(3, dtype=np.float32)
    walks = [Trajectory(eye[rng.integers(3, size=5)], rng.integers(2, size=4), terminal=True) for _ in range(30)]
    return Demonstrations(tuple(walks), ("stay", "go"))


ROOMS = rooms()


def handmade(**accuracies):
    """A comparison in which every metric of a method has the values of its accuracy."""
    values = {method.replace("_", " "): np.array(each, float) for method, each in accuracies.items()}
    return Comparison("Ward", 0.2, {method: dict.fromkeys(METRICS, each) for method, each in values.items()})


# What is run.


def test_every_learning_part_is_standardised_by_itself():
    splits = Splits.of(DATA, 0.2, (3, 4))
    whole = splits.dataset()
    for number, seed in enumerate((3, 4)):
        training, judged = DATA.split(0.2, seed)
        assert (len(training), len(judged)) == (32, 8)
        scaling = standardisation_of(training)
        alone = make_dataset(training, standardisation=scaling)
        size = int(whole.labelled.size[number])
        rows = whole.labelled.indices[number][:size]
        assert size == training.steps
        np.testing.assert_allclose(whole.pool.before(rows), alone.pool.before(np.arange(size)), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(whole.pool.after(rows), alone.pool.after(np.arange(size)), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(whole.pool.action[rows], alone.pool.action)
        np.testing.assert_array_equal(whole.pool.has_next[rows], alone.pool.has_next)


def test_no_patient_is_on_both_sides():
    grouped = patients(groups=np.arange(40) // 4)
    splits = Splits.of(grouped, 0.2, (0, 1, 2))
    for training, judged in zip(splits.training, splits.judged, strict=True):
        assert not set(training.groups) & set(judged.groups)
        assert len(set(judged.groups)) == 2


def test_logistic_regression_is_that_of_scikit_learn(tmp_path):
    found = run("Ward", DATA, tmp_path, ["logistic regression"], splits=2)
    for seed in range(2):
        training, judged = (part.flat() for part in DATA.split(0.2, seed))
        scaler = StandardScaler().fit(training.observation)
        model = LogisticRegression(max_iter=2000).fit(scaler.transform(training.observation), training.action)
        right = model.score(scaler.transform(judged.observation), judged.action)
        assert found.scores["logistic regression"]["accuracy"][seed] == pytest.approx(right)
        assert right > 0.75


def test_all_splits_at_once_give_what_one_fit_gives(tmp_path):
    found = run("Ward", DATA, tmp_path, ["bc"], splits=2, updates=200)
    for seed in range(2):
        training, judged = DATA.split(0.2, seed)
        policy = fit("bc", training, seed=seed, updates=200, standardise=True)
        for metric, value in scores(decided(policy, judged)).items():
            assert found.scores["bc"][metric][seed] == pytest.approx(value, abs=0.01), metric


def test_what_is_learned_depends_on_no_held_out_patient(tmp_path):
    """With other held-out decisions the policies are the same: only their scores change."""
    _, judged = DATA.split(0.2, 0)
    theirs = {id(each) for each in judged.trajectories}
    turned = Demonstrations(
        tuple(
            Trajectory(each.observations, 1 - each.actions) if id(each) in theirs else each
            for each in DATA.trajectories
        ),
        DATA.action_names,
    )
    methods = ["logistic regression", "gradient-boosted trees", "bc"]
    one, other = (run(f"Ward {i}", d, tmp_path, methods, splits=1, updates=50) for i, d in enumerate((DATA, turned)))
    for method in methods:
        together = one.scores[method]["accuracy"] + other.scores[method]["accuracy"]
        assert together == pytest.approx(1)


def test_baselines_of_one_action(tmp_path):
    """Where only one action was ever taken there is nothing to learn, and nothing breaks."""
    still = Demonstrations(
        tuple(Trajectory(each.observations, 0 * each.actions) for each in DATA.trajectories), DATA.action_names
    )
    found = run("Still", still, tmp_path, BASELINES, splits=1)
    assert all(found.scores[method]["accuracy"] == [1.0] for method in BASELINES)


@pytest.mark.parametrize("method", probes.by_speed(method for method in LEARNERS if method != "dsfn"))
def test_every_algorithm_can_be_compared(tmp_path, method):
    found = run("Ward", DATA, tmp_path, [method], splits=2, updates=3)
    assert np.isfinite(found.scores[method]["accuracy"]).all()


@pytest.mark.release
def test_dsfn_can_be_compared(tmp_path):
    few = "+".join(["dsfn", "rounds=1", "warm_updates=4", "feature_updates=4", "value_updates=4"])
    found = run("Ward", DATA, tmp_path, [few], splits=2)
    assert np.isfinite(found.scores[few]["accuracy"]).all()


def test_what_diverges_is_said(tmp_path):
    wild = "bc+learning_rate=1e30"
    found = run("Ward", DATA, tmp_path, [wild, "bc"], splits=2, updates=20)
    assert found.diverged(wild) == 2
    assert f"| {wild} (diverged in 2) | - | - | - |" in markdown(found)
    assert found.diverged("bc") == 0


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match="unknown algorithm 'bd'"):
        run("Ward", DATA, tmp_path, ["majority", "bd"])
    with pytest.raises(UserError, match="not chosen here"):
        run("Ward", DATA, tmp_path, ["bc+weight_decay=0/1"])
    with pytest.raises(UserError, match="splits must be"):
        run("Ward", DATA, tmp_path, ["majority"], splits=0)
    with pytest.raises(UserError, match="updates must be"):
        run("Ward", DATA, tmp_path, ["bc"], updates=0)
    for wrong in ("bc@0", "bc@11", "bc@x"):
        with pytest.raises(UserError, match="a number of splits from 1 to 10"):
            run("Ward", DATA, tmp_path, [wrong])
    with pytest.raises(UserError, match="bc is there twice"):
        run("Ward", DATA, tmp_path, ["bc", "bc@2"])
    assert not list(tmp_path.iterdir())


def test_states_can_be_taken_as_they_are(tmp_path):
    """Every split learns from its own part of one pool, and one-hot states stay one-hot."""
    splits = Splits.of(ROOMS, 0.2, (3, 4), standardise=False)
    whole = splits.dataset()
    assert len(whole.pool.action) == ROOMS.steps
    for number, training in enumerate(splits.training):
        rows = whole.labelled.indices[number][: int(whole.labelled.size[number])]
        np.testing.assert_array_equal(whole.pool.before(rows), training.flat().observation)
        np.testing.assert_array_equal(whole.pool.action[rows], training.flat().action)
    found = run("Rooms", ROOMS, tmp_path, ["edm_exact", "bc"], splits=2, updates=5, standardise=False)
    assert np.isfinite(found.scores["edm_exact"]["auc"]).all()
    with pytest.raises(UserError, match="edm_exact needs one-hot pairs"):
        run("Rooms", ROOMS, tmp_path, ["edm_exact"], splits=2, updates=5)
    training, judged = ROOMS.split(0.2, 1)
    alone = scores(decided(fit("bc", training, seed=1, updates=5, standardise=False), judged))
    assert found.scores["bc"]["log_loss"][1] == pytest.approx(alone["log_loss"], abs=1e-4)


def test_what_was_learned_is_played(tmp_path):
    """A process is told by split what every method thinks of its made-up decisions; what diverged is not played."""
    told = {}

    def play(method, said):
        told[method] = {seed: one.probabilities for seed, one in said.items()}
        return {seed: {"luck": 10.0 + seed} for seed in said}

    sure = Policy(probes.table(np.array([[9.0, 0], [0, 9], [9, 0]])), ROOMS.observation_names, ROOMS.action_names)
    asked = Demonstrations(
        tuple(Trajectory(row[None], np.zeros(1, int)) for row in np.eye(3, dtype=np.float32)), ROOMS.action_names
    )
    process = comparison.Process("Rooms, 7 games", {"sure": sure}, asked, {"luck": "luck, live"}, play)
    wild = "bc+learning_rate=1e30"
    methods = ["sure", "majority", "logistic regression", "bc", wild]
    found = run("Rooms", ROOMS, tmp_path, methods, splits=2, updates=20, standardise=False, process=process)
    for method in methods[:-1]:
        assert found.scores[method]["luck"].tolist() == [10, 11]
        assert all(said.shape == (3, 2) for said in told[method].values())
    assert told[wild] == {}
    assert np.isnan(found.scores[wild]["luck"]).all()
    assert told["sure"][1][1] == pytest.approx([1 / (1 + np.e**9), 1 / (1 + np.e**-9)])
    text = markdown(found)
    assert "| method | ACC | AUC | APR | luck, live |" in text
    assert "| 10.5000 ± 0.5000 |" in text
    assert as_json(found)["methods"]["bc"]["scores"]["luck"]["mean"] == 10.5
    told.clear()
    run("Rooms", ROOMS, tmp_path, methods, splits=2, updates=20, standardise=False, process=process)
    assert not told
    more = process._replace(name="Rooms, 8 games")
    run("Rooms", ROOMS, tmp_path, ["bc"], splits=2, updates=20, standardise=False, process=more)
    assert set(told) == {"bc"}


def test_a_method_on_the_first_splits_only(tmp_path):
    found = run("Ward", DATA, tmp_path, ["majority", "bc", "previous action@2"], splits=3, updates=1)
    assert [found.splits_of(method) for method in found.scores] == [3, 3, 2]
    assert found.splits == 3
    assert "| previous action (2 of 3 splits) |" in markdown(found)
    assert as_json(found)["methods"]["previous action"]["splits"] == 2
    both = found.scores["previous action"]["auc"] - found.scores["bc"]["auc"][:2]
    assert found.difference("previous action", "auc") == estimate_over_splits(both, 0.2)
    whole = run("Ward", DATA, tmp_path, ["previous action"], splits=3)
    np.testing.assert_array_equal(whole.scores["previous action"]["auc"][:2], found.scores["previous action"]["auc"])


def test_updates_are_those_asked_for_and_rounds_their_own():
    [bc, dsfn, decay] = comparison.check(["bc", "dsfn+rounds=3", "bc:decay"], 2, 77)
    assert (bc.settings[0], dsfn.settings[0], decay.settings[0]) == (77, 3, 77)
    assert run_notes(updates=None) == ("a",)
    assert run_notes(updates=1000)[0] == "a"
    assert run_notes(updates=1000)[1].startswith("1,000 updates")


def run_notes(updates):
    with tempfile.TemporaryDirectory() as folder:
        return run("Ward", DATA, Path(folder), ["majority"], splits=1, updates=updates, notes=("a",)).notes


def test_progress_ends_with_1_when_a_method_is_stored(tmp_path):
    seen = []
    for _ in range(2):
        run("Ward", DATA, tmp_path, ["majority", "bc"], splits=2, updates=5, watch=lambda *told: seen.append(told))
        assert [told for told in seen if told[1] == 1] == [("majority", 1), ("bc", 1)]
        first = seen[0]
        seen.clear()
    assert first == ("majority", 1)  # kept: nothing else is told


# What is stored.


def test_nothing_is_run_twice(tmp_path, monkeypatch):
    ran = []
    original = comparison._run

    def counted(method, splits, *rest):
        ran.append((method, splits.seeds))
        return original(method, splits, *rest)

    monkeypatch.setattr(comparison, "_run", counted)
    first = run("Ward", DATA, tmp_path, ["majority", "bc"], splits=2, updates=5)
    assert ran == [("majority", (0,)), ("majority", (1,)), ("bc", (0, 1))]  # baselines are stored split by split
    again = run("Ward", DATA, tmp_path, ["majority", "bc"], splits=2, updates=5)
    assert len(ran) == 3
    for method in first.scores:
        for metric in METRICS:
            np.testing.assert_array_equal(first.scores[method][metric], again.scores[method][metric])
    run("Ward", DATA, tmp_path, ["majority"], splits=3)
    assert ran[3:] == [("majority", (2,))]
    run("Ward", DATA, tmp_path, ["bc"], splits=2, updates=6)
    run("Ward", patients(seed=1), tmp_path, ["majority"], splits=2)
    run("Ward", patients(groups=np.arange(40) // 2), tmp_path, ["majority"], splits=2)
    run("Ward", DATA, tmp_path, ["majority"], splits=2, held_out=0.5)
    assert [method for method, _ in ran[4:]] == ["bc", *["majority"] * 6]


def test_files_hold_metrics_and_no_data(tmp_path):
    run("Ward 7/b", DATA, tmp_path, ["previous action"], splits=2)
    (path,) = tmp_path.glob("*.*")
    assert path.name == "Ward-7-b.previous-action.parquet"
    table = pl.read_parquet(path)
    counts = ("trajectories", "held_out_trajectories", "held_out_decisions")
    assert table.columns == ["dataset", "method", "seed", "run", *METRICS, "seconds", *counts]
    assert table["held_out_decisions"].to_list() == [48, 48]


def test_damaged_files_are_named(tmp_path):
    run("Ward", DATA, tmp_path, ["majority"], splits=2)
    path = tmp_path / "Ward.majority.parquet"
    whole = path.read_bytes()
    for content in (b"", whole[:-9], whole.replace(b"Ward", b"Word")):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"Ward\.majority\.parquet: damaged"):
            run("Ward", DATA, tmp_path, ["majority"], splits=2)


# What is printed.


def test_the_table_by_hand():
    made = handmade(bc=[0.8, 0.9], edm=[0.85, 0.93], previous_action=[0.7, 0.7])
    text = markdown(made, named=str.upper, paper={"bc": {"ACC": (0.861, 0.013)}})
    assert "| METHOD |" not in text
    assert "| method | ACC | AUC | APR | ACC, paper | AUC, paper | APR, paper |" in text
    assert "| BC | 0.850 ± 0.050 | 0.850 ± 0.050 | 0.850 ± 0.050 | 0.861 ± 0.013 |  |  |" in text
    assert "| PREVIOUS ACTION | 0.700 ± 0.000 |" in text
    # EDM minus BC: 0.05 and 0.03, variance 0.0002, and 12.7062 sqrt(0.0002 * 3/4) = 0.1556.
    assert "| EDM | +0.0400 (-0.1156 to +0.1956) |" in text


def test_json_is_plain():
    made = as_json(handmade(bc=[0.8, 0.9], edm=[np.nan, np.nan]))
    text = json.dumps(made, allow_nan=False)
    assert json.loads(text) == made
    assert made["splits"] == 2
    assert made["methods"]["bc"]["scores"]["accuracy"]["mean"] == 0.85
    assert made["methods"]["bc"]["minus_bc"]["accuracy"]["mean"] == 0
    assert made["methods"]["edm"]["diverged"] == 2
    assert made["methods"]["edm"]["scores"]["auc"]["mean"] is None
    assert as_json(handmade(edm=[0.5]))["methods"]["edm"]["minus_bc"] is None


def test_both_are_written(tmp_path):
    made = handmade(bc=[0.8, 0.9])
    text, values = write(made, tmp_path)
    assert text.read_text() == markdown(made)
    assert json.loads(values.read_text()) == as_json(made)
    assert (text.name, values.name) == ("Ward.md", "Ward.json")


def test_the_methods_are_those_of_the_paper_and_the_baselines():
    assert {*BASELINES, *LEARNERS} == set(METHODS)
    assert {method.partition(":")[0] for method in LEARNERS} == {"bc", "rcal", "dsfn", "value_dice", "edm"}


@pytest.mark.shared(*SET_A)
def test_real_stays(tmp_path):
    folder = tmp_path / "set-a"
    folder.mkdir()
    with tarfile.open(shared.path(*SET_A), "r|gz") as file:
        for member in file:
            if member.isreg():
                (folder / Path(member.name).name).write_bytes(file.extractfile(member).read())
            if len(list(folder.iterdir())) == 200:
                break
    cohort = extract([folder], tmp_path / "a.parquet")
    stays = read(cohort.path, schema=cohort.schema)
    found = run("PhysioNet-2012", stays, tmp_path / "metrics", BASELINES[:3], splits=3)
    majority, previous, logistic = (found.score(method, "auc").mean for method in BASELINES[:3])
    assert majority == 0.5
    assert min(previous, logistic) > 0.8


# What is published.


PUBLISHED = sorted((Path(__file__).parents[2] / "results" / "clinical").glob("*.json"))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_the_published_tables_are_what_the_files_of_metrics_say(path):
    """Means by hand from the Parquet files; the page has the table as it is in the results, or none of it."""
    table = json.loads(path.read_text())
    for method, values in table["methods"].items():
        rows = pl.read_parquet(path.with_name(f"{path.stem}.{slug(method)}.parquet"))
        told = values.get("splits", table["splits"])
        known = rows.filter(pl.col("seed") < told, pl.col("accuracy").is_not_nan())
        assert values["diverged"] == told - len(known)
        for metric, score in values["scores"].items():
            mean = known[metric].mean()
            assert score["mean"] is None if mean is None else abs(score["mean"] - mean) < 1e-6
        assert not set(rows.columns) & {"stay", "patient", "record", "day", "window"}
    first = path.with_suffix(".md").read_text().split("\n\n")[1]
    page = (Path(__file__).parents[2] / "docs" / "clinical.md").read_text()
    assert first in page or "previous-action-shown" in path.stem


def test_a_narrower_call_takes_nothing_from_the_table(tmp_path):
    """Other methods, and further splits of the same, stay; a table of other updates is not replaced."""
    first = run("Ward", DATA, tmp_path, ["majority", "previous action"], splits=3)
    write(first, tmp_path)
    again = run("Ward", DATA, tmp_path, ["majority"], splits=1)
    assert list(again.scores) == ["majority", "previous action"]
    assert (again.splits_of("majority"), again.splits_of("previous action")) == (3, 3)
    np.testing.assert_array_equal(again.scores["majority"]["auc"], first.scores["majority"]["auc"])
    before = (tmp_path / "Ward.md").read_text()
    write(again, tmp_path)
    assert (tmp_path / "Ward.md").read_text() == before
    with pytest.raises(UserError, match="other settings"):
        run("Ward", DATA, tmp_path, ["majority"], splits=1, updates=3)
    with pytest.raises(UserError, match="a table of other data"):
        run("Ward", patients(seed=1), tmp_path, ["majority"], splits=1)
    with pytest.raises(UserError, match="a table of other data"):
        run("Ward", DATA, tmp_path, ["majority"], splits=1, held_out=0.5)
    assert (tmp_path / "Ward.md").read_text() == before


def test_a_method_that_cannot_learn_from_the_data_is_refused_before_any_is_run(tmp_path):
    with pytest.raises(UserError, match="edm_exact needs one-hot pairs"):
        run("Ward", DATA, tmp_path, ["majority", "edm_exact"], splits=1)
    assert not list(tmp_path.glob("*.parquet"))


def test_a_metric_that_some_splits_do_not_have_says_so():
    some = handmade(bc=[0.5, 0.6, 0.7], majority=[0.4, np.nan, 0.4])
    some.scores["bc"]["auc"] = np.array([0.5, np.nan, np.nan])
    row = next(line for line in markdown(some).splitlines() if line.startswith("| bc |"))
    assert row.split(" | ")[1:3] == ["0.600 ± 0.058", "0.500 (in 1 of 3 splits)"]
    other = next(line for line in markdown(some).splitlines() if line.startswith("| majority (diverged in 1)"))
    assert "in 2 of" not in other


def test_one_split_has_no_interval(tmp_path):
    text = markdown(run("Ward", DATA, tmp_path, ["majority", "bc"], splits=1, updates=2))
    assert "nan" not in text
    assert "over 1 random split, " in text
