"""From the files of MIMIC-III to demonstrations: one decision per day of an ICU stay. docs/clinical.md has the rules.

The rules are tables and queries in `rules/`; this file runs them in order, counts, and writes the result.
"""

import io
import shutil
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from sbil import files
from sbil.clinical.cohort import Cohort, must_be_free, write
from sbil.clinical.mimic3 import flow as chart
from sbil.clinical.mimic3.database import Database, Progress, check, identifier, text
from sbil.clinical.mimic3.source import OfficialRows, SourceFile, find, official_rows, rows_of, rule, rules_digest
from sbil.demonstrations import Column, Schema
from sbil.errors import UserError, unknown
from sbil.version import __version__

State = Literal["today", "before"]
DAYS = 20  # of a stay, at most
OWN = ".sbil-mimic3"  # inside the named folder, the only folder that is written to and emptied
PART = 4_000_000  # measurements that are held in memory at once
ACTIONS = {2: ("no ventilation", "ventilation"), 4: ("none", "antibiotics", "ventilation", "both")}
CASES = {
    2: "CASE WHEN ventilated THEN 'ventilation' ELSE 'no ventilation' END",
    4: "CASE WHEN ventilated AND antibiotics THEN 'both' WHEN ventilated THEN 'ventilation' "
    "WHEN antibiotics THEN 'antibiotics' ELSE 'none' END",
}
SUFFIXES: dict[State, tuple[str, str]] = {"today": ("today", "yesterday"), "before": ("yesterday", "day_before")}
EXCLUDED = {
    "times": "no time of entry, or no later time of leaving",
    "birth": "patient not in PATIENTS, or without date of birth",
    "young": "younger than 16 on entry",
    "overlap": "begins before an earlier stay of the patient has ended",
}


def extract(
    source: Path,
    actions: int,
    out: Path,
    *,
    state: State = "today",
    work: Path | None = None,
    memory: str = "2GB",
    threads: int | None = None,
    accept_incomplete: bool = False,
    overwrite: bool = False,
    progress: Progress = lambda table, share, rows: None,
) -> Cohort:
    """Write demonstrations (Parquet), their schema (`.schema.json`) and the flow chart (`.flow.json`) beside them.

    source: the folder with the CSV or CSV.GZ files.
    actions: 4 (none, antibiotics, ventilation, both) or 2 (ventilation or not).
    state: "today", if a decision rests on today and yesterday, as in the paper; "before", if it rests on the two days
        before it.
    work: a folder in which .sbil-mimic3 keeps what was read of each table, so that a stopped run can go on. A folder
        that is named here is not emptied at the end, so that another run can use it.
    accept_incomplete: go on although the tables do not have the official numbers of rows.
    """
    source, out = Path(source).resolve(), Path(out).resolve()
    if actions not in ACTIONS:
        raise UserError(f"actions must be 2 or 4. Got {actions}.")
    if state not in get_args(State):
        raise unknown("state", state, get_args(State))
    check(memory, threads)
    around = Path(work).resolve() if work else out.with_name(f"{out.name}.work")
    folder = around / OWN
    must_be_free(out, overwrite, stopped=folder.is_dir())
    tables = find(source)
    files.probe(folder)
    with Database(source, folder, memory, threads) as database:
        read = _read_all(database, tables, accept_incomplete, progress)
        flow = {"database": "MIMIC-III", "sbil": __version__, "rules": rules_digest(), **read}
        flow |= {"settings": {"actions": actions, "state": state, "days": DAYS}}
        [(kept,)] = database.rows("SELECT (SELECT count(*) FROM chartevents) + (SELECT count(*) FROM labevents)")
        parts = 1 + kept // PART
        flow |= _select(database, parts)
        flow |= _build(database, actions, state, parts)
        schema = _schema(database, actions, state)
        rows = _rows(database, actions, state, parts)
        database.clear()
    cohort = write(out, rows, schema, flow, chart.as_text(flow))
    if work is None:
        shutil.rmtree(folder)
        if not any(around.iterdir()):  # a folder of that name may hold files of others
            around.rmdir()
    return cohort


