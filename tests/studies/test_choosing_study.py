"""The study of choosing: what each way of choosing would have scored, on made-up runs, and one tiny run."""

import jax
import numpy as np
import polars as pl
import pytest

from studies.choosing import choices, horizons, run, tables

METHODS = tuple(choices.SINGLE)
KEY = ("CartPole-v1", "dqn", "greedy", 20, 1)


def made_up(horizon=50, draws=6):
    """BC scores 0.2 and has the best log-loss; weight decay 1 scores 0.9 and stays nearest."""
    score = {"bc": 0.2, "bc+weight_decay=1": 0.9, "edm:released": 0.4, "edm_robust": 0.5, "edm_imagined:rollouts": 0.6}
    rows = [
        {
            "draw": draw,
            "method": method,
            "network": network,
            **dict.fromkeys(("score", "score_even", "score_odd"), score[method] + 0.01 * network + 0.001 * draw),
            "diverged": False,
            "distance": 1 - score[method] - 0.01 * network,
            "log_loss": score[method],
            "error": 1.0 if method == "edm_robust" else 1.1,
            "horizon": horizon,
        }
        for draw in range(draws)
        for method in METHODS
        for network in range(2)
    ]
    constants = dict(zip(choices.CELL, KEY, strict=True))
    return pl.DataFrame(rows).with_columns(**{name: pl.lit(value) for name, value in constants.items()})


def test_every_way_of_choosing_scores_what_it_takes():
    found = {name: values[0] for name, values in choices.scores_of(made_up()).items()}
    assert found["BC"] == pytest.approx(0.205)
    assert found["by log-loss"] == pytest.approx(0.205)
    assert found["by errors"] == pytest.approx(0.505)
    assert found["auto"] == found["by imagined rollouts"] == found["best of the draw"] == pytest.approx(0.91)


def test_auto_uses_the_log_loss_if_the_model_is_not_trusted():
    scores = choices.scores_of(made_up(horizon=1))
    np.testing.assert_array_equal(scores["auto"], scores["by log-loss"])


def test_luck_does_not_make_the_best_of_the_draw():
    lucky = (pl.col("method") == "bc") & (pl.col("network") == 0)
    runs = made_up().with_columns(score_even=pl.when(lucky).then(5.0).otherwise(pl.col("score_even")))
    assert choices.scores_of(runs)["best of the draw"][0] == pytest.approx((0.2 + 0.91) / 2)


def test_a_policy_that_diverged_is_never_chosen():
    best = pl.col("method") == "bc+weight_decay=1"
    runs = made_up().with_columns(diverged=best, distance=pl.when(best).then(0.0).otherwise(pl.col("distance")))
    assert choices.scores_of(runs)["auto"][0] == pytest.approx(0.61)


def test_rank_correlations_are_one_where_a_measure_orders_scores():
    found = choices.rank_correlations(made_up())
    assert found["distance"] == pytest.approx(1)
    assert found["log_loss"] == pytest.approx(-1, abs=0.1)


def test_tables_count_what_is_clear():
    (cells,) = ({KEY: choices.scores_of(made_up())},)
    rows = [line.split(" | ") for line in tables.summary(cells).splitlines()]
    auto = next(row for row in rows if row[0] == "| auto")
    assert auto[1:] == ["0.912", "1", "0", "0.000 |"]
    assert "**0.912**" in tables.final(cells)


def test_a_tiny_run_is_resumed_measured_and_taken(tmp_path, monkeypatch):
    for module in (run, horizons):
        monkeypatch.setattr(module, "HORIZONS", (1, 2))
    monkeypatch.setattr("sbil.portfolio.METHODS", (("bc", "default", {}), ("bc", "default", {"hidden": (8, 8)})))
    how = {"out": tmp_path / "runs", "draws": 2, "networks": 2, "episodes": 2, "updates": 5, "sizes": (1,)}
    asked = run.Run(**how, settings=run.SETTINGS[:1])
    run.run(asked)
    path = run.Kept(asked, run.Setting.parse(run.SETTINGS[0])).path
    before = path.stat().st_mtime_ns
    run.run(asked)
    assert path.stat().st_mtime_ns == before
    run.measure(run.Measure(**how, settings=asked.settings, pilot=True))
    monkeypatch.setattr(run, "STORED", tmp_path / "stored")
    for _ in range(2):  # the second time it replaces the same draws
        run.take(run.Take(folder=tmp_path / "runs"))
    rows = pl.read_parquet(tmp_path / "stored" / "seed3.parquet")
    assert rows["method"].value_counts(sort=True).rows() == [
        ("bc", 4), ("bc+hidden=8x8", 4), ("nearest 3", 2), ("nearest 5", 2)
    ]  # fmt: skip
    assert np.isfinite(rows.select("score", "distance", "r2_step").to_numpy()).all()


def test_stored_networks_are_those_that_were_trained(tmp_path, monkeypatch):
    monkeypatch.setattr("sbil.portfolio.METHODS", (("bc", "default", {"hidden": (8, 8)}),))
    asked = run.Run(out=tmp_path, draws=2, networks=1, episodes=2, updates=5, sizes=(1,), hold_out=False)
    cells = run.Kept(asked, run.Setting.parse(run.SETTINGS[0]))
    rows, networks = run.trained(cells)
    run.run(run.Run(**{**vars(asked), "settings": run.SETTINGS[:1]}))
    read = cells.read("8x8", len(rows))
    for one, other in zip(jax.tree.leaves(read), jax.tree.leaves(networks["8x8"]), strict=True):
        np.testing.assert_array_equal(one, other)
