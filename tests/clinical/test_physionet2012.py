"""Records of ICU stays become a table: what is kept, what is left out, and that no state knows the future."""

import gzip
import io
import json
import random
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shared
from sbil.clinical import records
from sbil.clinical.physionet2012 import extract, parameters, parse, series, windows
from sbil.demonstrations import Schema
from sbil.demonstrations.reading import read
from sbil.errors import UserError

SET_A = ("physionet-2012", "set-a.tar.gz")
real = pytest.mark.shared(*SET_A)

ADMISSION = ("00:00,Age,54", "00:00,Gender,1", "00:00,Height,180", "00:00,ICUType,2", "00:00,Weight,80")


def record(number, *lines, admission=ADMISSION):
    return "\n".join(["Time,Parameter,Value", f"00:00,RecordID,{number}", *admission, *lines]) + "\n"


def understood(*lines, admission=ADMISSION):
    """(record, what was left out, what was implausible)."""
    counts, implausible = Counter(), Counter()
    return parse(record(1, *lines, admission=admission).encode(), 1, counts, implausible), counts, implausible


def archive(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as file:
        for member in members:
            name, content = member if isinstance(member, tuple) else (member, None)
            if isinstance(name, tarfile.TarInfo):
                file.addfile(name)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content.encode())
            file.addfile(info, io.BytesIO(content.encode()))
    return path


def written(tmp_path, *records, **options):
    """The cohort and the table of records with the numbers 1, 2, ..."""
    source = archive(tmp_path / "set.tar.gz", [(f"set-a/{i}.txt", text) for i, text in enumerate(records, 1)])
    cohort = extract([source], tmp_path / "out.parquet", **options)
    return cohort, pl.read_parquet(cohort.path)


STAY = record(
    1,
    "00:10,HR,90",
    "03:59,HR,100",
    "04:00,HR,110",  # the second window: not known at its beginning
    "05:00,MechVent,1",
    "08:30,pH,7.30",
    "13:00,MechVent,1",
)


def test_a_stay_by_hand(tmp_path):
    """Windows of 4 hours from 0, 4, 8 and 12; the last entry is at 13:00."""
    cohort, table = written(tmp_path, STAY)
    assert table["record"].to_list() == [1] * 4
    assert table["window"].to_list() == [0, 1, 2, 3]
    assert table["HR"].to_list() == [75, 100, 110, 110]  # 75: the normal value
    np.testing.assert_allclose(table["HR since"], [48, 1 / 60, 4, 8], rtol=1e-6)
    np.testing.assert_allclose(table["pH"], [7.4, 7.4, 7.4, 7.3])
    np.testing.assert_allclose(table["pH since"], [48, 48, 48, 3.5])
    assert table["Weight"].to_list() == [75, 80, 80, 80]  # charted at 00:00, which is no earlier than the first window
    assert table["Age"].to_list() == [54] * 4
    assert table["male"].to_list() == [1] * 4
    assert table["Height"].to_list() == [180] * 4
    assert table["ICU"].to_list() == ["cardiac surgery"] * 4
    assert table["ventilation"].to_list() == ["not ventilated", "ventilated", "not ventilated", "ventilated"]
    assert cohort.flow["stays"]["kept"] == cohort.flow["stays"]["ever ventilated"] == 1
    assert cohort.flow["windows"] == {
        "kept": 4,
        "ventilated": 2,
        "not ventilated between two that are": 1,
        "left out, after the last entry of a stay": 8,
    }
    cells = cohort.flow["cells of the series"]  # HR, pH and Weight in 4 windows, and 33 series that were never charted
    assert cells == {
        "charted in the window before": 4,  # HR at 4 and 8 (exactly 4 hours ago), pH at 12, Weight at 4
        "carried forward from earlier": 3,  # HR at 12, Weight at 8 and 12
        "never charted, a normal value": 1 + 3 + 1 + 33 * 4,
    }


def test_the_state_has_36_series_and_admission(tmp_path):
    cohort, _ = written(tmp_path, STAY)
    assert len(series()) == 36
    assert len(cohort.schema.observation_names) == 2 * 36 + 3 + 4
    assert "HR [bpm]" in cohort.schema.observation_names
    assert "HR since [h]" in cohort.schema.observation_names
    assert not any("MechVent" in name or "before" in name for name in cohort.schema.observation_names)


