"""MIMIC-III to demonstrations: small tables in the official layout whose trajectories are worked out by hand."""

import csv
import gzip
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import polars as pl
import pytest
from hospitals import HEADERS, ORDINARY, Hospital, ward

import shared
from probes import refusal
from sbil.clinical.disclosure import Count, chain, parts, shown, within
from sbil.clinical.mimic3 import extraction
from sbil.clinical.mimic3.database import Database
from sbil.clinical.mimic3.extraction import OWN, extract
from sbil.clinical.mimic3.source import checksums_hold, find, needed, official_rows, rows_of
from sbil.demonstrations import Schema
from sbil.errors import UserError

DEMO = shared.path("mimic-iii-demo")
on_the_demo = pytest.mark.shared("mimic-iii-demo")


@pytest.fixture
def hospital() -> Hospital:
    return Hospital()


@pytest.fixture
def run(tmp_path):
    """Write a hospital, extract it, and give the table and the flow."""

    def go(hospital: Hospital, actions: int = 4, **options):
        source = hospital.write(tmp_path / "source")
        settings = {"accept_incomplete": True, "overwrite": True, "threads": 2, **options}
        cohort = extract(source, actions, tmp_path / "demos.parquet", **settings)
        return pl.read_parquet(cohort.path), cohort.flow

    return go


def of_stay(table: pl.DataFrame, stay: int) -> pl.DataFrame:
    return table.filter(pl.col("stay") == stay)


def left(flow: dict, words: str) -> tuple[int, int]:
    [step] = [step for step in flow["stays"] if words in step["step"]]
    return step["removed"], step["left"]


def counts(flow: dict, covariate: str) -> dict:
    [row] = [row for row in flow["covariates"] if row["covariate"] == covariate]
    return row


ORIGINS = ("measured", "carried forward", "cohort mean")


def a_stay_of_four_days(hospital: Hospital) -> None:
    """Patient 2: entry on the 1st at 10:00, leaving on the 4th at 12:00."""
    hospital.patient(2)
    hospital.stay(2, 20, "2150-03-01 10:00:00", "2150-03-04 12:00:00")
    hospital.spell(2, "2150-03-01 22:00:00", "2150-03-02 02:00:00")  # across midnight: days 1 and 2
    hospital.ventilator(2, "2150-03-03 23:30:00")  # day 3
    hospital.ventilator(2, "2150-03-04 08:00:00", "Other/Remarks")  # not a mode
    hospital.drug(2, "2150-03-02 00:00:00", "2150-03-03 00:00:00")  # days 2 and 3
    hospital.chart(2, 211, "2150-03-01 11:00:00", 80)
    hospital.chart(2, 211, "2150-03-01 12:00:00", 100)
    hospital.chart(2, 220045, "2150-03-03 12:00:00", 110)


def test_a_stay_worked_out_by_hand(hospital, run):
    a_stay_of_four_days(hospital)
    table, flow = run(hospital)
    days = of_stay(table, 20)
    assert days["day"].to_list() == [1, 2, 3, 4]
    assert days["patient"].to_list() == [2] * 4
    assert days["action"].to_list() == ["ventilation", "both", "both", "none"]
    mean = (76 + 90 + 110) / 3  # of the daily numbers of both stays
    assert days["heart_rate_today"].to_list() == [90, 90, 110, 110]  # the mean of 80 and 100; carried; 110; carried
    assert days["heart_rate_yesterday"].to_list() == [mean, 90, 90, 110]
    assert days["sodium_today"].to_list() == [ORDINARY["sodium"]] * 4  # never measured in this stay: the cohort's mean
    heart = counts(flow, "heart_rate")
    assert (heart["used"], heart["measured"], heart["carried forward"], heart["cohort mean"]) == (4, 3, 2, 0)
    assert heart["mean"] == mean
    assert flow["days"]["actions"] == {"none": 1, "antibiotics": 0, "ventilation": 2, "both": 2}
    assert flow["days"]["kept"] == 5


def test_two_actions_are_ventilation_or_not(hospital, run):
    a_stay_of_four_days(hospital)
    table, _ = run(hospital, actions=2)
    no = "no ventilation"
    assert of_stay(table, 20)["action"].to_list() == ["ventilation", "ventilation", "ventilation", no]


def test_a_state_from_before_the_day_of_the_decision(hospital, run):
    a_stay_of_four_days(hospital)
    days = of_stay(run(hospital, state="before")[0], 20)
    mean = (76 + 90 + 110) / 3
    assert days["heart_rate_yesterday"].to_list() == [mean, 90, 90, 110]
    assert days["heart_rate_day_before"].to_list() == [mean, mean, 90, 90]
    assert "heart_rate_today" not in days.columns


def test_where_the_numbers_of_the_days_before_come_from(hospital, run):
    """Yesterday's of stay 20: none, measured, carried, measured; of stay 1, a single day: none."""
    a_stay_of_four_days(hospital)
    _, flow = run(hospital, state="before")
    origins = {name: [counts(flow, name)[kind] for kind in ORIGINS] for name in ("heart_rate", "sodium")}
    assert origins == {"heart_rate": [2, 1, 2], "sodium": [0, 0, 5]}


SPELLS = [
    ("2150-03-01 20:00:00", "2150-03-02 00:00:00", ["ventilation", "none", "none"]),  # ends with the day
    ("2150-03-01 20:00:00", "2150-03-02 00:00:01", ["ventilation", "ventilation", "none"]),
    ("2150-02-27 20:00:00", "2150-03-01 09:00:00", []),  # over before the stay
    ("2150-02-27 20:00:00", "2150-03-09 09:00:00", ["ventilation"] * 3),  # longer than the stay
    ("2150-03-02 10:00:00", "2150-03-02 09:00:00", []),  # ends before it begins
    ("2150-03-02 10:00:00", "", []),
]


