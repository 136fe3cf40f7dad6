"""`python -m benchmarks.clinical_speed`: a MIMIC-III of made-up patients with a CHARTEVENTS as large as the real one.

Rows have the official columns and about the length of the real ones (110 bytes); one in five is of an item that is
kept. The extraction runs in a separate process, and its peak memory is reported.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import tyro

from sbil.clinical.mimic3.source import rows_of

BLOCK = 1_000_000  # rows
A_STAY = 5_000  # rows of CHARTEVENTS; 60,000 stays with 300 million rows
FIRST = 1_000_000  # the first patient's number, so that all have seven digits

CHILD = """
import json, sys, time
from pathlib import Path
from benchmarks.memory import peak
from sbil.clinical.mimic3.extraction import extract
ends = {}  # by table: when it was read, and its rows; a table begins when the one before has ended
def progress(table, share, rows):
    if rows is not None:
        ends[table] = time.perf_counter(), rows
source, out, memory, threads = sys.argv[1:]
cohort = extract(Path(source), 4, Path(out), memory=memory, threads=int(threads) or None,
                 accept_incomplete=True, progress=progress)
(begun, _), (ended, rows) = list(ends.values())[-2:]
assert list(ends)[-1] == "chartevents"
print(json.dumps({"rows": rows, "reading_s": ended - begun, "after_s": time.perf_counter() - ended,
                  "days": cohort.flow["days"]["kept"], "stays": cohort.flow["stays"][-1]["left"],
                  "used": sum(row["used"] for row in cohort.flow["covariates"]), "peak_gb": peak() / 1e9}))
"""


@dataclass(frozen=True)
class Options:
    """Measure `sbil clinical mimic3` on made-up tables, which are deleted afterwards."""

    rows: int = 300_000_000
    """Rows of CHARTEVENTS, in whole millions; 300 million are 35 GB."""
    folder: Path = Path()
    """Folder for the temporary tables."""
    memory: str = "2GB"
    """Limit on the memory of the database."""
    threads: int = 0
    """Processor cores to use (0: all)."""
    packed: bool = False
    """Pack CHARTEVENTS with gzip first, as the official file is."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the machine's facts and what was measured to this file."""
    note: str = ""
    """A note that is stored with the machine's facts, such as what else was running."""


