"""What weights of decisions change: a few algorithms follow them, and every other algorithm refuses them."""

import numpy as np
import polars as pl
import pytest

import sbil
from sbil.algorithms import ALGORITHMS, require
from sbil.dataset import make_dataset
from sbil.demonstrations import read
from sbil.errors import UserError
from sbil.portfolio import portfolio, usable

WEIGHING = ("bc", "logistic", "trees", "table_network")
UPDATES = {"bc": 300, "table_network": 10}


def table(rows=400):
    """Nine of ten decisions are "none", whatever the state."""
    state = np.random.default_rng(0).normal(size=rows)
    return pl.DataFrame({"x": state, "treat": ["fluid" if row % 10 == 0 else "none" for row in range(rows)]})


def probability(algorithm, frame, states=((0.0,),), **columns):
    columns = {"action": "treat", **columns}
    policy = sbil.fit(algorithm, frame, columns=columns, updates=UPDATES.get(algorithm))
    return policy.probabilities(np.array(states, np.float32))[:, 0]


@pytest.mark.parametrize("algorithm", WEIGHING)
def test_balanced_actions_are_equally_probable(algorithm):
    assert probability(algorithm, table())[0] == pytest.approx(0.1, abs=0.06)
    assert probability(algorithm, table(), balance=True)[0] == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("algorithm", WEIGHING)
def test_decisions_of_weight_0_do_not_count(algorithm):
    """Half of the decisions say the opposite of the other half; the weight says which half is right."""
    state = np.random.default_rng(1).normal(size=400)
    wrong = np.arange(400) % 2 == 0
    treated = np.where(wrong, state < 0, state > 0)
    frame = pl.DataFrame({"x": state, "treat": np.where(treated, "fluid", "none"), "w": np.where(wrong, 0.0, 2.5)})
    low, high = probability(algorithm, frame, ((-1.0,), (1.0,)), weights="w")
    assert low < 0.2 < 0.8 < high
    both = probability(algorithm, frame.drop("w"), ((-1.0,), (1.0,)))
    assert (abs(both - 0.5) < 0.25).all()


@pytest.mark.parametrize("algorithm", WEIGHING)
def test_equal_weights_change_nothing(algorithm):
    frame = table(100)
    even = probability(algorithm, frame.with_columns(w=3.0), weights="w")
    np.testing.assert_allclose(even, probability(algorithm, frame), rtol=1e-4)


def test_whole_weights_of_logistic_regression_are_copies():
    """Without a penalty, a decision of weight 3 is the same as three decisions."""
    rng = np.random.default_rng(2)
    state, times = rng.normal(size=200), rng.integers(1, 4, 200)
    frame = pl.DataFrame({"x": state, "treat": np.where(state + rng.normal(size=200) > 0, "fluid", "none"), "w": times})
    copies = frame[np.repeat(np.arange(200), times)].drop("w")
    states = np.linspace(-2, 2, 5)[:, None]
    policies = [
        sbil.fit("logistic", one, columns={"action": "treat", **more}, l2=1e-9)
        for one, more in ((frame, {"weights": "w"}), (copies, {}))
    ]
    np.testing.assert_allclose(*(policy.probabilities(states) for policy in policies), atol=1e-3)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_an_algorithm_weighs_or_refuses(name):
    dataset = make_dataset(read(table(40), action="treat", balance=True), [np.arange(40)])
    if ALGORITHMS[name].weighs:
        assert name in WEIGHING
        require(name, dataset)
        return
    with pytest.raises(UserError, match=rf"{name} lets all decisions count the same; leave out weights and balance"):
        require(name, dataset)


def test_auto_keeps_the_candidates_that_weigh():
    dataset = make_dataset(read(table(40), action="treat", balance=True), [np.arange(40)])
    assert {candidate.algorithm for candidate in usable(portfolio(), dataset)} == {"bc"}