def test_a_spell_of_ventilation_touches_its_days(hospital, run):
    for subject, (begin, end, _) in enumerate(SPELLS, start=2):
        hospital.patient(subject)
        hospital.stay(subject, subject, "2150-03-01 10:00:00", "2150-03-03 12:00:00")
        hospital.chart(subject, 211, "2150-03-01 11:00:00", 80)
        hospital.spell(subject, begin, end)
    table, _ = run(hospital)
    for subject, (*_, actions) in enumerate(SPELLS, start=2):
        assert of_stay(table, subject)["action"].to_list() == actions


def test_what_is_not_ventilation(hospital, run):
    hospital.patient(2)
    hospital.stay(2, 20, "2150-03-01 10:00:00", "2150-03-01 22:00:00")
    hospital.chart(2, 211, "2150-03-01 11:00:00", 80)
    hospital.spell(2, "2150-03-01 11:00:00", "2150-03-01 12:00:00", item=225794)  # by mask
    hospital.spell(2, "2150-03-01 11:00:00", "2150-03-01 12:00:00", status="Rewritten")
    hospital.chart(2, 223849, "2150-03-01 12:00:00", value="Standby")
    hospital.chart(2, 467, "2150-03-01 12:00:00", value="Nasal Cannula")
    hospital.chart(2, 506, "2150-03-01 12:00:00", 5, 5, error=1)  # marked as wrong
    hospital.chart(2, 506, "2150-03-01 12:00:00")  # nothing in it
    hospital.chart(2, 506, "2150-03-01 22:00:00", 5, 5)  # after the stay
    table, flow = run(hospital)
    assert of_stay(table, 20).is_empty()
    assert left(flow, "neither") == (1, 1)


DRUGS = [
    (("2150-03-01", "2150-03-01", "Vancomycin HCl", "IV"), True),
    (("2150-03-01", "2150-03-01", "CefTRIAXone", "iv "), True),
    (("2150-03-01", "", "Levofloxacin", "PO/NG"), True),  # no end: the first day alone
    (("2150-02-01", "2150-04-01", "Sulfameth/Trimethoprim DS", "PO"), True),
    (("2150-03-01", "2150-03-01", "Ciprofloxacin 0.3% Ophth Soln", "BOTH EYES"), False),
    (("2150-03-01", "2150-03-01", "Silver Sulfadiazine 1% Cream", "TP"), False),
    (("2150-03-01", "2150-03-01", "Tobramycin Inhalation Soln", "IH"), False),
    (("2150-03-01", "2150-03-01", "Vancomycin", "IV", "BASE"), False),
    (("2150-03-01", "2150-03-01", "Fluconazole", "IV"), False),
    (("2150-03-01", "2150-03-01", "Acyclovir", "IV"), False),
    (("2150-03-01", "2150-03-01", "Pantoprazole", "PO"), False),
    (("2150-03-05", "2150-02-25", "Vancomycin", "IV"), False),  # ends before it begins
    (("", "2150-03-01", "Vancomycin", "IV"), False),
    (("2150-03-02", "2150-03-04", "Vancomycin", "IV"), False),  # after the stay
    (("2150-03-01", "2150-03-01", "Vancomycin", ""), False),
]


def test_antibiotics_by_drug_and_route(hospital, run):
    for subject, (drug, _) in enumerate(DRUGS, start=2):
        hospital.patient(subject)
        hospital.stay(subject, subject, "2150-03-01 10:00:00", "2150-03-01 22:00:00")
        hospital.chart(subject, 211, "2150-03-01 11:00:00", 80)
        hospital.drug(subject, *drug)
    table, flow = run(hospital)
    for subject, (drug, counts_as_one) in enumerate(DRUGS, start=2):
        assert of_stay(table, subject)["action"].to_list() == (["antibiotics"] if counts_as_one else []), drug
    assert flow["prescriptions"] == {"rows": 11, "not systemic": 4, "no dates": 2}


def test_of_overlapping_stays_the_later_is_left_out(hospital, run):
    hospital.patient(2)
    hospital.stay(2, 20, "2150-03-01 10:00:00", "2150-03-03 00:00:00")  # ends at midnight: two days
    hospital.stay(2, 21, "2150-03-02 10:00:00", "2150-03-04 12:00:00")  # overlaps
    hospital.stay(2, 22, "2150-03-04 12:00:00", "2150-03-05 12:00:00")  # begins as the one before ends
    hospital.drug(2, "2150-03-01", "2150-03-09")
    for day in range(1, 6):
        hospital.chart(2, 211, f"2150-03-{day:02} 11:00:00", 100 + day)
    hospital.chart(2, 211, "2150-03-04 13:00:00", 114)
    table, flow = run(hospital)
    assert table["stay"].unique().sort().to_list() == [1, 20, 22]
    assert of_stay(table, 20)["heart_rate_today"].to_list() == [101, 102]
    assert of_stay(table, 22)["heart_rate_today"].to_list() == [114, 105]
    assert left(flow, "earlier stay") == (1, 3)


