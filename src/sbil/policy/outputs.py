"""Rules for output files: existing files need `overwrite`, and files that are read are never replaced."""

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sbil.demonstrations.formats import file_and_table
from sbil.errors import UserError
from sbil.files import exists_already
from sbil.policy.folder import is_part


def must_be_free(out: Path, overwrite: bool, inputs: Iterable[Any] = ()) -> None:
    """Refuse a file that exists, unless `overwrite`; refuse one of `inputs`, or a part of a policy, in any case."""
    if out.is_dir():
        raise UserError(f"{out} is a folder; name a file to write.")
    if out.exists() and any(file.samefile(out) for file in files_of(inputs)):
        raise UserError(f"{out} is also an input file and is not replaced; choose another file.")
    if is_part(out):
        raise UserError(f"{out} is part of the policy in {out.parent} and is not replaced; choose another file.")
    if out.exists() and not overwrite:
        raise exists_already(out)


def folder_must_be_free(out: Path, overwrite: bool, inputs: Iterable[Any] = ()) -> None:
    """Refuse a folder that holds something, unless `overwrite`; refuse one that holds one of `inputs` in any case."""
    if not out.name:
        raise UserError(f"{out}: name a folder to write the policy to.")
    if not out.exists():
        return
    if not overwrite and not (out.is_dir() and not any(out.iterdir())):
        raise exists_already(out)
    if any(file.resolve().parent == out.resolve() for file in files_of(inputs)):
        raise UserError(f"{out} holds an input file and is not replaced; choose another folder.")


def files_of(inputs: Iterable[Any]) -> Iterator[Path]:
    """Yield the existing files that paths, folders and globs name; skip inputs that are not paths."""
    for given in inputs:
        if not isinstance(given, str | Path) or not str(given):
            continue
        path = file_and_table(given)[0]
        if path.is_dir():
            yield from (file for file in path.iterdir() if file.exists())
        elif path.exists():
            yield path
        else:
            yield from (Path(name) for name in glob.glob(str(path)) if Path(name).exists())
