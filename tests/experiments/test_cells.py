"""Cells: fingerprints, groups, the store, and a second call that runs only what is missing."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import probes
from cells import cell_of, changed
from sbil.errors import UserError
from sbil.experiments import Cell, EnvironmentTask, Method
from sbil.experiments.environment import data_of, demonstrations_for, mismatch, unseen
from sbil.experiments.run import groups, run_cells, run_grid
from sbil.experiments.store import Store, packed, read_all, sealed, write
from sbil.statistics import evenly

TINY = cell_of(draws=2, initialisations=2, updates=20, episodes=3)


@pytest.fixture(scope="module")
def results():
    cells = [TINY, dataclasses.replace(TINY, size=3), dataclasses.replace(TINY, method=Method("bc", "decay"))]
    return run_cells(cells)


def test_methods_are_written_as_they_are_read():
    for text in ("bc", "edm:released", "edm:paper+start=unit", "bc+weight_decay=3+batch=32", "bc+weight_decay=0/1"):
        assert str(Method.parse(text)) == text


def test_every_field_of_a_cell_changes_its_fingerprint():
    greedy = changed(TINY, mode="greedy")
    others = {
        "environment": "Acrobot-v1",
        "demonstrator": "dqn",
        "mode": "greedy",
        "thin": 5,
        "method": Method("bc", "decay"),
        "size": 7,
    }
    fields = {field.name for field in (*dataclasses.fields(Cell), *dataclasses.fields(EnvironmentTask))}
    for name in fields - {"task", "unlabelled", "every_state"}:
        other = changed(greedy, **{name: others.get(name, 11)})
        assert other.fingerprint not in (TINY.fingerprint, *([] if name == "mode" else [greedy.fingerprint]))
    assert dataclasses.replace(TINY).fingerprint == TINY.fingerprint
    states = dataclasses.replace(TINY, method=Method("edm"))
    assert changed(states, unlabelled=3).fingerprint != states.fingerprint


@pytest.mark.parametrize(
    ("fields", "name", "fingerprint"),
    [
        ({}, "CartPole-v1-ppo-sampled-thin20 bc n=1", "b19f5ceda9e5f0d2"),
        (
            {"method": "bc+weight_decay=0/0.1/1", "size": 3},
            "CartPole-v1-ppo-sampled-thin20 bc+weight_decay=0/0.1/1 n=3",
            "d0ad5272f995aba7",
        ),
        (
            {"method": "edm", "every_state": True, "seed": 1},
            "CartPole-v1-ppo-sampled-thin20 edm n=1 every state seed 1",
            "49ff05755407e37c",
        ),
    ],
)
def test_fingerprints_are_those_of_the_first_version(fields, name, fingerprint):
    """A half-finished grid of a user is continued: the same cell keeps its name and its fingerprint."""
    cell = cell_of(**{"draws": 2, "initialisations": 2, "updates": 20, "episodes": 3} | fields)
    assert (str(cell), cell.fingerprint) == (name, fingerprint)


def test_fingerprints_of_the_published_protocol_are_those_of_the_first_version():
    released = cell_of("edm:released", 7)
    states = cell_of("edm", environment="LunarLander-v3", mode="greedy", thin=1, unlabelled=3, episodes=100)
    assert (released.fingerprint, states.fingerprint) == ("807b59af518c817a", "bfa2c7f4345e105a")
    assert str(states) == "LunarLander-v3-ppo-greedy-thin1 edm n=1 +3 unlabelled"


@pytest.mark.parametrize("field", ["thin", "size", "draws", "initialisations", "updates", "episodes"])
def test_numbers_below_one_are_refused(field):
    with pytest.raises(UserError, match=field):
        changed(TINY, **{field: 0})


def test_groups_hold_what_one_program_can_train():
    edm = dataclasses.replace(TINY, method=Method("edm"))
    paper = dataclasses.replace(TINY, method=Method("edm", "paper"))
    released = dataclasses.replace(TINY, method=Method("edm", "released"))  # another batch: another program
    other = changed(TINY, mode="greedy")  # another demonstrator, the same task
    sparser = changed(TINY, thin=30)
    assert groups([TINY, edm, released, paper, other], most=1000) == [[TINY, other], [edm, paper], [released]]
    anew = changed(TINY, seed=1)  # other demonstrations
    assert groups([TINY, sparser, anew], most=1000) == [[TINY, sparser], [anew]]
    chosen, others = (dataclasses.replace(TINY, method=Method("bc", settings=(f"batch={b}",))) for b in ("8/9", "8/7"))
    larger = dataclasses.replace(chosen, size=3)
    assert groups([chosen, TINY, others, larger], most=1000) == [[chosen, larger], [TINY], [others]]
    assert groups([edm, paper], most=4) == [[edm], [paper]]
    assert groups([], most=4) == []


def test_company_does_not_change_a_cell(results):
    alone = run_cells([TINY])[0]
    np.testing.assert_array_equal(alone.returns, results[0].returns)
    for name, values in alone.curves.items():
        np.testing.assert_allclose(values[:, -1], results[0].curves[name][:, -1], rtol=1e-5)


def test_demonstrators_side_by_side_change_no_cell(results):
    """Their trajectories lie in one pool; each run still learns from its own."""
    greedy = changed(TINY, mode="greedy")
    together = run_cells([greedy, TINY, dataclasses.replace(greedy, size=3)])
    np.testing.assert_array_equal(together[1].returns, results[0].returns)
    np.testing.assert_allclose(
        run_cells([greedy])[0].curves["policy_loss"], together[0].curves["policy_loss"], rtol=1e-5
    )


def test_every_run_chooses_among_candidates_and_trains_with_its_choice(results, tmp_path):
    """Sizes of layers too: runs that chose differently are trained by programs of their own."""
    cell = dataclasses.replace(TINY, method=Method("bc", settings=("hidden=64x64/3",)))
    shares = []
    (result,) = run_cells([cell], lambda cells, share, report: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    assert set(result.chosen) <= {"hidden=64x64", "hidden=3"}
    same = [i for i, choice in enumerate(result.chosen) if choice == "hidden=64x64"]
    np.testing.assert_array_equal(result.returns[same], results[0].returns[same])
    assert len(result.chosen) == 4
    Store(tmp_path).save(result)
    assert Store(tmp_path).load(cell).chosen == result.chosen
    assert results[0].chosen == ()


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
            _ = changed(TINY, **changes).fingerprint


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
        assert result.made_by["runs_per_program"] == 12
    assert not np.array_equal(results[0].returns, results[1].returns)


def same(one, other):
    """Everything but the time it took."""
    for field in dataclasses.fields(one):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("curves", "metrics"):
            assert mine.keys() == theirs.keys()
            for name in mine:
                np.testing.assert_array_equal(mine[name], theirs[name])
        elif isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, theirs)
        elif field.name != "seconds":
            assert mine == theirs, field.name


def test_the_store_gives_back_what_it_was_given(results, tmp_path):
    store = Store(tmp_path)
    for result in results:
        store.save(result)
    assert len(list(tmp_path.iterdir())) == 3
    for result in results:
        loaded = store.load(result.cell)
        same(loaded, result)
        assert loaded.seconds == pytest.approx(result.seconds)
    assert store.load(dataclasses.replace(TINY, size=9)) is None


def test_a_file_is_a_plain_table_with_one_row_a_run(results, tmp_path):
    """What a person sees who opens it with any reader of Parquet."""
    store = Store(tmp_path)
    store.save(results[1])
    table = pl.read_parquet(store.path(results[1].cell))
    assert table.height == 4
    assert table["method"].unique().to_list() == ["bc"]
    assert table["draw"].to_list() == [0, 0, 1, 1]
    assert table["initialisation"].to_list() == [0, 1, 0, 1]
    np.testing.assert_allclose(table["returns"].list.mean(), results[1].returns.mean(axis=1))
    low, high = results[1].scale
    np.testing.assert_allclose(table["score"], (table["return"] - low) / (high - low))
    assert json.loads(table["settings"][0])["learning_rate"] == pytest.approx(1e-3)
    facts = json.loads(table["made_by"][0])
    assert {
        "sbil",
        "jax",
        "python",
        "commit",
        "kind",
        "devices",
        "runs_per_program",
        "matmul_precision",
    } <= facts.keys()
    assert table["points"][0].to_list() == [20]
    assert table["metric_policy_loss"][0].len() == 1
    assert table["diverged_at"].null_count() == 4


def test_files_of_several_cells_and_copies_are_read_as_one(results, tmp_path):
    """Folders of several machines are merged by copying; one file may hold many cells, with other diagnostics."""
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    one.save(results[0])
    other.save(results[0])
    odd = dataclasses.replace(results[2], curves={"energy": np.ones((4, 1))})
    write(tmp_path / "other" / "many.parquet", [results[1], odd])
    (tmp_path / "other" / "notes.txt").write_text("not a result")
    found = read_all([tmp_path / "one", tmp_path / "other"])
    assert [result.cell for result in found] == [result.cell for result in results]
    assert [set(result.curves) for result in found] == [{"policy_loss"}, {"policy_loss"}, {"energy"}]
    same(found[1], results[1])


def test_a_second_call_runs_only_what_is_missing(results, tmp_path):
    store = Store(tmp_path)
    store.save(results[0])
    before = store.path(TINY).read_bytes()
    cells = [TINY, dataclasses.replace(TINY, size=3)]
    assert [fresh for _, fresh in run_grid(cells, store)] == [False, True]
    assert [fresh for _, fresh in run_grid(cells, store)] == [False, False]
    assert store.path(TINY).read_bytes() == before


def bytes_of(results, tmp_path):
    write(tmp_path / "whole.parquet", results)
    return (tmp_path / "whole.parquet").read_bytes()


@pytest.mark.parametrize("content", [b"", b"{", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"a,b\n1,2\n"])
def test_what_is_not_a_result_is_named_and_nobody_is_told_to_delete_it(tmp_path, content):
    store = Store(tmp_path)
    store.path(TINY).write_bytes(content)
    with pytest.raises(UserError, match=rf"{store.path(TINY).name}: not a file of sbil's results; leave it out"):
        store.load(TINY)


def test_a_folder_that_cannot_be_written_to_is_found_before_the_work(tmp_path, monkeypatch):
    def refused(*args, **kwargs):
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("sbil.files._temporary", refused)
    monkeypatch.setattr("sbil.experiments.run.run_cells", lambda *_: pytest.fail("work was begun"))
    with pytest.raises(PermissionError):
        list(run_grid([TINY], Store(tmp_path)))


def test_a_cut_file_is_never_read_as_whole(results, tmp_path):
    whole = bytes_of(results[:1], tmp_path)
    path = Store(tmp_path).path(TINY)
    for end in range(0, len(whole), max(len(whole) // 60, 1)):
        path.write_bytes(whole[:end])
        with pytest.raises(UserError, match=path.name):
            Store(tmp_path).load(TINY)


def test_a_changed_byte_is_always_named(results, tmp_path):
    whole = bytes_of(results[:1], tmp_path)
    path = Store(tmp_path).path(TINY)
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 300):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        with pytest.raises(UserError, match=path.name):
            Store(tmp_path).load(TINY)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda table: table.drop("score"), "score"),
        (lambda table: table.head(3), "not all there"),
        (lambda table: table.reverse(), "not all there"),
        (lambda table: table.with_columns(thin=pl.lit(0)), "thin"),
        (lambda table: table.with_columns(made_by=pl.lit("{")), "delete it"),
        (lambda table: table.with_columns(returns=pl.lit("x")), "delete it"),
        (lambda table: table.clear(), "another cell"),
    ],
)
def test_a_table_that_is_not_a_result_is_named(results, tmp_path, change, word):
    path = Store(tmp_path).path(TINY)
    path.write_bytes(sealed(change(results[0].table())))
    with pytest.raises(UserError, match=word) as error:
        Store(tmp_path).load(TINY)
    assert path.name in str(error.value)


def test_another_format_is_named(results, tmp_path, monkeypatch):
    path = Store(tmp_path).path(TINY)
    monkeypatch.setattr("sbil.experiments.store.FORMAT", "sbil-runs-9")
    later = packed(results[:1])
    monkeypatch.undo()
    path.write_bytes(later)
    with pytest.raises(UserError, match="sbil-runs-9"):
        Store(tmp_path).load(TINY)


def test_folders_without_results_are_named(results, tmp_path):
    with pytest.raises(UserError, match="no results here"):
        read_all([tmp_path])
    with pytest.raises(UserError, match="No such file"):
        read_all([tmp_path / "missing.parquet"])
    (tmp_path / "empty.parquet").write_bytes(sealed(results[0].table().clear()))
    with pytest.raises(UserError, match="no run"):
        read_all([tmp_path])
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="give a folder"):
        Store(tmp_path / "file")


def test_numbers_that_are_not_finite_survive_the_store(results, tmp_path):
    values = np.array([[1.0], [np.nan], [np.inf], [2.0]])
    Store(tmp_path).save(dataclasses.replace(results[0], curves={"energy": values}))
    np.testing.assert_array_equal(Store(tmp_path).load(TINY).curves["energy"], values)


def test_what_another_process_finished_meanwhile_is_not_run_again(results, tmp_path):
    """The second cell appears in the store while the first is being run."""
    store = Store(tmp_path)
    cells = [result.cell for result in results[:2]]
    seen = []
    for result, fresh in run_grid(cells, store, together=1):
        seen.append(fresh)
        if result.cell == cells[0]:
            store.save(results[1])
    assert seen == [True, False]


def test_diagnostics_are_kept_along_the_way():
    cell = dataclasses.replace(TINY, updates=1100)
    (result,) = run_cells([cell])
    assert result.points.tolist() == [500, 1000, 1100]
    assert result.curves["policy_loss"].shape == (4, 3)
    assert (result.curves["policy_loss"][:, 0] > result.curves["policy_loss"][:, -1]).all()


def test_long_curves_are_thinned_to_their_ends():
    assert evenly(3, 20).tolist() == [0, 1, 2]
    shown = evenly(1000, 20)
    assert len(shown) == 20
    assert shown[0] == 0
    assert shown[-1] == 999
    assert evenly(1, 20).tolist() == [0]


def test_unlabelled_trajectories_show_their_states_and_no_decision():
    """They follow the labelled trajectories in the same draw and are thinned like them."""
    cell = changed(TINY, method=Method("edm"), unlabelled=2)
    _, dataset = data_of([(cell, draw, i) for draw, i in cell.runs])
    pool = demonstrations_for("CartPole-v1", "ppo", "sampled")
    drawn = pool.draw(3, seed=1)
    assert dataset.labelled.size.tolist() == [25] * 4
    assert (
        dataset.unlabelled.size.tolist() == [sum(len(pool.trajectories[i].observations[::20]) for i in drawn[1:])] * 4
    )
    states = dataset.pool.observations[dataset.unlabelled.indices[2]]
    expected = np.concatenate([pool.trajectories[i].observations[::20] for i in drawn[1:]])
    np.testing.assert_array_equal(states, expected)
    with pytest.raises(UserError, match="nothing from unlabelled"):
        _ = changed(TINY, unlabelled=2).fingerprint


def test_every_state_of_the_labelled_trajectories_may_be_shown():
    """Actions are recorded rarely, states often. Another cell of the same program is thinned differently."""
    rare = changed(TINY, method=Method("edm"), every_state=True)
    other = changed(rare, thin=5)
    runs = [(cell, draw, i) for cell in (rare, other) for draw, i in cell.runs]
    _, dataset = data_of(runs)
    pool = demonstrations_for("CartPole-v1", "ppo", "sampled", 0)
    for run, (cell, draw, _) in enumerate(runs):
        (drawn,) = pool.draw(1, seed=draw)
        states = pool.trajectories[drawn].observations
        undecided = np.delete(states, np.arange(0, len(pool.trajectories[drawn]), cell.task.thin), axis=0)
        assert int(dataset.unlabelled.size[run]) == len(undecided)
        assert int(dataset.labelled.size[run]) == len(range(0, len(pool.trajectories[drawn]), cell.task.thin))
        kept = dataset.labelled.indices[run][: int(dataset.labelled.size[run])]
        np.testing.assert_array_equal(
            dataset.pool.before(kept), states[: len(pool.trajectories[drawn])][:: cell.task.thin]
        )
        shown = dataset.unlabelled.indices[run][: len(undecided)]
        np.testing.assert_array_equal(dataset.pool.observations[shown], undecided)
    assert rare.fingerprint != changed(rare, every_state=False).fingerprint
    with pytest.raises(UserError, match="nothing from unlabelled"):
        _ = changed(TINY, every_state=True).fingerprint


def test_another_seed_makes_everything_anew():
    """Other demonstrations, other draws, other networks."""
    anew = changed(TINY, seed=1)
    assert anew.fingerprint != TINY.fingerprint
    (_, here), (_, there) = (data_of([(cell, 0, 0)]) for cell in (TINY, anew))
    assert (
        here.pool.observations.shape != there.pool.observations.shape
        or (np.asarray(here.pool.observations) != np.asarray(there.pool.observations)).any()
    )
    one, other = run_cells([TINY])[0], run_cells([anew])[0]
    assert not np.array_equal(one.curves["policy_loss"], other.curves["policy_loss"])


def test_decisions_held_out_are_of_trajectories_that_no_run_has_seen():
    cell = changed(TINY, method=Method("edm"), unlabelled=2)
    runs = [(cell, draw, i) for draw, i in cell.runs]
    _, dataset = data_of(runs)
    rows = unseen(runs, dataset)
    trajectories = np.asarray(dataset.pool.trajectory)
    pool = demonstrations_for("CartPole-v1", "ppo", "sampled", 0)
    for run, (_, draw, _) in enumerate(runs):
        held_out = np.unique(trajectories[np.asarray(rows.indices[run])[: int(rows.size[run])]])
        assert len(held_out) == 50
        assert not set(held_out.tolist()) & set(pool.draw(3, seed=draw).tolist())


def test_a_run_that_has_seen_all_trajectories_has_none_to_be_judged_by():
    """Another run of the same program is still scored."""
    runs = [(dataclasses.replace(TINY, size=200), 0, 0), (TINY, 0, 0)]
    _, dataset = data_of(runs)
    rows = unseen(runs, dataset)
    assert int(rows.size[0]) == 0
    networks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(probes.network(4, 8, 2, seed=seed) for seed in (0, 1)))
    for values in mismatch(networks, rows, np.array([0, 1]), dataset.pool).values():
        assert np.isnan(values).tolist() == [True, False]


def test_how_unseen_decisions_are_met_is_kept(results, tmp_path):
    """By hand for one run: greedy decisions that differ, and minus the log-probabilities."""
    store = Store(tmp_path)
    store.save(results[0])
    kept = store.load(results[0].cell)
    for name in ("error", "log_loss"):
        np.testing.assert_array_equal(kept.metrics[f"held_out_{name}"], results[0].metrics[f"held_out_{name}"])
        assert (kept.metrics[f"held_out_{name}"] > 0).all()
    runs = [(TINY, 0, 0), (TINY, 1, 0)]
    _, dataset = data_of(runs)
    rows = unseen(runs, dataset)
    networks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(probes.network(4, 8, 2, seed=seed) for seed in (0, 1)))
    found = mismatch(networks, rows, np.array([0, 1]), dataset.pool)
    for run in (0, 1):
        steps = np.asarray(rows.indices[run])[: int(rows.size[run])]
        logits = np.asarray(probes.network(4, 8, 2, seed=run)(dataset.pool.before(steps)))
        action = np.asarray(dataset.pool.action)[steps]
        assert found["error"][run] == pytest.approx((logits.argmax(1) != action).mean(), abs=1e-6)
        loss = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(action)), action]
        assert found["log_loss"][run] == pytest.approx(loss.mean(), rel=1e-4)


def test_a_group_that_was_kept_in_part_is_run_whole_again_and_ends_with_the_same_bits(results, tmp_path):
    """A kill between two files of one program must not change how the other cells are trained."""
    store = Store(tmp_path)
    cells = [result.cell for result in results]
    undisturbed = {result.cell: result for result, _ in run_grid(cells, store)}
    kept = store.path(cells[1]).read_bytes()
    for cell in (cells[0], cells[2]):
        store.path(cell).unlink()
    again = list(run_grid(cells, store))
    assert [(result.cell, fresh) for result, fresh in again] == [(cells[1], False), (cells[0], True), (cells[2], True)]
    for result, _ in again:
        same(result, undisturbed[result.cell])
        assert result.made_by["runs_per_program"] == 12
    assert store.path(cells[1]).read_bytes() == kept
