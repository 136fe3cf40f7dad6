"""The study of peers: what each way scores, on made-up runs, and one tiny run."""

from collections import Counter
from functools import partial

import jax
import numpy as np
import polars as pl
import pytest

from sbil.portfolio import portfolio
from studies.cells import Setting
from studies.choosing import choices
from studies.peers import figures, live, methods, pooled, run, stored, tables

SETTING = Setting.parse("CartPole-v1 dqn greedy 20")


def tiny(tmp_path, **changed):
    how = {
        "draws": 2,
        "networks": 2,
        "episodes": 2,
        "updates": 20,
        "sizes": (1,),
        "settings": run.SETTINGS[:2],
    }
    return run.Run(out=tmp_path / "runs", **{**how, **changed})


def test_every_method_of_the_study_can_be_trained():
    for peer in methods.METHODS:
        (candidate,) = peer.candidates(SETTING, 1, None)
        assert candidate.name == peer.name
        assert candidate.updates >= 1
        assert peer.title


def test_names_tell_methods_apart():
    names = [peer.name for peer in methods.METHODS]
    assert len(set(names)) == len(names) == len({peer.title for peer in methods.METHODS})


def test_candidates_of_auto_are_added_once():
    found = Counter((one.name, one.network) for one in methods.candidates_of(SETTING, 5))
    assert set(found.values()) == {1}
    assert {one.name for one in portfolio(1)} <= {name for name, _ in found}
    assert ("bc", 4) in found


def test_methods_that_need_decisions_in_a_row_run_unthinned_only():
    peer = methods.Peer("group", "title", "bc", unthinned=True)
    assert not peer.runs_in(SETTING)
    assert peer.runs_in(SETTING._replace(thin=1))


def test_long_methods_run_for_small_draws_only():
    assert methods.largest_of("bc") == 15
    assert all(methods.largest_of(peer.name) == 7 for peer in methods.METHODS if (peer.updates or 0) >= 100_000)


def test_a_tiny_run_is_resumed_and_taken(tmp_path, monkeypatch):
    some = tuple(peer for peer in methods.METHODS if peer.method in ("bc", "bc+weight_decay=1"))
    monkeypatch.setattr(methods, "METHODS", some)
    monkeypatch.setattr("sbil.portfolio.METHODS", (("bc", "default", {}), ("bc", "default", {"weight_decay": 3.0})))
    monkeypatch.setattr(live, "CHECKPOINTS", 2)
    asked = tiny(tmp_path)
    run.run(asked)
    (folder,) = (tmp_path / "runs").iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert set(before) == {"bc-3.parquet", "models.parquet", "folds.parquet", "live.parquet"}
    run.run(asked)
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    monkeypatch.setattr(stored, "STORED", tmp_path / "stored")
    stored.take(stored.Take(folder=tmp_path / "runs"))
    rows = pl.read_parquet(tmp_path / "stored" / "CartPole-v1.parquet")
    counts = dict(rows["method"].value_counts().rows())
    assert counts == dict.fromkeys(("bc", "bc+weight_decay=1", "bc+weight_decay=3", live.LAST, live.BEST), 8)
    trained = rows.filter(~pl.col("method").is_in((live.BEST, live.LAST)))
    assert np.isfinite(trained.select("score", "distance", "held_out_log_loss", "horizon").to_numpy()).all()
    assert rows.filter(pl.col("method") == live.BEST)["seen"].is_not_null().all()


def test_pools_hold_settings_of_one_thinning(tmp_path):
    found = pooled.pools(tiny(tmp_path), run.SETTINGS)
    assert [len(each.members) for each in found] == [3, 3, 1, 1, 1, 1, 1]


def test_pooling_changes_neither_data_nor_keys(tmp_path):
    (pool,) = pooled.pools(tiny(tmp_path, sizes=(1, 3)), run.SETTINGS[:2])
    for member, first in zip(pool.members, (0, 4), strict=True):
        for place in range(4):
            ours, theirs = (each.dataset.runs(np.array(run)) for each, run in ((pool, first + place), (member, place)))
            size = int(theirs.labelled.size)
            assert ours.labelled.size == size
            states = [own.pool.before(own.labelled.indices[:size]) for own in (ours, theirs)]
            np.testing.assert_array_equal(*states)
    keys = [jax.random.key_data(each.keys("use")) for each in (pool, *pool.members)]
    np.testing.assert_array_equal(keys[0], np.concatenate(keys[1:]))
    rows = pool.identified(pl.DataFrame({"run": range(8)}))
    assert rows["demonstrator"].to_list() == ["dqn"] * 4 + ["ppo"] * 4
    assert rows["draw"].to_list() == [0, 1] * 4


