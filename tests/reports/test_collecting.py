"""The script that copies finished cells into results/."""

import importlib.util
from pathlib import Path

import pytest
from handmade import made

from sbil.experiments import store

SCRIPT = Path(__file__).parents[2] / "results" / "collect.py"


@pytest.fixture
def collect(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("collect", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HERE", tmp_path / "results")
    return module


def test_methods_without_a_name_come_last_and_no_cell_takes_the_place_of_another(collect, tmp_path):
    grid = tmp_path / "grid"
    first = [made("mine+batch=8"), made("edm"), made("bc", 3), made("bc", 1, 0.5)]
    store.write(grid / "a.parquet", first)
    collect.main([str(grid)])
    store.write(grid / "a.parquet", [made("bc", 1, 0.7), made("bc", 1, 0.9, seed=1), made("edm", every_state=True)])
    collect.main([str(grid)])
    found = list(store.read(tmp_path / "results" / "CartPole-v1-ppo-sampled-thin20.parquet"))
    words = [str(result.cell).split(" ", 1)[1] for result in found]
    assert words == ["bc n=1", "bc n=1 seed 1", "bc n=3", "edm n=1", "edm n=1 every state", "mine+batch=8 n=1"]
    assert found[0].scores.mean() == pytest.approx(0.7, abs=1e-6)  # the newer one
