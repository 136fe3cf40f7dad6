"""sbil reproduce on clinical data, from the files of hospitals to the table: whole, twice, interrupted, refused."""

import inspect
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hospitals import ward

import shared
from probes import refusal
from sbil.cli import main
from sbil.cli.reproduce import Command
from sbil.clinical import datasets, icu_sepsis
from sbil.clinical.datasets import ON_STATES
from sbil.evaluation.decided import Decided
from sbil.evaluation.matching import METRICS
from sbil.experiments import TableTask
from sbil.experiments.methods import BASELINES
from sbil.experiments.result import CELL_COLUMNS, RUN_COLUMNS
from sbil.experiments.run import run_cells
from sbil.experiments.store import read_all
from sbil.experiments.table import METHODS
from sbil.reports import clinical

SEPSIS = datasets.get("ICU-Sepsis")
SMALL = ("--draws", "2", "--updates", "3", "--algorithms", "majority,previous action,bc")
CHANGED = "tables incomplete or changed, not a result"


def reproduce(*words: object) -> None:
    main(["reproduce", *map(str, words)])


def tables(out: Path) -> list[clinical.ClinicalTable]:
    return clinical.tables(read_all([out]))


def table(out: Path, title: str) -> dict:
    [found] = [one for one in tables(out) if one.task.title == title]
    return found.as_json()


@pytest.fixture
def ran(monkeypatch):
    """The methods that were run (not read from files) and their numbers of splits."""
    seen = []

    def counted(cells, *rest):
        seen.extend((str(cell.method), cell.draws) for cell in cells)
        return run_cells(cells, *rest)

    monkeypatch.setattr("sbil.experiments.run.run_cells", counted)
    return seen


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    return ward().write(tmp_path_factory.mktemp("mimic") / "source")


def stays(path: Path, count: int = 12) -> Path:
    """An archive of records in which every other stay is ventilated for some hours."""
    with tarfile.open(path, "w:gz") as file:
        for number in range(1, count + 1):
            lines = ["Time,Parameter,Value", f"00:00,RecordID,{number}", "00:00,Age,54", "00:00,ICUType,2"]
            lines += [f"{hour:02}:10,HR,{60 + number + hour}" for hour in range(0, 24, 3)]
            lines += [f"{hour:02}:20,MechVent,1" for hour in range(0, 12, 3) if number % 2]
            content = "\n".join(lines).encode()
            info = tarfile.TarInfo(f"set-a/{number}.txt")
            info.size = len(content)
            file.addfile(info, BytesIO(content))
    return path


# Whole, and again.


def test_mimic_from_its_files_to_the_tables(hospital, tmp_path, capsys, ran):
    words = ("--source", hospital, "--accept-incomplete", "--out", tmp_path, *SMALL)
    reproduce("--env", "MIMIC-III-4a", *words)
    printed = capsys.readouterr()
    assert f"MIMIC-III-4a, {CHANGED}: mean ± standard error over 2 random splits, 20 % held out. " in printed.out
    assert " decisions. 3 updates" in printed.out
    assert f"3/3 MIMIC-III-4a, {CHANGED} bc: " in printed.err
    assert "holds rows of patients" in printed.out
    assert ran == [("majority", 2), ("previous action", 2), ("bc", 2)]
    names = {path.name.rsplit(".", 2)[0] for path in (tmp_path / "clinical").glob("*.parquet")}
    marked = "MIMIC-III-4a-tables-incomplete-or-changed-not-a-result"
    assert names == {f"{marked}.majority", f"{marked}.previous-action", f"{marked}.bc"}
    for path in (tmp_path / "clinical").glob("*.parquet"):  # metrics and counts, no row of a patient
        assert set(pl.read_parquet(path).columns) - {"metric_policy_loss"} == {
            *(*METRICS, *TableTask.columns(), *CELL_COLUMNS, *RUN_COLUMNS),
            *("trajectories", "held_out_trajectories", "held_out_decisions"),
        }
    assert (tmp_path / "clinical" / "data" / ".gitignore").read_text() == "*\n"
    assert f"MIMIC-III-4a, {CHANGED}" in (tmp_path / "report.html").read_text()
    four = table(tmp_path, f"MIMIC-III-4a, {CHANGED}")
    assert (four["splits"], set(four["methods"])) == (2, {"majority", "previous action", "bc"})
    assert clinical.printed(four["name"]) == {}  # no numbers of the paper beside tables that are not results
    assert CHANGED in clinical.section(tables(tmp_path))
    # Again, without the source and with it, in JSON: nothing is run, and the answer is the same.
    ran.clear()
    for source in ((), words[:3]):
        reproduce("--env", "MIMIC-III-4a", *source, "--out", tmp_path, *SMALL, "--json")
        said = capsys.readouterr()
        assert json.loads(said.out) == four
        assert f"3/3 MIMIC-III-4a, {CHANGED} bc: kept from before" in said.err
    assert not ran
    more = "--draws", "3", "--updates", "3", "--algorithms", "majority,previous action@2"
    reproduce("--env", "MIMIC-III-4a", "--out", tmp_path, *more)
    assert ran == [("majority", 3)]


