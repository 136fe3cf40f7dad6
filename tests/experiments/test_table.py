"""Tables of decisions: splits by patient, every number computed a second way, nothing run twice."""

import dataclasses
import re
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import probes
import shared
from sbil.clinical.physionet2012 import extract
from sbil.dataset import make_dataset, standardisation_of
from sbil.demonstrations import Demonstrations, Trajectory, read
from sbil.errors import UserError
from sbil.evaluation.decided import decided
from sbil.evaluation.matching import METRICS, scores
from sbil.experiments import Process, TableTask
from sbil.experiments.methods import BASELINES
from sbil.experiments.result import CELL_COLUMNS, RUN_COLUMNS
from sbil.experiments.run import run_cells, run_grid
from sbil.experiments.store import Store, read_all
from sbil.experiments.table import LEARNERS, METHODS, TableRuns, cells_of_table, wanted
from sbil.experiments.task import Run
from sbil.fitting import fit
from sbil.policy import Policy
from sbil.reports.clinical import in_markdown, tables
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


def cells(name, data, methods, splits=10, updates=None, process=None, **fields):
    task = TableTask.of(name, data, process=process, **fields)
    return cells_of_table(task, wanted(methods, splits, updates, tuple(process.references) if process else ()))


def run(name, data, folder, methods, *rest, watch=None, **fields):
    """The table of these cells and of those of the same data that the folder already holds."""
    asked = cells(name, data, methods, *rest, **fields)
    for _ in run_grid(asked, Store(folder), watch):
        pass
    return next(found for found in tables(read_all([folder])) if found.task == asked[0].task)


def splits_of(data, *seeds, **fields):
    """The runs of BC on the splits with these seeds, which follow each other."""
    (cell,) = cells("Ward", data, ["bc"], len(seeds), seed=seeds[0], **fields)
    return TableRuns(cell.task, [Run(cell, draw, 0) for draw in range(len(seeds))])


# What is run.


def test_every_learning_part_is_standardised_by_itself():
    whole = splits_of(DATA, 3, 4).dataset()
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
    splits = splits_of(grouped, 0, 1, 2)
    for (training, _, _), judged in zip(splits.learning, splits.judged, strict=True):
        assert not set(training.groups) & set(judged.groups)
        assert len(set(judged.groups)) == 2


def test_logistic_regression_is_that_of_scikit_learn(tmp_path):
    found = run("Ward", DATA, tmp_path, ["logistic regression"], splits=2)
    for seed in range(2):
        training, judged = (part.flat() for part in DATA.split(0.2, seed))
        scaler = StandardScaler().fit(training.observation)
        model = LogisticRegression(max_iter=2000).fit(scaler.transform(training.observation), training.action)
        right = model.score(scaler.transform(judged.observation), judged.action)
        assert found.values("logistic regression", "accuracy")[seed] == pytest.approx(right)
        assert right > 0.75


def test_all_splits_at_once_give_what_one_fit_gives(tmp_path):
    found = run("Ward", DATA, tmp_path, ["bc"], splits=2, updates=200)
    for seed in range(2):
        training, judged = DATA.split(0.2, seed)
        policy = fit("bc", training, seed=seed, updates=200, standardise=True)
        for metric, value in scores(decided(policy, judged)).items():
            assert found.values("bc", metric)[seed] == pytest.approx(value, abs=0.01), metric


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
        together = one.values(method, "accuracy") + other.values(method, "accuracy")
        assert together == pytest.approx(1)


def test_baselines_of_one_action(tmp_path):
    """Where only one action was ever taken there is nothing to learn, and nothing breaks."""
    still = Demonstrations(
        tuple(Trajectory(each.observations, 0 * each.actions) for each in DATA.trajectories), DATA.action_names
    )
    found = run("Still", still, tmp_path, BASELINES, splits=1)
    assert all(found.values(method, "accuracy") == [1.0] for method in BASELINES)


@pytest.mark.parametrize("method", probes.by_speed(method for method in LEARNERS if method != "dsfn"))
def test_every_algorithm_can_be_compared(tmp_path, method):
    found = run("Ward", DATA, tmp_path, [method], splits=2, updates=3)
    assert np.isfinite(found.values(method, "accuracy")).all()


