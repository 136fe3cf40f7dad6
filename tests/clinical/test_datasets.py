"""An extracted table is used again only if its source and its rules are the same."""

import json
import shutil
import sys
import time

import pytest
from hospitals import ward

from sbil.clinical import datasets, physionet2012
from sbil.clinical.datasets import extracted
from sbil.clinical.mimic3 import source as mimic3
from sbil.clinical.records import digest
from sbil.errors import UserError

MIMIC, PHYSIONET = "MIMIC-III-4a", "PhysioNet-2012"
OTHER_FILES = "was made from other files than the source holds"
OTHER_RULES = "was made by another version of sbil or by other rules; delete it and give the source again"


def records(folder, numbers, rate=70):
    folder.mkdir(parents=True)
    for number in numbers:
        lines = ["Time,Parameter,Value", f"00:00,RecordID,{number}", "00:00,Age,54", "00:00,ICUType,2"]
        lines += [f"{hour:02}:10,HR,{rate + number % 30}" for hour in range(0, 24, 3)]
        (folder / f"{number}.txt").write_text("\n".join([*lines, "03:00,MechVent,1"]))
    return folder


@pytest.fixture
def sets(tmp_path):
    return records(tmp_path / "set-a", range(1, 6)), records(tmp_path / "set-b", range(11, 16))


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    return ward().write(tmp_path_factory.mktemp("mimic") / "source")


@pytest.fixture
def opened(tmp_path):
    def open_it(name, *source, **options):
        asked = datasets.Asked(tmp_path / "data", source, name == MIMIC, **options)
        task, _ = datasets.get(name).open(asked)
        return task

    return open_it