def test_other_windows(tmp_path):
    _, table = written(tmp_path, STAY, window_hours=12)
    assert table["ventilation"].to_list() == ["ventilated", "ventilated"]
    assert table["HR"].to_list() == [75, 110]


@pytest.mark.parametrize("hours", [0, -4, 5, 49])
def test_windows_that_do_not_divide_a_stay_are_refused(tmp_path, hours):
    with pytest.raises(UserError, match="must divide 48"):
        written(tmp_path, STAY, window_hours=hours)


def test_the_action_before_may_be_shown(tmp_path):
    cohort, table = written(tmp_path, STAY, with_previous=True)
    assert table["ventilated before"].to_list() == [0, 0, 1, 0]
    assert cohort.schema.observation_names[-1] == "ventilated before"


def test_it_is_read_as_demonstrations(tmp_path):
    cohort, table = written(tmp_path, STAY, record(2, "01:00,MechVent,1", "47:59,HR,60"))
    for schema in (cohort.schema, Schema.load(cohort.path.with_suffix(".schema.json"))):
        found = read(cohort.path, schema=schema)
        assert found.lengths.tolist() == [4, 12]
        assert found.action_names == ("not ventilated", "ventilated")
        assert found.trajectories[0].actions.tolist() == [0, 1, 0, 1]
        assert found.trajectories[1].actions.tolist() == [1, *[0] * 11]
        names = list(found.observation_names)
        np.testing.assert_array_equal(found.trajectories[0].observations[:, names.index("HR [bpm]")], table["HR"][:4])
        assert found.trajectories[0].observations[:, names.index("ICU=cardiac surgery")].tolist() == [1] * 4


def test_the_flow_is_written(tmp_path):
    cohort, _ = written(tmp_path, STAY)
    assert json.loads(cohort.path.with_suffix(".flow.json").read_text()) == cohort.flow
    assert cohort.flow["sources"][0]["name"] == "set.tar.gz"
    assert len(cohort.flow["sources"][0]["sha256"]) == 64
    assert "        < 10  kept" in str(cohort)


def test_the_flow_hides_what_could_be_subtracted(tmp_path):
    """20 stays, one of them empty; 18 have 12 windows and are ventilated in the first, one has 1 and is not."""
    full = [record(number, "01:00,MechVent,1", "47:59,HR,60") for number in range(1, 19)]
    cohort, _ = written(tmp_path, *full, record(19, "01:00,HR,70"), record(20, admission=ADMISSION[:4]))
    assert cohort.flow["stays"]["kept"] == 19
    lines = [line.split() for line in str(cohort).splitlines()]
    assert ["20", "read"] in lines
    assert ["<", "10", "without", "any", "measurement"] in lines
    assert ["≥", "11", "kept"] in lines
    assert ["≥", "2", "ever", "ventilated"] in lines  # at least 11 kept, minus at most 9
    assert [str(18 * 12 + 1), "kept"] in lines
    assert not any("after the last entry" in line for line in str(cohort).splitlines())


# What is left out.


def test_lines_in_any_order_give_the_same():
    lines = ["01:00,HR,80", "02:00,HR,90", "06:00,MechVent,1", "07:00,Temp,38", "20:00,pH,7.2"]
    made = [windows(understood(*order)[0], 4) for order in (lines, lines[::-1])]
    for one, other in zip(*made, strict=True):
        np.testing.assert_array_equal(one, other)


def test_of_values_at_one_minute_the_last_line_counts():
    found, counts, _ = understood("01:00,HR,80", "01:00,HR,80", "01:00,HR,95", "01:00,Temp,38")
    assert found.series["HR"][0].tolist() == [60]
    assert found.series["HR"][1].tolist() == [95]
    assert counts["values that another at the same minute replaced"] == 2


@pytest.mark.parametrize(
    "line",
    [
        *("01:00,HR,fast", "01:00,HR,", "01:00,HR,nan", "01:00,HR,inf", "01:00,HR,1_0", "01:00,HR,٣", "01:00,HR,1e999"),
        *("01:00,HR", "01:00,HR,80,90", "1 o'clock,HR,80", "01:60,HR,80", "-1:00,HR,80", ",HR,80", "garbage"),
    ],
)
def test_rows_that_cannot_be_read_are_counted(line):
    found, counts, _ = understood("02:00,HR,70", line)
    assert found.series["HR"][1].tolist() == [70]
    assert counts["rows without a readable time or number"] == 1


