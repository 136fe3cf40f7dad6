"""Scoring, comparing, verifying and deciding as a library."""

import json
from dataclasses import replace
from inspect import Parameter, signature
from typing import get_overloads

import numpy as np
import polars as pl
import pytest
from stay_tables import COLUMNS, stays

import fuzz
import sbil
from sbil import demonstrators, environments
from sbil.api.evaluate import LiveReturns, MatchedDecisions, evaluate_decisions, evaluate_live, is_environment
from sbil.demonstrations import reader_process
from sbil.errors import UserError
from sbil.portfolio import CLASSIFIERS

SMALL = {"updates": 40, "hidden": (8,), "batch": 16}


@pytest.fixture(scope="module")
def data():
    return sbil.read(stays(), **COLUMNS)


@pytest.fixture(scope="module")
def policy(data):
    return sbil.train("bc", data, **SMALL).policy


@pytest.fixture(scope="module")
def folder(policy, tmp_path_factory):
    policy.save(path := tmp_path_factory.mktemp("library") / "policy")
    return path


def test_what_is_an_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for on in ("CartPole-v1", "ALE/Pong-v5", environments.get("Acrobot-v1")):
        assert is_environment(on)
    for on in ("later.csv", "minari:cartpole/expert-v0", "folder/", tmp_path, stays()):
        assert not is_environment(on)
    with pytest.raises(UserError, match=r"unknown environment 'CartPole'; did you mean 'CartPole-v1'\?"):
        sbil.evaluate(demonstrators.get("CartPole-v1-ppo"), "CartPole")
    (tmp_path / "stays-v1").mkdir()
    assert not is_environment("stays-v1")


def test_one_policy_or_many_live():
    expert = demonstrators.get("CartPole-v1-ppo")
    alone = sbil.evaluate(expert, "CartPole-v1", episodes=5)
    assert isinstance(alone, LiveReturns)
    assert alone.demonstrator.endswith("ppo")
    assert alone.as_json()["episodes"] == 5
    assert alone.low <= alone.mean <= alone.high
    both = sbil.evaluate([expert, expert], environments.get("CartPole-v1"), episodes=5)
    assert len(both) == 2
    for one in both.values():
        np.testing.assert_array_equal(one.returns, alone.returns)
    with pytest.raises(UserError, match="seed"):
        sbil.evaluate(expert, "CartPole-v1", seed=-1)


def test_one_policy_or_many_against_decisions(policy, folder, data):
    later = stays(8, shift=1, seed=5)
    alone = sbil.evaluate(folder, later)
    assert isinstance(alone, MatchedDecisions)
    assert alone.notes == ()
    assert [row.method for row in alone.compared] == ["majority", "bc"]
    json.dumps(alone.as_json(), allow_nan=False)
    both = sbil.evaluate({"one": policy, "two": folder}, later, training=data)
    assert both["one"].agreement == both["two"].agreement == alone.agreement
    assert [row.method for row in both["one"].compared] == ["majority", "previous action", *CLASSIFIERS, "bc"]
    assert sbil.evaluate(policy, data).notes[0].startswith("the policy was trained on these decisions")
    with pytest.raises(UserError, match="needs a policy that was trained on a table"):
        sbil.evaluate(replace(policy, schema=None), data, another=later)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"seed": 1.5}, "seed must be a whole number from 0. Got 1.5."),
        ({"episodes": "3"}, "episodes must be a whole number from 1. Got '3'."),
        ({"sampled": "x"}, "sampled must be True or False. Got 'x'."),
        ({"training": 1}, "training has no effect with an environment; leave it out."),
        ({"on": "stays.csv", "episodes": 3}, "episodes has no effect with recorded decisions; leave it out."),
        ({"episods": 3}, "unknown keyword of evaluate 'episods'; did you mean 'episodes'?"),
        ({"policy": []}, "there is no policy to evaluate"),
        ({"policy": {}}, "there is no policy to evaluate"),
        ({"policy": None}, "a policy must be the path of a file or folder. Got None."),
    ],
    ids=str,
)
def test_wrong_arguments_of_evaluate_are_named(wrong, words):
    expert = demonstrators.get("CartPole-v1-ppo")
    with pytest.raises(UserError) as refused:
        sbil.evaluate(**{"policy": expert, "on": "CartPole-v1"} | wrong)
    assert words in str(refused.value)


