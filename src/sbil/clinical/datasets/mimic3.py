"""MIMIC-III, with two actions or four. What the other number of actions needs of the tables is the same."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sbil.clinical.datasets import Asked, Known
from sbil.clinical.datasets.extracted import Extracted, Flow
from sbil.clinical.mimic3.source import rules_digest
from sbil.errors import UserError

ACTIONS = {"MIMIC-III-2a": 2, "MIMIC-III-4a": 4}


def _check(source: Sequence[Path]) -> None:
    if len(source) > 1:
        raise UserError(f"source: MIMIC-III is one folder. Got {len(source)} names.")
    for path in source:
        if not path.is_dir():
            raise UserError(f"{path} is not a folder; name the folder with the files of MIMIC-III.")


def _extract(actions: int, table: Path, asked: Asked) -> str:
    from sbil.clinical.mimic3.extraction import extract

    cohort = extract(
        *(asked.source[0], actions, table),
        work=table.parent / "MIMIC-III.work",
        accept_incomplete=asked.accept_incomplete,
        overwrite=True,
        progress=asked.progress,
    )
    return str(cohort)


def _same(flow: Flow, source: Sequence[Path]) -> bool:
    """Files are the same by name and size."""
    return all(
        (folder / file["file"]).is_file() and (folder / file["file"]).stat().st_size == file["bytes"]
        for folder in source
        for file in flow["files"]
    )


DATASETS = tuple(
    Known(name, Extracted(name, name, _check, partial(_extract, actions), rules_digest, _same), source="MIMIC-III")
    for name, actions in ACTIONS.items()
)
