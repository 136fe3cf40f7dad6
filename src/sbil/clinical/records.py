"""Find the records of the PhysioNet Challenge 2012 in folders and in archives, which are not unpacked to the disk."""

import gzip
import hashlib
import json
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from sbil.errors import UserError, naming

LARGEST_RECORD = 1 << 22  # bytes; real records have about ten thousand
LARGEST_ARCHIVE = 1 << 30  # bytes unpacked; real archives have about fifty million


def must_exist(source: Path) -> None:
    """Refuse a name that is neither a file nor a folder."""
    if not source.is_file() and not source.is_dir():
        raise UserError(f"{source}: there is no such file or folder; give set-a.tar.gz or a folder of its records.")


def digest(source: Path) -> str:
    """The SHA-256 of an archive, or of the names and contents of the records in a folder."""
    must_exist(source)
    paths = _among(source) if source.is_dir() else [source]
    found = []
    for path in paths:
        with naming(path), path.open("rb") as file:
            found.append((path.name, hashlib.file_digest(file, "sha256").hexdigest()))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest() if source.is_dir() else found[0][1]


def records(sources: Sequence[Path], counts: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """(number, content) of every record."""
    for source in map(Path, sources):
        yield from _in_folder(source, counts) if source.is_dir() else _in_archive(source, counts)


def _number(name: str) -> int | None:
    found = re.fullmatch(r"(\d{1,9})\.txt", name)
    return int(found[1]) if found else None


def _among(folder: Path) -> list[Path]:
    """The records in a folder."""
    with naming(folder):
        plain = [path for path in sorted(folder.iterdir()) if not path.is_symlink() and path.is_file()]
        return [path for path in plain if _number(path.name) is not None and path.stat().st_size <= LARGEST_RECORD]


def _in_folder(folder: Path, counts: Counter[str]) -> Iterator[tuple[int, bytes]]:
    paths = _among(folder)
    counts["files that are no records"] += sum(1 for _ in folder.iterdir()) - len(paths)
    for path in paths:
        with naming(path):
            content = path.read_bytes()
        yield int(path.stem), content


class _Limited(gzip.GzipFile):
    """A gzip file that raises an error when it unpacks to more than an archive of records can have."""

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        if self.tell() > LARGEST_ARCHIVE:
            raise UserError("unpacks to more than 1 GiB; this is no archive of records.")
        return content


def _in_archive(path: Path, counts: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """Read one member after the other; skip links, devices and other names than those of records."""
    with naming(path):
        try:
            with _Limited(path, "rb") as file, tarfile.open(fileobj=file, mode="r|") as archive:
                for member in archive:
                    number = _number(Path(member.name).name)
                    plain = member.isreg() and not member.issparse() and member.size <= LARGEST_RECORD
                    content = archive.extractfile(member) if number is not None and plain else None
                    if number is None or content is None:
                        counts["files that are no records"] += not member.isdir()
                        continue
                    yield number, content.read()
                while file.read(1 << 20):  # the checksum of gzip is at the end
                    pass
        except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError):
            raise UserError("not a complete tar.gz archive; copy it again.") from None