def test_unknown_parameters_are_counted():
    found, counts, _ = understood("01:00,HR,70", "01:00,Mood,3", "01:00,,3")
    assert set(found.series) == {"HR", "Weight"}
    assert counts["rows of unknown parameters"] == 2


def test_minus_one_is_missing():
    admission = ("00:00,Age,54", "00:00,Gender,-1", "00:00,Height,-1", "00:00,ICUType,3", "00:00,Weight,-1")
    found, counts, implausible = understood("01:00,HR,70", admission=admission)
    assert set(found.admission) == {"Age", "ICUType"}
    assert set(found.series) == {"HR"}
    assert counts["values of -1, missing"] == 3
    assert not implausible


def test_what_was_not_noted_on_admission_is_normal(tmp_path):
    _, table = written(tmp_path, record(1, "01:00,HR,70", admission=("00:00,ICUType,4", "00:00,Gender,-1")))
    assert table.select("Age", "male", "Height", "ICU").row(0) == (60, 0.5, 170, "surgical")


def test_implausible_values_are_removed():
    found, _, implausible = understood("01:00,HR,70", "02:00,HR,0", "03:00,HR,301", "04:00,pH,735", "05:00,Temp,-17.8")
    assert found.series["HR"][1].tolist() == [70]
    assert implausible == {"HR": 2, "pH": 1, "Temp": 1}
    assert found.last == 60


def test_limits_themselves_are_plausible():
    for name in series():
        limits = parameters()[name]
        for value in (limits.low, limits.high, limits.normal):
            found, _, implausible = understood(f"01:00,{name},{value:g}")
            assert found.series[name][1][-1] == pytest.approx(value)
            assert not implausible


def test_hour_48_is_after_the_last_window():
    found, counts, _ = understood("47:59,HR,70", "48:00,HR,80", "48:00,MechVent,1", "99:00,HR,80")
    assert found.last == 47 * 60 + 59
    assert counts["rows at or after hour 48"] == 3
    assert windows(found, 4).ventilated.tolist() == [0] * 12


def test_admission_is_what_was_noted_at_its_time():
    found, counts, _ = understood("09:00,Height,150", "01:00,HR,70")
    assert found.admission["Height"] == 180
    assert counts["rows of admission after it"] == 1


def test_ventilation_that_is_charted_as_off_is_not_on():
    found, _, _ = understood("01:00,MechVent,0", "05:00,MechVent,1")
    assert windows(found, 4).ventilated.tolist() == [0, 1]


def test_stays_without_what_is_needed_are_counted(tmp_path):
    cohort, table = written(
        tmp_path,
        record(1, "01:00,HR,70"),
        record(2, admission=ADMISSION[:4]),  # nothing was charted
        record(3, "01:00,HR,70", admission=()),  # no kind of ICU
        record(9, "01:00,HR,70"),  # the number of another
        "Zeit;Groesse;Wert\n",
        "",
    )
    assert table["record"].unique().to_list() == [1]
    assert cohort.flow["stays"] == {
        "read": 6,
        "that are no records": 3,
        "without the kind of the ICU": 1,
        "without any measurement": 1,
        "kept": 1,
        "ever ventilated": 0,
    }


def test_no_cohort_without_a_stay(tmp_path):
    with pytest.raises(UserError, match="no record of a stay"):
        written(tmp_path, record(2, admission=()))
    assert not (tmp_path / "out.parquet").exists()


# No state knows the future.


