"""Cells: fingerprints, groups, the store, and a second call that runs only what is missing."""

import dataclasses
import json

import numpy as np
import pytest

from sbil.errors import UserError
from sbil.experiments import Cell, Method
from sbil.experiments.run import groups, run_cells, run_grid
from sbil.experiments.store import Store

TINY = Cell("CartPole-v1", "ppo", "sampled", 20, Method("bc"), 1, draws=2, initialisations=2, updates=20, episodes=3)


@pytest.fixture(scope="module")
def results():
    cells = [TINY, dataclasses.replace(TINY, size=3), dataclasses.replace(TINY, method=Method("bc", "decay"))]
    return run_cells(cells)


def test_methods_are_written_as_they_are_read():
    for text in ("bc", "edm:released", "edm:paper+start=unit", "bc+weight_decay=3+batch=32", "bc+weight_decay=0/1"):
        assert str(Method.parse(text)) == text


def test_every_field_of_a_cell_changes_its_fingerprint():
    greedy = dataclasses.replace(TINY, mode="greedy")
    others = {
        "environment": "Acrobot-v1",
        "demonstrator": "dqn",
        "mode": "greedy",
        "thin": 5,
        "method": Method("bc", "decay"),
        "size": 7,
    }
    for field in dataclasses.fields(Cell):
        value = others.get(field.name, 11)
        changed = dataclasses.replace(greedy, **{field.name: value})
        assert changed.fingerprint not in (TINY.fingerprint, *([] if field.name == "mode" else [greedy.fingerprint]))
    assert dataclasses.replace(TINY).fingerprint == TINY.fingerprint


@pytest.mark.parametrize("field", ["thin", "size", "draws", "initialisations", "updates", "episodes"])
def test_numbers_below_one_are_refused(field):
    with pytest.raises(UserError, match=field):
        dataclasses.replace(TINY, **{field: 0})


def test_groups_hold_what_one_program_can_train():
    edm = dataclasses.replace(TINY, method=Method("edm"))
    paper = dataclasses.replace(TINY, method=Method("edm", "paper"))
    released = dataclasses.replace(TINY, method=Method("edm", "released"))  # another batch: another program
    other = dataclasses.replace(TINY, mode="greedy")  # another demonstrator, the same task
    sparser = dataclasses.replace(TINY, thin=30)
    assert groups([TINY, edm, released, paper, other], most=1000) == [[TINY, other], [edm, paper], [released]]
    assert groups([TINY, sparser], most=1000) == [[TINY], [sparser]]
    chosen, others = (dataclasses.replace(TINY, method=Method("bc", settings=(f"batch={b}",))) for b in ("8/9", "8/7"))
    larger = dataclasses.replace(chosen, size=3)
    assert groups([chosen, TINY, others, larger], most=1000) == [[chosen, larger], [TINY], [others]]
    assert groups([edm, paper], most=4) == [[edm], [paper]]
    assert groups([], most=4) == []


def test_company_does_not_change_a_cell(results):
    alone = run_cells([TINY])[0]
    np.testing.assert_array_equal(alone.returns, results[0].returns)
    for name, values in alone.metrics.items():
        np.testing.assert_allclose(values, results[0].metrics[name], rtol=1e-5)


def test_demonstrators_side_by_side_change_no_cell(results):
    """Their trajectories lie in one pool; each run still learns from its own."""
    greedy = dataclasses.replace(TINY, mode="greedy")
    together = run_cells([greedy, TINY, dataclasses.replace(greedy, size=3)])
    np.testing.assert_array_equal(together[1].returns, results[0].returns)
    np.testing.assert_allclose(
        run_cells([greedy])[0].metrics["policy_loss"], together[0].metrics["policy_loss"], rtol=1e-5
    )


def test_every_run_chooses_among_candidates_and_trains_with_its_choice(results, tmp_path):
    """Sizes of layers too: runs that chose differently are trained by programs of their own."""
    cell = dataclasses.replace(TINY, method=Method("bc", settings=("hidden=64x64/3",)))
    shares = []
    (result,) = run_cells([cell], lambda cells, share, report: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    assert set(result.choices) <= {"hidden=64x64", "hidden=3"}
    same = [i for i, choice in enumerate(result.choices) if choice == "hidden=64x64"]
    np.testing.assert_array_equal(result.returns[same], results[0].returns[same])
    assert len(result.choices) == 4
    Store(tmp_path).save(result)
    assert Store(tmp_path).load(cell).choices == result.choices
    assert results[0].choices == [""] * 4


def test_what_cannot_be_run_is_refused_before_anything_runs():
    for changes, word in (
        ({"demonstrator": "dqn"}, "no mode 'sampled'"),  # its outputs are values, not logits
        ({"environment": "CartPole-v9"}, "environment"),
        ({"demonstrator": "sac"}, "demonstrator"),
        ({"mode": "asleep"}, "mode"),
        ({"method": Method("bc", "nope")}, "preset"),
        ({"method": Method("bc", settings=("weight_decay=0/x",))}, "weight_decay"),
    ):
        with pytest.raises(UserError, match=word):
            _ = dataclasses.replace(TINY, **changes).fingerprint


def test_a_result_under_a_wrong_name_is_refused(results, tmp_path):
    store = Store(tmp_path)
    store.save(results[0])
    store.path(TINY).rename(store.path(results[1].cell))
    with pytest.raises(UserError, match="delete it"):
        store.load(results[1].cell)


def test_results_have_every_episode_of_every_run(results):
    for result in results:
        assert result.returns.shape == (4, 3)
        assert result.scores.shape == (2, 2)
        assert result.device["runs_per_program"] == 12
    assert not np.array_equal(results[0].returns, results[1].returns)


def test_the_store_gives_back_what_it_was_given(results, tmp_path):
    store = Store(tmp_path)
    for result in results:
        store.save(result)
    assert len(list(tmp_path.iterdir())) == 3
    for result in results:
        loaded = store.load(result.cell)
        assert loaded is not None
        assert loaded.cell == result.cell
        np.testing.assert_allclose(loaded.returns, result.returns, atol=1e-4)
        np.testing.assert_array_equal(loaded.diverged_at, result.diverged_at)
    assert store.load(dataclasses.replace(TINY, size=9)) is None


def test_a_second_call_runs_only_what_is_missing(results, tmp_path):
    store = Store(tmp_path)
    store.save(results[0])
    before = store.path(TINY).read_bytes()
    cells = [TINY, dataclasses.replace(TINY, size=3)]
    assert [fresh for _, fresh in run_grid(cells, store)] == [False, True]
    assert [fresh for _, fresh in run_grid(cells, store)] == [False, False]
    assert store.path(TINY).read_bytes() == before


@pytest.mark.parametrize("content", ["", "{", "{}", "[1]", '{"format": "sbil-cell-9"}', "null"])
def test_a_damaged_result_is_named(tmp_path, content):
    store = Store(tmp_path)
    store.path(TINY).write_text(content)
    with pytest.raises(UserError, match=store.path(TINY).name):
        store.load(TINY)


def test_numbers_that_are_not_finite_survive_the_store(results, tmp_path):
    broken = dataclasses.replace(results[0], metrics={"energy": np.array([1.0, np.nan, np.inf, 2.0])})
    Store(tmp_path).save(broken)
    assert "NaN" not in Store(tmp_path).path(TINY).read_text()
    json.loads(Store(tmp_path).path(TINY).read_text())
    loaded = Store(tmp_path).load(TINY)
    np.testing.assert_array_equal(loaded.metrics["energy"], [1, np.nan, np.nan, 2])