@pytest.mark.release
def test_dsfn_can_be_compared(tmp_path):
    few = "+".join(["dsfn", "rounds=1", "warm_updates=4", "feature_updates=4", "value_updates=4"])
    found = run("Ward", DATA, tmp_path, [few], splits=2)
    assert np.isfinite(found.values(few, "accuracy")).all()


def test_what_diverges_is_said(tmp_path):
    wild = "bc+learning_rate=1e30"
    found = run("Ward", DATA, tmp_path, [wild, "bc"], splits=2, updates=20)
    assert found.results[wild].diverged == 2
    assert f"| {wild} (diverged in 2) | - | - | - |" in in_markdown(found)
    assert found.results["bc"].diverged == 0


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
    splits = splits_of(ROOMS, 3, 4, standardise=False)
    whole = splits.dataset()
    assert len(whole.pool.action) == ROOMS.steps
    for number, (training, _, _) in enumerate(splits.learning):
        rows = whole.labelled.indices[number][: int(whole.labelled.size[number])]
        np.testing.assert_array_equal(whole.pool.before(rows), training.flat().observation)
        np.testing.assert_array_equal(whole.pool.action[rows], training.flat().action)
    found = run("Rooms", ROOMS, tmp_path, ["edm_exact", "bc"], splits=2, updates=5, standardise=False)
    assert np.isfinite(found.values("edm_exact", "auc")).all()
    with pytest.raises(UserError, match="edm_exact needs one-hot pairs"):
        run("Rooms", ROOMS, tmp_path, ["edm_exact"], splits=2, updates=5)
    training, judged = ROOMS.split(0.2, 1)
    alone = scores(decided(fit("bc", training, seed=1, updates=5, standardise=False), judged))
    assert found.values("bc", "log_loss")[1] == pytest.approx(alone["log_loss"], abs=1e-4)


def test_what_was_learned_is_played(tmp_path):
    """For each split, the process gets each method's probabilities at its states; diverged runs are not played."""
    told = {}

    def play(method, said):
        told[method] = {seed: one.probabilities for seed, one in said.items()}
        return {seed: {"luck": 10.0 + seed} for seed in said}

    sure = Policy(probes.table(np.array([[9.0, 0], [0, 9], [9, 0]])), ROOMS.observation_names, ROOMS.action_names)
    asked = Demonstrations(
        tuple(Trajectory(row[None], np.zeros(1, int)) for row in np.eye(3, dtype=np.float32)), ROOMS.action_names
    )
    process = Process("Rooms, 7 games", {"sure": sure}, asked, {"luck": "luck, live"}, play)
    wild = "bc+learning_rate=1e30"
    methods = ["sure", "majority", "logistic regression", "bc", wild]
    found = run("Rooms", ROOMS, tmp_path, methods, splits=2, updates=20, standardise=False, process=process)
    for method in methods[:-1]:
        assert found.values(method, "luck").tolist() == [10, 11]
        assert all(said.shape == (3, 2) for said in told[method].values())
    assert told[wild] == {}
    assert np.isnan(found.values(wild, "luck")).all()
    assert told["sure"][1][1] == pytest.approx([1 / (1 + np.e**9), 1 / (1 + np.e**-9)])
    text = in_markdown(found)
    assert "| method | ACC | AUC | APR | luck, live |" in text
    assert "| 10.5000 ± 0.5000 |" in text
    assert found.as_json()["methods"]["bc"]["scores"]["luck"]["mean"] == 10.5
    told.clear()
    run("Rooms", ROOMS, tmp_path, methods, splits=2, updates=20, standardise=False, process=process)
    assert not told
    more = process._replace(name="Rooms, 8 games")
    run("Rooms", ROOMS, tmp_path, ["bc"], splits=2, updates=20, standardise=False, process=more)
    assert set(told) == {"bc"}