def changed_from(text, hour, rng):
    """The record, with entries from an hour on shuffled, changed, removed and added."""
    head, rows = text.splitlines()[0], text.splitlines()[1:]
    early = [row for row in rows if int(row[:2]) < hour or row[:5] == "00:00"]
    late = [row.split(",") for row in rows if row not in early]
    values = [row[2] for row in late]
    rng.shuffle(values)
    late = [[time, name, value] for (time, name, _), value in zip(late, values, strict=True) if rng.random() < 0.7]
    late += [[f"{rng.randrange(hour, 48):02d}:{rng.randrange(60):02d}", rng.choice(series()), "5"] for _ in range(20)]
    late += [[f"{rng.randrange(hour, 48):02d}:00", "MechVent", "1"], [f"{hour:02d}:00", "Age", "20"]]
    late.append(["47:59", "HR", "70"])
    for row in late:  # anywhere: lines may be in any order
        early.insert(rng.randint(0, len(early)), ",".join(row))
    return "\n".join([head, *early]) + "\n"


def assert_blind(text, number, hour, rng, cut=windows):
    """States up to an hour, and actions before it, are the same whatever is charted from that hour on."""
    texts = (text, changed_from(text, hour, rng))
    made = [cut(parse(each.encode(), number, Counter(), Counter()), 4) for each in texts]
    states = min(hour // 4 + 1, *(len(each.ventilated) for each in made))
    assert states > 0
    for part in ("values", "since"):
        np.testing.assert_array_equal(*(getattr(each, part)[:states] for each in made))
    before = min(hour // 4, states)
    np.testing.assert_array_equal(*(each.ventilated[:before] for each in made))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 11), st.randoms(use_true_random=False))
def test_shuffling_the_future_changes_no_state(window, rng):
    minutes = rng.sample(range(1, 2880), 60)
    lines = [
        f"{m // 60:02d}:{m % 60:02d},{rng.choice([*series(), 'MechVent'])},{rng.choice(['1', '5', '30', '37', '70'])}"
        for m in minutes
    ]
    text = record(1, *lines, "47:00,HR,80")
    assert_blind(text, 1, 4 * window, rng)


def test_a_state_that_knew_the_future_would_be_found():
    """The check above can fail: it does for states that end one window later."""

    def leaking(found, hours):
        made = windows(found, hours)
        return made._replace(values=np.roll(made.values, -1, axis=0))

    text = record(1, *(f"{hour:02d}:30,HR,{60 + hour}" for hour in range(48)))
    assert_blind(text, 1, 8, random.Random(0))
    with pytest.raises(AssertionError):
        assert_blind(text, 1, 8, random.Random(0), cut=leaking)


# Sources.


def test_folders_and_archives_give_the_same(tmp_path):
    folder = tmp_path / "set-a"
    folder.mkdir()
    texts = [STAY, record(2, "02:00,MechVent,1")]
    for number, text in enumerate(texts, 1):
        (folder / f"{number}.txt").write_text(text)
    (folder / "Outcomes-a.txt").write_text("RecordID,SAPS-I\n")
    (folder / "3.txt").symlink_to(folder / "1.txt")
    made = extract([folder], tmp_path / "folder.parquet")
    _, table = written(tmp_path, *texts)
    assert pl.read_parquet(made.path).equals(table)
    assert made.flow["left out"]["files that are no records"] == 2
    assert made.flow["sources"] == [{"name": "set-a", "sha256": records.digest(folder)}]


def test_several_sources(tmp_path):
    sources = [archive(tmp_path / f"{n}.tar.gz", [(f"set/{n}.txt", record(n, "01:00,HR,70"))]) for n in (1, 2)]
    told = []
    made = extract(sources, tmp_path / "out.parquet", progress=told.append)
    assert pl.read_parquet(made.path)["record"].to_list() == [1, 2]
    assert told == [1, 2]
    with pytest.raises(UserError, match=r"1\.txt is there twice"):
        extract([sources[0], sources[0]], tmp_path / "twice.parquet")


