"""The study of EDM's remedies: what it runs, and that its published runs are whole."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from cells import changed
from sbil.algorithms.edm_robust import EDMRobustConfig
from sbil.errors import UserError
from sbil.experiments.store import read_all
from studies.pages import RESULTS
from studies.remedies.figures import DRAWN, drawings
from studies.remedies.stored import COLUMNS
from studies.remedies.study import FINAL, LISTS, SETTINGS, SIZES, Run, cells, run

CHOSEN = "edm_robust+weight=0/1"  # by each run
RUNS = RESULTS / "remedies"


def test_every_method_has_28_cells_and_can_be_run():
    wanted = cells(Run(Path()))
    methods = [name for names in LISTS.values() for name in names]
    assert len(methods) == len(set(methods))
    assert len(wanted) == 28 * len(methods)
    assert {str(cell.method) for cell in wanted} == set(methods)
    one_each = {str(cell.method): cell.fingerprint for cell in wanted}
    assert len(set(one_each.values())) == len(methods)


def test_the_final_cells_are_new():
    final = cells(Run(Path(), methods=("final",), seed=1, episodes=300))
    assert len(final) == 28 * len(FINAL)
    assert {cell.task.seed for cell in final} == {1}
    assert not {changed(cell, seed=0).fingerprint for cell in final[:3]} & {cell.fingerprint for cell in final[:3]}


def test_every_state_is_shown_where_decisions_are_thinned_away():
    shown = cells(Run(Path(), methods=("edm_robust",), every_state=True))
    assert len(shown) == 4 * 5
    assert all(cell.task.thin > 1 and cell.task.every_state for cell in shown)


def test_a_small_part_is_run_once(tmp_path, capsys):
    words = {"env": ("CartPole-v1",), "methods": ("bc",), "draws": 1, "initialisations": 1, "updates": 2, "episodes": 1}
    run(Run(tmp_path, **words))
    assert len(capsys.readouterr().out.splitlines()) == 8
    run(Run(tmp_path, **words))
    assert not capsys.readouterr().out


def test_an_unknown_environment_is_refused():
    with pytest.raises(UserError, match="environment of the study"):
        cells(Run(Path(), env=("Pong",)))
    with pytest.raises(UserError, match="demonstrator of the study"):
        cells(Run(Path(), env=("Acrobot-v1",), demonstrators=("dqn:greedy",)))


def test_a_part_of_the_study_is_the_same_cells():
    every = cells(Run(Path(), methods=("bc",)))
    some = cells(Run(Path(), methods=("bc",), demonstrators=("dqn:greedy",), sizes=(3, 7)))
    assert some == [cell for cell in every if cell.task.demonstrator == "dqn" and cell.size in (3, 7)]


@pytest.mark.skipif(not RUNS.is_dir(), reason="the published runs are not here")
def test_published_runs_say_with_what_settings_they_were_made():
    """50 runs a cell or more, unseen decisions beside returns; the default never diverged, in 10,000 runs."""
    found = read_all([RUNS / f"{environment}.parquet" for environment in SETTINGS])
    assert {len(result.cell.runs) for result in found if result.cell.task.seed == 0} == {50}
    assert all(len(result.cell.runs) >= 50 for result in read_all(sorted(RUNS.glob("*.parquet"))))
    assert all(set(result.metrics) == {"held_out_error", "held_out_log_loss"} for result in found)
    default = [result for result in found if str(result.cell.method) == "edm_robust"]
    assert {
        seed: sum(r.cell.task.seed == seed and not r.cell.task.every_state for r in default) for seed in (0, 1, 2)
    } == {
        0: 28,
        1: 28,
        2: 28,
    }
    assert all(f'"prior": {EDMRobustConfig().prior}' in settings for result in default for settings in result.settings)
    assert sum(len(result.cell.runs) for result in default) >= 10_000
    assert sum(result.diverged for result in default) == 0


@pytest.mark.skipif(not RUNS.is_dir(), reason="the published runs are not here")
def test_the_study_and_the_final_table_are_whole():
    found = read_all([RUNS / f"{environment}.parquet" for environment in SETTINGS])
    study = {str(r.cell) for r in found if r.cell.task.seed == 0}
    assert study == {str(cell) for cell in cells(Run(Path()))}
    final = [r.cell for r in found if r.cell.task.seed == 1]
    once = [cell for cell in final if not cell.task.every_state]
    wanted = cells(Run(Path(), methods=("final", CHOSEN), seed=1))
    assert {str(cell) for cell in once} == {str(cell) for cell in wanted}
    shown = cells(Run(Path(), methods=("edm:released", "edm_robust"), seed=1, every_state=True))
    assert {str(cell) for cell in final if cell.task.every_state} == {str(cell) for cell in shown}
    for cell in final:
        assert cell.draws == (10 if str(cell.method) == CHOSEN else 20)
        assert cell.task.episodes == (50 if cell.task.environment == "LunarLander-v3" else 300)


@pytest.mark.skipif(not RUNS.is_dir(), reason="the published runs are not here")
def test_the_runs_of_a_cpu_are_whole():
    """The DQN in float32 for the final table; wider networks at three trajectories, beside narrow ones where needed."""
    found = read_all(sorted(RUNS.glob("*-cpu.parquet")))
    assert all(result.fingerprint == result.cell.fingerprint for result in found)
    assert sum(result.diverged for result in found if result.cell.method.algorithm != "edm") == 0
    ours = {str(result.cell) for result in found}
    dqn = {"env": ("CartPole-v1",), "demonstrators": ("dqn:greedy",)}
    methods = ("bc", "bc:decay", "edm:released", "edm_robust", "edm_robust+weight=0")
    wanted = cells(Run(Path(), **dqn, methods=methods, seed=1, draws=20))
    wanted += cells(Run(Path(), sizes=(3,), methods=("bc+hidden=128x128", "edm_robust+hidden=128x128")))
    wanted += cells(Run(Path(), sizes=(3,), env=("CartPole-v1", "Acrobot-v1"), methods=("bc", "edm_robust")))
    assert {str(cell) for cell in wanted} <= ours
    assert {r.cell.task.unlabelled for r in found if str(r.cell.method) == "edm_robust" and r.cell.size == 1} == {
        0,
        1,
        3,
        7,
    }


@pytest.mark.skipif(not RUNS.is_dir(), reason="the published runs are not here")
def test_the_figures_are_drawn_from_the_published_runs():
    """A line per form of EDM in each panel of diagnostics, and one at the gap -0.5; a mark per method and size."""
    found = drawings()
    panels = {name: [axis for axis in figure.axes if axis.axison] for name, figure in found.items()}
    assert [len(axis.get_lines()) for axis in panels["remedies"]] == [3, 3, 4, 4, 3, 3, 3, 3]
    assert len(panels["final"]) == len(COLUMNS)
    assert {len(axis.containers) for axis in panels["final"]} == {len(DRAWN) * len(SIZES)}
    for figure in found.values():
        figure.canvas.draw()
        plt.close(figure)
