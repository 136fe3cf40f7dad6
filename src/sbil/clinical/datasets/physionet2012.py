"""The PhysioNet Challenge 2012, with and without the action before as a part of the state."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sbil.clinical import physionet2012
from sbil.clinical.datasets import Asked, Known
from sbil.clinical.datasets.extracted import Extracted, Flow
from sbil.clinical.records import digest, must_exist

TITLES = {
    "PhysioNet-2012": "PhysioNet-2012",
    "PhysioNet-2012-with-previous": "PhysioNet-2012, previous action shown",
}
A_SET = 4000  # records in each of PhysioNet's archives


def _check(source: Sequence[Path]) -> None:
    for path in source:
        must_exist(path)


def _extract(with_previous: bool, table: Path, asked: Asked) -> str:
    all_of_them = A_SET * len(asked.source)  # as a rule

    def count(stays: int) -> None:
        asked.progress("records", min(stays / all_of_them, 1.0), None)

    options = {"with_previous": with_previous, "overwrite": True}
    cohort = physionet2012.extract(asked.source, table, **options, progress=count)
    asked.progress("records", 1.0, cohort.flow["stays"]["read"])
    return str(cohort)


def _same(flow: Flow, source: Sequence[Path]) -> bool:
    """Records are the same by content, in any order."""
    return {one["sha256"] for one in flow.get("sources", ())} == {digest(path) for path in source}


DATASETS = tuple(
    Known(
        name,
        Extracted(name, title, _check, partial(_extract, name != title), physionet2012.rules_digest, _same),
        source="PhysioNet 2012",
    )
    for name, title in TITLES.items()
)