def test_units_that_were_mixed_up(hospital, run):
    hospital.patient(2)
    hospital.stay(2, 20, "2150-03-01 00:00:00", "2150-03-07 00:00:00")
    hospital.drug(2, "2150-03-01", "2150-03-06")
    for day, (item, number) in enumerate([(223762, 37), (223761, 98.6), (676, 98.6), (678, 37), (676, 60)], start=1):
        hospital.chart(2, item, f"2150-03-{day:02} 11:00:00", number)
    hospital.chart(2, 646, "2150-03-01 11:00:00", 0.97)
    hospital.add("LABEVENTS", SUBJECT_ID=2, ITEMID=51221, CHARTTIME="2150-03-01 11:00:00", VALUENUM=0.31)
    hospital.chart(2, 211, "2150-03-01 11:00:00", 3000)
    table, flow = run(hospital)
    days = of_stay(table, 20)
    assert days["temperature_today"].to_list() == [37] * 6  # 60 is no temperature in either unit; 37 is carried forward
    temperature = counts(flow, "temperature")
    assert (temperature["unit mended"], temperature["implausible"], temperature["used"]) == (2, 1, 5)
    assert days["oxygen_saturation_today"][0] == 97
    assert days["haematocrit_today"][0] == 31
    assert days["heart_rate_today"][0] == 76  # 3000 is removed; the mean of the cohort replaces it
    assert counts(flow, "heart_rate")["implausible"] == 1


def test_text_in_numeric_fields_and_repeated_rows(hospital, run):
    hospital.patient(2)
    hospital.stay(2, 20, "2150-03-01 00:00:00", "2150-03-02 00:00:00")
    hospital.stay(2, 20, "2150-03-01 00:00:00", "2150-03-02 00:00:00")  # the same row again
    hospital.drug(2, "2150-03-01", "2150-03-01")
    for hour, (number, value) in enumerate(
        [("", "60"), ("UNABLE", "UNABLE"), ("nan", ""), ("inf", ""), ("", ""), ("90", "90"), ("70", "text, quoted")]
    ):
        hospital.chart(2, 211, f"2150-03-01 {hour:02}:00:00", number, value)
    for _ in range(3):
        hospital.chart(2, 211, "2150-03-01 05:00:00", "90", "90")  # four times in all, one measurement
    hospital.chart(2, 211, "2150-03-01 06:00:00", "200", "200", error=1)
    hospital.chart(2, 211, "", "150", "150")  # no time recorded
    table, flow = run(hospital)
    heart = counts(flow, "heart_rate")
    assert of_stay(table, 20)["heart_rate_today"].to_list() == pytest.approx([(60 + 90 + 70) / 3], abs=1e-4)
    assert {name: heart[name] for name in ("not a number", "empty", "marked wrong", "repeated")} == {
        **{"not a number": 3, "empty": 1, "marked wrong": 1, "repeated": 3}
    }
    assert flow["stays"][0]["removed"] == 1
    assert left(flow, "neither") == (0, 2)


def test_children_orphans_and_stays_without_times_are_left_out(hospital, run):
    for stay, (subject, born) in enumerate(
        [(2, "2134-03-02 00:00:00"), (3, "2134-03-01 00:00:00"), (4, "1850-01-01 00:00:00"), (5, None)], start=20
    ):
        if born:
            hospital.patient(subject, born)
        hospital.stay(subject, stay, "2150-03-01 10:00:00", "2150-03-01 20:00:00")
        hospital.chart(subject, 211, "2150-03-01 11:00:00", 80)
        hospital.drug(subject, "2150-03-01", "2150-03-01")
    hospital.stay(4, 30, "2150-04-02 10:00:00", "")
    hospital.stay(4, 31, "2150-04-02 10:00:00", "2150-04-01 10:00:00")
    hospital.stay(4, 32, "2150-05-02 10:00:00", "2150-05-02 12:00:00")  # nothing measured
    hospital.drug(4, "2150-05-02", "2150-05-02")
    table, flow = run(hospital)
    assert table["stay"].to_list() == [1, 21, 22]  # 16 on the day of entry, and over 89 (300 by the shifted date)
    assert [(step["removed"], step["left"]) for step in flow["stays"]] == [
        *[(0, 8), (2, 6), (1, 5), (1, 4), (0, 4), (0, 4), (1, 3)]
    ]


def test_twenty_days_at_most(hospital, run):
    hospital.patient(2)
    hospital.stay(2, 20, "2150-03-01 10:00:00", "2150-03-25 12:00:00")
    hospital.drug(2, "2150-03-01", "2150-03-25")
    for day in range(1, 26):
        hospital.chart(2, 211, f"2150-03-{day:02} 11:00:00", 50 + day)
    table, flow = run(hospital)
    days = of_stay(table, 20)
    assert days["day"].to_list() == list(range(1, 21))
    assert days["heart_rate_today"].to_list() == [50.0 + day for day in range(1, 21)]
    assert (flow["days"]["kept"], flow["days"]["beyond"]) == (21, 5)
    assert counts(flow, "heart_rate")["mean"] == pytest.approx((76 + 60.5 * 20) / 21, abs=1e-4)  # without later days