def keywords(function):
    """The keywords of a function, with their types and defaults."""
    given = signature(function).parameters.values()
    return {each.name: each for each in given if each.kind is Parameter.KEYWORD_ONLY}


def test_evaluate_shows_the_keywords_of_the_functions_that_it_calls():
    live, matched = keywords(evaluate_live), keywords(evaluate_decisions)
    shown = [keywords(one) for one in get_overloads(sbil.evaluate)]
    assert shown == [live, live | matched, matched, live | matched]
    assert all(f"\n    {name}: " in sbil.evaluate.__doc__ for name in live | matched)


def test_where_a_policy_would_go(policy, data):
    found = sbil.evaluate(policy, data)
    assert found.imagined is None
    assert "imagine=True (--imagine)" in found.not_imagined
    few = sbil.evaluate(policy, data.select([0, 1]), imagine=True)
    assert "only 6 next states recorded" in few.not_imagined
    assert few.as_json()["imagined"] is None
    with pytest.raises(UserError, match="imagine must be True or False"):
        sbil.evaluate(policy, data, imagine=1)


def test_evaluate_says_what_is_outside(policy, data):
    usual = sbil.evaluate(policy, data)
    assert usual.outside.shape == (80, 2)
    assert not usual.alarm.raised
    assert usual.alarm.outside.get("pulse", 0) == usual.outside[:, 0].sum() <= 1
    odd = sbil.evaluate(policy, sbil.read(stays().with_columns(pulse=pl.col("pulse") * 100), **COLUMNS))
    assert odd.outside[:, 0].all()
    assert odd.as_json()["alarm"]["outside"]["pulse"] == 80
    assert odd.as_json()["alarm"]["raised"]
    assert sbil.evaluate(replace(policy, guard=None), data).alarm is None


def test_a_list_may_hold_paths_and_other_tasks_are_refused(policy, folder, data):
    assert list(sbil.evaluate([policy, folder], data)) == ["bc", "bc 2"]
    other = sbil.read(stays().with_columns(treatment=pl.lit("other")), **COLUMNS)
    for on, training in ((other, None), (data, other)):
        with pytest.raises(UserError, match="the policy chooses among"):
            sbil.evaluate(policy, on, training=training)


@pytest.mark.parametrize(
    "observation",
    ["x", stays().drop("age"), stays().to_pandas()[["hour"]], [None, {}]],
    ids=lambda one: type(one).__name__,
)
def test_a_policy_sees_numbers_and_frames_with_its_columns(policy, observation):
    with pytest.raises(UserError, match="policy sees"):
        policy.act(observation)
    assert set(policy.act(stays().to_pandas(), names=True)) == {"fluids", "none"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"updates": 1.5}, "updates must be a whole number from 1. Got 1.5."),
        ({"seed": -1}, "seed must be a whole number from 0. Got -1."),
        ({"folds": "2"}, "folds must be a whole number from 2. Got '2'."),
        ({"settings": "bc"}, "settings must be a dict by algorithm"),
        ({"settings": {"bc": 3}}, "settings must be a dict by algorithm"),
        ({"algorithms": ["bc", "bc"]}, "name each once"),
    ],
    ids=str,
)
def test_wrong_arguments_of_compare_are_named(data, wrong, words):
    with pytest.raises(UserError) as refused:
        sbil.compare(data, **wrong)
    assert words in str(refused.value)


def test_compare(data):
    told = []
    found = sbil.compare(data, ["edm"], folds=2, updates=10, watch=lambda *now: told.append(now))
    assert [row.method for row in found.compared] == ["majority", "previous action", "bc", "edm", *CLASSIFIERS]
    assert found.as_json()["decisions"] == data.steps
    assert len(told) == 8
    assert found.verdict.words.startswith("Of the methods that learn, ")
    assert found.as_json()["verdict"]["unit"] == "episode"
    for nothing in ([], "edm", 5):
        with pytest.raises(UserError, match="a list of names"):
            sbil.compare(data, nothing)
    with pytest.raises(UserError, match="unknown algorithm"):
        sbil.compare(data, ["magic"])