def test_a_method_on_the_first_splits_only(tmp_path):
    found = run("Ward", DATA, tmp_path, ["majority", "bc", "previous action@2"], splits=3, updates=1)
    assert [found.results[name].cell.draws for name in ("majority", "bc", "previous action")] == [3, 3, 2]
    assert found.splits == 3
    assert "| previous action (2 of 3 splits) |" in in_markdown(found)
    assert found.as_json()["methods"]["previous action"]["splits"] == 2
    both = found.values("previous action", "auc") - found.values("bc", "auc")[:2]
    assert found.difference("previous action", "auc") == estimate_over_splits(both, 0.2)
    whole = run("Ward", DATA, tmp_path, ["previous action"], splits=3)
    np.testing.assert_array_equal(whole.values("previous action", "auc")[:2], found.values("previous action", "auc"))


def test_updates_are_those_asked_for_and_rounds_their_own(tmp_path):
    assert [one.updates for one in wanted(["majority", "bc", "dsfn+rounds=3", "bc:decay"], 2, 77)] == [0, 77, 3, 77]
    asked = {"splits": 1, "notes": ("a",)}
    assert run("Ward", DATA, tmp_path, ["majority"], **asked).notes == ("a",)
    notes = run("Ward", DATA, tmp_path, ["bc"], updates=2, **asked).notes
    assert notes == ("a", "2 updates (a method that learns in rounds: its own number).")
    both = run("Ward", DATA, tmp_path, ["bc"], updates=3, **asked)
    assert both.notes == ("a",)
    assert list(both.results) == ["majority", "bc+updates=2", "bc+updates=3"]


def test_progress_ends_with_1_when_a_method_is_done(tmp_path):
    seen = []
    watch = lambda cells, share, report: seen.append((str(cells[0].method), share))  # noqa: E731
    run("Ward", DATA, tmp_path, ["majority", "bc"], splits=2, updates=5, watch=watch)
    assert [told for told in seen if told[1] == 1] == [("majority", 1), ("bc", 1)]
    seen.clear()
    run("Ward", DATA, tmp_path, ["majority", "bc"], splits=2, updates=5, watch=watch)
    assert not seen  # both methods are stored


# What is stored.


@pytest.fixture
def ran(monkeypatch):
    """The methods that were run (not read from files) and their numbers of splits."""
    seen = []

    def counted(cells, *rest):
        seen.extend((str(cell.method), cell.draws) for cell in cells)
        return run_cells(cells, *rest)

    monkeypatch.setattr("sbil.experiments.run.run_cells", counted)
    return seen


