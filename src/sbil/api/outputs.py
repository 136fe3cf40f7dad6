"""Where results may be written: not over what is there unless told, and never over a file that is read."""

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
    must_not_be_read(option, out, inputs)
    if is_part(out):
        raise UserError(f"{option} {out} is a part of the policy in {out.parent}, and is not replaced; choose another.")
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists already; choose another {option}, or replace it with --overwrite.")


def must_not_be_read(option: str, out: Path, inputs: Iterable[Any]) -> None:
    """Refuse one of the files that are read, by whatever name: it would be lost."""
    if out.exists() and any(file.samefile(out) for file in files_of(inputs)):
        raise UserError(f"{option} {out} is a file that is read here, and is not replaced; choose another {option}.")


def folder_must_be_free(option: str, out: Path, overwrite: bool, inputs: Iterable[Any] = ()) -> None:
    """Refuse a folder that holds something, unless `overwrite`; refuse one that holds one of `inputs` in any case."""
    if not out.name:
        raise UserError(f"{option} {out}: name a folder to write the policy to.")
    if not out.exists():
        return
    if not overwrite and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out} exists already; choose another {option}, or replace it with --overwrite.")
    if any(file.resolve().parent == out.resolve() for file in files_of(inputs)):
        raise UserError(
            f"{option} {out} is a folder that is read from here, and is not replaced; choose another {option}."
        )


def files_of(inputs: Iterable[Any]) -> Iterator[Path]:
    """The files that paths, folders and globs name, as far as they exist; what is not a path names none."""
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
