"""The paper's experiments, and what the command line makes of them."""

import dataclasses

import pytest

from cells import changed
from sbil.cli import reproduce
from sbil.cli.reproduce import Command, executor, experiments
from sbil.errors import UserError
from sbil.experiments import Cell, EnvironmentTask, Experiment, Method
from sbil.experiments.experiment import cells_of
from sbil.experiments.paper import NEEDS_A_GPU, PROTOCOLS, protocol

COUNTED = ("CartPole-v1", "Acrobot-v1", "LunarLander-v3")  # environments whose observations are rows of numbers
PAPER = {"bc", "rcal", "dsfn", "value_dice", "edm:paper"}


@pytest.fixture
def asked(tmp_path):
    def ask(**options):
        return experiments(Command(out=tmp_path, **options))

    return ask


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_hold_every_method_of_the_paper_at_every_size_with_its_numbers_of_runs(name):
    cells = cells_of(protocol(name))
    main = [cell for cell in cells if not cell.task.unlabelled]
    for environment in COUNTED:
        here = [cell for cell in main if cell.task.environment == environment]
        assert {str(cell.method) for cell in here} > PAPER
        assert {cell.size for cell in here} == {1, 3, 7, 10, 15}
    for cell in cells:
        fewer = cell.task.environment in NEEDS_A_GPU
        episodes = 100 if cell.task.unlabelled and cell.task.environment == "LunarLander-v3" else 300
        assert (cell.draws, cell.initialisations, cell.task.episodes) == ((3, 1, 20) if fewer else (10, 5, episodes))
        assert cell.fingerprint  # all its names are known
    states = [cell for cell in cells if cell.task.unlabelled]
    assert {(cell.task.environment, cell.size) for cell in states} == {(e, 1) for e in COUNTED}
    assert {cell.task.unlabelled for cell in states} == {1, 2, 3, 4, 5, 6, 7}
    assert {cell.method.algorithm for cell in states} == {"edm"}


def test_protocols_differ_in_what_is_demonstrated():
    released, paper = (cells_of(protocol(name))[0].task for name in ("released", "paper"))
    assert (released.demonstrator, released.mode, released.thin) == ("ppo", "sampled", 20)
    assert (paper.demonstrator, paper.mode, paper.thin) == ("dqn", "greedy", 1)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_quick_is_a_part_of_the_full_one_but_for_the_number_of_runs(name):
    runs = {"draws": 1, "initialisations": 1, "episodes": 1}
    full = {changed(cell, **runs) for cell in cells_of(protocol(name))}
    quick = cells_of(protocol(name, quick=True))
    assert {changed(cell, **runs) for cell in quick} < full
    assert {cell.task.environment for cell in quick} == {cell.task.environment for cell in full}
    assert {cell.updates for cell in quick} == {10_000}  # fewer runs, not shorter ones


def test_an_experiment_is_the_product_of_its_parts():
    both = (("ppo", "sampled"), ("dqn", "greedy"))
    small = Experiment("CartPole-v1", both, (Method("bc"), Method("edm")), 20, (1, 3))
    cells = small.cells()
    assert len(cells) == len(set(cells)) == 8
    assert cells[0] == Cell(EnvironmentTask("CartPole-v1", "ppo", "sampled", 20), Method("bc"), 1)
    assert cells_of([small, small]) == cells
    assert {cell.updates for cell in dataclasses.replace(small, updates=7).cells()} == {7}


def test_without_a_gpu_the_images_are_left_out_and_standard_output_stays_clean(asked, monkeypatch, capsys):
    monkeypatch.setattr(reproduce, "has_gpu", lambda: False)
    assert {experiment.environment for experiment in asked()} == {"CartPole-v1", "Acrobot-v1", "LunarLander-v3"}
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "BeamRiderNoFrameskip-v4" in shown.err
    assert len(asked(env="BeamRiderNoFrameskip-v4")) == 1
    assert len(asked(executor="ray")) == len(protocol("released"))  # the cluster may have some


def test_options_narrow_and_change_the_protocol(asked, monkeypatch):
    monkeypatch.setattr(reproduce, "has_gpu", lambda: True)
    assert tuple(asked()) == protocol("released")
    quick = [experiment.environment for experiment in asked(protocol="paper", quick=True)]
    assert set(quick) == {"CartPole-v1", "Acrobot-v1"}  # minutes on two cores; others are quick where they are named
    lander, states = asked(env="LunarLander-v3", quick=True)
    assert (lander.environment, lander.sizes, lander.unlabelled) == ("LunarLander-v3", (1, 3), (0,))
    assert (states.environment, states.sizes, states.unlabelled) == ("LunarLander-v3", (1,), (1, 3))
    assert [experiment.environment for experiment in asked(env="Acrobot-v1")] == ["Acrobot-v1"] * 2
    (narrow,) = asked(
        env="CartPole-v1", algorithms="bc,edm:paper", sizes="1,15", draws=3, seeds=2, updates=9, episodes=4, thin=5
    )
    assert narrow.methods == (Method("bc"), Method("edm", "paper"))
    assert (narrow.sizes, narrow.draws, narrow.initialisations) == ((1, 15), 3, 2)
    assert (narrow.updates, narrow.episodes, narrow.thin, narrow.unlabelled) == (9, 4, 5, (0,))
    (states,) = asked(env="CartPole-v1", unlabelled="2,4", algorithms="edm")
    assert (states.unlabelled, states.sizes) == ((2, 4), (1,))
    (others,) = asked(env="Acrobot-v1", unlabelled="2", algorithms="edm", sizes="3")
    assert (others.environment, others.unlabelled, others.sizes) == ("Acrobot-v1", (2,), (3,))
    both = asked(demonstrators="ppo:sampled,ppo:greedy")
    assert all(experiment.demonstrators == (("ppo", "sampled"), ("ppo", "greedy")) for experiment in both)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"env": "CartPole"}, "CartPole-v1"),
        ({"env": ""}, "environment"),
        ({"sizes": ""}, "--sizes"),
        ({"sizes": "1,x"}, "--sizes"),
        ({"unlabelled": "all"}, "--unlabelled"),
        ({"demonstrators": "ppo"}, "--demonstrators"),
        ({"protocol": "pape"}, "paper"),
    ],
)
def test_wrong_options_are_named(asked, options, word):
    with pytest.raises(UserError, match=word):
        asked(**options)


def test_an_address_without_ray_is_refused(tmp_path):
    with pytest.raises(UserError, match="--executor ray"):
        executor(Command(out=tmp_path, address="auto"))
    assert executor(Command(out=tmp_path)) is None
