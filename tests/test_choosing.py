"""`auto` and the criteria: which policy is kept, what is said of the choice, and what happens to unusual data."""

import json
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import polars as pl
import pytest

import sbil
from sbil.choosing import Draw, Progress, judge
from sbil.cli import main
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Column, Demonstrations, Schema, Trajectory
from sbil.dynamics.model import learn
from sbil.errors import UserError
from sbil.policy.card import card
from sbil.portfolio import NETWORKS

SMALL = {"hidden": (8,), "batch": 8}
METHODS = (
    ("bc", "default", SMALL),
    ("bc", "default", {**SMALL, "weight_decay": 9.0}),
    ("rcal", "default", SMALL),
)
TABLES = (
    ("logistic", "default", {}),
    ("trees", "default", {"trees": 20, "folds": 1}),
)
NAMES = ["bc+hidden=8+batch=8", "bc+hidden=8+batch=8+weight_decay=9", "rcal+hidden=8+batch=8"]
UPDATES = 60


@pytest.fixture(autouse=True, scope="module")
def _small():
    """Three methods, small networks, and models that are learned in a moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sbil.portfolio.METHODS", METHODS)
        patch.setattr("sbil.portfolio.TABLES", TABLES)
        patch.setattr("sbil.choosing.learn", partial(learn, updates=20))
        yield


def episodes(count=8, steps=12, noise=0.0, keep=lambda states: states):
    """A point turns around the origin; the action pushes it back towards the first axis."""
    rng = np.random.default_rng(4)
    turn = np.array([[0.9, -0.3], [0.3, 0.9]])
    trajectories = []
    for _ in range(count):
        states, actions = [rng.normal(size=2)], []
        for _ in range(steps):
            actions.append(int(states[-1][1] > 0))
            states.append(turn @ states[-1] + [0, 0.2 - 0.4 * actions[-1]])
        states = np.array(states) + noise * rng.normal(size=(steps + 1, 2))
        trajectories.append(Trajectory(keep(states.astype(np.float32)), np.array(actions, np.int32)))
    return Demonstrations(tuple(trajectories), ("up", "down"), ("x", "y"))


DATA = episodes()
NOISE = episodes(noise=9.0)
WHOLE = DATA.trajectories[0]
ROWS = replace(  # of which none is followed by another
    DATA, trajectories=tuple(Trajectory(t.observations[:1], t.actions[:1]) for t in DATA.trajectories)
)


def fit(data, algorithm="auto", **options):
    return sbil.fit(algorithm, data, **{"pad": True, "updates": UPDATES, **options})


def selection(*given, **options):
    return fit(*given, **options).provenance["selection"]


@pytest.fixture(scope="module")
def report():
    told = []
    report = sbil.train(
        "auto", DATA, updates=UPDATES, held_out=0.5, calibrate=True, watch=lambda *now: told.append(now)
    )
    return report, told


# By imagined rollouts


def test_the_policy_that_stays_nearest_is_kept(report):
    record, made = report[0].selection, report[0].policy.provenance
    assert record["criterion"] == "imagined"
    assert len(record["distance"]) == NETWORKS * len(METHODS)
    assert record["chosen"] == min(record["distance"], key=record["distance"].get)
    assert record["runner_up"].split(",")[0] != record["chosen"].split(",")[0]
    assert 0 <= record["sure"] <= 1
    assert record["model"]["horizon"] >= 3
    assert list(record["model"]["r2_of_step"]) == ["x", "y"]
    assert record["asked"] == {"criterion": "auto", "updates": UPDATES}
    assert made["algorithm"] == "auto"
    assert record["chosen"].startswith(made["settings"]["algorithm"])
    assert made["settings"]["hidden"] == (8,)
    assert made["device"]["runs_per_program"] in (NETWORKS, 2 * NETWORKS)


def test_the_choice_is_said_in_words(report):
    record, words = report[0].selection, report[0].selection["words"]
    assert words.startswith(f"chose {record['chosen']} of 9 policies by imagined rollouts: ")
    assert f"the next best method is {record['runner_up']}: " in words
    assert f"farther in {record['sure']:.0%} of resamples" in words
    assert "the model of the dynamics explains" in words


def test_progress_rises_to_the_end_without_jumps(report):
    shares, words = zip(*report[1], strict=True)
    assert list(shares) == sorted(shares)
    assert shares[-1] == 1.0
    assert shares[0] == 0.0
    assert max(np.diff(shares)) < 0.7  # few updates are few reports
    assert words[0] == "learning a model of the dynamics"
    assert words[1].startswith("the model of the dynamics is trusted for ")
    assert words[2].startswith("9 policies: loss ")
    assert words[-1] == f"keeps {report[0].selection['chosen']}"


def test_parts_of_the_work_add_up_to_all_of_it():
    told = []
    progress = Progress(lambda *now: told.append(now[0]))
    for share in (0.1, 0.7, 1.0):
        tell = progress.part(share)
        for done in (0.0, 0.3, 1.0):
            tell(done, "")
    assert told == pytest.approx([0, 0.03, 0.1, 0.1, 0.289, 0.73, 0.73, 0.811, 1])
    assert told[-1] == 1.0


def test_held_out_decisions_are_scored_and_calibrated_under_the_name_auto(report):
    assert [row.method for row in report[0].compared] == ["majority", "previous action", "bc", "auto"]
    assert report[0].calibrated
    assert report[0].trained.seconds > 0


def test_the_folder_and_the_card_hold_the_choice_and_training_again_gives_the_same(report, tmp_path, capsys):
    report[0].save(tmp_path / "policy")
    recorded = json.loads((tmp_path / "policy" / "policy.json").read_text())["provenance"]["selection"]
    assert recorded == report[0].selection
    shown = (tmp_path / "policy" / "README.md").read_text()
    assert "of 9 policies by imagined rollouts" in shown
    assert "of the next state." in shown  # to the last word
    main(["show", str(tmp_path / "policy")])
    assert "of 9 policies by imagined rollouts" in capsys.readouterr().out
    again = sbil.verify(tmp_path / "policy", DATA)
    assert again.same
    assert not again.changed


def test_a_choice_that_a_folder_does_not_explain_is_not_repeated(report):
    made = {**report[0].policy.provenance, "selection": {"chosen": "bc"}}
    with pytest.raises(UserError, match="does not say how it was chosen"):
        sbil.verify(replace(report[0].policy, provenance=made), DATA)


def test_padding_and_names_change_nothing():
    padded = selection(DATA)
    assert selection(DATA, pad=False)["chosen"] == padded["chosen"]
    assert selection(DATA)["distance"] == padded["distance"]
    assert selection(DATA, seed=1)["distance"] != padded["distance"]


def test_an_interrupted_choice_goes_on_and_ends_with_the_same_policy(tmp_path):
    def stop(done, words):
        if done > 0.6:
            raise KeyboardInterrupt

    options = {"updates": UPDATES, "out": tmp_path / "policy"}
    with pytest.raises(KeyboardInterrupt):
        sbil.train("auto", DATA, watch=stop, **options)
    assert len(list(tmp_path.glob(".policy.*.checkpoint"))) == 1
    resumed = sbil.train("auto", DATA, **options)
    assert resumed.resumed_at == UPDATES
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    whole = sbil.train("auto", DATA, updates=UPDATES)
    assert whole.selection == resumed.selection
    assert sbil.verify(tmp_path / "policy", DATA).same


def test_settings_are_chosen_by_imagined_rollouts_too():
    told = []
    report = sbil.train(
        "bc",
        DATA,
        criterion="imagined",
        weight_decay=[0, 9],
        updates=UPDATES,
        watch=lambda *now: told.append(now),
        **SMALL,
    )
    record = report.selection
    assert set(record["distance"]) == {"weight_decay=0", "weight_decay=9"}
    assert f"weight_decay={report.policy.provenance['settings']['weight_decay']:g}" == record["chosen"]
    assert told[-1][0] == 1.0
    assert report.policy.provenance["device"]["runs_per_program"] == 1
    assert sbil.verify(report.policy, DATA).same


# Where no model can choose


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (ROWS, "no decision has its next state recorded"),
        (
            replace(
                ROWS,
                trajectories=(
                    replace(WHOLE, observations=WHOLE.observations[:4], actions=WHOLE.actions[:3]),
                    *ROWS.trajectories,
                ),
            ),
            "only 3 next states recorded, and a model needs 10",
        ),
        (NOISE, "the model of the dynamics predicts too little (R2 of the next state: "),
    ],
    ids=["rows", "few", "noise"],
)
def test_without_a_model_log_loss_chooses_and_says_why(data, why):
    told = []
    report = sbil.train("auto", data, updates=UPDATES, watch=lambda *now: told.append(now))
    record = report.selection
    assert record["criterion"] == "log_loss"
    assert record["why"].startswith(why)
    assert f"Imagined rollouts could not choose: {why}" in record["words"]
    losses = record["held_out_log_loss"]
    assert list(losses) == [name for name in NAMES if name.startswith("bc")]
    assert record["chosen"] == min(losses, key=losses.get)
    shares, words = zip(*told, strict=True)
    assert list(shares) == sorted(shares)
    assert shares[-1] == 1.0
    assert any(one.startswith("cross-validation: loss ") for one in words)
    assert "the model" in words[1] if data is NOISE else "the model" not in " ".join(words)
    assert sbil.verify(report.policy, data).same


def test_images_are_chosen_for_by_cross_validation(monkeypatch):
    monkeypatch.setattr("sbil.portfolio.METHODS", METHODS[:2])
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (4, 36, 36), dtype=np.uint8) for _ in range(3)]
    data = Demonstrations(
        tuple(Trajectory(one, np.array([0, 1, 0], np.int32)) for one in frames), ("no", "yes"), stack=2
    )
    assert selection(data, updates=1, pad=False)["why"] == "the observations are images"


def test_a_model_that_is_not_finite_does_not_choose(monkeypatch):
    def broken(*given, **options):
        model, trust = learn(*given, updates=1, **options)
        return model, trust._replace(r2_after=trust.r2_after * np.nan)

    monkeypatch.setattr("sbil.choosing.learn", broken)
    assert selection(DATA)["why"] == "the model of the dynamics predicts too little (R2 of the next state: none)"


def test_policies_without_a_distance_are_not_chosen(monkeypatch):
    from sbil.choosing import judged

    def lost(*given):
        measures = judged(*given)
        return measures._replace(near=measures.near * np.nan)

    monkeypatch.setattr("sbil.choosing.judged", lost)
    record = selection(DATA)
    assert record["criterion"] == "log_loss"
    assert record["why"] == "no policy stays at a finite distance from the demonstrated states"


def test_the_first_network_of_each_method_is_cross_validated():
    assert list(selection(DATA, criterion="log_loss")["held_out_log_loss"]) == NAMES
    record = selection(DATA, criterion="error")
    errors = record["held_out_error"]
    assert record["chosen"] == min(errors, key=errors.get)
    assert "by held-out error" in record["words"]


# What diverges


def wild(*settings):
    return tuple(("bc", "default", {**SMALL, **own}) for own in settings)


@pytest.mark.parametrize("data", [DATA, ROWS], ids=["imagined", "log_loss"])
def test_what_diverges_is_never_kept(monkeypatch, data):
    monkeypatch.setattr("sbil.portfolio.METHODS", wild({"learning_rate": 1e30}, {}))
    record = selection(data)
    assert record["chosen"].split(",")[0] == "bc+hidden=8+batch=8"
    scores = record["distance" if data is DATA else "held_out_log_loss"]
    assert scores["bc+hidden=8+batch=8+learning_rate=1e+30"] is None
    json.dumps(record, allow_nan=False)


def test_if_the_best_diverges_on_all_data_the_next_best_is_kept(monkeypatch):
    from sbil.fitting import _train

    trained = []

    def once(*given):
        trained.append(_train(*given))
        return trained[-1]._replace(diverged_at=np.array([UPDATES])) if len(trained) == 1 else trained[-1]

    monkeypatch.setattr("sbil.fitting._train", once)
    policy = fit(ROWS)
    record = policy.provenance["selection"]
    best, second = sorted(record["held_out_log_loss"], key=record["held_out_log_loss"].get)
    assert (record["chosen"], record["diverged"]) == (second, [best])
    assert f"diverged when trained on everything: {best}" in record["words"]
    np.testing.assert_array_equal(policy.network.layers[0].weight, trained[1].states.network.layers[0].weight[0])


def test_if_everything_diverges_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("sbil.portfolio.METHODS", wild({"learning_rate": 1e30}, {"learning_rate": 1e29}))
    with pytest.raises(
        UserError, match=r"the best of the policies of auto, diverged by update .*`sbil check`"
    ) as refused:
        sbil.train("auto", DATA, updates=UPDATES, out=tmp_path / "policy")
    assert "\n" not in str(refused.value)
    assert "another preset" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["policy.diverged.csv"]


# What people bring


@pytest.mark.parametrize(
    "data",
    [
        replace(DATA, trajectories=(WHOLE,)),
        replace(DATA, trajectories=(Trajectory(WHOLE.observations[:1], WHOLE.actions[:1]),)),
        replace(DATA, trajectories=(Trajectory(WHOLE.observations[:2], WHOLE.actions[:1]),)),
        Demonstrations(tuple(replace(t, actions=0 * t.actions) for t in DATA.trajectories), ("only",)),
        replace(episodes(keep=lambda states: states * [1, 0] + [0, 7]), observation_names=()),
        replace(DATA, trajectories=tuple(replace(t, terminal=True) for t in DATA.trajectories)),
    ],
    ids=["one trajectory", "one decision", "one step", "one action", "constant column", "ends"],
)
def test_unusual_data(data):
    policy = fit(data, updates=1)
    assert np.isfinite(policy.probabilities(DATA.flat().observation)).all()
    assert policy.provenance["selection"]["words"].startswith("chose ")
    assert "\n" not in card(policy).split("How it was found: ")[1].split(".\n")[0]
    json.dumps(policy.provenance["selection"], allow_nan=False)


def test_thinned_decisions_are_chosen_with():
    assert selection(DATA, thin=3, thin_offset=1)["criterion"] == "imagined"


def test_comparisons_take_auto():
    grouped = replace(DATA, groups=np.arange(8) // 2)
    found = sbil.compare(grouped, ["bc", "auto"], folds=2, updates=UPDATES)
    assert [row.method for row in found.compared] == ["majority", "previous action", "bc", "auto"]
    with pytest.raises(UserError, match="choose from: auto, "):
        sbil.compare(DATA, ["zzzz"])


@pytest.mark.parametrize(
    ("algorithm", "wrong", "words"),
    [
        ("auto", {"weight_decay": 1}, "auto chooses settings itself. Got the setting 'weight_decay'; leave it out"),
        ("auto", {"preset": "released"}, "Got the preset 'released'; leave it out, or name an algorithm."),
        ("auto", {"config": 3}, "Got a config; leave it out"),
        ("auto", {"criterion": "imagine"}, "unknown criterion 'imagine'; did you mean 'imagined'?"),
        ("auto", {"criterion": ""}, "unknown criterion ''"),
        ("auto", {"criterion": ["error"]}, "unknown criterion"),
        ("auto", {"criterion": "imagined"}, "imagined rollouts cannot choose here: no decision has its next state"),
        ("atuo", {}, "unknown algorithm 'atuo'; did you mean 'auto'?"),
        ("bc", {"criterion": "error"}, "criterion decides among several candidates; give a list of values"),
        ("bc", {"criterion": "error", "weight_decay": [1]}, "criterion decides among several candidates"),
        ("bc", {"criterion": "imagined", "weight_decay": [0, 1]}, "use the criterion auto, log_loss or error."),
    ],
    ids=str,
)
def test_wrong_requests_are_named(algorithm, wrong, words):
    with pytest.raises(UserError) as refused:
        fit(ROWS, algorithm, **wrong)
    assert words in str(refused.value)


def test_the_commands_know_auto(tmp_path, capsys):
    sbil.save(DATA, tmp_path / "demos.npz")
    train = ["train", "auto", "--data", str(tmp_path / "demos.npz"), "--out", str(tmp_path / "policy")]
    for words in (["--set", "seed=1"], ["--preset", "released"]):
        with pytest.raises(SystemExit):
            main([*train, *words])
        assert "auto chooses settings itself. Got the " in capsys.readouterr().err
    main([*train, "--updates", str(UPDATES)])
    text = capsys.readouterr().out
    assert f"(auto, {UPDATES} updates, " in text
    assert "of 9 policies by imagined rollouts" in text
    main(["algorithms"])
    assert "auto: needs pairs; trains several of these" in capsys.readouterr().out
    main(["algorithms", "auto"])
    assert NAMES[1] in capsys.readouterr().out
    main(["algorithms", "auto", "--json"])
    assert json.loads(capsys.readouterr().out)["auto"]["methods"] == NAMES


# Tables


def as_table(data):
    """The same demonstrations, from a table."""
    schema = Schema("act", (Column("x"), Column("y")), data.action_names)
    return replace(data, schema=schema)


@pytest.mark.parametrize("data", [ROWS, NOISE], ids=["alone", "noise"])
def test_methods_of_tables_compete_on_tables_by_held_out_decisions(data):
    policy = fit(as_table(data), criterion="log_loss")
    record = policy.provenance["selection"]
    losses = record["held_out_log_loss"]
    assert list(losses)[:2] == NAMES[:2]
    assert [name.partition("+")[0] for name in list(losses)[-2:]] == ["logistic", "trees"]
    assert record["chosen"] == min(losses, key=losses.get)
    assert all(np.isfinite(list(losses.values())))
    assert policy.provenance["settings"]["algorithm"] == record["chosen"].split("+")[0]


def test_the_previous_action_makes_no_model_look_good():
    """The state is noise, and the previous action is always known."""
    random = np.random.default_rng(0)
    rows = {"episode": np.repeat(range(30), 10), "hour": np.tile(range(10), 30), "x": random.normal(size=300)}
    table = pl.DataFrame({**rows, "act": random.choice(["treat", "wait"], 300)})
    data = sbil.read(table, episode="episode", time="hour", action="act", previous_action=True)
    dataset = make_dataset(data, [np.arange(len(data))])
    why, judges = judge(Draw.of(data, spec_of(data), dataset, jax.random.key(0)), Progress())
    assert "predicts too little" in why
    assert not judges.trusted[0]


def test_methods_of_tables_do_not_compete_by_imagined_rollouts():
    assert {name.split(",")[0] for name in selection(as_table(DATA), criterion="imagined")["distance"]} == set(NAMES)


def test_methods_of_tables_do_not_compete_on_recordings_of_environments():
    assert list(selection(ROWS)["held_out_log_loss"]) == NAMES[:2]


def test_the_list_of_auto_says_what_is_blended(capsys):
    main(["algorithms", "auto"])
    assert "Of a table, auto blends these methods" in capsys.readouterr().out
    main(["algorithms", "auto", "--json"])
    assert json.loads(capsys.readouterr().out)["auto"]["tables"][0] == "logistic"


def test_a_table_has_the_imagined_distance_beside_its_blend(tmp_path, capsys):
    sbil.save(as_table(DATA), tmp_path / "table.npz")
    main(["train", "auto", "--data", str(tmp_path / "table.npz"), "--out", str(tmp_path / "policy"), "--updates", "3"])
    assert "in a model of the dynamics: 0." in capsys.readouterr().out
    found = sbil.Policy.load(tmp_path / "policy").provenance["selection"]
    assert found["criterion"] == "blend"
    assert found["imagined"]["horizon"] >= 5
    assert 0 < found["imagined"]["distance"] < 4
