"""The commands on tables of decisions, from a CSV to decisions on new rows, and every refusal on the way."""

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import onnxruntime
import polars as pl
import pytest
from stays import changed, write_table

import fuzz
import probes
from probes import refusal
from sbil.api import methods
from sbil.api import train as training_library
from sbil.cli import main
from sbil.demonstrations import Column, Schema, read, reader_process
from sbil.policy import Policy, Standardisation
from sbil.policy.folder import sealed

NAMES = ("stay", "hour", "patient", "pulse", "age", "sex", "treat", "end")
ROLES = ("--episode", "stay", "--time", "hour", "--action", "treat", "--terminal", "end")
MORE = ("--group", "patient", "--one-hot", "sex", "--observations", "pulse", "age", "--missing", "mean")


@pytest.fixture(autouse=True, scope="module")
def _here():
    """Read in this process, which saves time; other files test the reader process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_process, "elsewhere", fuzz.in_process)
        yield


def rows(stays=24, shift=0.0):
    """Two stays per patient, four hours per stay; a pulse above 80 is treated."""
    rng = np.random.default_rng(3)
    for stay in range(stays):
        for hour in range(4):
            pulse = round(rng.normal(80 + shift, 15), 1)
            age = "" if (stay, hour) == (5, 1) else 40 + stay
            yield [stay, hour, stay // 2, pulse, age, "mf"[stay % 2], "fluid" if pulse > 80 else "none", int(hour == 3)]


def written(path, lines, names=NAMES):
    return write_table(path, lines, names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def table(folder):
    return written(folder / "stays.csv", rows())


@pytest.fixture(scope="module")
def sides(folder, table):
    """Names of the stays that were trained on and that were held out; the policy is written too."""
    (folder / "bad.csv").write_text("stay\n3\n4\n")
    found = {}

    def spied(policy, held_out, training, calibration):
        found.update(training=training.ids, held_out=held_out.ids)
        return original(policy, held_out, training, calibration)

    with pytest.MonkeyPatch.context() as patch:
        original = training_library.decided_by_methods
        patch.setattr(training_library, "decided_by_methods", spied)
        words = ("train", "bc", "--data", table, *ROLES, *MORE, "--exclude", folder / "bad.csv", "--held-out", "0.4")
        run(*words, "--calibrate", "--updates", "60", "--out", folder / "policy")
    return found


@pytest.fixture(scope="module")
def policy(folder, sides):
    return folder / "policy"


def run(*words):
    main([str(word) for word in words])


def answered(capsys, *words):
    """What a command prints as JSON."""
    capsys.readouterr()
    run(*words, "--json")
    output, _ = capsys.readouterr()
    return json.loads(output)


# Looking


def test_check_in_words_and_in_json(table, capsys):
    run("check", table)
    text = capsys.readouterr().out
    assert "96 rows, 8 columns" in text
    assert "next: sbil train" in text
    found = answered(capsys, "check", table, *ROLES, *MORE)
    assert found["rows"] == 96
    assert found["roles"] == {
        **{
            "episode": "stay",
            "time": "hour",
            "action": "treat",
            "terminal": "end",
            "truncated": None,
            "weights": None,
            "group": "patient",
        }
    }
    assert found["guessed"] == []
    assert {column["name"]: column["missing"] for column in found["columns"]}["age"] == 1
    assert found["episodes"] == {"count": 24, "shortest": 4, "median": 4.0, "longest": 4, "single": 0}
    assert sum(found["actions"].values()) == 96


# Training


def test_a_patient_is_on_one_side_only(sides):
    patients = {name: {int(stay) // 2 for stay in stays} for name, stays in sides.items()}
    assert not patients["training"] & patients["held_out"]
    stays = {*sides["training"], *sides["held_out"]}
    assert len(sides["training"]) + len(sides["held_out"]) == len(stays)
    assert not stays & {"3", "4"}  # they were excluded
    assert len(stays) < 22  # half of what was held out went to the temperature


def test_the_policy_knows_its_table(policy, capsys):
    made = Policy.load(policy)
    assert made.schema is not None
    assert made.observation_names == ("pulse", "age", "sex=f", "sex=m")
    assert made.action_names == ("fluid", "none")
    assert made.schema.missing == "mean"
    fill = next(column.fill for column in made.schema.columns if column.name == "age")
    assert fill == pytest.approx(np.mean([row[4] for row in rows() if row[4] != "" and row[0] not in (3, 4)]))
    assert made.provenance["calibration"]["temperature"] == made.temperature
    card = (policy / "README.md").read_text()
    assert "On decisions held out of training" in card
    assert re.search(r"95 % interval over \d groups", card)
    assert "- excluded episodes: 2\n- excluded rows: 8\n" in card
    described = answered(capsys, "show", policy)
    assert described["schema"]["group"] == "patient"
    run("show", policy)
    text = capsys.readouterr().out
    assert "pulse, age, sex=f, sex=m" in text
    assert "fluid, none" in text


def test_a_policy_is_trained_again_from_its_table(table, folder, policy, capsys):
    """Verifying repeats the exclusion, the held-out part, and the half of it that set the temperature."""
    words = ("verify", policy, "--data", table, "--exclude", folder / "bad.csv")
    found = answered(capsys, *words)
    assert found["same"]
    assert found["changed"] == {}
    run(*words)
    assert "the same policy, byte for byte" in capsys.readouterr().out
    before = {path.name: path.read_bytes() for path in policy.iterdir()}
    assert "exclude (--exclude)" in refusal(capsys, *words[:4])
    stranger = written(folder / "more.csv", rows(shift=1))
    assert "is not what" in refusal(capsys, "verify", policy, "--data", stranger, *words[4:])
    assert {path.name: path.read_bytes() for path in policy.iterdir()} == before


def test_a_policy_that_training_does_not_give_is_told_from_one_that_it_does(table, folder, policy, capsys):
    words = ("--data", table, "--exclude", folder / "bad.csv")
    forged = folder / "forged"
    made = Policy.load(policy)
    replace(made, provenance={**made.provenance, "seed": 1, "sbil": "0.0"}).save(forged)
    with pytest.raises(SystemExit) as leaving:
        run("verify", forged, *words)
    assert leaving.value.code == 1
    text = capsys.readouterr().out
    assert re.search(
        r"these parts differ: weights, .*; the preferred action differs at \d+ of these decisions, and probabilities "
        r"differ by at most \S+",
        text,
    )
    assert "sbil was 0.0" in text
    with pytest.raises(SystemExit):
        run("verify", forged, *words, "--json")
    found = json.loads(capsys.readouterr().out)
    assert not found["same"]
    assert "weights" in found["differs"]
    assert 0 < found["largest_difference"] <= 1


def test_what_is_held_out_belongs_to_the_data(table, folder, policy, sides, capsys):
    """A change in a held-out row makes it another file, although nothing was learned from that row."""
    mended = [[*row[:3], row[3] + (str(row[0]) in sides["held_out"] and row[1] == 0), *row[4:]] for row in rows()]
    other = written(folder / "held_out_changed.csv", mended)
    words = ("verify", policy, "--data", other, "--exclude", folder / "bad.csv")
    assert "is not what" in refusal(capsys, *words)


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("temperature", lambda made: replace(made, temperature=made.temperature + 1)),
        ("energies", lambda made: replace(made, energies=None)),
        ("network", lambda made: replace(made, network=replace(made.network, activation="relu"))),
        ("schema", lambda made: replace(made, schema=filled_otherwise(made.schema))),
    ],
)
def test_every_piece_of_a_policy_is_compared(what, change, table, folder, policy, tmp_path, capsys):
    change(Policy.load(policy)).save(tmp_path / "changed")
    with pytest.raises(SystemExit) as leaving:
        run("verify", tmp_path / "changed", "--data", table, "--exclude", folder / "bad.csv", "--json")
    assert leaving.value.code == 1
    assert what in json.loads(capsys.readouterr().out)["differs"]


def filled_otherwise(schema):
    """The schema with another fill value for a column without missing values."""
    return replace(schema, columns=tuple(replace(c, fill=9.0) if c.name == "pulse" else c for c in schema.columns))


def test_what_a_folder_says_of_its_device_is_shown_as_text(table, folder, policy, tmp_path, capsys):
    made = Policy.load(policy)
    device = {"sbil": "lie", "jax": "\x1b[2J\n" + "x" * 3000, "kind": ["a"]}
    said = {**made.provenance, "seed": 5, "sbil": 1e300, "device": device}
    replace(made, provenance=said).save(tmp_path / "said")
    with pytest.raises(SystemExit):
        run("verify", tmp_path / "said", "--data", table, "--exclude", folder / "bad.csv")
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    assert "\x1b" not in text
    assert "lie" not in text
    assert len(text) < 600


@pytest.mark.parametrize(
    "words",
    [
        ("bc", "--trajectories", "24"),  # all, in another order
        ("bc", "--thin", "3", "--thin-offset", "1", "--standardise", "no"),
        ("bc", "--set", "weight_decay=0/1", "--trajectories", "12", "--held-out", "0.3", "--draw-seed", "4"),
        ("dsfn", "--set", "warm_updates=5", "feature_updates=5", "value_updates=5", "rounds=2", "discount=0.9/0.99"),
        ("majority",),
    ],
)
def test_other_trainings_are_repeated_too(words, table, tmp_path, capsys):
    updates = () if words[0] in ("dsfn", "majority") else ("--updates", "20")
    run("train", words[0], "--data", table, *ROLES, *MORE, *words[1:], *updates, "--out", tmp_path / "made")
    assert answered(capsys, "verify", tmp_path / "made", "--data", table)["same"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": "one"}, "does not say how it was trained ('seed')"),
        ({"seed": True}, "('seed')"),
        ({"thin": 0}, "thin must be a whole number from 1. Got 0."),
        ({"thin": 10**30}, "('thin')"),
        ({"updates": 10**18}, "('updates')"),
        ({"standardised": 7}, "('standardised')"),
        ({"data": []}, "the provenance is missing or wrong"),
        ({"algorithm": "none"}, "unknown algorithm"),
        ({"settings": {"depth": 3}}, "unknown setting"),
        ({"settings": {"hidden": {"a": 1}}}, "'hidden' parameter"),
        ({"settings": {"hidden": [1 << 24] * 2}}, "memory"),
        ({"settings": {"weight_decay": "0/1"}}, "'weight_decay' parameter"),
        ({"data": {}}, "is not what"),
        ({"data": {"drawn": {"trajectories": 3}}}, "which part"),
        ({"data": {"drawn": {"trajectories": 0, "held_out": 0.4, "calibrate": False, "draw_seed": -1}}}, "which part"),
    ],
)
def test_a_policy_that_does_not_say_how_it_was_made_is_not_trained_again(
    change, words, table, folder, policy, tmp_path, capsys
):
    made = Policy.load(policy)
    replace(made, provenance={**made.provenance, **change}).save(tmp_path / "told")
    given = ("--data", table, "--exclude", folder / "bad.csv")
    assert words in refusal(capsys, "verify", tmp_path / "told", *given)


def test_training_refuses(table, folder, policy, capsys):
    words = ("train", "bc", "--data", table, "--updates", "2", "--out", folder / "never")
    assert "which column holds the action" in refusal(capsys, *words)
    assert "did you mean 'treat'" in refusal(capsys, *words, "--action", "treet")
    assert "column 'age'" in refusal(capsys, *words, *ROLES)  # a missing value
    assert "--missing" in refusal(capsys, *words, *ROLES, "--missing", "guess")
    assert "held_out" in refusal(capsys, *words, *ROLES, "--calibrate")
    assert "between 0 and 1" in refusal(capsys, *words, *ROLES, *MORE, "--held-out", "1.5")
    assert "two roles" in refusal(capsys, *words, "--action", "treat", "--episode", "treat")
    assert "no such file" in refusal(capsys, *words[:2], "--data", folder / "none.csv", *words[4:], *ROLES)
    (folder / "strange.csv").write_text("99\n")
    assert "not in the data" in refusal(capsys, *words, *ROLES, *MORE, "--exclude", folder / "strange.csv")
    assert "--exclude" in refusal(capsys, *words, *ROLES, *MORE, "--exclude", folder / "none.csv")
    (folder / "all.csv").write_text("\n".join(map(str, range(24))))
    assert "none is left" in refusal(capsys, *words, *ROLES, *MORE, "--exclude", folder / "all.csv")
    (folder / "schema.json").write_text('{"action": 5}')
    assert "'action' of a schema" in refusal(capsys, *words, "--schema", folder / "schema.json")
    secret = changed(table, folder / "secret.csv", "pulse", fuzz.CANARY)
    line = refusal(capsys, *words[:2], "--data", secret, *words[4:], *ROLES, *MORE)
    assert "line 7, column 'pulse'" in line
    assert fuzz.CANARY not in line
    assert "exists already" in refusal(capsys, *words[:-1], policy, *ROLES, *MORE)
    assert not (folder / "never").exists()


# Scoring


def test_evaluate_and_compare(table, policy, folder, capsys):
    alone = answered(capsys, "evaluate", policy, "--data", table)
    assert alone["steps"] == 96
    assert {row["method"] for row in alone["compared"]} == {"majority", "bc"}
    assert alone["resampled"] == {"unit": "group", "count": 12}
    assert "nearest" not in json.dumps(alone["familiarity"])
    other = written(folder / "other.csv", rows(8, shift=60))
    words = ("evaluate", policy, "--data", table, "--training", table, "--another", other)
    both = answered(capsys, *words)
    assert both["accuracy"] == alone["accuracy"]
    assert "another" in json.dumps(both["familiarity"])
    run(*words)
    text = capsys.readouterr().out
    assert "another population" in text
    assert "give --training" not in text
    assert "24 episodes [95 % interval over 12 groups]" in text
    assert "No verdict: the policy was trained on these decisions, or on some of them." in text
    assert both["verdict"]["known"]
    new = written(folder / "later.csv", rows(20, shift=3))
    run("evaluate", policy, "--data", new)
    assert "bc is better than the most frequent action" in capsys.readouterr().out
    out = folder / "compared.json"
    words = ("compare", "--data", table, *ROLES, *MORE, "--algorithms", "bc", "--folds", "2", "--updates", "5")
    found = answered(capsys, *words, "--out", out)
    assert found == json.loads(out.read_text())
    assert (found["episodes"], found["decisions"], found["folds"]) == (24, 96, 2)
    assert {"bc", "logistic", "trees"} < {row["method"] for row in found["compared"]}
    assert "with its 95 % interval over 12 groups" in found["verdict"]["words"]


def test_evaluate_says_when_it_scores_the_wrong_decisions(table, policy, folder, sides, capsys):
    learned, new = folder / "learned.csv", written(folder / "new.csv", rows(6, shift=1))
    written(learned, [row for row in rows() if str(row[0]) in sides["training"]])

    def notes(data, *words):
        found = answered(capsys, "evaluate", policy, "--data", data, *words)["notes"]
        uneven = [note for note in found if "the methods beside it were not: log-loss" in note]
        assert len(uneven) == ("--training" in words)  # logistic regression and trees are not calibrated
        return [note for note in found if note not in uneven]

    assert notes(new) == []
    assert notes(new, "--training", learned) == []
    assert notes(learned)[0].startswith("the policy was trained on these decisions")
    assert notes(table)[0].startswith("the policy was trained on a part of these decisions")
    count = len(sides["training"])
    assert notes(new, "--training", table) == [
        f"the methods beside the policy learned from 24 episodes, the policy from {count}"
    ]
    assert any(
        note.startswith("24 of 24 episodes that are scored are in") for note in notes(table, "--training", table)
    )
    mixed = written(folder / "mixed.csv", [*rows(4), *([row[0] + 50, *row[1:]] for row in rows(4, shift=1))])
    assert notes(mixed, "--training", learned)[0].startswith(
        f"{len({*'0123'} & {*sides['training']})} of 8 episodes that are scored are in the training data too, with the "
        "same values"
    )
    other = written(folder / "others.csv", rows(count, shift=2))
    assert notes(new, "--training", other) == [
        "the training data are not what the policy was trained on (their hash differs)"
    ]
    run("evaluate", policy, "--data", learned)
    assert "note: the policy was trained on these decisions" in capsys.readouterr().out


def test_bc_is_calibrated_as_the_method_beside_it(table, folder, capsys, monkeypatch):
    words = ("train", "edm", "--data", table, *ROLES, *MORE, "--held-out", "0.4", "--calibrate", "--updates", "20")
    words = (*words, "--set", "chain_length=2", "buffer_size=64", "--seed", "3")
    seen = {}

    def spied(policy, calibration):
        made = original(policy, calibration)
        seen[str(policy.provenance["algorithm"])] = (calibration.ids, made.temperature)
        return made

    original = methods.calibrated
    for module in (methods, training_library):
        monkeypatch.setattr(module, "calibrated", spied)
    run(*words, "--out", folder / "calibrated")
    assert seen["bc"][0] == seen["edm"][0]
    assert seen["bc"][1] != 1
    assert "; likewise for the methods beside it that learn" in capsys.readouterr().out
    new = written(folder / "newer.csv", rows(6, shift=1))
    notes = answered(capsys, "evaluate", folder / "calibrated", "--data", new, "--training", table)["notes"]
    count = Policy.load(folder / "calibrated").provenance["data"]["trajectories"]
    assert notes[0] == f"the methods beside the policy learned from 24 episodes, the policy from {count}"
    assert "those of the methods beside it were not" in notes[1]


def test_one_group_has_no_interval_and_it_is_said(table, policy, folder, capsys):
    alone = written(folder / "alone.csv", rows(2, shift=1))
    run("evaluate", policy, "--data", alone)
    text = " ".join(capsys.readouterr().out.split())
    assert "2 episodes [no interval, because there is only one group to resample]" in text
    assert "nan" not in text
    assert "- to -" not in text


def test_a_policy_tells_no_small_count_of_actions(policy, table, folder, capsys):
    """The folder holds no counts of which action follows which; its shares are those of the card."""
    made = json.loads((policy / "policy.json").read_text())["provenance"]
    assert "baselines" not in made
    training = made["data"]["steps"]
    fluid = sum(row[6] == "fluid" for row in rows()) / 96
    assert made["shares"] == [pytest.approx(fluid, abs=0.15), pytest.approx(1 - fluid, abs=0.15)]
    assert [round(share, 2) for share in made["shares"]] == made["shares"]
    rare = [[*row[:6], "rare" if row[0] == 20 and row[1] < 2 else row[6], row[7]] for row in rows()]
    words = ("train", "bc", "--data", written(folder / "rare.csv", rare), *ROLES, *MORE, "--updates", "2")
    run(*words, "--out", folder / "rare")
    shares = json.loads((folder / "rare" / "policy.json").read_text())["provenance"]["shares"]
    assert shares[2] is None  # "rare", 2 of 96
    assert shares.count(None) == 2
    assert training < 96
    found = answered(capsys, "evaluate", folder / "rare", "--data", folder / "rare.csv")["compared"]
    assert [row["method"] for row in found] == ["majority", "bc"]
    commonest = max(sum(row[6] == name for row in rare) for name in ("fluid", "none"))
    assert found[0]["accuracy"]["value"] == pytest.approx(commonest / 96)
    described = json.loads((folder / "rare" / "policy.json").read_text())
    for wrong in ([0.5, 0.5], [0.5, 2, None], "abc", [True, None, None], [[], None, None]):
        described["provenance"]["shares"] = wrong
        (folder / "rare" / "policy.json").write_text(json.dumps(sealed(described)))
        found = answered(capsys, "evaluate", folder / "rare", "--data", folder / "rare.csv")["compared"]
        assert [row["method"] for row in found] == ["bc"]


def test_scoring_refuses(table, policy, folder, capsys):
    unknown = changed(table, folder / "unknown.csv", "treat", "surgery")
    assert "the action 'surgery' is not in the schema" in refusal(capsys, "evaluate", policy, "--data", unknown)
    assert "--env" in refusal(capsys, "evaluate", policy)
    assert "no such policy" in refusal(capsys, "evaluate", folder / "none", "--data", table)
    narrow = written(folder / "narrow.csv", [row[:3] + row[4:] for row in rows()], NAMES[:3] + NAMES[4:])
    assert "'pulse'" in refusal(capsys, "evaluate", policy, "--data", table, "--another", narrow)
    words = ("compare", "--data", table, *ROLES, *MORE)
    assert "folds must be 2 to 12" in refusal(capsys, *words, "--folds", "13")
    assert "unknown algorithm" in refusal(capsys, *words, "--algorithms", "edm,magic")
    for nothing in ("", " , "):
        assert "--algorithms is empty" in refusal(capsys, *words, "--algorithms", nothing)


def test_a_table_has_episodes(table, folder, capsys):
    """One word per concept: for tables, a trajectory is called an episode."""
    words = ("train", "bc", "--data", table, *ROLES, *MORE, "--updates", "1", "--out", folder / "none")
    assert "cannot draw 99 episodes from 24" in refusal(capsys, *words, "--trajectories", "99")
    assert "its episodes are shorter" in refusal(capsys, *words, "--thin", "9", "--thin-offset", "8")
    assert repr(read(table, episode="stay", action="treat", missing="mean")).startswith("Demonstrations(24 episodes")


# Deciding


def test_predict(table, policy, folder, capsys):
    out = folder / "decisions.csv"
    counted = answered(capsys, "predict", policy, "--data", table, "--out", out)
    assert counted["rows"] == sum(counted["actions"].values()) == 96
    decided = pl.read_csv(out)
    assert decided["row"].to_list() == list(range(2, 98))
    assert decided.columns[:4] == ["row", "stay", "hour", "action"]
    sums = decided["probability of fluid"] + decided["probability of none"]
    np.testing.assert_allclose(sums.to_numpy(), 1, atol=1e-5)
    certain = decided.filter((pl.col("probability of fluid") - 0.5).abs() > 1e-3)
    assert (certain["action"] == "fluid").to_list() == (certain["probability of fluid"] > 0.5).to_list()

    before = out.read_bytes()
    assert "exists already" in refusal(capsys, "predict", policy, "--data", table, "--out", out)
    assert out.read_bytes() == before

    # Columns in another order, without the decisions and with others beside them, are the same columns.
    turned = written(
        folder / "turned.csv",
        [[row[5], row[4], "x", row[3], row[1], row[0]] for row in rows()],
        ("sex", "age", "note", "pulse", "hour", "stay"),
    )
    run("predict", policy, "--data", turned, "--out", out, "--overwrite")
    assert out.read_bytes() == before

    run("predict", policy, "--data", table, "--out", folder / "decisions.parquet")
    parquet = pl.read_parquet(folder / "decisions.parquet")
    assert parquet.columns == decided.columns
    assert parquet["action"].to_list() == decided["action"].to_list()
    np.testing.assert_allclose(parquet["energy"].to_numpy(), decided["energy"].to_numpy(), atol=1e-5)


def test_predict_flags_what_is_unfamiliar(table, policy, folder, capsys):
    words = ("predict", policy, "--data", table, "--out", folder / "flagged.csv", "--overwrite", "--unfamiliar")
    run(*words, 99)
    assert "are flagged as unfamiliar" in capsys.readouterr().out
    flagged = [answered(capsys, *words, percentile)["unfamiliar"] for percentile in (0, 50, 99, 100)]
    assert flagged == sorted(flagged, reverse=True)
    assert flagged[0] > 80
    assert flagged[-1] == 0
    assert pl.read_csv(folder / "flagged.csv")["unfamiliar"].to_list() == [False] * 96
    assert "0 to 100" in refusal(capsys, *words, "101")
    assert "--unfamiliar" in refusal(capsys, *words, "many")


def test_predict_says_which_columns_are_outside(table, policy, folder, capsys):
    absurd = changed(table, folder / "absurd.csv", "pulse", "99999")
    out = folder / "outside.csv"
    run("predict", policy, "--data", absurd, "--out", out)
    told = capsys.readouterr().out
    assert "has a number outside its range in training; the column 'outside' names it" in told
    assert "like the training data" in told
    decided = pl.read_csv(out, schema_overrides={"outside": pl.String})
    (odd,) = decided.filter(pl.col("columns outside") > 0).to_dicts()
    assert (odd["row"], odd["outside"], odd["columns outside"], odd["unfamiliar"]) == (7, "pulse", 1, True)
    assert decided["unfamiliar"].sum() <= 5


def test_predict_refuses(table, policy, folder, capsys):
    def refused(data, out="never.csv"):
        return refusal(capsys, "predict", policy, "--data", data, "--out", folder / out)

    narrow = written(folder / "thin.csv", [row[:3] + row[4:] for row in rows()], NAMES[:3] + NAMES[4:])
    assert "there is no column 'pulse'" in refused(narrow)
    assert "the level 'x' is not in the schema" in refused(changed(table, folder / "level.csv", "sex", "x"))
    line = refused(changed(table, folder / "cell.csv", "age", fuzz.CANARY))
    assert "line 7, column 'age'" in line
    assert fuzz.CANARY not in line
    assert ".csv or .parquet" in refused(table, "never.xlsx")
    assert "no such file" in refused(folder / "none.csv")
    gap = changed(table, folder / "gap.csv", "pulse", "NA")
    words = ("predict", policy, "--data", gap, "--out", folder / "filled.csv", "--overwrite", "--missing")
    assert "column 'pulse': missing value" in refusal(capsys, *words, "refuse")
    assert "missing values 'guess'" in refusal(capsys, *words, "guess")
    assert answered(capsys, *words, "drop")["rows"] == 94
    assert answered(capsys, *words, "mean")["rows"] == 96
    assert not (folder / "never.csv").exists()
    probes_policy = folder / "plain"
    Policy(probes.network(2, 3, 2), ("a", "b"), ("0", "1"), None, {}).save(probes_policy)
    line = refusal(capsys, "predict", probes_policy, "--data", table, "--out", folder / "never.csv")
    assert "not trained on a table" in line


def test_names_that_look_like_formulas_are_harmless(folder, capsys):
    """A spreadsheet must not run them, and our reader must read them."""
    schema = Schema("=do", (Column("@pulse"), Column("-age")), ("+up", "=1+1"), episode="=stay")
    names = schema.observation_names, schema.actions
    scaling = Standardisation(np.zeros(2, np.float32), np.ones(2, np.float32))
    made = Policy(probes.network(2, 4, 2), *names, scaling, {"algorithm": "bc"}, schema=schema)
    made.save(folder / "formulas")
    lines = [[stay, pulse, 1.5] for stay in ("=cmd|' /C calc'!A0", "@x", "-7", "plain") for pulse in (-2, 2)]
    data, out = written(folder / "formulas.csv", lines, ("=stay", "@pulse", "-age")), folder / "harmless.csv"
    run("predict", folder / "formulas", "--data", data, "--out", out)
    capsys.readouterr()
    with out.open(newline="") as file:
        cells = [cell for line in csv.reader(file) for cell in line]
    texts = [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert all(set(cell) <= set("-.0123456789e+") for cell in texts), texts  # numbers, for example energies
    assert {"'=stay", "'=cmd|' /C calc'!A0", "'@x", "plain"} <= set(cells)
    back = read(out, action="action", episode="'=stay", observations=["energy"])
    assert len(back) == 4
    assert set(back.action_names) <= {"'+up", "'=1+1"}


def test_a_policy_that_sees_the_rows_before(table, folder, capsys):
    """From check to an exported file; every later table gives the same numbers from the same columns."""
    roles = (*ROLES, "--observations", "pulse")
    more = ("--previous-action", "--history", "1")
    names = ["pulse", "pulse, 1 row before"]
    names += ["no previous action", "previous action: fluid", "previous action: none"]
    run("check", table, *roles, *more)
    said = capsys.readouterr().out
    assert f"each row also observes: {'; '.join(names[1:])}" in said
    assert "--previous-action" in said.splitlines()[-1]
    assert "--history 1" in said.splitlines()[-1]

    made = folder / "seeing"
    words = ("train", "bc", "--data", table, *roles, *more, "--updates", "30", "--out", made)
    run(*words)
    assert list(Policy.load(made).observation_names) == names
    assert "- It sees the previous action." in (made / "README.md").read_text()
    assert answered(capsys, "verify", made, "--data", table)["same"]
    assert answered(capsys, "evaluate", made, "--data", table)["steps"] == 96
    run("view", table, "--policy", made, "--out", folder / "seeing.html")
    assert "1 row before" in (folder / "seeing.html").read_text()
    assert answered(capsys, "export", made, "--onnx", folder / "seeing.onnx")["observation"] == names

    run("predict", made, "--data", table, "--out", folder / "seeing.csv")
    whole = (folder / "seeing.csv").read_bytes()
    kept = [[*row[:6], "" if row[1] == 3 else row[6]] for row in rows()]  # the last decision is not made yet
    run("predict", made, "--data", written(folder / "now.csv", kept, NAMES[:7]), "--out", folder / "now-decided.csv")
    assert (folder / "now-decided.csv").read_bytes() == whole
    decided = pl.read_csv(folder / "seeing.csv")
    read_ = read(table, schema=Policy.load(made).schema)
    seen = np.concatenate([trajectory.observations for trajectory in read_.trajectories])
    policy = Policy.load(made)
    np.testing.assert_allclose(decided["probability of fluid"], policy.probabilities(seen)[:, 0], atol=1e-6)
    np.testing.assert_array_equal(policy.act(pl.DataFrame(seen, schema=names)), policy.act(seen))
    np.testing.assert_array_equal(policy.act(pl.read_csv(table)), policy.act(seen))

    out = ("--out", folder / "never.csv")
    without = written(folder / "undecided.csv", [row[:6] for row in rows()], NAMES[:6])
    line = refusal(capsys, "predict", made, "--data", without, *out)
    assert "no column 'treat' (action), and the policy observes the previous action; add the actions of" in line
    gap = written(folder / "unknown.csv", [[*row[:6], "" if row[1] == 1 else row[6]] for row in rows()], NAMES[:7])
    line = refusal(capsys, "predict", made, "--data", gap, *out)
    assert "line 3, column 'treat': missing action, and the policy observes it in the next row" in line
    words = ("train", "bc", "--data", table, "--action", "treat", "--observations", "pulse", *out)
    assert "history needs episodes" in refusal(capsys, *words, "--history", "1")
    assert "previous_action needs episodes" in refusal(capsys, *words, "--previous-action")
    assert "history must be a whole number from 0" in refusal(capsys, *words, "--episode", "stay", "--history", "-1")
    assert "--history" in refusal(capsys, *words, "--history", "many")
    assert not (folder / "never.csv").exists()
    line = refusal(capsys, "evaluate", made, "--env", "CartPole-v1", "--previous-action")
    assert "--previous-action has no effect with --env" in line


def test_columns_are_dropped(table, folder, capsys):
    words = ("train", "bc", "--data", table, *ROLES, "--updates", "10", "--out", folder / "dropped")
    run(*words, "--drop", "age", "patient")
    assert "observed: pulse; left out: patient, age, sex" in capsys.readouterr().out
    assert answered(capsys, "verify", folder / "dropped", "--data", table)["same"]
    without = written(folder / "without.csv", [[row[3]] for row in rows()], ["pulse"])
    run("predict", folder / "dropped", "--data", without, "--out", folder / "dropped.csv")
    line = refusal(capsys, *words, "--overwrite", "--drop", "agee")
    assert "no column 'agee' (drop); did you mean 'age'?" in line
    assert "missing" in refusal(capsys, *words, "--overwrite", "--drop", "patient")  # age misses a value


def test_a_policy_that_knows_what_is_missing(folder, capsys):
    """From check to an exported file; gaps in other columns are counted and said."""
    gaps = [[*row[:3], "" if row[1] == 2 else row[3], 40 + row[0], *row[5:]] for row in rows()]
    table = written(folder / "gaps.csv", gaps)
    roles = (*ROLES, "--observations", "pulse", "age", "--missing", "indicator")
    names = ["pulse", "pulse missing", "age"]
    run("check", table, *roles)
    assert "each row also observes: pulse missing\n" in capsys.readouterr().out

    made = folder / "marking"
    run("train", "bc", "--data", table, *roles, "--updates", "30", "--out", made)
    said = capsys.readouterr().out
    assert "observed: pulse, pulse missing, age" in said
    assert "24 missing values were filled in (pulse 24)" in said
    assert "so no number marks them" not in said
    policy = Policy.load(made)
    assert list(policy.observation_names) == names
    assert policy.guard.outside(np.array([80, 0.5, 45])).tolist() == [False, True, False]
    assert "| pulse missing | missing or not | - | - | - | - |" in (made / "README.md").read_text()
    assert answered(capsys, "verify", made, "--data", table)["same"]
    assert answered(capsys, "export", made, "--onnx", folder / "marking.onnx")["observation"] == names
    run("view", table, "--policy", made, "--out", folder / "marking.html")

    more = [[*row[:4], "" if row[0] == 3 else row[4], *row[5:]] for row in gaps]
    later = written(folder / "more-gaps.csv", more)
    out = ("--out", folder / "marked.csv")
    run("predict", made, "--data", later, *out)
    said = capsys.readouterr().out
    assert "28 missing values were filled in (pulse 24, age 4)" in said
    assert "of these, 4 are in columns that missed none in training, so no number marks them (age 4)" in said
    found = answered(capsys, "predict", made, "--data", later, *out, "--overwrite")
    assert (found["filled"], found["newly_missing"]) == ({"pulse": 24, "age": 4}, {"age": 4})
    run("evaluate", made, "--data", later)
    assert "of these, 4 are in columns that missed none in training" in capsys.readouterr().out
    decided = pl.read_csv(folder / "marked.csv")
    seen = read(later, schema=policy.schema)
    seen = np.concatenate([trajectory.observations for trajectory in seen.trajectories])
    np.testing.assert_allclose(decided["probability of fluid"], policy.probabilities(seen)[:, 0], atol=1e-6)
    np.testing.assert_array_equal(policy.act(pl.read_csv(later)), policy.act(seen))
    session = onnxruntime.InferenceSession(folder / "marking.onnx")
    np.testing.assert_allclose(
        session.run(["probabilities"], {"observation": seen})[0], policy.probabilities(seen), atol=1e-5
    )
    line = refusal(capsys, "predict", made, "--data", later, *out, "--overwrite", "--missing", "refuse")
    assert "missing value" in line


def test_a_policy_that_knows_how_old_a_value_is(folder, capsys):
    gaps = [[*row[:3], "" if row[1] in (1, 2) else row[3], *row[4:]] for row in rows()]
    table, made = written(folder / "old.csv", gaps), folder / "dating"
    roles = (*ROLES, "--observations", "pulse", "--missing", "last", "--since-last")
    run("train", "bc", "--data", table, *roles, "--updates", "10", "--out", made)
    policy = Policy.load(made)
    assert policy.observation_names == ("pulse", "time since pulse", "no pulse yet")
    assert "| no pulse yet | missing or not |" in (made / "README.md").read_text()
    assert answered(capsys, "verify", made, "--data", table)["same"]
    run("predict", made, "--data", table, "--out", folder / "dated.csv")
    seen = np.concatenate([one.observations for one in read(table, schema=policy.schema).trajectories])
    assert seen[:4, 1].tolist() == [0, 1, 2, 0]
    decided = pl.read_csv(folder / "dated.csv")
    np.testing.assert_allclose(decided["probability of fluid"], policy.probabilities(seen)[:, 0], atol=1e-6)
    words = ("train", "bc", "--data", table, "--action", "treat", "--observations", "pulse", "--out", folder / "never")
    assert "since_last needs episodes" in refusal(capsys, *words, "--missing", "last", "--since-last")
    line = refusal(capsys, *words, "--episode", "stay", "--since-last")
    assert "since_last needs rows in which a value is missing" in line


def test_decisions_that_count_more(table, folder, capsys):
    roles = (*ROLES, "--observations", "pulse", "--weights", "age", "--balance", "--missing", "drop")
    for name in ("logistic", "bc"):
        updates = ("--updates", "10") if name == "bc" else ()
        run("train", name, "--data", table, *roles, *updates, "--held-out", "0.4", "--out", folder / f"weighed-{name}")
        assert answered(capsys, "verify", folder / f"weighed-{name}", "--data", table)["same"]
    made = folder / "weighed-bc"
    card = (made / "README.md").read_text()
    assert "column of weights: age" in card
    assert "balance: every action counts the same in training" in card
    without = written(folder / "no-weights.csv", [[*row[:4], *row[5:]] for row in rows()], [*NAMES[:4], *NAMES[5:]])
    assert answered(capsys, "evaluate", made, "--data", without)["steps"] == 96
    run("predict", made, "--data", without, "--out", folder / "weighed.csv")
    words = ("train", "edm", "--data", table, *roles, "--out", folder / "never")
    assert "edm lets all decisions count the same; leave out weights and balance" in refusal(capsys, *words)
    assert "no column 'agee' (weights)" in refusal(capsys, *words, "--weights", "agee")
    assert not (folder / "never").exists()


def test_numbers_are_cut_into_ranges(table, folder, capsys):
    words = ("train", "bc", "--data", table, *ROLES, "--observations", "pulse", "--updates", "10", "--out")
    run(*words, folder / "cut", "--bins", "pulse=3")
    policy = Policy.load(folder / "cut")
    assert len(policy.observation_names) == 3
    assert policy.observation_names[0].startswith("pulse below ")
    assert f"| {policy.observation_names[0]} | range | - | - |" in (folder / "cut" / "README.md").read_text()
    assert answered(capsys, "verify", folder / "cut", "--data", table)["same"]
    run("predict", folder / "cut", "--data", table, "--out", folder / "cut.csv")
    names = list(policy.observation_names)
    assert answered(capsys, "export", folder / "cut", "--onnx", folder / "cut.onnx")["observation"] == names
    for wrong in ("pulse", "pulse=", "=3", "pulse=x", "pulse=-1"):
        line = refusal(capsys, *words, folder / "never", "--bins", wrong)
        assert f"--bins takes COLUMN=COUNT, as in --bins age=5. Got '{wrong}'" in line
    assert "bins of 'pulse' must be a whole number from 2" in refusal(
        capsys, *words, folder / "never", "--bins", "pulse=1"
    )
    assert "no column 'puls'" in refusal(capsys, *words, folder / "never", "--bins", "puls=3")


def test_what_was_not_seen_in_training(table, folder, capsys):
    words = ("train", "bc", "--data", table, *ROLES, "--one-hot", "sex", "--observations", "pulse", "--updates", "10")
    run(*words, "--unseen", "other", "--out", folder / "open")
    run(*words, "--out", folder / "closed")
    later = [[*row[:5], "x" if row[0] == 2 else row[5], "drug" if row[0] == 3 else row[6], row[7]] for row in rows()]
    later = written(folder / "unseen.csv", later)
    for made in ("open", "closed"):
        out = ("--out", folder / f"{made} decided.csv")
        run("predict", folder / made, "--data", later, *out, *(("--unseen", "other") if made == "closed" else ()))
        assert "4 values were not seen in training and count as other (sex 4)" in capsys.readouterr().out
    run("evaluate", folder / "open", "--data", later)
    assert "8 values were not seen in training and count as other (sex 4, treat 4)" in capsys.readouterr().out
    line = refusal(capsys, "evaluate", folder / "closed", "--data", later, "--unseen", "other")
    assert "it has no action 'other' to count them as" in line
    out = ("--out", folder / "never.csv")
    assert "the level 'x' is not in the schema" in refusal(capsys, "predict", folder / "closed", "--data", later, *out)
    assert "unseen" in refusal(capsys, "predict", folder / "closed", "--data", later, *out, "--unseen", "drop")
    assert "--unseen" in refusal(capsys, *words, "--unseen", "drop", *out)
    assert not (folder / "never.csv").exists()


def test_indicators_are_for_policies_that_have_them(policy, table, folder, capsys):
    words = ("predict", policy, "--data", table, "--out", folder / "never.csv", "--missing", "indicator")
    line = refusal(capsys, *words)
    assert "was trained without numbers that mark missing values; choose mean, last or drop" in line
    assert not (folder / "never.csv").exists()


# Exporting


def test_export(policy, folder, capsys):
    words = ("export", policy, "--onnx", folder / "policy.onnx")
    said = answered(capsys, *words)
    assert said["observation"] == ["pulse", "age", "sex=f", "sex=m"]
    before = (folder / "policy.onnx").read_bytes()
    assert "exists already" in refusal(capsys, *words)
    run(*words, "--overwrite")
    assert (folder / "policy.onnx").read_bytes() == before
    assert "no such policy" in refusal(capsys, "export", folder / "none", "--onnx", folder / "never.onnx")
    assert "no such policy" in refusal(capsys, "show", folder / "none")
    empty = folder / "empty"
    empty.mkdir()
    assert "not a policy folder" in refusal(capsys, "show", empty)


def test_nothing_that_is_read_is_replaced(table, policy, folder, capsys):
    """An input is not replaced, not even with --overwrite or through another name of the same file."""
    mine = folder / "mine.csv"
    mine.write_bytes(table.read_bytes())
    schema = folder / "mine.json"
    schema.write_text(json.dumps({"action": "treat"}))
    (folder / "linked.csv").symlink_to(mine)
    before = {path: path.read_bytes() for path in (mine, schema, *policy.iterdir())}
    compare = ("compare", "--data", mine, "--algorithms", "bc", "--folds", "2", "--updates", "1", *ROLES, *MORE)
    predict, export = ("predict", policy, "--overwrite", "--data"), ("export", policy, "--overwrite", "--onnx")
    refusals = [
        (*predict, mine, "--out", mine),
        (*predict, folder / "linked.csv", "--out", mine),
        (*predict, folder / "min*.csv", "--out", folder / ".." / folder.name / "mine.csv"),
        (*predict, mine, "--out", policy / "metrics.csv"),
        (*compare, "--overwrite", "--out", mine),
        (*compare[:3], "--schema", schema, "--overwrite", "--out", schema),
        (*compare, "--overwrite", "--out", policy / "policy.json"),
        *((*export, policy / name) for name in ("weights.safetensors", "policy.json", "README.md", "metrics.csv")),
    ]
    for words in refusals:
        assert "is not replaced" in refusal(capsys, *words)
    assert "--overwrite" in refusal(capsys, *compare, "--out", schema)
    assert "is a folder" in refusal(capsys, *compare, "--out", folder)
    assert {path: path.read_bytes() for path in before} == before
    for name in ("metrics.csv", "README.md"):
        (folder / name).write_text("mine")  # elsewhere they are files as any other
    run(*predict, mine, "--out", folder / "metrics.csv")
    run(*compare, "--out", schema, "--overwrite")
    capsys.readouterr()
    assert json.loads(schema.read_text())["folds"] == 2


def test_demonstrations_go_to_minari_and_come_back(table, folder, capsys):
    pytest.importorskip("h5py")
    words = ("demos", "export", table, *ROLES, *MORE, "--minari", "wards/stays-v0", "--folder", folder / "datasets")
    assert "--drop-last" in refusal(capsys, *words)
    where = str(folder / "datasets" / "wards" / "stays-v0")
    assert answered(capsys, *words, "--drop-last") == {"folder": where, "minari": "wards/stays-v0"}
    back = read(f"minari:{folder / 'datasets' / 'wards' / 'stays-v0'}")
    roles = {"episode": "stay", "time": "hour", "action": "treat", "terminal": "end", "group": "patient"}
    here = read(table, **roles, one_hot=["sex"], observations=["pulse", "age"], missing="mean")
    assert back.observation_names == here.observation_names
    assert back.action_names == here.action_names
    assert len(back) == len(here)
    for one, other in zip(back.trajectories, here.trajectories, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.actions, other.actions[:-1])
    assert "exists already" in refusal(capsys, *words, "--drop-last")
    assert "group/name-v0" in refusal(capsys, *words[:-3], "../up", "--folder", folder / "datasets", "--drop-last")
    found = answered(capsys, "check", f"minari:{folder / 'datasets' / 'wards' / 'stays-v0'}")
    assert found["rows"] == 72
    assert "no such Minari dataset" in refusal(capsys, "check", "minari:wards/none-v0")


def test_agents_that_cannot_be_imported(table, folder, capsys):
    words = ("--out", folder / "agent")
    for name, content in {
        "empty.zip": b"",
        "noise.zip": b"PK\3\4" + bytes(90),
        "table.zip": table.read_bytes(),
    }.items():
        (folder / name).write_bytes(content)
        assert name in refusal(capsys, "demos", "import", folder / name, *words)
    (folder / "empty archive.zip").write_bytes(_archive())
    assert "empty archive.zip" in refusal(capsys, "demos", "import", folder / "empty archive.zip", *words)
    assert "none.zip" in refusal(capsys, "demos", "import", folder / "none.zip", *words)
    assert not (folder / "agent").exists()


def _archive():
    import zipfile

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("data", "{}")
    return content.getvalue()


def test_held_out_names_from_the_command_line(table, folder, capsys):
    names, out = folder / "names.txt", folder / "listed"
    words = ("train", "bc", "--data", table, *ROLES, *MORE, "--held-out", "0.4", "--updates", "2", "--out", out)
    run(*words, "--write-held-out", names)
    stays = names.read_text().split()[1:]
    assert f"wrote {names} (the names of {len(stays)} held-out episodes)" in capsys.readouterr().out
    found = answered(capsys, "evaluate", out, "--data", table, "--only", names)
    assert found["steps"] == 4 * len(stays)
    assert not found["notes"]
    seen = answered(capsys, "check", table, *ROLES, *MORE, "--only", names)
    assert seen["episodes"]["count"] == len(stays)
    assert seen["command"].endswith(f"--only {names}")
    assert "exists already" in refusal(capsys, *words, "--write-held-out", names)
