"""Rules for output files: existing files need `overwrite`, and files that are read are never replaced."""

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sbil.errors import UserError
from sbil.policy.folder import is_part


def must_be_free(option: str, out: Path, overwrite: bool, inputs: Iterable[Any] = ()) -> None:
    """Refuse a file that exists, unless `overwrite`; refuse one of `inputs`, or a part of a policy, in any case."""
    if out.is_dir():
        raise UserError(f"{option} {out} is a folder; name a file to write.")
    if out.exists() and any(file.samefile(out) for file in files_of(inputs)):
        raise UserError(f"{option} {out} is also an input file and is not replaced; choose another {option}.")
    if is_part(out):
        raise UserError(f"{option} {out} is part of the policy in {out.parent} and is not replaced; choose another.")
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists already; choose another {option}, or replace it with --overwrite.")


def folder_must_be_free(option: str, out: Path, overwrite: bool, inputs: Iterable[Any] = ()) -> None:
    """Refuse a folder that holds something, unless `overwrite`; refuse one that holds one of `inputs` in any case."""
    if not out.name:
        raise UserError(f"{option} {out}: name a folder to write the policy to.")
    if not out.exists():
        return
    if not overwrite and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out} exists already; choose another {option}, or replace it with --overwrite.")
    if any(file.resolve().parent == out.resolve() for file in files_of(inputs)):
        raise UserError(f"{option} {out} holds an input file and is not replaced; choose another {option}.")


def files_of(inputs: Iterable[Any]) -> Iterator[Path]:
    """Yield the existing files that paths, folders and globs name; skip inputs that are not paths."""
    for given in inputs:
        if not isinstance(given, str | Path) or not str(given):
            continue
        path = Path(given)
        if path.is_dir():
            yield from (file for file in path.iterdir() if file.exists())
        elif path.exists():
            yield path
        else:
            yield from (Path(name) for name in glob.glob(str(given)) if Path(name).exists())
