"""The tables of the study: four decisions of clinicians and patients, from files that anybody can download.

    eicu-demo          is a vasopressor infused in the next 6 hours? (hospitals are held out)
    insulin            how large is the dose of regular insulin, in 5 ranges? (patients are held out)
    physionet-2012     is the patient ventilated in the next 4 hours? (learned on set a, judged on set b)
    physionet-2019     is a blood count ordered in the next 6 hours? (stays are held out)

A state holds the last value of each series and the hours since then. A series without a value has the mean value.
"""

import io
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

import sbil
from sbil.clinical import physionet2012
from sbil.demonstrations import Demonstrations

NEVER = 48.0  # hours since the last value of a series without one, and at most
DAYS = 7  # of a stay, at most
PRESSORS = "norepinephrine|levophed|phenylephrine|neosynephrine|vasopressin|epinephrine|dopamine"
CHARTED = ("FiO2", "RR (patient)", "PEEP", "Tidal Volume (set)", "LPM O2", "Vent Rate", "Total RR", "SaO2")
VITALS = ("HR", "O2Sat", "Temp", "SBP", "MAP", "DBP", "Resp")
ORDERED = ("WBC", "Hgb", "Platelets")
INSULIN, DOSES, GLUCOSE = 33, (33, 34, 35), (48, 57, 58, 59, 60, 61, 62, 63, 64)
MEALS, ACTIVITY = (66, 67, 68), (69, 70, 71)
RANGES = (2.5, 4.5, 6.5, 9.5)  # units, between the five ranges of doses


class Source(NamedTuple):
    """How a table is made, and what its rows are."""

    make: Callable[[Path], pl.DataFrame]
    unit: str  # what is held out whole
    columns: dict[str, Any]  # keywords of `sbil.read`


def decisions(name: str, shared: Path) -> Demonstrations:
    """Return the decisions of a table."""
    source = SOURCES[name]
    return sbil.read(source.make(shared / name.partition(",")[0]), missing="mean", **source.columns)


