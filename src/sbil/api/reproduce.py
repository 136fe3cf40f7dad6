"""Run experiments and write their tables and figures: what `sbil reproduce` does."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sbil.api.report import write
from sbil.clinical.datasets import Asked, Known, Progress, silently
from sbil.experiments import Cell, Experiment, Result, TableTask
from sbil.experiments.experiment import cells_of
from sbil.experiments.run import Execute, run_grid
from sbil.experiments.store import Store, files_in, read_all
from sbil.experiments.table import Wanted, cells_of_table
from sbil.reports import clinical
from sbil.training import Report


class Compared(NamedTuple):
    """A clinical dataset, what is asked of it, and the methods of its table."""

    known: Known
    asked: Asked
    methods: Sequence[Wanted]


@dataclass(frozen=True)
class Reproduced:
    """What was asked for, run now or before.

    played: a result per cell of the experiments, with one mean return per run. The files keep every episode.
    tables: a table per clinical dataset.
    """

    played: list[Result]
    tables: list[clinical.ClinicalTable]


class Watcher:
    """Is told how a call goes on, and ignores it. A subclass may show it."""

    @contextmanager
    def reading(self) -> Iterator[Progress]:
        """While a dataset is read: yield a function that is told what is read."""
        yield silently

    def left_out(self, account: str, folder: Path) -> None:
        """Hear who was left out of a dataset, and which folder now holds rows of patients."""

    @contextmanager
    def running(self, cells: Sequence[Cell]) -> Iterator[None]:
        """While cells are run."""
        yield

    def advance(self, group: Sequence[Cell], share: float, report: Report) -> None:
        """Hear how far the cells that train together have come."""

    def finish(self, result: Result, fresh: bool) -> None:
        """Hear of a finished cell, and whether it was run now."""


def reproduce(
    out: str | Path,
    experiments: Sequence[Experiment] = (),
    datasets: Sequence[Compared] = (),
    *,
    execute: Execute | None = None,
    watcher: Watcher | None = None,
    report: bool = True,
) -> Reproduced:
    """Run experiments in environments and tables of clinical data; what is finished is not run again.

        sbil.reproduce("grid/", sbil.experiments.paper.experiments(quick=True))

    out: the folder of results, a Parquet file per cell.
    execute: where cells are run (default: in this process); see `sbil.experiments.on_ray`.
    report: whether to write report.html, and report/ with tables and figures, about everything in the folder.
    """
    out, watcher = Path(out), watcher or Watcher()
    if report and files_in(out):
        read_all([out], episodes=False)  # what the report cannot read is named before the work and not after it
    tasks = [_opened(compared, watcher) for compared in datasets]
    matched = [cell for task, one in zip(tasks, datasets, strict=True) for cell in cells_of_table(task, one.methods)]
    results = _run([*matched, *cells_of(experiments)], Store(out), execute, watcher)
    if report:
        found = read_all([out], episodes=False)
        write(found, out / "report.html", out / "report")
    tables = [table for table in clinical.tables(found if report else results) if table.task in tasks]
    return Reproduced(results[len(matched) :], tables)


def _opened(compared: Compared, watcher: Watcher) -> TableTask:
    """Return the task of a dataset; what was read of it before is not read again."""
    with watcher.reading() as progress:
        task, account = compared.known.open(compared.asked._replace(progress=progress))
    if account:
        watcher.left_out(account, compared.asked.folder)
    return task


def _run(cells: Sequence[Cell], store: Store, execute: Execute | None, watcher: Watcher) -> list[Result]:
    finished: dict[Cell, Result] = {}
    with watcher.running(cells):
        for result, fresh in run_grid(cells, store, watcher.advance, execute=execute):
            finished[result.cell] = result.summary()
            watcher.finish(result, fresh)
    return [finished[cell] for cell in cells]