def test_compare_writes_its_table(data, tmp_path):
    out = tmp_path / "compared.json"
    found = sbil.compare(data, ["bc"], folds=2, updates=2, out=out)
    assert json.loads(out.read_text()) == found.as_json()
    watched = []
    with pytest.raises(UserError, match="exists already"):
        sbil.compare(data, ["bc"], folds=2, updates=2, out=str(out), watch=lambda *now: watched.append(now))
    assert not watched  # it is refused before any work
    stays().write_csv(tmp_path / "stays.csv")
    (tmp_path / "flagged.txt").write_text("3\n")
    for name in ("stays.csv", "flagged.txt"):
        columns = {**COLUMNS, "exclude": tmp_path / "flagged.txt"}
        with pytest.raises(UserError, match="also an input file"):
            sbil.compare(tmp_path / "stays.csv", ["bc"], columns=columns, out=tmp_path / name, overwrite=True)


def test_verify(policy, folder, data):
    for one in (policy, folder):
        found = sbil.verify(one, data)
        assert found.same
        assert found.as_json()["differs"] == []
    other = sbil.verify(replace(policy, provenance={**policy.provenance, "seed": 5}), data)
    assert "weights" in other.differs
    assert other.other_choices >= 0
    assert other.largest_difference > 0
    with pytest.raises(UserError, match="this is not what this policy was trained on"):
        sbil.verify(policy, sbil.read(stays(seed=8), **COLUMNS))
    with pytest.raises(UserError, match="does not say how it was trained"):
        sbil.verify(demonstrators.get("CartPole-v1-ppo"), data)


def test_predict(policy, folder, tmp_path):
    frame = stays(6, seed=9)
    found = sbil.predict(folder, frame)
    assert found.frame["row"].to_list() == list(range(1, 25))
    assert sum(found.actions.values()) == 24
    assert found.dropped == 0
    assert found.as_json()["unfamiliar"] == found.unfamiliar
    found.save(tmp_path / "decisions.parquet")
    with pytest.raises(UserError, match="exists already"):
        found.save(tmp_path / "decisions.parquet")
    with pytest.raises(UserError, match=r"\.csv or \.parquet"):
        found.save(tmp_path / "decisions.xlsx")
    assert sbil.predict(policy, frame, unfamiliar=0).unfamiliar >= found.unfamiliar
    with pytest.raises(UserError, match="from 0 to 100"):
        sbil.predict(policy, frame, unfamiliar=101)
    with pytest.raises(UserError, match=r"percentile from 0 to 100. Got 'many'"):
        sbil.predict(policy, frame, unfamiliar="many")
    with pytest.raises(UserError, match="not trained on a table"):
        sbil.predict(demonstrators.get("CartPole-v1-ppo"), frame)


def test_predict_names_what_is_outside_and_raises_an_alarm(policy):
    usual = sbil.predict(policy, stays(30, seed=9))
    assert not usual.alarm.raised
    assert str(usual.alarm).startswith("This table is like the training data")
    assert usual.outside <= 2
    frame = stays(30, seed=9).with_columns(pulse=pl.lit(99_999.0))
    found = sbil.predict(policy, frame)
    assert found.frame["unfamiliar"].all()
    assert found.frame["outside"].str.contains("pulse").all()
    assert (found.frame["columns outside"] >= 1).all()
    assert found.outside == found.alarm.outside["pulse"] == found.unfamiliar == 120
    assert found.alarm.raised
    assert found.as_json()["alarm"]["moved"][0]["column"] == "pulse"
    assert "100.0% of 120 states are flagged as unfamiliar (1.0% expected)" in str(found.alarm)
    assert json.loads(json.dumps(found.as_json()))["outside"] == 120
    bare = sbil.predict(replace(policy, guard=None), frame)
    assert (bare.alarm, bare.outside) == (None, None)
    assert "outside" not in bare.frame.columns


def test_predict_writes_its_table(policy, tmp_path):
    table, out = tmp_path / "new.csv", tmp_path / "decisions.csv"
    stays(6, seed=9).write_csv(table)
    found = sbil.predict(policy, table, out=out)
    assert pl.read_csv(out)["action"].to_list() == found.frame["action"].to_list()
    for wrong, words in (
        ({"out": out}, "exists already"),
        ({"out": table, "overwrite": True}, "also an input file"),
        ({"out": tmp_path / "decisions.xlsx"}, "such a file"),
        ({"out": 5}, "out must be the path"),
    ):
        with pytest.raises(UserError, match=words):
            sbil.predict(policy, table, **wrong)
    assert len(sbil.predict(policy, table, out=str(out), overwrite=True, missing="drop").frame) == 24