def test_only_what_the_table_rests_on_is_counted(hospital, run):
    """Days 1 to 20 of stay 20 are kept, no day of stay 30, which had no treatment, and the only day of stay 40."""
    for subject, (last, treated) in enumerate([(22, True), (2, False), (1, True)], start=2):
        hospital.patient(subject)
        hospital.stay(subject, 10 * subject, "2150-03-01 00:00:00", f"2150-03-{last:02} 23:00:00")
        if treated:
            hospital.drug(subject, "2150-03-01", "2150-03-01")
        for day in range(1, last + 1):
            for hour, (number, error) in enumerate([(80, 0), (80, 1), ("", 0), ("text", 0), (3000, 0), (90, 0)]):
                hospital.chart(subject, 211, f"2150-03-{day:02} {hour:02}:00:00", number, error=error)
            hospital.chart(subject, 211, f"2150-03-{day:02} 05:00:00", 90)  # repeats the last
            hospital.chart(subject, 676, f"2150-03-{day:02} 05:00:00", 98.6)  # Fahrenheit
    table, flow = run(hospital)
    assert table["stay"].to_list() == [1, *[20] * 20, 40]
    heart, days = counts(flow, "heart_rate"), 21
    for fate in ("marked wrong", "empty", "not a number", "implausible", "repeated"):
        assert heart[fate] == days
    assert heart["used"] == 2 * days + 1  # one in stay 1
    assert counts(flow, "temperature")["unit mended"] == days
    assert counts(flow, "temperature")["used"] == days + 1


def test_the_schema_reads_the_table(hospital, run, tmp_path):
    a_stay_of_four_days(hospital)
    table, flow = run(hospital)
    schema = Schema.load(tmp_path / "demos.schema.json")
    assert len(schema.observation_names) == 56
    assert schema.observation_names[:2] == ("heart_rate_today [beats/min]", "systolic_pressure_today [mmHg]")
    assert schema.observation_names[28] == "heart_rate_yesterday [beats/min]"
    assert schema.actions == ("none", "antibiotics", "ventilation", "both")
    assert set(schema.needed) == set(table.columns)
    assert table.null_count().sum_horizontal().item() == 0
    assert json.loads((tmp_path / "demos.flow.json").read_text()) == flow
    read = pytest.importorskip("sbil.demonstrations.reading").read
    demonstrations = read(tmp_path / "demos.parquet", schema=tmp_path / "demos.schema.json")
    assert [len(trajectory.actions) for trajectory in demonstrations.trajectories] == [1, 4]
    assert demonstrations.action_names == schema.actions
    assert len(set(demonstrations.groups)) == 2


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_names_in_either_case_packed_or_not_give_the_same_bytes(hospital, tmp_path, packed, lower):
    a_stay_of_four_days(hospital)
    for name, options in (("one", {}), ("two", {"packed": packed, "lower": lower})):
        source = hospital.write(tmp_path / name, **options)
        extract(source, 4, tmp_path / f"{name}.parquet", accept_incomplete=True)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


@pytest.mark.parametrize("name", ["it's", 'a "b"; DROP TABLE stays; --', "[x]*?{y}", "$(z) %s", "späte Daten"])
def test_a_folder_of_any_name(hospital, tmp_path, name):
    source = hospital.write(tmp_path / name)
    cohort = extract(source, 4, tmp_path / name / "out" / f"{name}.parquet", accept_incomplete=True)
    assert pl.read_parquet(cohort.path.read_bytes())["stay"].to_list() == [1]
    assert sorted(path.name for path in cohort.path.parent.iterdir()) == sorted(
        [f"{name}.parquet", f"{name}.schema.json", f"{name}.flow.json"]
    )


def test_a_stopped_run_goes_on_with_the_next_table(hospital, tmp_path, monkeypatch):
    a_stay_of_four_days(hospital)
    source = hospital.write(tmp_path / "source")
    extract(source, 4, tmp_path / "whole.parquet", accept_incomplete=True)
    read = []
    real = Database._read

    def noted(self, table, *rest):
        read.append(table.name)
        return real(self, table, *rest)

    monkeypatch.setattr(Database, "_read", noted)

    def stop(table, share, rows):
        if table == "labevents":
            raise KeyboardInterrupt

    out = tmp_path / "demos.parquet"
    with pytest.raises(KeyboardInterrupt):
        extract(source, 4, out, accept_incomplete=True, progress=stop)
    assert not out.exists()
    assert read == ["patients", "icustays", "procedureevents_mv", "prescriptions", "labevents"]
    read.clear()
    work = tmp_path / "demos.parquet.work" / OWN
    (work / "patients.json").write_text("{")  # a note that was cut off
    (work / "chartevents.part").write_text("PAR1 cut off")
    with (source / "ICUSTAYS.csv").open("a") as file:
        file.write("\n")  # another file than the one that was read
    extract(source, 4, out, accept_incomplete=True)
    assert read == ["patients", "icustays", "chartevents"]
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not (tmp_path / "demos.parquet.work").exists()