def test_physionet_from_its_archives_to_the_table(tmp_path, capsys, ran):
    source, out = stays(tmp_path / "set-a.tar.gz"), tmp_path / "out"
    words = ("--env", "PhysioNet-2012", "--out", out, *SMALL)
    reproduce(*words, "--source", source)
    first = table(out, "PhysioNet-2012")
    assert first["methods"]["bc"]["scores"]["accuracy"]["mean"] > 0
    ran.clear()
    reproduce(*words)
    assert not ran
    assert table(out, "PhysioNet-2012") == first
    other = stays(tmp_path / "set-b.tar.gz", 13)
    assert "was made from other files than the source holds" in refusal(capsys, "reproduce", *words, "--source", other)
    (out / "clinical" / "data" / "PhysioNet-2012.flow.json").unlink()
    assert "flow.json is missing or damaged" in refusal(capsys, "reproduce", *words)


needs_sepsis = pytest.mark.skipif(find_spec("icu_sepsis") is None, reason="icu-sepsis is not installed")


@needs_sepsis
def test_icu_sepsis_is_matched_and_played(tmp_path):
    methods = "clinicians,uniform actions,edm_exact"
    words = ("--sizes", "10", "--episodes", "30", "--draws", "1", "--updates", "3", "--algorithms", methods)
    reproduce("--env", "ICU-Sepsis", *words, "--out", tmp_path)
    found = table(tmp_path, "ICU-Sepsis")
    assert found["notes"][0].startswith("10 episodes (")
    assert found["played"]["live_survival"] == "survival, 30 live episodes"
    scores = {method: values["scores"] for method, values in found["methods"].items()}
    assert list(scores) == methods.split(",")
    assert scores["clinicians"]["survival"]["mean"] == pytest.approx(0.7818, abs=5e-5)
    assert scores["uniform actions"]["survival"]["mean"] == pytest.approx(0.7801, abs=5e-5)
    assert scores["uniform actions"]["log_loss"]["mean"] == pytest.approx(np.log(25), abs=1e-4)
    for values in scores.values():
        assert 0.7 < values["survival"]["mean"] < 0.88
        assert 0.4 < values["live_survival"]["mean"] <= 1
    assert "survival, exact" in clinical.section(tables(tmp_path))


@pytest.mark.release
@needs_sepsis
def test_icu_sepsis_with_every_baseline_twice(tmp_path, ran):
    words = ("--sizes", "20", "--episodes", "30", "--draws", "1", "--updates", "3", "--out", tmp_path)
    methods = [*SEPSIS.references, *BASELINES, "bc", *ON_STATES]
    reproduce("--env", "ICU-Sepsis", *words, "--algorithms", ",".join(methods))
    first = table(tmp_path, "ICU-Sepsis")
    assert list(first["methods"]) == methods
    ran.clear()
    reproduce("--env", "ICU-Sepsis", *words, "--algorithms", ",".join(methods))
    assert not ran
    assert table(tmp_path, "ICU-Sepsis") == first


@pytest.mark.release
@needs_sepsis
def test_survival_by_habit():
    """A policy that ignores the previous action survives as often as one without states; live episodes agree."""
    shares = np.random.default_rng(0).dirichlet(np.ones(25))
    exact = icu_sepsis.survival(np.tile(shares, (716, 1)))
    assert icu_sepsis.habitual_survival(np.tile(shares, (26, 1))) == pytest.approx(exact, abs=1e-6)
    said = np.tile(shares, (766, 1))
    played = icu_sepsis._play(400, "previous action", {5: Decided(said, np.zeros(766, int), np.arange(766))})
    assert abs(played[5]["live_survival"] - exact) < 4 * (exact * (1 - exact) / 400) ** 0.5