def refused(opened, words, *given):
    with pytest.raises(UserError) as error:
        opened(*given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


# The list.


def test_a_dataset_is_one_file(tmp_path, monkeypatch):
    """A file in the folder is enough: the package finds it."""
    text = "from sbil.clinical.datasets import Known\nDATASETS = (Known('Ward-7', lambda asked: None),)\n"
    (tmp_path / "ward.py").write_text(text)
    monkeypatch.setattr(datasets, "__path__", [*datasets.__path__, str(tmp_path)])
    datasets.known.cache_clear()
    assert datasets.get("Ward-7").methods == datasets.get(MIMIC).methods
    monkeypatch.undo()
    datasets.known.cache_clear()
    with pytest.raises(UserError, match="unknown dataset 'Ward-7'"):
        datasets.get("Ward-7")


# The source.


def test_folders_are_known_by_what_is_in_them(sets, tmp_path, opened):
    first, second = sets
    assert len(opened(PHYSIONET, first, second).demonstrations) == 10
    copy = shutil.copytree(first, tmp_path / "renamed")
    (copy / ".DS_Store").write_text("no record, and read by nobody")
    for same in ((), (first, second), (second, first), (copy, second)):
        assert len(opened(PHYSIONET, *same).demonstrations) == 10
    refused(opened, OTHER_FILES, PHYSIONET, first)
    refused(opened, OTHER_FILES, PHYSIONET, first, records(tmp_path / "more", range(11, 17)))
    one = copy / "3.txt"
    one.write_text(one.read_text().replace("HR,73", "HR,74"))  # of the same size
    refused(opened, OTHER_FILES, PHYSIONET, copy, second)


def test_the_action_before_may_be_shown(sets, opened):
    """A dataset of its own, beside the other in the same folder."""
    without, shown = (opened(name, *sets) for name in (PHYSIONET, "PhysioNet-2012-with-previous"))
    assert shown.title == "PhysioNet-2012, previous action shown"
    for one, other in zip(without.demonstrations.trajectories, shown.demonstrations.trajectories, strict=True):
        assert (other.observations[:, :-1] == one.observations).all()
        assert other.observations[1:, -1].tolist() == one.actions[: len(one.observations) - 1].tolist()


def test_a_record_that_changes_places_changes_the_folder(tmp_path):
    folder = records(tmp_path / "set", (1, 2))
    before = digest(folder)
    first, second = folder / "1.txt", folder / "2.txt"
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert digest(folder) != before


def test_a_source_that_is_not_there_is_refused_before_and_after(sets, hospital, tmp_path, opened):
    missing = ((PHYSIONET, "there is no such file or folder"), (MIMIC, "is not a folder"))
    for name, words in missing:
        refused(opened, f"nowhere{':' * (name == PHYSIONET)} {words}", name, tmp_path / "nowhere")
    assert not (tmp_path / "data").exists()  # nothing was begun
    opened(PHYSIONET, *sets)
    opened(MIMIC, hospital)
    for name, words in missing:
        refused(opened, words, name, tmp_path / "nowhere")
    refused(opened, "there is no such file", PHYSIONET, *sets, tmp_path / "nowhere")
    refused(opened, "MIMIC-III is one folder. Got 2 names.", MIMIC, hospital, hospital)


def test_eight_thousand_records_are_soon_told_apart(tmp_path):
    folder = records(tmp_path / "set", range(1, 8001))
    started = time.process_time()
    digest(folder)
    assert time.process_time() - started < 2


# The rules.


@pytest.mark.parametrize("changed", ["rules", "version"])
@pytest.mark.parametrize("name", [MIMIC, PHYSIONET])
def test_a_table_of_other_rules_is_refused(sets, hospital, tmp_path, monkeypatch, opened, name, changed):
    source = (hospital,) if name == MIMIC else sets
    found = opened(name, *source)
    with monkeypatch.context() as patch:
        if changed == "version":
            patch.setattr(extracted, "__version__", "0.0.9")
        elif name == MIMIC:
            patch.setattr(mimic3, "rule", lambda file, rule=mimic3.rule: rule(file) + " " * (file == "routes.csv"))
        else:
            patch.setattr(physionet2012, "_rules", lambda: "parameter,unit,low,high,normal\n")
        refused(opened, OTHER_RULES, name)
        refused(opened, OTHER_RULES, name, *source)
    assert opened(name).demonstrations.steps == found.demonstrations.steps


def test_a_table_that_says_nothing_of_its_rules_is_refused(sets, tmp_path, opened):
    opened(PHYSIONET, *sets)
    path = tmp_path / "data" / f"{PHYSIONET}.flow.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "rules"}))
    refused(opened, OTHER_RULES, PHYSIONET)


def test_a_kept_table_needs_no_duckdb(hospital, monkeypatch, opened):
    opened(MIMIC, hospital)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for name in ("database", "extraction"):
        monkeypatch.delitem(sys.modules, f"sbil.clinical.mimic3.{name}", raising=False)
    assert len(opened(MIMIC).demonstrations) == 13


# Progress.


def test_reading_is_told_of(sets, hospital, opened):
    told = []
    opened(PHYSIONET, *sets, progress=lambda *given: told.append(given))
    assert told[0] == ("records", 1 / 8000, None)
    assert told[-1] == ("records", 1.0, 10)
    told.clear()
    opened(MIMIC, hospital, progress=lambda *given: told.append(given))
    tables = ["patients", "icustays", "procedureevents_mv", "prescriptions", "labevents", "chartevents"]
    assert [name for name, _, rows in told if rows is not None] == tables
    assert all(0 <= share <= 1 for _, share, _ in told)
    told.clear()
    opened(MIMIC, progress=lambda *given: told.append(given))
    assert not told


def test_reading_without_a_terminal_prints_a_line_a_table(capsys):
    from sbil.cli.clinical import reading

    with reading() as progress:
        progress("chartevents", 0.5, None)
        progress("chartevents", 1.0, 12345)
        progress("records", 1.0, 8000)
    assert capsys.readouterr().err == "CHARTEVENTS: 12,345 rows, 0 s\nRECORDS: 8,000 stays, 0 s\n"