def hostile(kind, name, **fields):
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def test_members_that_are_no_plain_files_are_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "LARGEST_RECORD", 2000)
    source = archive(
        tmp_path / "set.tar.gz",
        [
            hostile(tarfile.SYMTYPE, "1.txt", linkname="/etc/passwd"),
            hostile(tarfile.LNKTYPE, "2.txt", linkname="/etc/passwd"),
            hostile(tarfile.CHRTYPE, "3.txt", devmajor=1, devminor=5),
            hostile(tarfile.FIFOTYPE, "4.txt"),
            hostile(tarfile.DIRTYPE, "set-a"),
            ("6.txt", record(6, "01:00,HR,70") + " " * 2000),
            ("readme.md", "hello"),
            ("../../../../etc/7.txt", record(7, "01:00,HR,70")),  # just a name: nothing is unpacked
        ],
    )
    made = extract([source], tmp_path / "out.parquet")
    assert pl.read_parquet(made.path)["record"].to_list() == [7]
    assert made.flow["left out"]["files that are no records"] == 6
    assert {path.name for path in tmp_path.iterdir()} == {
        "set.tar.gz",
        "out.parquet",
        "out.schema.json",
        "out.flow.json",
    }


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "LARGEST_ARCHIVE", 1 << 16)
    source = archive(tmp_path / "bomb.tar.gz", [("zeros.bin", "0" * (1 << 20))])
    with pytest.raises(UserError, match="more than 1 GiB"):
        extract([source], tmp_path / "out.parquet")


def test_every_truncation_is_refused(tmp_path):
    whole = archive(tmp_path / "set.tar.gz", [(f"{n}.txt", record(n, "01:00,HR,70")) for n in range(1, 4)]).read_bytes()
    source, out = tmp_path / "part.tar.gz", tmp_path / "out.parquet"
    for end in range(0, len(whole), 7):
        source.write_bytes(whole[:end])
        with pytest.raises(UserError, match=r"part\.tar\.gz: not a complete tar\.gz archive"):
            extract([source], out)
    assert not out.exists()


def test_a_damaged_checksum_is_refused(tmp_path):
    whole = bytearray(archive(tmp_path / "set.tar.gz", [("1.txt", STAY)]).read_bytes())
    whole[-6] ^= 1
    (tmp_path / "set.tar.gz").write_bytes(whole)
    with pytest.raises(UserError, match="not a complete"):
        extract([tmp_path / "set.tar.gz"], tmp_path / "out.parquet")


@pytest.mark.parametrize(
    "content",
    [b"", b"plain text", gzip.compress(b"no tar in it"), gzip.compress(b"")],
    ids=["nothing", "plain text", "no tar", "packed nothing"],
)
def test_what_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "set.tar.gz").write_bytes(content)
    with pytest.raises(UserError, match=r"not a complete tar\.gz archive"):
        extract([tmp_path / "set.tar.gz"], tmp_path / "out.parquet")


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match="no such file or folder"):
        extract([tmp_path / "nowhere"], tmp_path / "out.parquet")
    with pytest.raises(UserError, match="no source"):
        extract([], tmp_path / "out.parquet")
    with pytest.raises(UserError, match=r"ends with \.parquet"):
        extract([tmp_path], tmp_path / "out.csv")
    (tmp_path / "out.flow.json").touch()
    with pytest.raises(UserError, match=r"out\.flow\.json exists already"):
        extract([tmp_path], tmp_path / "out.parquet")
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        extract([tmp_path], tmp_path / "folder.parquet")
    made = extract([archive(tmp_path / "a.tar.gz", [("1.txt", STAY)])], tmp_path / "out.parquet", overwrite=True)
    assert pl.read_parquet(made.path).height == 4


# The real records.


@real
def test_no_real_state_knows_the_future():
    rng, seen = random.Random(0), 0
    with tarfile.open(shared.path(*SET_A), "r|gz") as file:
        for member in file:
            if member.isreg():
                number = int(Path(member.name).stem)
                text = file.extractfile(member).read().decode()
                assert_blind(text, number, 4 * rng.randrange(1, 12), rng)
                seen += 1
            if seen == 100:
                break
    assert seen == 100


@real
def test_set_a(tmp_path):
    made = extract([shared.path(*SET_A)], tmp_path / "a.parquet")
    stays, kept = made.flow["stays"], made.flow["windows"]
    assert stays["read"] == 4000
    assert stays["kept"] + stays["without any measurement"] == 4000
    assert 0.4 < kept["ventilated"] / kept["kept"] < 0.5
    table = pl.read_parquet(made.path)
    assert table.null_count().sum_horizontal().item() == 0
    assert table.height == kept["kept"]
    for name in series():
        limits = parameters()[name]
        assert table[name].is_between(limits.low - 1e-4, limits.high + 1e-4).all()
        assert table[f"{name} since"].is_between(0, 48).all()