def test_what_icu_sepsis_is_compared_with():
    assert SEPSIS.methods[:2] == SEPSIS.references
    assert set(SEPSIS.methods) == {*("clinicians", "uniform actions", "edm_exact", "edm_metropolis"), *METHODS}
    assert datasets.get("MIMIC-III-2a").methods == METHODS


def test_the_help_names_every_dataset():
    help_of_env = inspect.getsource(Command).split("env: str")[1].split('"""')[1]
    assert all(name in help_of_env for name in datasets.known())


def test_physionet_with_the_action_before_and_two_tables_as_json(tmp_path, capsys):
    source, out = stays(tmp_path / "set-a.tar.gz"), tmp_path / "out"
    words = ("--draws", "2", "--algorithms", "majority,bc", "--updates", "3", "--out", out)
    both = "PhysioNet-2012,PhysioNet-2012-with-previous"
    reproduce("--env", both, "--source", source, *words, "--json")
    first, second = json.loads(capsys.readouterr().out)
    assert (first["name"], second["name"]) == ("PhysioNet-2012", "PhysioNet-2012, previous action shown")
    assert first["notes"][0] == "72 decisions."
    assert first["methods"]["bc"] != second["methods"]["bc"]
    reproduce("--env", both, *words)
    assert f"wrote {out}/clinical/ and {out}/report.html" in capsys.readouterr().out


# Refused in one line, before any work.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--env", "PhysioNet-2012"), "PhysioNet-2012 needs data: give the source"),
        (("--env", "MIMIC-III-2a"), "MIMIC-III-2a needs data: give the source"),
        (("--env", "MIMIC-III-4a", "--source", "EMPTY"), "holds no table of MIMIC-III"),
        (("--env", "MIMIC-III-4a", "--source", "nowhere"), "nowhere is not a folder"),
        (("--env", "MIMIC-III-4a", "--source", "EMPTY", "EMPTY"), "MIMIC-III is one folder. Got 2 names."),
        (("--env", "PhysioNet-2012", "--source", "EMPTY"), "no record of a stay in it"),
        (("--env", "PhysioNet-2012", "--source", "nowhere"), "there is no such file or folder"),
        (("--env", "MIMIC-III-3a"), "unknown environment 'MIMIC-III-3a'; did you mean 'MIMIC-III-4a'?"),
        (("--env", "ICU-Sepsis-v2"), "unknown environment 'ICU-Sepsis-v2'; did you mean 'ICU-Sepsis'?"),
        (("--env", "ICU-Sepsis", "--sizes", "10,20"), "--sizes of ICU-Sepsis must be one number"),
        (("--env", "ICU-Sepsis", "--source", "EMPTY"), "needs no --source"),
        (("--env", "MIMIC-III-4a", "--source", "HOSPITAL", "--algorithms", "bd"), "unknown algorithm 'bd'"),
        (("--env", "MIMIC-III-4a", "--source", "HOSPITAL", "--draws", "0"), "splits must be a whole number from 1"),
        (("--env", "PhysioNet-2012", "--algorithms", "clinicians"), "unknown algorithm 'clinicians'"),
        (("--env", "PhysioNet-2012", "--thin", "5"), "--thin is about environments that are played"),
        (("--env", "ICU-Sepsis", "--quick"), "--quick is about environments that are played"),
        (("--env", "PhysioNet-2012", "--sizes", "3"), "--sizes is about environments that are played"),
        (("--env", "ICU-Sepsis,CartPole-v9"), "unknown environment 'CartPole-v9'"),
        (("--env", "MIMIC-III-4a,PhysioNet-2012", "--source", "HOSPITAL"), "not of both; run one after the other"),
        (
            ("--env", "MIMIC-III-2a,MIMIC-III-4a", "--source", "HOSPITAL", "--algorithms", "bc,edm_exact"),
            "leave it out",
        ),
    ],
)
def test_mistakes_are_one_line(hospital, tmp_path, capsys, words, message):
    (tmp_path / "empty").mkdir()
    places = {"EMPTY": tmp_path / "empty", "HOSPITAL": hospital}
    given = [places.get(word, word) for word in words]
    assert message in refusal(capsys, "reproduce", *given, "--out", tmp_path / "out")


def test_tables_of_another_size_are_refused_once_they_are_read(hospital, tmp_path, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["reproduce", "--env", "MIMIC-III-4a", "--source", str(hospital), "--out", str(tmp_path / "out")])
    assert leaving.value.code == 2
    *read, last = capsys.readouterr().err.splitlines()
    assert all(line.endswith(" s") for line in read)  # a line for each table that was read
    assert last.startswith("sbil: ")
    assert "has 13 rows and MIMIC-III v1.4 has 46,520" in last