def killed(command, when):
    """Start a command, kill it when it names a table or after some seconds, and return whether it still ran."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if isinstance(when, str):
        in_time = any(line.startswith(when) for line in process.stderr)
    else:
        time.sleep(when)
        in_time = process.poll() is None
    process.kill()
    process.communicate()
    return in_time


def harvest(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def command(source, out, work):
    words = ["--source", source, "--out", out / "demos.parquet", "--work", work, "--accept-incomplete"]
    return [sys.executable, "-m", "sbil", "clinical", "mimic3", *map(str, words)]


def test_a_killed_process_is_gone_on_with(tmp_path):
    """After SIGKILL at the fourth table, the tables before it are not read again, and the files come out the same."""
    source = ward().write(tmp_path / "source")
    extract(source, 4, tmp_path / "whole" / "demos.parquet", accept_incomplete=True)
    out, work = tmp_path / "torn", tmp_path / "work"
    assert killed(command(source, out, work), "PRESCRIPTIONS")
    assert not out.exists() or not harvest(out)
    kept = {path: path.stat().st_mtime_ns for path in (work / OWN).glob("*.parquet")}
    assert {path.stem for path in kept} >= {"patients", "icustays", "procedureevents_mv", "prescriptions"}
    done = subprocess.run(command(source, out, work), check=True, capture_output=True, text=True)
    assert "CHARTEVENTS: " in done.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert harvest(out) == harvest(tmp_path / "whole")


@pytest.mark.release
def test_killed_again_and_again(tmp_path):
    source = ward(200, 20).write(tmp_path / "source")
    extract(source, 4, tmp_path / "whole" / "demos.parquet", accept_incomplete=True)
    rng, kills = random.Random(0), 0
    moments = ["PATIENTS", "ICUSTAYS", "LABEVENTS", "CHARTEVENTS"]
    while kills < 20:
        out, work = tmp_path / f"torn-{kills}", tmp_path / f"work-{kills}"
        for _ in range(4):
            kills += killed(command(source, out, work), rng.choice([*moments, rng.uniform(0.5, 4)]))
        if not (out / "demos.parquet").exists():
            subprocess.run(command(source, out, work), check=True, capture_output=True)
        assert harvest(out) == harvest(tmp_path / "whole")


def test_a_named_work_folder_serves_another_run(hospital, tmp_path, monkeypatch):
    source, work = hospital.write(tmp_path / "source"), tmp_path / "work"
    extract(source, 4, tmp_path / "four.parquet", work=work, accept_incomplete=True)
    monkeypatch.setattr(Database, "_read", None)
    seen = []
    extract(source, 2, tmp_path / "two.parquet", work=work, accept_incomplete=True, progress=lambda *a: seen.append(a))
    assert seen[0] == ("patients", 1.0, 1)
    assert pl.read_parquet(tmp_path / "two.parquet")["action"].to_list() == ["ventilation"]


@pytest.mark.parametrize("named", [True, False])
def test_nothing_of_the_users_is_touched_in_the_work_folder(hospital, tmp_path, named):
    """Not even files with the same names as ours."""
    source, out = hospital.write(tmp_path / "source"), tmp_path / "demos.parquet"
    work = tmp_path / ("work" if named else "demos.parquet.work")
    mine = ["parts/thesis.tex", "spill/data.csv", "patients.parquet", "patients.json", "chartevents.part", "notes.txt"]
    for name in mine:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(f"my {name}")
    for actions in (4, 2):
        extract(source, actions, out, work=work if named else None, accept_incomplete=True, overwrite=True)
    assert {name: (work / name).read_text() for name in mine} == {name: f"my {name}" for name in mine}
    assert (work / OWN).exists() == named


def test_in_many_parts_the_same_bytes_come_out(hospital, tmp_path, monkeypatch):
    for subject in range(2, 9):
        hospital.patient(subject)
        hospital.stay(subject, subject + 20, "2150-03-01 10:00:00", "2150-03-04 12:00:00")
        hospital.drug(subject, "2150-03-02", "2150-03-03")
        for day in range(1, subject % 4 + 2):
            hospital.chart(subject, 211, f"2150-03-0{day} 11:00:00", 70 + subject + day)
    source = hospital.write(tmp_path / "source")
    whole = extract(source, 4, tmp_path / "whole.parquet", accept_incomplete=True)
    monkeypatch.setattr(extraction, "PART", 12)
    torn = extract(source, 4, tmp_path / "torn.parquet", accept_incomplete=True, work=tmp_path / "work")
    assert torn.path.read_bytes() == whole.path.read_bytes()
    assert torn.flow == whole.flow
    assert {path.suffix for path in (tmp_path / "work" / OWN).iterdir()} == {
        ".parquet",
        ".json",
    }  # for later runs alone


def missing_table(source: Path) -> None:
    (source / "PROCEDUREEVENTS_MV.csv").unlink()


def wrong_folder(source: Path) -> None:
    for path in source.iterdir():
        path.unlink()


def both_files(source: Path) -> None:
    (source / "patients.csv.gz").write_bytes(gzip.compress((source / "PATIENTS.csv").read_bytes()))


def changed_column(source: Path) -> None:
    text = (source / "CHARTEVENTS.csv").read_text()
    (source / "CHARTEVENTS.csv").write_text(text.replace("VALUENUM", "VALUE_NUM", 1))


def the_next_database(source: Path) -> None:
    text = (source / "ICUSTAYS.csv").read_text()
    (source / "ICUSTAYS.csv").write_text(text.replace("ICUSTAY_ID", "STAY_ID", 1))


def empty_file(source: Path) -> None:
    (source / "LABEVENTS.csv").write_text("")


def binary_file(source: Path) -> None:
    (source / "LABEVENTS.csv").write_bytes(bytes(range(128, 256)) * 20)


def packed(source: Path, table: str) -> bytes:
    content = (source / f"{table}.csv").read_bytes()
    (source / f"{table}.csv").unlink()
    return gzip.compress(content + content[content.index(b"\n") + 1 :] * 2000, 1)


def truncated_gzip(source: Path) -> None:
    content = packed(source, "CHARTEVENTS")
    (source / "CHARTEVENTS.csv.gz").write_bytes(content[: len(content) * 2 // 3])


def other_checksum(source: Path) -> None:
    content = bytearray(packed(source, "CHARTEVENTS"))
    content[-6] ^= 1
    (source / "CHARTEVENTS.csv.gz").write_bytes(content)


def no_gzip(source: Path) -> None:
    (source / "CHARTEVENTS.csv").rename(source / "CHARTEVENTS.csv.gz")


def truncated_row(source: Path) -> None:
    with (source / "CHARTEVENTS.csv").open("a") as file:
        file.write('99,"canary-7731",3')


def open_quote(source: Path) -> None:
    with (source / "CHARTEVENTS.csv").open("a") as file:
        file.write('99,"canary-7731')


def header_alone(source: Path) -> None:
    header = (source / "LABEVENTS.csv").read_text().splitlines()[0]
    (source / "LABEVENTS.csv").write_text(f"{header}\n")


def no_stays(source: Path) -> None:
    header = (source / "ICUSTAYS.csv").read_text().splitlines()[0]
    (source / "ICUSTAYS.csv").write_text(f"{header}\n")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (missing_table, "has no PROCEDUREEVENTS_MV.csv(.gz); copy it there from MIMIC-III v1.4."),
        (wrong_folder, "holds no table of MIMIC-III"),
        (both_files, "holds both PATIENTS.csv and patients.csv.gz; remove one of them."),
        (changed_column, "CHARTEVENTS.csv has no column VALUENUM; MIMIC-III v1.4 is expected."),
        (the_next_database, "has no column ICUSTAY_ID; MIMIC-III v1.4 is expected; MIMIC-IV is another database."),
        (empty_file, "LABEVENTS.csv begins with no header"),
        (binary_file, "LABEVENTS.csv begins with no header"),
        (truncated_gzip, "CHARTEVENTS.csv.gz is damaged or incomplete (its gzip stream breaks off); copy it again."),
        (other_checksum, "CHARTEVENTS.csv.gz is damaged (its checksum does not match its content); copy it again."),
        (no_gzip, "CHARTEVENTS.csv.gz: copy it again; damaged or incomplete (BadGzipFile)."),
        (truncated_row, "CHARTEVENTS.csv: line 13 is not a whole row of the table; the file is damaged or incomplete"),
        (open_quote, "CHARTEVENTS.csv: line 13 is not a whole row of the table; the file is damaged or incomplete"),
        (header_alone, "was never measured in the whole cohort; are CHARTEVENTS and LABEVENTS whole?"),
        (no_stays, "no ICU stay is left after the exclusions"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_wrong_with_a_source_in_one_line(hospital, tmp_path, harm, words):
    source = hospital.write(tmp_path / "source")
    harm(source)
    with pytest.raises(UserError) as error:
        extract(source, 4, tmp_path / "demos.parquet", accept_incomplete=True)
    message = str(error.value)
    assert words in message
    assert "\n" not in message
    assert "canary" not in message
    assert not list(tmp_path.glob("demos.*.json"))
    assert not (tmp_path / "demos.parquet").exists()


@pytest.mark.parametrize("piece", [8, 64, 1 << 20])
def test_checksums_of_gzip(tmp_path, monkeypatch, piece):
    monkeypatch.setattr("sbil.clinical.mimic3.source.PIECE", piece)
    path, rng = tmp_path / "a.csv.gz", random.Random(0)
    one, two = (gzip.compress(rng.randbytes(200) * 10) for _ in range(2))
    for sound in (one, one + two, one + two + b"\0" * 100, gzip.compress(b"")):
        path.write_bytes(sound)
        assert checksums_hold(path)
    for place in range(len(one) + len(two) - 8, len(one) + len(two)):  # of the second member
        damaged = bytearray(one + two)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert not checksums_hold(path)
    for length in (*range(1, len(one)), *range(len(one) + 1, len(one + two))):
        path.write_bytes((one + two)[:length])
        assert not checksums_hold(path)
    path.write_bytes(one + b"garbage")
    assert not checksums_hold(path)
    assert not checksums_hold(tmp_path / "nowhere")


def test_numbers_of_rows_that_are_not_the_official_ones_are_refused(hospital, tmp_path):
    source = hospital.write(tmp_path / "source")
    with pytest.raises(UserError, match=r"PATIENTS.csv has 1 rows and MIMIC-III v1.4 has 46,520 \(its demo 100\)"):
        extract(source, 4, tmp_path / "demos.parquet")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"actions": 3}, "actions must be 2 or 4. Got 3."),
        ({"state": "tomorrow"}, "unknown state 'tomorrow'"),
        *(
            ({"memory": memory}, f"memory must be an amount such as 2GB. Got '{memory}'.")
            for memory in ("much", "", "2", "0GB", "0.0GB", "-1", "-5GB", "none", "500%", "2GBB", "٢GB", "999999999TB")
        ),
        *(
            ({"threads": threads}, f"threads must be a whole number from 1 to 1024. Got {threads}.")
            for threads in (-3, 0, 1025)
        ),
        ({"out": "demos.csv"}, "choose a name that ends with .parquet"),
        ({"out": "there.parquet"}, "there.parquet exists already"),
        ({"source": "nowhere"}, "nowhere is not a folder"),
    ],
)
def test_mistaken_options(hospital, tmp_path, options, words):
    hospital.write(tmp_path / "source")
    (tmp_path / "there.parquet").write_text("")
    given = {"source": "source", "actions": 4, "out": "demos.parquet", **options}
    source, actions, out = tmp_path / given.pop("source"), given.pop("actions"), tmp_path / given.pop("out")
    with pytest.raises(UserError, match=words):
        extract(source, actions, out, accept_incomplete=True, **given)
    assert {path.name for path in tmp_path.iterdir()} == {"source", "there.parquet"}  # nothing was begun


@pytest.mark.parametrize("memory", ["500MB", "1.5gb", "2 GiB", "3000000KB"])
def test_amounts_of_memory(hospital, run, memory):
    assert not run(hospital, memory=memory)[0].is_empty()


@pytest.mark.parametrize("words", [("--threads", "-3"), ("--threads", "0"), ("--memory", "0GB")])
def test_mistaken_limits_at_the_command_line(hospital, tmp_path, capsys, words):
    source = hospital.write(tmp_path / "source")
    given = ("clinical", "mimic3", "--source", source, "--out", tmp_path / "out" / "demos.parquet", *words)
    assert f"{words[0][2:]} must be" in refusal(capsys, *given)
    assert not (tmp_path / "out").exists()


def test_the_database_reaches_nothing_but_its_folders(hospital, tmp_path):
    source = hospital.write(tmp_path / "source")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    (tmp_path / "work").mkdir()
    with Database(source, tmp_path / "work", "1GB", 1) as database:
        assert database.rows(f"SELECT count(*) FROM read_csv('{source}/PATIENTS.csv')") == [(1,)]
        for query in (
            f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
            f"COPY (SELECT 1) TO '{tmp_path}/written.csv'",
            f"ATTACH '{tmp_path}/other.db'",
            "SET enable_external_access = true",
            "INSTALL httpfs",
        ):
            with pytest.raises((duckdb.Error, UserError)):
                database.rows(query)
    assert not (tmp_path / "written.csv").exists()


def test_no_small_count_follows_by_subtraction():
    """The largest part is printed as if every small part were 9. A small total prints nothing about its parts."""

    def printed(total, *counts):
        return [str(count) for count in parts(Count(total), counts)]

    assert printed(611, 587, 8, 16) == ["≥ 586", "< 10", "16"]
    assert printed(8000, 0, 1, 1, 7998) == ["0", "< 10", "< 10", "≥ 7,982"]
    assert printed(30, 14, 16) == ["14", "16"]
    assert printed(30, 30, 0) == ["30", "0"]
    assert printed(5, 3, 2) == ["< 10", "< 10"]
    assert printed(18, 9, 9) == ["≥ 9", "< 10"]
    assert printed(10, 4, 3, 3) == ["≥ 1", "< 10", "< 10"]
    assert [str(count) for count in parts(Count(97, 91), (60, 37))] == ["≥ 54", "37"]  # 97 must not be disclosed


@pytest.mark.parametrize("total", [*range(10, 31), 100])
def test_every_small_count_is_possible(total):
    """The text is the same for every small count."""
    for small in range(1, 10):
        printed = {str(count) for count in parts(Count(total), (total - small, small))}
        assert printed == {"< 10", f"≥ {total - 9}"}


def test_steps_after_a_small_one_are_bounds():
    def printed(total, *left):
        return [(str(removed), str(count)) for removed, count in chain(Count(total), left)]

    assert printed(136, 136, 133, 107, 104) == [("0", "136"), ("< 10", "≥ 127"), ("26", "≥ 101"), ("< 10", "≥ 92")]
    assert printed(136, 133, 30) == [("< 10", "≥ 127"), ("≥ 97", "30")]  # most are gone: the number left may be printed
    assert printed(40, 5, 3) == [("≥ 31", "< 10"), ("< 10", "< 10")]
    assert [str(count) for count in within(Count(100), (100, 97, 95, 78, 0))] == ["100", "≥ 91", "≥ 91", "78", "0"]


def test_the_flow_hides_what_could_be_subtracted(hospital, tmp_path):
    """12 patients, 3 of them children. On 15 days, the heart rate was measured on 9 and is carried forward on 6."""
    for subject in range(2, 13):
        hospital.patient(subject, "2149-01-01 00:00:00" if subject < 5 else "2100-01-01 00:00:00")
        hospital.stay(subject, subject, "2150-03-01 00:00:00", f"2150-03-{1 + (subject > 6):02} 23:00:00")
        hospital.drug(subject, "2150-03-01", "2150-03-01")
        hospital.chart(subject, 211, "2150-03-01 11:00:00", 80)
    lines = str(extract(hospital.write(tmp_path / "source"), 4, tmp_path / "a.parquet", accept_incomplete=True))
    [entry, *_, young, _, _, _] = [line.split() for line in lines.splitlines()[1:8]]
    assert entry[-3:] == ["0", "12", "12"]
    assert young[-6:] == ["<", "10", "≥", "3", "≥", "3"]
    assert "days (decisions): 15; 0 after day 20" in lines
    assert "action of the day: none < 10, antibiotics ≥ 1, ventilation < 10, both 0" in lines
    heads, heart = (next(line for line in lines.splitlines() if word in line) for word in ("empty", "heart_rate"))
    assert heads.endswith("used days measured days carried forward days at cohort mean")
    assert len(heads) == len(heart)
    assert heart.split()[-5:] == ["≥", "6", "<", "10", "0"]


def test_small_counts_are_not_printed(hospital, tmp_path, capsys):
    assert [shown(number) for number in (0, 1, 9, 10, 12345)] == ["0", "< 10", "< 10", "10", "12,345"]
    from sbil.cli.clinical import Mimic3, run

    a_stay_of_four_days(hospital)
    source = hospital.write(tmp_path / "source")
    run(Mimic3(source=source, out=tmp_path / "demos.parquet", accept_incomplete=True))
    printed = capsys.readouterr()
    assert "action of the day: none < 10, antibiotics 0, ventilation < 10, both < 10" in printed.out
    assert "CHARTEVENTS: 16 rows" in printed.err
    run(Mimic3(source=source, out=tmp_path / "again.parquet", accept_incomplete=True, json=True))
    assert json.loads(capsys.readouterr().out)["days"]["kept"] == 5


def test_no_text_of_the_tables_is_written_or_printed(hospital, tmp_path, capsys):
    from sbil.cli.clinical import Mimic3, run

    for number in range(200):
        word = f"canary{number}"
        hospital.chart(1, 211, "2150-01-01 11:00:00", word, word)
        hospital.chart(1, 720, "2150-01-01 11:00:00", "", word)
        hospital.drug(1, "2150-01-01", "2150-01-01", f"Vancomycin {word}", "IV" if number % 2 else word)
        hospital.spell(1, "2150-01-01 11:00:00", "2150-01-01 12:00:00", status=word)
    source = hospital.write(tmp_path / "source")
    run(Mimic3(source=source, out=tmp_path / "out" / "demos.parquet", accept_incomplete=True))
    printed = capsys.readouterr()
    written = [path.read_bytes() for path in (tmp_path / "out").iterdir()]
    rows = pl.read_parquet(tmp_path / "out" / "demos.parquet").write_csv().encode()
    assert len(written) == 3
    assert not any(b"canary" in text for text in (*written, rows, printed.out.encode(), printed.err.encode()))


def test_the_tables_of_rules_are_sound():
    covariates = [row["covariate"] for row in rows_of("covariates.csv")]
    assert len(covariates) == len(set(covariates)) == 28
    items = rows_of("items.csv")
    assert {row["covariate"] for row in items} == set(covariates)
    for name in ("items.csv", "ventilation.csv"):
        numbers = [row["itemid"] for row in rows_of(name)]
        assert len(numbers) == len(set(numbers))
    assert not {row["itemid"] for row in items} & {row["itemid"] for row in rows_of("ventilation.csv")}
    assert all(float(row["low"]) < float(row["high"]) for row in rows_of("covariates.csv"))
    assert len(official_rows()) == 26
    assert {name: set(columns) <= set(HEADERS[name.upper()].split()) for name, columns in needed().items()} == {
        name.lower(): True for name in HEADERS
    }
    names = [row["name"] for row in rows_of("antibiotics.csv")]
    assert names == [name.lower() for name in names]


@on_the_demo
def test_the_demo(tmp_path):
    cohort = extract(DEMO, 4, tmp_path / "demos.parquet")
    assert cohort.flow["edition"] == "demo of v1.4"
    assert [(step["left"], step["patients"]) for step in cohort.flow["stays"]][-1] == (110, 81)
    assert cohort.flow["days"]["actions"] == {"none": 76, "antibiotics": 219, "ventilation": 69, "both": 247}
    assert counts(cohort.flow, "heart_rate")["used"] == 12_925  # of 15,376 in all 136 stays
    for row in cohort.flow["covariates"]:
        assert sum(row[kind] for kind in ORIGINS) == 611
    table = pl.read_parquet(cohort.path)
    assert table.shape == (611, 60)
    for row in rows_of("covariates.csv"):
        for day in ("today", "yesterday"):
            assert table[f"{row['covariate']}_{day}"].is_between(float(row["low"]), float(row["high"])).all()
    again = extract(DEMO, 4, tmp_path / "again.parquet", threads=1)
    assert again.path.read_bytes() == cohort.path.read_bytes()


def dictionary(name: str) -> dict[str, dict[str, str]]:
    with gzip.open(DEMO / f"{name}.csv.gz", "rt") as file:
        return {row["ITEMID"]: row for row in csv.DictReader(file)}


@on_the_demo
def test_items_are_what_the_dictionary_calls_them():
    items, laboratory = dictionary("D_ITEMS"), dictionary("D_LABITEMS")
    for row in (*rows_of("items.csv"), *rows_of("ventilation.csv")):
        if row["events"] == "labevents":
            assert (laboratory[row["itemid"]]["LABEL"], laboratory[row["itemid"]]["FLUID"]) == (row["label"], "Blood")
        else:
            known = items[row["itemid"]]
            assert (known["LABEL"], known["DBSOURCE"], known["LINKSTO"]) == (row["label"], row["system"], row["events"])


# Calculated from other values, or counted by the same machine from the same blood as haematocrit and haemoglobin.
DERIVED = {
    *("Anion Gap", "MCV", "MCH", "MCHC", "Red Blood Cells", "RDW", "PT", "Base Excess", "Calculated Total CO2"),
    "SPECIMEN TYPE",
}


@on_the_demo
def test_the_laboratory_values_are_the_most_frequently_measured():
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"""
            SELECT label, count(DISTINCT (icustay_id, charttime::DATE)) AS days
            FROM read_csv('{DEMO}/LABEVENTS.csv.gz') AS events
            JOIN read_csv('{DEMO}/D_LABITEMS.csv.gz') AS items USING (itemid)
            JOIN read_csv('{DEMO}/ICUSTAYS.csv.gz') AS stays USING (subject_id)
            WHERE charttime >= intime AND charttime < outtime AND fluid = 'Blood'
            GROUP BY label
            """
        ).fetchall()
    days = {label: number for label, number in rows if label not in DERIVED}
    chosen: dict[str, set[str]] = {}  # by covariate, the names of the tests for it
    for row in rows_of("items.csv"):
        if row["events"] == "labevents":
            chosen.setdefault(row["covariate"], set()).add(row["label"])
    least = min(max(days.get(label, 0) for label in labels) for labels in chosen.values())
    assert least > max(days[label] for label in set(days) - set().union(*chosen.values()))


@on_the_demo
def test_the_demo_has_all_that_is_needed():
    assert set(find(DEMO)) == set(needed())