def test_no_small_probability_becomes_zero_in_a_file(policy, tmp_path):
    sure = replace(policy, temperature=policy.temperature / 500)
    found = sbil.predict(sure, stays(6, seed=9), out=tmp_path / "decisions.csv")
    names = [name for name in found.frame.columns if name.startswith("probability")]
    kept, written = (
        found.frame.select(names).to_numpy(),
        pl.read_csv(tmp_path / "decisions.csv").select(names).to_numpy(),
    )
    assert 0 < kept[kept > 0].min() < 1e-7
    np.testing.assert_array_equal(written.astype(np.float32), kept)


# The held-out episodes, by name


@pytest.fixture
def here(monkeypatch):
    """Read in this process, which saves time."""
    monkeypatch.setattr(reader_process, "elsewhere", fuzz.in_process)


@pytest.mark.usefixtures("here")
def test_a_policy_is_scored_on_exactly_the_held_out_episodes(tmp_path):
    table, names = tmp_path / "stays.csv", tmp_path / "names.txt"
    stays().write_csv(table)
    options = {"columns": COLUMNS, "updates": 20}
    report = sbil.train("bc", table, held_out=0.3, write_held_out=names, out=tmp_path / "policy", **options)
    listed = names.read_text().split()
    assert listed == [COLUMNS["episode"], *report.held_out.ids]
    again = sbil.evaluate(tmp_path / "policy", table, columns={"only": names})
    assert again.agreement == report.scores["held_out"]
    assert again.data.ids == report.held_out.ids
    assert again.notes == ()
    assert sbil.evaluate(tmp_path / "policy", table, columns={"only": [*report.training.ids]}).notes
    other = sbil.train("bc", table, **{**options, "columns": {**COLUMNS, "exclude": names}})
    assert {*other.training.ids} == {*report.training.ids}
    compared = sbil.evaluate(other.policy, table, training=table, columns={"only": names, "exclude": listed})
    assert compared.data.ids == report.held_out.ids
    assert "bc" in [row.method for row in compared.compared]
    part = sbil.train("bc", table, **{**options, "columns": {**COLUMNS, "only": names}})
    assert part.training.ids == report.held_out.ids
    with pytest.raises(UserError, match="trained with some kept episodes; give the same list as only"):
        sbil.verify(part.policy, table)
    assert sbil.verify(part.policy, table, columns={"only": names}).same


@pytest.mark.usefixtures("here")
def test_lists_of_held_out_episodes_that_are_refused(tmp_path):
    table, names = tmp_path / "stays.csv", tmp_path / "names.txt"
    stays().write_csv(table)
    calls = {
        "nothing is held out": {"columns": COLUMNS},
        "is also an input file": {"columns": COLUMNS, "held_out": 0.3, "write_held_out": table, "overwrite": True},
        "write_held_out must be the path": {"columns": COLUMNS, "held_out": 0.3, "write_held_out": 5},
        "have no names to list": {"columns": {"action": COLUMNS["action"]}, "held_out": 0.3},
    }
    for message, options in calls.items():
        with pytest.raises(UserError, match=message):
            sbil.train("bc", table, **{"write_held_out": names, "updates": 2, **options})
        assert not names.exists()
    names.write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        sbil.train("bc", table, columns=COLUMNS, held_out=0.3, write_held_out=names)
    for wrong, message in (
        (["nobody"], "1 of the episodes to keep are not in the data, for example 'nobody'"),
        (tmp_path / "none.txt", r"only \(--only\) .*none.txt: there is no such file"),
        ([COLUMNS["episode"]], "no episode is named that is kept"),
    ):
        with pytest.raises(UserError, match=message):
            sbil.read(table, **COLUMNS, only=wrong)
    with pytest.raises(UserError, match="episodes are kept by name, and these data have none"):
        sbil.read(table, action=COLUMNS["action"], only=["1"])
