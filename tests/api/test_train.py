"""Training as a library: data in any form, settings as values, and a report that holds what the command prints."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from stay_tables import COLUMNS, stays

import sbil
from sbil.algorithms import BCConfig, EDMConfig
from sbil.api.splitting import Split
from sbil.errors import UserError
from sbil.evaluation.decided import decided
from sbil.evaluation.matching import METRICS, Agreement
from sbil.policy import Policy
from sbil.portfolio import CLASSIFIERS

SMALL = {"updates": 40, "hidden": (8,), "batch": 16}


@pytest.fixture(scope="module")
def data():
    return sbil.read(stays(), **COLUMNS)


@pytest.fixture(scope="module")
def report(data):
    return sbil.train("bc", data, held_out=0.4, calibrate=True, seed=1, draw_seed=2, **SMALL)


def test_the_report_is_what_its_parts_say(report, data):
    parts = Split(held_out=0.4, calibrate=True, draw_seed=2).parts(data)
    assert report.training.ids == parts.training.ids
    assert report.held_out.ids == parts.held_out.ids
    assert {*parts.training.ids, *parts.held_out.ids, *parts.calibration.ids} == {*data.ids}
    assert report.scores["held_out"] == Agreement.of(decided(report.policy, parts.held_out))
    assert [row.method for row in report.compared] == ["majority", "previous action", *CLASSIFIERS, "bc"]
    assert tuple(report.compared[0].metrics) == METRICS
    assert report.calibrated
    assert report.policy.provenance["calibration"]["episodes"] == len(parts.calibration)
    assert report.taken.sum() == parts.training.steps
    assert report.selection is None
    assert report.resumed_at == 0


def test_the_report_is_plain_values_and_a_folder(report, tmp_path):
    told = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert list(told) == ["seconds", "training", "held_out", "temperature", "compared", "verdict"]
    assert told["held_out"]["resampled"] == {"unit": "episode", "count": len(report.held_out)}
    report.save(tmp_path / "policy")
    names = {path.name for path in (tmp_path / "policy").iterdir()}
    assert names == {"policy.json", "weights.safetensors", "metrics.csv", "README.md"}
    page = (tmp_path / "policy" / "README.md").read_text()
    assert "| balanced accuracy |" in page
    assert report.verdict.words in page
    with pytest.raises(UserError, match="exists already"):
        report.save(tmp_path / "policy")


def test_what_is_given_as_out_is_written_and_nothing_else_stays(data, tmp_path):
    told = []
    report = sbil.train("bc", data, out=tmp_path / "policy", watch=lambda *now: told.append(now), **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert told[-1][0] == 1.0
    assert told[-1][1].startswith("loss ")
    written = Policy.load(tmp_path / "policy")
    np.testing.assert_array_equal(written.network.layers[0].weight, report.policy.network.layers[0].weight)
    with pytest.raises(UserError, match="exists already"):
        sbil.train("bc", data, out=tmp_path / "policy", **SMALL)


def test_tables_frames_and_demonstrations_give_the_same_policy(data, tmp_path):
    stays().write_csv(tmp_path / "stays.csv")
    expected = sbil.fit("bc", data, **SMALL)
    for given in (tmp_path / "stays.csv", str(tmp_path / "stays.csv"), stays(), stays().to_pandas()):
        made = sbil.fit("bc", given, columns=COLUMNS, **SMALL)
        np.testing.assert_array_equal(made.network.layers[0].weight, expected.network.layers[0].weight)


def test_what_cannot_be_read_says_what_to_do(data):
    with pytest.raises(UserError, match="which column holds the action"):
        sbil.fit("bc", stays())
    with pytest.raises(UserError, match=r"unknown name in columns 'acton'; did you mean 'action'\?"):
        sbil.fit("bc", stays(), columns={"acton": "treatment"})
    with pytest.raises(UserError, match="leave them out"):
        sbil.fit("bc", data, columns=COLUMNS)


def test_settings_are_values_or_a_config(data):
    one = sbil.fit("bc", data, **SMALL)
    other = sbil.fit("bc", data, updates=40, config=BCConfig(hidden=(8,), batch=16))
    assert one.provenance == other.provenance
    chosen = sbil.train("bc", data, weight_decay=[0, 3], **SMALL).selection
    assert list(chosen["held_out_log_loss"]) == ["weight_decay=0", "weight_decay=3"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"weigth_decay": 1}, "unknown setting of BC 'weigth_decay'; did you mean 'weight_decay'"),
        ({"weight_decay": "1"}, "'weight_decay' parameter of BC must be a number"),
        ({"batch": 2.5}, "'batch' parameter of BC must be a whole number"),
        ({"config": EDMConfig()}, "the config of bc must be of the class BCConfig. Got EDMConfig."),
        ({"config": BCConfig(weight_decay=None)}, "'weight_decay' parameter of BC must be one number"),
        ({"config": BCConfig(), "batch": 3}, "both config and the setting 'batch' are given"),
        ({"preset": "papr"}, "unknown preset of bc"),
        ({"preset": ["paper"]}, "unknown preset of bc"),
        ({"out": "policy", "overwrite": "no"}, "overwrite must be True or False. Got 'no'."),
        ({"seed": -1}, "seed must be a whole number from 0. Got -1."),
        ({"seed": 0.5}, "seed must be a whole number from 0. Got 0.5."),
        ({"draw_seed": -1}, "draw_seed must be a whole number from 0. Got -1."),
        ({"calibrate": True}, "give held_out as well"),
        ({"draw_seed": 1.5}, "draw_seed must be a whole number from 0. Got 1.5."),
        ({"trajectories": 1.5}, "trajectories must be a whole number from 0. Got 1.5."),
        ({"thin": 1.5}, "thin must be a whole number from 1. Got 1.5."),
        ({"updates": 1.5}, "updates must be a whole number from 1. Got 1.5."),
        ({"updates": "5"}, "updates must be a whole number from 1. Got '5'."),
        ({"held_out": 1.5}, "held_out must be a number between 0 and 1. Got 1.5."),
        ({"held_out": "0.2"}, "held_out must be a number between 0 and 1. Got '0.2'."),
        ({"standardise": "no"}, "standardise must be True or False. Got 'no'."),
        ({"out": 5}, "out must be the path of a file or folder. Got 5."),
        ({"columns": "action"}, 'columns must be a dict, such as {"action": "treatment"}. Got \'action\'.'),
        ({"config": BCConfig(), "preset": "paper"}, "both config and the preset 'paper' are given"),
        ({"episode": "stay"}, "give it in columns={'episode': ...}"),
        ({"weight_decay": None}, "'weight_decay' parameter of BC must be one number"),
        ({"weight_decay": ...}, "'weight_decay' parameter of BC must be one number"),
        ({"weight_decay": {0, 1}}, "'weight_decay' parameter of BC must be a number"),
        ({"weight_decay": np.array([0, 0.1])}, "'weight_decay' parameter of BC must be one number"),
        ({"weight_decay": (0, 0.1)}, "or a list for a choice, [0, 0.1]. Got (0, 0.1)"),
        ({"hidden": [32, 32]}, "a tuple of whole numbers from 1, such as (32, 32), and a list of tuples for a choice"),
        ({"trajectories": 99}, "cannot draw 99 episodes from 20"),
        ({"updates": 0}, "updates must be a whole number from 1"),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(data, wrong, words):
    with pytest.raises(UserError) as refused:
        sbil.train("bc", data, **wrong)
    assert words in str(refused.value)


def test_numbers_of_numpy_are_plain_numbers(data, tmp_path):
    numbers = {"thin": np.int64(2), "updates": np.int64(40), "seed": np.int64(1), "weight_decay": np.array(0.5)}
    sbil.train("bc", data, hidden=(8,), batch=16, held_out=np.float32(0.25), **numbers).save(tmp_path / "policy")
    config = BCConfig(hidden=(8,), batch=16, weight_decay=np.float32(0.5))
    same = sbil.fit("bc", data, thin=2, updates=40, seed=1, config=config)
    same.save(tmp_path / "config")
    for name in ("policy", "config"):
        recorded = Policy.load(tmp_path / name).provenance
        assert (recorded["thin"], recorded["updates"], recorded["settings"]["weight_decay"]) == (2, 40, 0.5)


def test_a_folder_that_cannot_be_written_is_refused_before_training(data, monkeypatch):
    monkeypatch.setattr("sbil.api.train.follow", None)
    with pytest.raises(UserError, match="no file can be written to /proc"):
        sbil.train("bc", data, out="/proc/policy", **SMALL)


def test_the_name_of_an_algorithm_is_a_text(data):
    with pytest.raises(UserError, match="unknown algorithm"):
        sbil.fit(["edm"], data)


def test_a_split_that_a_folder_records_is_checked():
    split = Split(3, 0.25, True, 7)
    assert Split.recorded({"drawn": asdict(split)}) == split
    assert Split.recorded({}) == Split()
    for wrong in (3, {}, {**asdict(split), "held_out": 1}, {**asdict(split), "calibrate": 1}):
        with pytest.raises(UserError, match="which part"):
            Split.recorded({"drawn": wrong})