def test_parts_share_the_work(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(run.Work, "tasks", lambda self: {name: partial(done.append, name) for name in "abc"})
    monkeypatch.setattr(pooled.Pooled, "identified", lambda self, rows: pl.DataFrame({"a": [1]}))
    for part in range(2):
        run.run(tiny(tmp_path, part=part, parts=2))
    assert done == ["a", "c", "b"]


KEY = ("CartPole-v1", "dqn", "greedy", 20, 1)


def made_up(draws=6):
    """BC scores 0.2 and weight decay 1 scores 0.9, which also stays nearest; weight decay 3 scores 0.9 in the mean."""
    score = {"bc": 0.2, "bc+weight_decay=1": 0.9, "bc+weight_decay=3": 0.9, live.LAST: 0.2, live.BEST: 0.6}
    rows = [
        {
            "draw": draw,
            "method": method,
            "network": network,
            "score": value + 0.01 * network + (0.1 * (-1) ** draw if method == "bc+weight_decay=3" else 0.001 * draw),
            "diverged": False,
            "distance": None if "checkpoint" in method else 1 - value + 0.01 * network,
            "log_loss": value,
            "horizon": 50,
            "seen": 0.8 if method == live.BEST else None,
        }
        for draw in range(draws)
        for method, value in score.items()
        for network in range(2)
    ]
    constants = dict(zip(choices.CELL, KEY, strict=True))
    return pl.DataFrame(rows).with_columns(**{name: pl.lit(value) for name, value in constants.items()})


def cells_of(table, name):
    """Return the columns of the row of a table that begins with a title."""
    return next(line for line in table.splitlines() if line.startswith(f"| {name} |"))[2:-2].split(" | ")


def test_a_score_is_the_mean_of_networks_and_auto_keeps_one():
    scores = stored.scores_of(made_up())
    assert scores["bc"][2] == pytest.approx(0.207)
    assert scores[stored.AUTO][2] == pytest.approx(0.902)  # the nearest network of weight decay 1
    assert scores[stored.SEEN].tolist() == [0.8] * 6


def test_the_summary_counts_what_is_clear():
    found = {KEY: stored.scores_of(made_up())}
    _, count, minus_bc, clear_bc, minus_decay, *_ = cells_of(tables.summary(found), "BC, weight decay 1")
    assert (count, minus_bc.split()[0], clear_bc, minus_decay) == ("1", "+0.700", "1, 0", "")
    *_, minus_decay, clear, _, _ = cells_of(tables.summary(found), "BC, weight decay 3")
    assert clear == "0, 0"
    assert cells_of(tables.summary(found), "BC")[5] == "0, 1"


def test_cells_mark_what_differs():
    bold = cells_of(tables.every_cell({KEY: stored.scores_of(made_up())}), "BC")[1]
    assert bold.startswith("**0.21 [")
    assert bold.endswith("** ↓")


def test_the_best_checkpoint_is_compared_with_the_last_one():
    row = cells_of(tables.checkpoints({KEY: stored.scores_of(made_up())}), "CartPole, DQN greedy, every 20th step")
    assert [text[:4] for text in row[2:4]] == ["0.20", "0.60"]
    assert row[4].startswith("**+0.400")
    assert row[5] == "0.800"


def test_returns_stand_beside_printed_ones():
    claim = tables.Claim(("IQ-Learn, in its own figure",), ("bc",), (KEY[:-1],))
    table = tables.claimed({KEY: stored.scores_of(made_up())}, claim)
    assert cells_of(table, "printed: IQ-Learn, in its own figure")[1:] == ["459", "485", "500"]
    assert cells_of(table, "BC")[1:] == ["**118**", "", ""]  # 17.6 + 0.2075 * 482.4


def test_every_claim_names_what_is_known():
    for claim in tables.CLAIMS.values():
        assert set(claim.lines) <= set(tables.PRINTED["line"])
        assert set(claim.methods) <= set(tables.TITLES)
        assert {" ".join(map(str, setting)) for setting in claim.settings} <= set(run.SETTINGS)


def test_figures_show_what_was_run():
    drawn = figures.differences({KEY: stored.scores_of(made_up())})
    labels = [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    assert labels[0] == "BC"
    assert "BC, weight decay 1" not in labels
    assert len(figures.by_size({KEY: stored.scores_of(made_up())}).axes) == figures.COLUMNS
