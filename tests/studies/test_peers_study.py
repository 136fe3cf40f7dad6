"""The study of peers: what each method scores, on made-up runs, and one tiny run."""

import numpy as np
import polars as pl
import pytest

from sbil.errors import UserError
from studies.cells import Setting
from studies.choosing import choices
from studies.peers import figures, live, methods, run, stored, tables

SETTING = Setting.parse("CartPole-v1 dqn greedy 20")


def tiny(tmp_path, **changed):
    how = {"draws": 2, "episodes": 2, "updates": 20, "sizes": (1,), "settings": run.SETTINGS[-2:-1]}
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


def test_methods_that_need_decisions_in_a_row_run_unthinned_only():
    peer = methods.Peer("group", "title", "bc", unthinned=True)
    assert not peer.runs_in(SETTING)
    assert peer.runs_in(SETTING._replace(thin=1))


def test_long_methods_run_for_small_draws_only():
    assert methods.largest_of("bc") == 15
    assert all(methods.largest_of(peer.name) == 7 for peer in methods.METHODS if (peer.updates or 0) >= 100_000)


def test_what_the_study_of_choosing_has_is_not_run_again():
    ours, elsewhere = (
        {one.name for one in methods.candidates_of(setting, 1)} for setting in (SETTING, SETTING._replace(thin=1))
    )
    assert {"bc", "iq_learn"} <= ours & elsewhere
    assert elsewhere - ours >= {"edm_robust", "avril"}


def test_a_tiny_run_is_resumed_and_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "CHECKPOINTS", 2)
    asked = tiny(tmp_path, methods=("bc", "bc+weight_decay=1", "live"))
    run.run(asked)
    (folder,) = (tmp_path / "runs").iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert set(before) == {"bc-2.parquet", "live.parquet"}
    run.run(asked)
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    monkeypatch.setattr(stored, "STORED", tmp_path / "stored.parquet")
    stored.take(stored.Take(folder=tmp_path / "runs"))
    rows = pl.read_parquet(stored.STORED)
    assert dict(rows["method"].value_counts().rows()) == dict.fromkeys(
        ("bc", "bc+weight_decay=1", live.LAST, live.BEST), 2
    )
    trained = rows.filter(~pl.col("method").is_in((live.BEST, live.LAST)))
    assert np.isfinite(trained.select("score", "held_out_log_loss").to_numpy()).all()
    assert rows.filter(pl.col("method") == live.BEST)["seen"].is_not_null().all()


@pytest.mark.release
def test_what_fails_is_named_and_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(run.Work, "tasks", lambda self: {"a": lambda: 1 / 0, "b": lambda: pl.DataFrame({"a": [1]})})
    monkeypatch.setattr(run.Cells, "identified", lambda self, rows: rows)
    with pytest.raises(UserError, match=r"1 programs failed .*: a"):
        run.run(tiny(tmp_path))
    assert [path.stem for path in (tmp_path / "runs").rglob("*.parquet")] == ["b"]


KEY = ("CartPole-v1", "dqn", "greedy", 20, 1)


def made_up(score, draws=6):
    """Return runs of two networks per method and draw; weight decay 3 is far above or far below its mean."""
    rows = [
        {
            "draw": draw,
            "method": method,
            "network": network,
            "score": value + 0.01 * network + (0.1 * (-1) ** draw if method == "corrective" else 0.001 * draw),
            "diverged": False,
            "distance": 1 - value + 0.01 * network,
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


def found():
    """BC scores 0.2, weight decay 1 and corrective labels 0.9 in the mean; `auto` keeps a policy of EDM."""
    own = {"bc": 0.2, "bc+weight_decay=1": 0.9, "corrective": 0.9, live.LAST: 0.2, live.BEST: 0.6}
    return {KEY: stored.scores_of(made_up(own), made_up({"bc": 0.2, "edm_robust": 0.95}, draws=8))}


def cells_of(table, name):
    """Return the columns of the row of a table that begins with a title."""
    return next(line for line in table.splitlines() if line.startswith(f"| {name} |"))[2:-2].split(" | ")


def test_a_score_is_the_mean_of_networks_and_auto_keeps_one():
    scores = found()[KEY]
    assert scores["bc"][2] == pytest.approx(0.207)
    assert scores["edm_robust"] == pytest.approx([0.955 + 0.001 * draw for draw in range(6)])
    assert scores[stored.AUTO][2] == pytest.approx(0.952)  # the nearest network
    assert scores[stored.SEEN].tolist() == [0.8] * 6


def test_without_runs_of_choosing_there_is_no_auto():
    assert set(stored.scores_of(made_up({"bc": 0.2}), None)) == {"bc"}


def test_the_summary_counts_what_is_clear():
    table = tables.summary(found())
    _, count, minus_bc, clear_bc, minus_decay, *_ = cells_of(table, "BC, weight decay 1")
    assert (count, minus_bc.split()[0], clear_bc, minus_decay) == ("1", "+0.700", "1, 0", "")
    assert cells_of(table, "Corrective labels")[5] == "0, 0"
    assert cells_of(table, "BC")[5] == "0, 1"
    assert "AVRIL" not in table


def test_cells_mark_what_differs():
    text = cells_of(tables.every_cell(found()), "BC")[1]
    assert text.startswith("**0.21 [")
    assert text.endswith("** ↓")


def test_the_best_checkpoint_is_compared_with_the_last_one():
    row = cells_of(tables.checkpoints(found()), "CartPole, DQN greedy, every 20th step")
    assert [text[:4] for text in row[2:4]] == ["0.20", "0.60"]
    assert row[4].startswith("**+0.400")
    assert row[5] == "0.800"


def test_returns_stand_beside_printed_ones():
    claim = tables.Claim(("IQ-Learn, in its own figure",), ("bc", "avril"), (KEY[:-1],))
    table = tables.claimed(found(), claim)
    assert cells_of(table, "printed: IQ-Learn, in its own figure")[1:] == ["459"]
    assert cells_of(table, "BC")[1:] == ["**118**"]  # 17.6 + 0.2075 * 482.4
    assert "AVRIL" not in table


def test_every_claim_names_what_is_known():
    for claim in tables.CLAIMS.values():
        assert set(claim.lines) <= set(tables.PRINTED["line"])
        assert set(claim.methods) <= {*tables.TITLES, *tables.LIVE}
        assert {" ".join(map(str, setting)) for setting in claim.settings} <= set(run.SETTINGS)


def test_the_figure_shows_what_was_run():
    drawn = figures.differences(found())
    labels = [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    assert labels == ["BC, weight decay 1 (1)", "EDM, robust (1)", "Corrective labels (1)", "auto (1)"]
