"""The study of training on imagined states: the true dynamics, one tiny run, and what is stored."""

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from sbil import environments
from sbil.errors import UserError
from studies import imagined


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1"])
def test_the_oracle_follows_the_environment(name):
    environment = environments.get(name)
    seen = environment.observe(jnp.full(4, 0.1))
    after = imagined.true_dynamics(name)(seen[None])
    expected = [
        environment.observe(environment.step(jnp.full(4, 0.1), a)[0]) for a in jnp.arange(environment.spec.actions)
    ]
    np.testing.assert_allclose(after[0], np.stack(expected), atol=1e-5)


def test_a_tiny_run_is_resumed_and_stored(tmp_path, monkeypatch):
    for name, value in {"HORIZONS": (1,), "WEIGHTS": (1.0,), "DECAYS": (0.0,), "NETWORKS": 1}.items():
        monkeypatch.setattr(imagined, name, value)
    monkeypatch.setattr(imagined, "STORED", tmp_path / "stored.parquet")
    small = {"draws": 1, "sizes": (1,), "updates": 3, "episodes": 2, "settings": imagined.SETTINGS[:1]}
    asked = imagined.Asked(out=tmp_path / "runs", seed=0, **small)
    imagined.main(asked)
    (path,) = (tmp_path / "runs").iterdir()
    before = path.stat().st_mtime_ns
    imagined.main(asked)
    assert path.stat().st_mtime_ns == before
    imagined.main(imagined.Asked(out=tmp_path / "none", take=tmp_path / "runs"))
    rows = pl.read_parquet(tmp_path / "stored.parquet")
    assert rows["method"].to_list() == ["bc 0", "learned 1 1", "oracle 1 1"]
    assert np.isfinite(rows.select("score", "distance").to_numpy()).all()


def test_the_table_compares_with_the_nearest_setting_of_bc(tmp_path, monkeypatch):
    cell = {"environment": "CartPole-v1", "demonstrator": "dqn", "mode": "greedy", "thin": 20, "size": 1}
    others = [(f"{kind} {horizon} {weight:g}", 0.9, 3.0) for (kind, horizon), weight in imagined.CHOSEN.items()]
    rows = [
        {**cell, "seed": seed, "draw": draw, "method": method, "score": score + draw / 100, "distance": distance}
        for seed in (0, 1)
        for draw in range(6)
        for method, score, distance in (("bc 0", 0.2, 2.0), ("bc 1", 0.6, 1.0), *others)
    ]
    pl.DataFrame(rows).write_parquet(path := tmp_path / "imagined.parquet")
    monkeypatch.setattr(imagined, "STORED", path)
    row = imagined.for_page()["imagined"].splitlines()[-1]
    assert row == "| CartPole, DQN greedy, every 20th step | 1 | 0.225 | 0.625 |" + " **0.925** |" * 6


def test_nothing_to_store_is_said(tmp_path):
    with pytest.raises(UserError, match="hold no finished setting"):
        imagined.main(imagined.Asked(out=tmp_path, take=tmp_path))
