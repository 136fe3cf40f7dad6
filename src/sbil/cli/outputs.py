"""What a command may write to: nothing that is there unless told, and never what it reads."""

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path

from sbil.errors import UserError


def must_be_free(option: str, out: Path, overwrite: bool, inputs: Iterable[str | Path | None] = ()) -> None:
    """Refuse a file that exists, unless `overwrite`; and one of `inputs`, or a part of a policy, in any case."""
    if out.is_dir():
        raise UserError(f"{option} {out} is a folder; name a file to write.")
    must_not_be_read(option, out, inputs)
    must_be_no_policy(option, out)
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists already; choose another {option}, or replace it with --overwrite.")


def must_not_be_read(option: str, out: Path, inputs: Iterable[str | Path | None]) -> None:
    """Refuse one of the files that are read, by whatever name: it would be lost."""
    if out.exists() and any(file.samefile(out) for given in inputs if given for file in files_of(given)):
        raise UserError(f"{option} {out} is a file that is read here, and is not replaced; choose another {option}.")


def must_be_no_policy(option: str, out: Path) -> None:
    """Refuse a file that a policy folder is made of."""
    from sbil.policy.folder import is_part

    if is_part(out):
        raise UserError(f"{option} {out} is a part of the policy in {out.parent}, and is not replaced; choose another.")


def files_of(given: str | Path) -> Iterator[Path]:
    """The files that a path, a folder or a glob names, those that are there."""
    path = Path(given)
    if path.is_dir():
        yield from (file for file in path.iterdir() if file.exists())
    elif path.exists():
        yield path
    else:
        yield from (Path(name) for name in glob.glob(str(given)) if Path(name).exists())