def with_last(rows: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Add the last value of each series before a row's minute, and the hours since then.

    rows: stay, minute and more; events: stay, minute, series, value.
    """
    rows = rows.sort("minute")
    for name in events["series"].unique(maintain_order=True).sort().to_list():
        own = events.filter(pl.col("series") == name).select("stay", "minute", pl.col("value").alias(name))
        own = own.with_columns(pl.col("minute").alias("at")).sort("minute")
        rows = rows.join_asof(own, on="minute", by="stay", allow_exact_matches=False, check_sortedness=False)
        since = ((pl.col("minute") - pl.col("at")) / 60).clip(0, NEVER).fill_null(NEVER)
        rows = rows.with_columns(since.alias(f"{name} since")).drop("at")
    return rows.sort("stay", "minute")


def windows(stays: pl.DataFrame, hours: int) -> pl.DataFrame:
    """Return one row per window: the minute at which it begins. stays: stay, minutes and more."""
    most = pl.col("minutes").clip(0, DAYS * 24 * 60)
    return (
        stays.with_columns(pl.int_ranges(0, most - 60 * hours + 1, 60 * hours).alias("minute"))
        .explode("minute")
        .drop_nulls("minute")
        .drop("minutes")
        .with_columns(pl.col("minute").cast(pl.Int64))
    )


def acted(rows: pl.DataFrame, events: pl.DataFrame, hours: int, action: str, words: tuple[str, str]) -> pl.DataFrame:
    """Add the action of each window: the second word if an event lies in it, else the first. events: stay, minute."""
    began = events.select("stay", (pl.col("minute") // (60 * hours) * 60 * hours).cast(pl.Int64).alias("minute"))
    found = rows.join(began.unique().with_columns(pl.lit(words[1]).alias(action)), on=["stay", "minute"], how="left")
    return found.with_columns(pl.col(action).fill_null(words[0]))


def eicu(folder: Path) -> pl.DataFrame:
    """Vasopressors in windows of 6 hours, in the hospitals that chart infusions."""
    patient = _csv(folder, "patient")
    infused = _csv(folder, "infusiondrug").rename({"patientunitstayid": "stay", "infusionoffset": "minute"})
    rate = pl.col("drugrate").cast(pl.Float64, strict=False)
    pressors = infused.filter(pl.col("drugname").str.to_lowercase().str.contains(PRESSORS) & (rate > 0))
    stays = patient.select(
        pl.col("patientunitstayid").alias("stay"),
        pl.col("hospitalid").alias("hospital"),
        pl.col("unitdischargeoffset").alias("minutes"),
        pl.col("age").str.replace("> 89", "90").cast(pl.Float64, strict=False),
        (pl.col("gender") == "Male").cast(pl.Float64).alias("male"),
        pl.col("admissionweight").cast(pl.Float64, strict=False).alias("weight"),
        pl.col("admissionheight").cast(pl.Float64, strict=False).alias("height"),
        pl.col("unittype").alias("unit type"),
    )
    charting = stays.join(infused.select("stay").unique(), on="stay")["hospital"].unique()
    stays = stays.filter(pl.col("hospital").is_in(charting.to_list()))
    pressure = _csv(folder, "vitalAperiodic").rename({"patientunitstayid": "stay", "observationoffset": "minute"})
    pressure = _long(pressure, ("noninvasivesystolic", "noninvasivediastolic", "noninvasivemean"))
    charted = _csv(folder, "respiratoryCharting").select(
        pl.col("patientunitstayid").alias("stay"),
        pl.col("respchartoffset").alias("minute"),
        pl.col("respchartvaluelabel").alias("series"),
        pl.col("respchartvalue").str.replace("%", "").cast(pl.Float64, strict=False).alias("value"),
    )
    charted = charted.filter(pl.col("series").is_in(CHARTED) & pl.col("value").is_between(0, 2000))
    rows = with_last(windows(stays, 6), pl.concat([pressure, charted]).drop_nulls())
    rows = rows.with_columns((pl.col("minute") / 60).alias("hours since admission"))
    return acted(rows, pressors, 6, "vasopressor", ("no", "yes"))


def insulin(folder: Path) -> pl.DataFrame:
    """Doses of regular insulin, with the glucose and the doses before."""
    log = _logs(folder / "insulin.tar.gz")
    log = log.with_columns((pl.col("time").dt.epoch("s") // 60).alias("minute"))

    def events(codes: tuple[int, ...], name: str) -> pl.DataFrame:
        chosen = log.filter(pl.col("code").is_in(codes)).with_columns(pl.lit(name).alias("series"))
        return chosen.select("stay", "minute", "series", "value")

    hour = pl.col("time").dt.hour() + pl.col("time").dt.minute() / 60
    part = pl.when(hour < 4).then(3).when(hour < 10).then(0).when(hour < 15).then(1).when(hour < 21).then(2)
    doses = log.filter(pl.col("code") == INSULIN).with_columns(hour.alias("hour"), part.otherwise(3).alias("part"))
    doses = doses.unique(["stay", "minute"], keep="first", maintain_order=True).sort("stay", "minute")
    doses = doses.with_columns(pl.col("value").shift(1).over("stay", "part").alias("last dose of this part"))
    doses = doses.with_columns((pl.col("minute") + 1).alias("minute"))  # the glucose of the same minute is known
    kinds = [(GLUCOSE, "glucose"), ((34,), "NPH"), ((35,), "UltraLente"), (MEALS, "meal"), (ACTIVITY, "exercise")]
    rows = with_last(doses, pl.concat([events(codes, name) for codes, name in kinds]))
    last = pl.col("value").shift(1).over("stay")
    rows = rows.with_columns(last.alias("last dose"), pl.col("value").cut(list(RANGES)).cast(pl.String).alias("dose"))
    return rows.drop("time", "code", "value").unique(["stay", "minute"], keep="first", maintain_order=True)


def ventilation(folder: Path) -> pl.DataFrame:
    """Ventilation in windows of 4 hours, of sets a and b; the column `set` says which."""
    found = []
    with tempfile.TemporaryDirectory() as work:
        for name in ("a", "b"):
            table = Path(work) / f"{name}.parquet"
            physionet2012.extract([folder / f"set-{name}.tar.gz"], table)
            found.append(pl.read_parquet(table).with_columns(pl.lit(name).alias("set")))
    return pl.concat(found)


def blood_count(folder: Path) -> pl.DataFrame:
    """Orders of a blood count in windows of 6 hours."""
    hours = _hours(folder / "set-b-part.tar.gz")
    kept = hours.group_by("stay").agg(pl.col("minute").max() + 60, pl.col("Age", "Gender").first())
    rows = windows(kept.rename({"minute": "minutes"}), 6)
    series = [name for name in hours.columns[1:] if name not in NOT_SERIES]
    rows = with_last(rows, _long(hours, tuple(series)).drop_nulls())
    rows = rows.with_columns((pl.col("minute") / 60).alias("hour"))
    ordered = hours.filter(pl.any_horizontal(pl.col(ORDERED).is_not_null()))
    return acted(rows, ordered, 6, "blood count", ("no", "yes"))


NOT_SERIES = ("Age", "Gender", "Unit1", "Unit2", "HospAdmTime", "ICULOS", "SepsisLabel", "minute")
EPISODE: dict[str, Any] = {"episode": "stay", "time": "minute"}
EICU: dict[str, Any] = {**EPISODE, "action": "vasopressor", "group": "hospital", "one_hot": ["unit type"]}
SOURCES = {
    "eicu-demo": Source(eicu, "hospital", EICU),
    "eicu-demo, previous action": Source(eicu, "hospital", {**EICU, "previous_action": True}),
    "insulin": Source(insulin, "patient", {**EPISODE, "action": "dose", "one_hot": ["part"]}),
    "physionet-2012": Source(
        ventilation,
        "stay",
        {"episode": "record", "time": "window", "action": "ventilation", "one_hot": ["ICU"], "group": "set"},
    ),
    "physionet-2019": Source(blood_count, "stay", {**EPISODE, "action": "blood count"}),
}


def _csv(folder: Path, name: str) -> pl.DataFrame:
    return pl.read_csv(folder / f"{name}.csv.gz", infer_schema_length=None)


def _long(table: pl.DataFrame, series: tuple[str, ...]) -> pl.DataFrame:
    """One row per value: stay, minute, series, value."""
    values = [pl.col(name).cast(pl.Float64, strict=False) for name in series]
    table = table.select("stay", "minute", *values)
    return table.unpivot(series, index=["stay", "minute"], variable_name="series", value_name="value").drop_nulls()


def _logs(archive: Path) -> pl.DataFrame:
    """The logs of all patients: stay (the patient), time, code, value. Lines that do not parse are left out."""
    parts = []
    with tarfile.open(archive) as logs:
        for member in logs.getmembers():
            name = Path(member.name).name
            file = logs.extractfile(member) if name.startswith("data-") else None
            if file:
                text = file.read().decode("utf-8", errors="replace")
                cells = [line.split("\t") for line in text.splitlines()]
                parts += [(int(name[5:]), f"{c[0]} {c[1]}", c[2], c[3]) for c in cells if len(c) == 4]
    log = pl.DataFrame(parts, schema=["stay", "time", "code", "value"], orient="row")
    return log.with_columns(
        pl.col("time").str.to_datetime("%m-%d-%Y %H:%M", strict=False),
        pl.col("code").cast(pl.Int64, strict=False),
        pl.col("value").cast(pl.Float64, strict=False),
    ).drop_nulls()


def _hours(archive: Path) -> pl.DataFrame:
    """The hours of all stays, in one table; `minute` is when an hour begins."""
    parts = []
    with tarfile.open(archive) as records:
        for member in records:
            file = records.extractfile(member) if member.name.endswith(".psv") else None
            if file:
                hours = pl.read_csv(io.BytesIO(file.read()), separator="|", null_values="NaN", infer_schema=False)
                stay = int(Path(member.name).stem[1:])
                parts.append(hours.with_columns(pl.lit(stay).alias("stay")))
    table = pl.concat(parts)
    numbers = [pl.col(name).cast(pl.Float64, strict=False) for name in table.columns if name != "stay"]
    return table.select("stay", *numbers).with_columns(pl.int_range(pl.len()).over("stay").mul(60).alias("minute"))