def _read_all(
    database: Database, tables: dict[str, SourceFile], accept_incomplete: bool, progress: Progress
) -> dict[str, Any]:
    """Read the tables, small ones first, and compare their numbers of rows with the official ones."""
    official = official_rows()
    counts: dict[str, int] = {}
    for table in sorted(tables.values(), key=lambda table: official[table.name].full):
        counts[table.name] = database.read(table, progress)
        if not accept_incomplete:
            _check_rows(table, counts[table.name], official[table.name])
    editions = {
        "v1.4": all(counts[name] == official[name].full for name in counts),
        "demo of v1.4": all(counts[name] == official[name].demo for name in counts),
    }
    edition = next((name for name, is_it in editions.items() if is_it), None)
    if edition is None and not accept_incomplete:
        raise UserError("tables of MIMIC-III v1.4 and of its demo are mixed; keep to one, or accept incomplete tables.")
    listed = [
        {"table": table.name, "file": table.path.name, "bytes": table.size, "rows": counts[table.name]}
        for table in tables.values()
    ]
    return {"edition": edition or "incomplete or changed", "files": listed}


def _check_rows(table: SourceFile, rows: int, official: OfficialRows) -> None:
    if rows not in official:
        demo = f" (its demo {official.demo:,})" if official.demo else ""
        raise UserError(
            f"{table.path} has {rows:,} rows and MIMIC-III v1.4 has {official.full:,}{demo}; copy the file again, "
            "or accept incomplete tables (--accept-incomplete)."
        )


def _select(database: Database, parts: int) -> dict[str, Any]:
    """Select the stays; count what each exclusion removes and leaves."""
    database.table("all_stays", rule("stays.sql"))
    [(copies,)] = database.rows("SELECT coalesce(sum(copies), 0) FROM icustays")
    steps = [_step(database, "ICU stays in ICUSTAYS", "SELECT icustay_id FROM all_stays", int(copies))]
    passed: list[str] = []
    for reason, words in EXCLUDED.items():
        passed.append(reason)
        listed = ", ".join(map(text, passed))
        left = f"SELECT icustay_id FROM all_stays WHERE excluded IS NULL OR excluded NOT IN ({listed})"
        steps.append(_step(database, words, left))
    database.table("stays", "SELECT * EXCLUDE (excluded) FROM all_stays WHERE excluded IS NULL")
    database.view("measurements", rule("measurements.sql"))
    for name in ("ventilated_days", "antibiotic_days"):
        database.table(name, rule(f"{name}.sql"))
    database.parts("daily", rule("daily.sql"), parts)
    database.view("treated", "SELECT icustay_id FROM ventilated_days UNION SELECT icustay_id FROM antibiotic_days")
    untreated = "neither antibiotics nor ventilation during the stay"
    steps.append(_step(database, untreated, "SELECT icustay_id FROM treated"))
    database.table("days", rule("days.sql"))
    steps.append(_step(database, "none of the 28 covariates measured", "SELECT DISTINCT icustay_id FROM days"))
    for before, step in pairwise(steps):
        step["removed"] = before["left"] - step["left"]
    if not steps[-1]["left"]:
        raise UserError("no ICU stay is left after the exclusions; is this the whole of MIMIC-III?")
    [(rows, local, dateless)] = database.rows(
        "SELECT count(*), count(*) FILTER (WHERE NOT systemic), "
        "count(*) FILTER (WHERE systemic AND NOT coalesce(first_day <= last_day, false)) FROM prescriptions"
    )
    return {"stays": steps, "prescriptions": {"rows": rows, "not systemic": local, "no dates": dateless}}


def _step(database: Database, words: str, left: str, removed: int | None = None) -> dict[str, Any]:
    query = f"SELECT count(*), count(DISTINCT subject_id) FROM all_stays WHERE icustay_id IN ({left})"
    [(stays, patients)] = database.rows(query)
    return {"step": words, "removed": removed, "left": stays, "patients": patients}


