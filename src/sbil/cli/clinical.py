"""sbil clinical: the tables of intensive care units -> demonstrations, and who was left out."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from sbil.cli.options import Written, with_options

EXAMPLES = (
    "sbil clinical mimic3 --source mimic-iii-1.4/ --actions 4 --out demos.parquet",
    "sbil clinical mimic3 --source mimic-iii-1.4/ --actions 2 --work kept/ --out ventilation.parquet",
    "sbil clinical physionet2012 --source set-a.tar.gz set-b.tar.gz --out demos.parquet",
)


@dataclass(frozen=True, kw_only=True)
class Extraction(Written):
    """What both kinds of data have."""

    out: Path
    """The table to write (Parquet); its schema and the flow chart are written beside it."""


@dataclass(frozen=True, kw_only=True)
class Mimic3(Extraction):
    """MIMIC-III v1.4 as its official CSV or CSV.GZ files: one decision per day of an ICU stay (docs/clinical.md)."""

    source: Path
    """The folder with the files."""
    actions: Literal[2, 4] = 4
    """4: none, antibiotics, ventilation or both. 2: ventilation or not."""
    state: Literal["today", "before"] = "today"
    """The days of the state: today and yesterday, as in the paper, or the two days before the decision."""
    work: Path | None = None
    """Folder that keeps what was read of each table for other runs (default: beside --out, until --out is written)."""
    memory: str = "2GB"
    """Limit on the memory of the database."""
    threads: int | None = None
    """Processor cores to use (default: all)."""
    accept_incomplete: bool = False
    """Continue if a table does not have the official number of rows."""


@dataclass(frozen=True, kw_only=True)
class PhysioNet2012(Extraction):
    """The PhysioNet/CinC Challenge 2012: one decision on ventilation per window of hours (docs/clinical.md)."""

    source: tuple[Path, ...]
    """Archives of records (set-a.tar.gz), or folders of them."""
    window_hours: int = 4
    """Hours of a window; the number must divide 48."""
    with_previous: bool = False
    """Show the action of the window before as part of the state."""


Command = (
    Annotated[Mimic3, tyro.conf.subcommand("mimic3")] | Annotated[PhysioNet2012, tyro.conf.subcommand("physionet2012")]
)


def run(command: Mimic3 | PhysioNet2012) -> None:
    """Extract, write, and print who and what was left out."""
    from sbil.cli.progress import bar
    from sbil.clinical import physionet2012
    from sbil.clinical.mimic3 import extraction

    cohort: Any
    if isinstance(command, Mimic3):
        with reading() as progress:
            cohort = with_options(extraction.extract, command, progress=progress)
    else:
        with bar(1, "reading") as advance:
            told = {"progress": lambda stays: advance(0, f"{stays:,} stays")}
            cohort = with_options(physionet2012.extract, command, aside=("source",), sources=command.source, **told)
    if command.json:
        print(json.dumps(cohort.flow))
        return
    print(cohort)
    schema = cohort.path.with_suffix(".schema.json")
    print(f"\nwrote {cohort.path} and, beside it, its schema and the flow chart")
    print(f"next: sbil train edm --data {cohort.path} --schema {schema} --out policy/")


@contextmanager
def reading() -> Iterator[Callable[[str, float, int | None], None]]:
    """Yield a function that shows what is read: a bar on a terminal, elsewhere one line per table."""
    from sbil.cli.progress import bar, console

    started: dict[str, float] = {}
    with bar(1, "reading") as advance:

        def progress(what: str, share: float, rows: int | None) -> None:
            begun = started.setdefault(what, time.monotonic())
            unit = "stays" if what == "records" else "rows"
            advance(share, what.upper() + (f", {rows:,} {unit}" if rows is not None else ""))
            if rows is not None and not console.is_terminal:
                print(f"{what.upper()}: {rows:,} {unit}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)

        yield progress