def test_nothing_is_run_twice(tmp_path, ran):
    first = run("Ward", DATA, tmp_path, ["majority", "bc"], splits=2, updates=5)
    assert ran == [("majority", 2), ("bc", 2)]
    again = run("Ward", DATA, tmp_path, ["majority", "bc"], splits=2, updates=5)
    assert len(ran) == 2
    for method in first.results:
        for metric in METRICS:
            np.testing.assert_array_equal(first.values(method, metric), again.values(method, metric))
    run("Ward", DATA, tmp_path, ["majority"], splits=3)
    run("Ward", DATA, tmp_path, ["bc"], splits=2, updates=6)
    run("Ward", patients(seed=1), tmp_path, ["majority"], splits=2)
    run("Ward", patients(groups=np.arange(40) // 2), tmp_path, ["majority"], splits=2)
    run("Ward", DATA, tmp_path, ["majority"], splits=2, held_out=0.5)
    assert ran[2:] == [("majority", 3), ("bc", 2), *[("majority", 2)] * 3]


def test_files_hold_metrics_and_no_data(tmp_path):
    run("Ward 7/b", DATA, tmp_path, ["previous action"], splits=2)
    (path,) = tmp_path.rglob("*.*")
    assert path.parent == tmp_path / "clinical"
    assert path.name.startswith("Ward-7-b.previous-action.")
    table = pl.read_parquet(path)
    counts = {"trajectories", "held_out_trajectories", "held_out_decisions"}
    assert {*table.columns} == {*TableTask.columns(), *CELL_COLUMNS, *RUN_COLUMNS, *METRICS, *counts}
    assert table["held_out_decisions"].to_list() == [48, 48]


def test_damaged_files_are_named(tmp_path):
    run("Ward", DATA, tmp_path, ["majority"], splits=2)
    (path,) = tmp_path.rglob("*.parquet")
    whole = path.read_bytes()
    damaged = "delete it and run the command again; damaged or incomplete"
    for content, said in ((b"", "not a file"), (whole[:-9], damaged), (whole.replace(b"Ward", b"Word"), damaged)):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"{re.escape(path.name)}: {said}"):
            run("Ward", DATA, tmp_path, ["majority"], splits=2)


def test_training_that_was_stopped_goes_on(tmp_path, monkeypatch):
    """The checkpoint lies in a folder that git ignores and is removed when the cell is stored."""
    monkeypatch.setattr("sbil.checkpoint.SECONDS_BETWEEN", 0)
    whole = run("Ward", DATA, tmp_path / "whole", ["bc"], splits=2, updates=1100)

    def stop(cells, share, report):
        if report.update >= 1000:
            raise KeyboardInterrupt

    torn = tmp_path / "torn"
    with pytest.raises(KeyboardInterrupt):
        run("Ward", DATA, torn, ["bc"], splits=2, updates=1100, watch=stop)
    (checkpoint,) = (torn / "clinical" / "data").glob(".*.checkpoint")
    updates = []
    again = run("Ward", DATA, torn, ["bc"], splits=2, updates=1100, watch=lambda *told: updates.append(told[2].update))
    assert updates[1:] == [1100]
    np.testing.assert_array_equal(again.values("bc", "log_loss"), whole.values("bc", "log_loss"))
    assert not checkpoint.exists()


def test_a_table_that_was_read_equals_the_one_that_was_run(tmp_path):
    (cell,) = cells("Ward", DATA, ["majority"], splits=2, notes=("a", "b"), title="Ward, at night")
    ((result, _),) = run_grid([cell], Store(tmp_path))
    (again,) = read_all([tmp_path])
    assert (again.cell, again.fingerprint, again.diverged) == (cell, cell.fingerprint, 0)
    assert str(cell) == "Ward, at night majority"
    assert again.scores.tolist() == result.scores.tolist() == result.metrics["accuracy"].reshape(2, 1).tolist()
    assert dataclasses.asdict(again.cell.task)["notes"] == ("a", "b")


def test_what_a_cell_of_a_table_cannot_be():
    (cell,) = cells("Ward", DATA, ["majority"])
    for wrong in ({"size": 3}, {"initialisations": 2}):
        with pytest.raises(UserError, match="differ in their split only"):
            dataclasses.replace(cell, **wrong)


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
    methods = [*BASELINES][:3]
    found = run("PhysioNet-2012", stays, tmp_path / "metrics", methods, splits=3)
    majority, previous, logistic = (found.score(method, "auc").mean for method in methods)
    assert majority == 0.5
    assert min(previous, logistic) > 0.8


# What a folder holds.


def test_a_narrower_call_takes_nothing_from_the_table(tmp_path):
    """Other methods and further splits stay; other data get their own table."""
    first = run("Ward", DATA, tmp_path, ["majority", "previous action"], splits=3)
    before = in_markdown(first)
    again = run("Ward", DATA, tmp_path, ["majority"], splits=1)
    assert list(again.results) == ["majority", "previous action"]
    assert in_markdown(again) == before
    for other in ({"data": patients(seed=1)}, {"held_out": 0.5}):
        run("Ward", other.pop("data", DATA), tmp_path, ["majority"], splits=1, **other)
    assert before in [in_markdown(table) for table in tables(read_all([tmp_path]))]
    assert len(tables(read_all([tmp_path]))) == 3


def test_a_method_that_cannot_learn_from_the_data_is_refused_before_any_is_run(tmp_path):
    with pytest.raises(UserError, match="edm_exact needs one-hot pairs"):
        run("Ward", DATA, tmp_path, ["majority", "edm_exact"], splits=1)
    assert not list(tmp_path.rglob("*.parquet"))


def test_one_split_has_no_interval(tmp_path):
    text = in_markdown(run("Ward", DATA, tmp_path, ["majority", "bc"], splits=1, updates=2))
    assert "nan" not in text
    assert "over 1 random split, " in text