def _build(database: Database, actions: int, state: State, parts: int) -> dict[str, Any]:
    """Build every covariate on every day; count what was used, removed and filled on the days kept."""
    database.table("means", rule("means.sql"), days=DAYS)
    never = database.rows("SELECT covariate FROM covariates ANTI JOIN means USING (covariate) ORDER BY covariate")
    if never:
        raise UserError(f"'{never[0][0]}' was never measured in the whole cohort; are CHARTEVENTS and LABEVENTS whole?")
    database.parts("filled", rule("filled.sql"), parts, days=DAYS, shift=int(state == "before"))
    on_kept_days = "(SELECT icustay_id, day FROM days WHERE number <= $days) USING (icustay_id, day)"
    judged = f"(SELECT *, charttime::DATE AS day FROM measurements) JOIN {on_kept_days}"
    verdicts = _nested(database.rows(f"SELECT covariate, verdict, count(*) FROM {judged} GROUP BY ALL", days=DAYS))
    origins = _nested(database.rows("SELECT covariate, origin, count(*) FROM filled GROUP BY ALL"))
    summed = f"SELECT covariate, sum(used)::BIGINT FROM daily JOIN {on_kept_days} GROUP BY ALL"
    used = dict(database.rows(summed, days=DAYS))
    means = dict(database.rows("SELECT covariate, mean FROM means"))
    covariates = []
    for row in rows_of("covariates.csv"):
        name, counts = row["covariate"], verdicts[row["covariate"]]
        sound = counts["plausible"] + counts["unit mended"]
        covariates.append(
            {
                "covariate": name,
                "unit": row["unit"],
                "limits": [float(row["low"]), float(row["high"])],
                **{verdict: counts[verdict] for verdict in chart.LEFT_OUT},
                "repeated": sound - used.get(name, 0),
                "used": used.get(name, 0),
                **{origin: origins[name][origin] for origin in chart.DAYS},
                "mean": means[name],
            }
        )
    [(kept, beyond)] = database.rows(
        "SELECT count(*) FILTER (WHERE number <= $days), count(*) FILTER (WHERE number > $days) FROM days", days=DAYS
    )
    chosen = f"SELECT {CASES[actions]} AS action, count(*) FROM days WHERE number <= {DAYS} GROUP BY ALL"
    taken = Counter(dict(database.rows(chosen)))
    days = {"kept": kept, "beyond": beyond, "most": DAYS, "actions": {name: taken[name] for name in ACTIONS[actions]}}
    return {"days": days, "covariates": covariates}


def _nested(rows: list[tuple[Any, ...]]) -> dict[str, Counter[str]]:
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for name, kind, count in rows:
        table[name][kind] = count
    return table


def _schema(database: Database, actions: int, state: State) -> Schema:
    """What the columns mean. A missing number in a later table becomes the mean of the cohort."""
    means = dict(database.rows("SELECT covariate, mean FROM means"))
    columns = tuple(
        Column(f"{row['covariate']}_{suffix}", unit=row["unit"], fill=means[row["covariate"]])
        for suffix in SUFFIXES[state]
        for row in rows_of("covariates.csv")
    )
    return Schema(*("action", columns, ACTIONS[actions]), episode="stay", time="day", group="patient", missing="mean")


def _rows(database: Database, actions: int, state: State, parts: int) -> bytes:
    """The table of demonstrations, as Parquet."""
    names = [row["covariate"] for row in rows_of("covariates.csv")]
    spread = ", ".join(
        f"(max({held}) FILTER (WHERE covariate = {text(name)}))::FLOAT AS {identifier(f'{name}_{suffix}')}"
        for held, suffix in zip(("recent", "before"), SUFFIXES[state], strict=True)
        for name in names
    )
    paths = database.parts(
        "demonstrations",
        f"SELECT icustay_id AS stay, subject_id AS patient, number AS day, {spread}, {CASES[actions]} AS action "
        "FROM days JOIN filled USING (icustay_id, number) WHERE icustay_id % $parts = $part "
        "GROUP BY icustay_id, subject_id, number, ventilated, antibiotics",
        parts,
    )
    table = pl.concat([pl.read_parquet(path.read_bytes()) for path in paths]).sort("stay", "day")
    content = io.BytesIO()
    table.write_parquet(content, compression="zstd")  # the same rows give the same bytes
    return content.getvalue()
