"""The clinical datasets that `sbil reproduce` knows by name: where demonstrations come from, how they are judged.

What was extracted from a source is kept in a folder beside the results and serves the next call, unless --source then
holds other files, or sbil or its rules have changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbil import demonstrations, files
from sbil.clinical import icu_sepsis
from sbil.clinical.comparison import BASELINES, LEARNERS, METHODS, Process
from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.experiments.methods import Method
from sbil.version import __version__

ACTIONS = {"MIMIC-III-2a": 2, "MIMIC-III-4a": 4}
PHYSIONET, SEPSIS = "PhysioNet-2012", "ICU-Sepsis"
PREVIOUS = "PhysioNet-2012-with-previous"  # the state tells the action of the window before
NAMES = (*ACTIONS, PHYSIONET, PREVIOUS, SEPSIS)
TITLES = {PREVIOUS: "PhysioNet-2012, previous action shown"}
SEPSIS_TRAJECTORIES, SEPSIS_EPISODES = 1000, 1000
ON_STATES = ("edm_exact", "edm_metropolis")  # algorithms for finitely many states
A_SET = 4000  # records in each of PhysioNet's archives
# What is read (a table, or the records), the share of it that is read, and how many rows or records when all are.
Progress = Callable[[str, float, int | None], None]
# What a table is called, and so are its files, where the source is not the whole of MIMIC-III v1.4.
MARKS = {
    "v1.4": "",
    "demo of v1.4": ", a demo of 100 patients, not a result",
    "incomplete or changed": ", tables incomplete or changed, not a result",
}


@dataclass(frozen=True)
class Dataset:
    """Demonstrations with all that their comparison needs."""

    title: str  # of the table and its files
    demonstrations: Demonstrations
    standardise: bool = True
    process: Process | None = None
    notes: tuple[str, ...] = ()
    account: str = ""  # who was left out, where that was found out now


def references_of(name: str) -> tuple[str, ...]:
    """The policies that a dataset's process brings."""
    return (icu_sepsis.CLINICIANS, icu_sepsis.UNIFORM) if name == SEPSIS else ()


def methods_of(name: str) -> tuple[str, ...]:
    """What a dataset's table compares."""
    return (*references_of(name), *BASELINES, "bc", *ON_STATES, *LEARNERS[1:]) if name == SEPSIS else METHODS


def must_fit(name: str, methods: Sequence[str]) -> None:
    """Refuse methods for finitely many states where states are numbers, before hours are spent on reading them."""
    for method in methods:
        if name != SEPSIS and Method.parse(method).algorithm in ON_STATES:
            raise UserError(f"{method} needs states of which there are finitely many, as ICU-Sepsis has; leave it out.")


def opened(
    name: str,
    folder: Path,
    source: Sequence[Path] = (),
    *,
    accept_incomplete: bool = False,
    trajectories: int = SEPSIS_TRAJECTORIES,
    episodes: int = SEPSIS_EPISODES,
    progress: Progress | None = None,
) -> Dataset:
    """The dataset called `name`.

    folder: where what was extracted is kept; it holds rows of patients.
    source: the files as they come from PhysioNet; not needed once they were extracted.
    accept_incomplete: take tables of MIMIC-III that have not the official numbers of rows; the title says so.
    trajectories, episodes: of ICU-Sepsis, how many are recorded, and how many a policy is played for.
    progress: told of what is read, where it is; MIMIC-III takes minutes to hours.
    """
    if name == SEPSIS:
        return _sepsis(trajectories, episodes)
    table = folder / f"{name}.parquet"
    source = [Path(path) for path in source]
    _check(name, source)
    if source:
        files.write_text(folder / ".gitignore", "*\n")  # nobody commits it by accident
    account = ""
    if table.exists():
        _must_be_of_these_rules(name, table)
        _must_be_the_same(table, source)
    else:
        account = _extract(name, table, source, accept_incomplete, progress or _silently)
    found = demonstrations.read(table, schema=table.with_suffix(".schema.json"))
    edition = _flow(table).get("edition", "v1.4")
    title = TITLES.get(name, name) + MARKS.get(edition, f", {edition}")
    return Dataset(title, found, notes=(f"{found.steps:,} decisions.",), account=account)


def _sepsis(trajectories: int, episodes: int) -> Dataset:
    process = icu_sepsis.process(episodes)
    found = icu_sepsis.record(trajectories)
    drawn = f"{trajectories:,} episodes ({found.steps:,} decisions) drawn from the clinicians' policy."
    return Dataset(SEPSIS, found, standardise=False, process=process, notes=(drawn,))


def _silently(what: str, share: float, rows: int | None) -> None:
    """Progress that nobody wants to see."""


def _check(name: str, source: Sequence[Path]) -> None:
    """Refuse what is not there, whether it is to be read now or was read long ago."""
    from sbil.clinical.records import must_exist

    if name in ACTIONS and len(source) > 1:
        raise UserError(f"--source: MIMIC-III is one folder. Got {len(source)} names.")
    for path in source:
        if name not in ACTIONS:
            must_exist(path)
        elif not path.is_dir():
            raise UserError(f"{path} is not a folder; --source is the folder with the files of MIMIC-III.")


def _extract(name: str, table: Path, source: Sequence[Path], accept_incomplete: bool, progress: Progress) -> str:
    from sbil.clinical import mimic3, physionet2012

    if not source:
        raise UserError(f"--env {name} needs the data: give --source, the files as they come from PhysioNet.")
    if name not in ACTIONS:
        all_of_them = A_SET * len(source)  # as a rule

        def count(stays: int) -> None:
            progress("records", min(stays / all_of_them, 1.0), None)

        cohort = physionet2012.extract(source, table, with_previous=name == PREVIOUS, overwrite=True, progress=count)
        progress("records", 1.0, cohort.flow["stays"]["read"])
        return str(cohort)
    # What another number of actions needs of the tables is the same: it is read once.
    options: dict[str, Any] = {"accept_incomplete": accept_incomplete, "overwrite": True, "progress": progress}
    return str(mimic3.extract(source[0], ACTIONS[name], table, work=table.parent / "MIMIC-III.work", **options))


def _must_be_of_these_rules(name: str, table: Path) -> None:
    """Refuse a table that another sbil made, or this one with other rules."""
    from sbil.clinical import physionet2012
    from sbil.clinical.mimic3 import source as mimic3

    flow, rules = _flow(table), (mimic3 if name in ACTIONS else physionet2012).rules_digest()
    if (flow.get("sbil"), flow.get("rules")) != (__version__, rules):
        raise UserError(
            f"{table} was made by another version of sbil or by other rules; delete it and give --source again, "
            "or name another --out."
        )


def _must_be_the_same(table: Path, source: Sequence[Path]) -> None:
    """Refuse a source with other files than those the table was made from."""
    flow = _flow(table)
    if "files" in flow:
        same = all(
            (folder / file["file"]).is_file() and (folder / file["file"]).stat().st_size == file["bytes"]
            for folder in source
            for file in flow["files"]
        )
    else:
        from sbil.clinical.records import digest

        made_from = {one["sha256"] for one in flow.get("sources", ())}
        same = not source or made_from == {digest(path) for path in source}
    if not same:
        raise UserError(
            f"{table} was made from other files than --source holds; choose another --out, or delete {table.parent}."
        )


def _flow(table: Path) -> dict[str, Any]:
    path = table.with_suffix(".flow.json")
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError
    except (OSError, ValueError):
        raise UserError(f"{path} is missing or damaged; delete {table} and run the command again.") from None
    return content