def test_a_table_of_another_hospital_is_not_taken_for_this_one(hospital, tmp_path, capsys):
    words = ("--env", "MIMIC-III-4a", "--accept-incomplete", "--out", tmp_path / "out", "--algorithms", "majority")
    reproduce(*words, "--source", hospital)
    other = ward(13).write(tmp_path / "other")
    assert "was made from other files than the source holds" in refusal(capsys, "reproduce", *words, "--source", other)


# Interrupted. Real processes; a checkpoint after every chunk.


def start(out: Path, hospital: Path, updates: int) -> subprocess.Popen:
    words = ["--env", "MIMIC-III-4a", "--source", hospital, "--accept-incomplete", "--out", out, "--draws", "2"]
    words += ["--algorithms", "previous action,bc", "--updates", updates]
    command = [sys.executable, "-m", "sbil", "reproduce", *map(str, words)]
    environment = {**os.environ, "SBIL_CHECKPOINT_SECONDS": "0"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def measured(out: Path) -> dict[str, str]:
    files = sorted((out / "clinical").glob("*.parquet"))
    seconds = ["selection_seconds", "training_seconds", "evaluation_seconds"]
    return {path.name: json.dumps(pl.read_parquet(path).drop(seconds).to_dicts()) for path in files}


@pytest.mark.release
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_stopped_goes_on(hospital, tmp_path, stop):
    updates = 5_000
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    undisturbed = start(whole, hospital, updates)
    undisturbed.communicate(timeout=300)
    assert undisturbed.returncode == 0
    process = start(torn, hospital, updates)
    end = time.monotonic() + 120
    while not list((torn / "clinical" / "data").glob(".*.checkpoint")) and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(stop)
    _, error = process.communicate(timeout=60)
    assert process.returncode == (130 if stop == signal.SIGINT else -signal.SIGKILL), error
    [checkpoint] = (torn / "clinical" / "data").glob(".*.checkpoint")
    assert len(measured(torn)) == 1  # only the baseline is finished
    again = start(torn, hospital, updates)
    _, error = again.communicate(timeout=300)
    assert again.returncode == 0, error
    assert f"1/2 MIMIC-III-4a, {CHANGED} previous action: kept from before" in error
    assert measured(torn) == measured(whole)
    assert not checkpoint.exists()


@pytest.mark.release
@pytest.mark.parametrize("moment", ["schema", "rows"])
def test_stopped_between_the_files_of_an_extraction(hospital, tmp_path, monkeypatch, moment):
    """The table is written last. If it is missing, everything is extracted again, whatever other files exist."""
    from sbil.clinical.mimic3 import extraction

    asked = datasets.Asked(tmp_path, [hospital], accept_incomplete=True)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(extraction.files, "write_bytes" if moment == "rows" else "write_text", stop)
        with pytest.raises(KeyboardInterrupt):
            datasets.get("MIMIC-III-4a").open(asked)
    assert not (tmp_path / "MIMIC-III-4a.parquet").exists()
    task, _ = datasets.get("MIMIC-III-4a").open(asked)
    assert len(task.demonstrations) == 13


# The real data, where they are.


@pytest.mark.shared("mimic-iii-demo")
def test_the_demo_is_marked_everywhere(tmp_path, capsys):
    words = ("--algorithms", "majority,previous action", "--draws", "3", "--out", tmp_path)
    reproduce("--env", "MIMIC-III-2a", "--source", shared.path("mimic-iii-demo"), *words)
    title = "MIMIC-III-2a, a demo of 100 patients, not a result"
    assert f"{title}: mean ± standard error" in capsys.readouterr().out
    assert table(tmp_path, title)["methods"]["previous action"]["scores"]["auc"]["mean"] > 0.8
    assert all("demo-of-100-patients-not-a-result" in path.name for path in (tmp_path / "clinical").glob("*.*"))


@pytest.mark.release
@pytest.mark.shared("physionet-2012", "set-a.tar.gz")
def test_the_challenge(tmp_path):
    source = shared.path("physionet-2012", "set-a.tar.gz")
    reproduce("--env", "PhysioNet-2012", "--source", source, "--out", tmp_path, *SMALL)
    assert table(tmp_path, "PhysioNet-2012")["methods"]["previous action"]["scores"]["auc"]["mean"] > 0.85
