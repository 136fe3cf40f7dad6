"""The program that copies finished cells into results/."""

import pytest

from handmade import made
from sbil.errors import UserError
from sbil.experiments import store
from studies.collect import collect


def test_methods_without_a_name_come_last_and_no_cell_takes_the_place_of_another(tmp_path):
    grid = tmp_path / "grid"
    first = [made("mine+batch=8"), made("edm"), made("bc", 3), made("bc", 1, 0.5)]
    store.write(grid / "a.parquet", first)
    collect([str(grid)], tmp_path / "results")
    store.write(grid / "a.parquet", [made("bc", 1, 0.7), made("bc", 1, 0.9, seed=1), made("edm", every_state=True)])
    collect([str(grid)], tmp_path / "results")
    found = list(store.read(tmp_path / "results" / "CartPole-v1.parquet"))
    words = [str(result.cell).split(" ", 1)[1] for result in found]
    assert words == ["bc n=1", "bc n=1 seed 1", "bc n=3", "edm n=1", "edm n=1 every state", "mine+batch=8 n=1"]
    assert found[0].scores.mean() == pytest.approx(0.7, abs=1e-6)  # the newer one


def test_an_environment_is_one_file_and_thinning_a_column(tmp_path):
    store.write(tmp_path / "a.parquet", [made("bc", thin=20), made("bc", thin=1)])
    collect([str(tmp_path / "a.parquet")], tmp_path / "results")
    (file,) = (tmp_path / "results").iterdir()
    assert file.name == "CartPole-v1.parquet"
    assert [result.cell.task.thin for result in store.read(file)] == [1, 20]


def test_a_cell_that_is_there_twice_is_refused(tmp_path):
    store.write(tmp_path / "a.parquet", [made("bc"), made("bc", updates=7)])
    with pytest.raises(UserError, match="there twice"):
        collect([str(tmp_path / "a.parquet")], tmp_path / "results")