def template(generator: np.random.Generator) -> np.ndarray:
    """Return [rows, bytes]: a block of rows for the first patients."""
    kept = [int(row["itemid"]) for row in (*rows_of("items.csv"), *rows_of("ventilation.csv"))]
    kept = [item for item in kept if item >= 220000 and item != 225792]
    items = np.where(
        generator.random(BLOCK) < 0.2, generator.choice(kept, BLOCK), generator.integers(228300, 228999, BLOCK)
    )
    seconds = np.sort(generator.integers(0, 4 * 86_400, (BLOCK // A_STAY, A_STAY)), axis=1).ravel()
    scores = np.isin(items, (220739, 223901))  # parts of the coma scale
    values = np.where(scores, generator.integers(1, 5, BLOCK), generator.integers(300, 1400, BLOCK) / 10)
    lines = []
    for row, (item, second, value) in enumerate(zip(items, seconds, values, strict=True)):
        day, rest = divmod(int(second), 86_400)
        when = f"2150-01-0{day + 1} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
        stay = FIRST + row // A_STAY
        lines.append(
            f'{row:09},{stay},1{stay},{stay},{item},"{when}","{when}",15321,"{value:05.1f}",{value:05.1f},"mmHg",,,,""\n'
        )
    return np.frombuffer("".join(lines).encode(), np.uint8).reshape(BLOCK, -1).copy()


def write(folder: Path, rows: int) -> None:
    """Write the tables that are read, with one stay of four days per patient."""
    write_chart_events(folder / "CHARTEVENTS.csv", rows)
    for name, (header, lines) in other_tables(range(FIRST, FIRST + rows // A_STAY)).items():
        with (folder / f"{name}.csv").open("w") as file:
            file.write(f"{header}\n")
            file.writelines(f"{line}\n" for line in lines)


def write_chart_events(path: Path, rows: int) -> None:
    """Write the large table: one block of rows again and again, with other patients."""
    block = template(np.random.default_rng(0))
    places = [10, 19, 27]  # the places of the patient's seven digits: SUBJECT_ID, HADM_ID after a 1, ICUSTAY_ID
    first = FIRST + np.arange(BLOCK) // A_STAY
    with path.open("wb") as file:
        columns = "ROW_ID SUBJECT_ID HADM_ID ICUSTAY_ID ITEMID CHARTTIME STORETIME CGID VALUE VALUENUM VALUEUOM WARNING"
        file.write(",".join(f'"{name}"' for name in f"{columns} ERROR RESULTSTATUS STOPPED".split()).encode() + b"\n")
        for number in range(rows // BLOCK):
            subject = first + number * (BLOCK // A_STAY)
            for digit in range(7):
                written = (subject // 10 ** (6 - digit) % 10 + ord("0")).astype(np.uint8)
                for place in places:
                    block[:, place + digit] = written
            block.tofile(file)


def other_tables(patients: range) -> dict[str, tuple[str, Iterable[str]]]:
    """Return the header and the lines of each of the small tables."""
    laboratory = [row["itemid"] for row in rows_of("items.csv") if row["events"] == "labevents"]
    middle = {row["covariate"]: (float(row["low"]) + float(row["high"])) / 2 for row in rows_of("covariates.csv")}
    of_item = {row["itemid"]: middle[row["covariate"]] for row in rows_of("items.csv")}
    return {
        "PATIENTS": ("SUBJECT_ID,DOB", (f"{p},2100-01-01 00:00:00" for p in patients)),
        "ICUSTAYS": (
            "SUBJECT_ID,ICUSTAY_ID,INTIME,OUTTIME",
            (f"{p},{p},2150-01-01 00:00:00,2150-01-05 00:00:00" for p in patients),
        ),
        "LABEVENTS": (
            "SUBJECT_ID,ITEMID,CHARTTIME,VALUE,VALUENUM",
            (f"{p},{item},2150-01-02 06:00:00,,{of_item[item]}" for p in patients for item in laboratory),
        ),
        "PRESCRIPTIONS": (
            "SUBJECT_ID,STARTDATE,ENDDATE,DRUG_TYPE,DRUG,ROUTE",
            (f"{p},2150-01-02,2150-01-03,MAIN,Vancomycin,IV" for p in patients),
        ),
        "PROCEDUREEVENTS_MV": ("SUBJECT_ID,ITEMID,STARTTIME,ENDTIME,STATUSDESCRIPTION", ()),
    }


def measure(options: Options) -> dict[str, float]:
    """Write the tables, extract them, delete them."""
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix="clinical-", dir=options.folder))
    try:
        started = perf_counter()
        write(folder, options.rows)
        print(f"written in {perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
        table = folder / "CHARTEVENTS.csv"
        if options.packed:
            subprocess.run(["gzip", "-1", str(table)], check=True)
            table = folder / "CHARTEVENTS.csv.gz"
        arguments = [str(folder), str(folder / "demos.parquet"), options.memory, str(options.threads)]
        done = subprocess.run([sys.executable, "-c", CHILD, *arguments], check=True, stdout=subprocess.PIPE, text=True)
        result: dict[str, float] = json.loads(done.stdout)
        result["bytes"] = table.stat().st_size
        result["rows_per_s"] = result["rows"] / result["reading_s"]
        return result
    finally:
        shutil.rmtree(folder)


def facts(note: str) -> dict[str, Any]:
    """The machine and the packages."""
    from benchmarks import machine

    found = machine.facts()
    found["packages"]["duckdb"] = machine.version("duckdb")
    return found | ({"note": note} if note else {})


def report(machine: dict[str, Any], options: dict[str, Any], result: dict[str, float]) -> str:
    """Return the result in the form of `python -m benchmarks --json`."""
    parts = {"clinical": {"records": [result]}}
    return json.dumps({"machine": machine, "options": options, "parts": parts}, indent=1) + "\n"


def main(options: Options) -> None:
    """Measure, print, and write the JSON file if one is named."""
    if options.json and not options.json.parent.is_dir():  # before, and not after, an hour
        sys.exit(f"{options.json.parent} is not a folder.")
    machine = facts(options.note) if options.json else {}
    result = measure(options)
    print(json.dumps(result, indent=1))
    if options.json:
        from benchmarks.machine import load

        asked = {name: getattr(options, name) for name in ("rows", "memory", "threads", "packed")}
        options.json.write_text(report(machine | {"load after": load()}, asked, result))


if __name__ == "__main__":
    main(tyro.cli(Options, config=(tyro.conf.FlagCreatePairsOff,)))
