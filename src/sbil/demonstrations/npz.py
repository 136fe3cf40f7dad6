"""Demonstrations in one NPZ file of plain arrays; loading it never runs code.

Members (all arrays little-endian, none of objects):
    header        uint8   JSON: format, names, provenance
    observations  [V, ..] every recorded observation of every trajectory, one after the other
    actions       [N]     every action likewise
    lengths       [T]     number of actions of each trajectory
    last          [T]     1 where the observation after the last action was recorded
    terminal, truncated [T]
"""

import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from sbil import files
from sbil.demonstrations.trajectory import Demonstrations, Trajectory
from sbil.errors import UserError

FORMAT = "sbil-demonstrations"
VERSION = 1
STACKED = 2  # the version of files of frames, which say how many of them make an observation
MEMBERS = ("header", "observations", "actions", "lengths", "last", "terminal", "truncated")
LARGEST_HEADER = 1 << 20
LARGEST_RATIO = 100  # a file that unpacks to more than this many times its size is a bomb, not data


def save(demonstrations: Demonstrations, path: Path) -> None:
    """Write demonstrations to `path`; the same demonstrations give the same bytes."""
    trajectories = demonstrations.trajectories
    header = {
        "format": FORMAT,
        "version": STACKED if demonstrations.stack else VERSION,
        **({"stack": demonstrations.stack} if demonstrations.stack else {}),
        "action_names": list(demonstrations.action_names),
        "observation_names": list(demonstrations.observation_names),
        "provenance": dict(demonstrations.provenance),
    }
    try:
        text = json.dumps(header, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{path}: the provenance of these demonstrations cannot be written as JSON ({error})."
        ) from None
    arrays = {
        "header": np.frombuffer(text.encode(), np.uint8),
        "observations": np.concatenate([t.observations for t in trajectories]),
        "actions": np.concatenate([t.actions for t in trajectories]).astype(np.int32),
        "lengths": demonstrations.lengths.astype(np.int64),
        "last": np.array([t.has_last_observation for t in trajectories], np.uint8),
        "terminal": np.array([t.terminal for t in trajectories], np.uint8),
        "truncated": np.array([t.truncated for t in trajectories], np.uint8),
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
            # A fixed date keeps the bytes of equal demonstrations equal.
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, member.getvalue(), _packing(member.getvalue()))
    files.write_bytes(path, content.getvalue())


def _packing(content: bytes) -> int:
    """Deflate; but what is large and would shrink so much that `load` takes it for a bomb is stored as it is."""
    suspicious = len(content) > 1 << 23 and len(content) > LARGEST_RATIO / 2 * len(zlib.compress(content, 1))
    return zipfile.ZIP_STORED if suspicious else zipfile.ZIP_DEFLATED


def load(path: Path) -> Demonstrations:
    """Read demonstrations from `path`, checked; a damaged or foreign file is a UserError that names it."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: there is no such file.")
    if path.is_dir():
        raise UserError(f"{path} is a folder; name the NPZ file of the demonstrations.")
    try:
        arrays = _read(path)
        return _assemble(arrays)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except PermissionError:
        raise UserError(f"{path}: not allowed to read this file.") from None
    except Exception as error:  # every decoder of a zip member raises its own kind for damaged bytes
        kind = type(error).__name__
        raise UserError(f"{path}: not a readable file of demonstrations; damaged or incomplete ({kind}).") from None


def _read(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
        missing = [name for name in MEMBERS if name not in sizes]
        if missing:
            raise UserError(f"not a file of demonstrations: the array '{missing[0]}' is missing.")
        if sum(sizes.values()) > LARGEST_RATIO * path.stat().st_size + (1 << 26):
            raise UserError("unpacks to far more than its size; refused as a likely bomb.")
        if sizes["header"] > LARGEST_HEADER:
            raise UserError("its header is larger than 1 MiB; refused.")
        return {name: _member(archive, name, sizes[name]) for name in MEMBERS}


def _member(archive: zipfile.ZipFile, name: str, size: int) -> np.ndarray:
    with archive.open(f"{name}.npy") as file:
        content = io.BytesIO(file.read(size + 1))
    major, _ = np.lib.format.read_magic(content)
    read_header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(content)
    if dtype.kind not in "fiub":
        raise UserError(f"the array '{name}' holds {dtype}, not plain numbers; refused.")
    if any(length < 0 for length in shape) or _count(shape) * dtype.itemsize != size - content.tell():
        raise UserError(f"the array '{name}' declares a shape that its bytes do not fill.")
    content.seek(0)
    array: np.ndarray = np.lib.format.read_array(content, allow_pickle=False)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for length in shape:
        total *= int(length)
    return total


def _assemble(arrays: dict[str, np.ndarray]) -> Demonstrations:
    header = _header(arrays["header"])
    lengths, last = arrays["lengths"], arrays["last"]
    for name in ("lengths", "last", "terminal", "truncated"):
        if arrays[name].shape != lengths.shape or lengths.ndim != 1:
            raise UserError(f"the array '{name}' has shape {arrays[name].shape}; one entry a trajectory is needed.")
        if arrays[name].dtype.kind not in "iub" or (arrays[name] < 0).any():
            raise UserError(f"the array '{name}' must hold whole numbers from 0.")
    observations, actions = arrays["observations"], arrays["actions"]
    if actions.ndim != 1 or observations.ndim < 2:
        raise UserError("actions must be a list and observations a table; their shapes disagree with that.")
    if len(actions) != lengths.sum() or len(observations) != (lengths + (last > 0)).sum():
        raise UserError(
            f"lengths announce {int(lengths.sum())} actions and {int((lengths + (last > 0)).sum())} observations, "
            f"the file holds {len(actions)} and {len(observations)}."
        )
    action_ends = np.cumsum(lengths)[:-1]
    observation_ends = np.cumsum(lengths + (last > 0))[:-1]
    parts = zip(
        np.split(observations, observation_ends),
        np.split(actions, action_ends),
        arrays["terminal"] > 0,
        arrays["truncated"] > 0,
        strict=True,
    )
    return Demonstrations(
        trajectories=tuple(Trajectory(o, a, bool(t), bool(u)) for o, a, t, u in parts),
        action_names=_names(header, "action_names"),
        observation_names=_names(header, "observation_names"),
        provenance=header["provenance"],
        stack=header["stack"] if header["version"] == STACKED else 0,
    )


def _header(content: np.ndarray) -> dict[str, Any]:
    try:
        header = json.loads(content.astype(np.uint8).tobytes(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise UserError("its header is not readable JSON; the file is damaged.") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise UserError("not a file of demonstrations of sbil.")
    if header.get("version") not in (VERSION, STACKED):
        raise UserError(
            f"written in format {header.get('version')!r}, this sbil reads {VERSION} and {STACKED}; upgrade sbil."
        )
    if header["version"] == STACKED and not (type(header.get("stack")) is int and 0 < header["stack"] <= 64):
        raise UserError("its header does not say how many frames make an observation; the file is damaged.")
    if not isinstance(header.get("provenance"), dict):
        raise UserError("its header has no provenance; the file is damaged.")
    return header


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _names(header: dict[str, Any], key: str) -> tuple[str, ...]:
    names = header.get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"its header has no list of {key}; the file is damaged.")
    return tuple(names)
