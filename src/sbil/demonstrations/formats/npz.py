"""Demonstrations in one NPZ file of plain arrays. Loading a file never runs code.

Members (all arrays little-endian, none of objects):
    header        uint8   JSON: format, names, provenance, and the schema if they were read from a table
    observations  [V, ..] every recorded observation of every trajectory, one after the other
    actions       [N]     every action, in the same order
    lengths       [T]     number of actions of each trajectory
    last          [T]     1 where the observation after the last action was recorded
    terminal, truncated [T]
    groups        [T]     the group of each trajectory, if there are groups
"""

import io
import json
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sbil import files
from sbil.demonstrations.formats import Format
from sbil.demonstrations.schema import Schema
from sbil.demonstrations.trajectory import Demonstrations, Trajectory
from sbil.errors import UserError

MARK = "sbil-demonstrations"
VERSION = 1
STACKED = 2  # the version of files with frames, which say how many frames make an observation
MEMBERS = ("header", "observations", "actions", "lengths", "last", "terminal", "truncated")
PLAIN = ("observations", "actions", "episodes", "terminals")  # of files that people write themselves
LARGEST_HEADER = 1 << 20
MOST_ACTIONS = 1_000
LARGEST_RATIO = 100  # a file that unpacks to more than this many times its size is a bomb, not data


def save(demonstrations: Demonstrations, path: Path) -> None:
    """Write demonstrations to `path`; the same demonstrations give the same bytes."""
    trajectories = demonstrations.trajectories
    header = {
        "format": MARK,
        "version": STACKED if demonstrations.stack else VERSION,
        **({"stack": demonstrations.stack} if demonstrations.stack else {}),
        "action_names": list(demonstrations.action_names),
        "observation_names": list(demonstrations.observation_names),
        "provenance": dict(demonstrations.provenance),
        **({"schema": demonstrations.schema.as_json()} if demonstrations.schema else {}),
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
    if demonstrations.groups is not None:
        arrays["groups"] = demonstrations.groups.astype(np.int64)
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
    """Deflate; but a large array that would shrink so much that `load` took it for a bomb is stored as it is."""
    suspicious = len(content) > 1 << 23 and len(content) > LARGEST_RATIO / 2 * len(zlib.compress(content, 1))
    return zipfile.ZIP_STORED if suspicious else zipfile.ZIP_DEFLATED


def load(path: Path) -> Demonstrations:
    """Read a file that `save` wrote, or plain arrays that people have (see `_plain`); UserErrors name the file."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: there is no such file.")
    if path.is_dir():
        raise UserError(f"{path} is a folder; name the NPZ file of the demonstrations.")
    try:
        sizes = _sizes(path)
        plain = "actions" in sizes and not sizes.keys() & {"header", "lengths"}
        return _plain(path) if plain else _ours(path)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except PermissionError:
        raise UserError(f"{path}: not allowed to read this file.") from None
    except Exception as error:  # each decoder of zip members raises its own kind of error for damaged bytes
        kind = type(error).__name__
        raise UserError(f"{path}: not a readable file of demonstrations; damaged or incomplete ({kind}).") from None


def _ours(path: Path) -> Demonstrations:
    names = [*MEMBERS, *(["groups"] if "groups" in _sizes(path) else [])]
    return _assemble(_members(path, names, MEMBERS))


def _plain(path: Path) -> Demonstrations:
    """Arrays `observations` [N, ...] and `actions` [N]; `episodes` [N] says which rows belong together.

    `terminals` [N] is 1 where a process ended; without `episodes`, a new episode begins after it. Without both, every
    row is an episode.
    """
    arrays = _members(path, [name for name in PLAIN if name in _sizes(path)], PLAIN[:2])
    _check_plain(arrays)
    seen, taken = arrays["observations"], arrays["actions"]
    levels, actions = _few(taken)
    if seen.dtype != np.uint8:
        with np.errstate(over="ignore"):
            seen = seen.astype(np.float32)
    ends = arrays.get("terminals", np.zeros(len(taken))) != 0
    if "episodes" in arrays:
        order = np.argsort(arrays["episodes"], kind="stable")
        new = arrays["episodes"][order][1:] != arrays["episodes"][order][:-1]
    else:
        order = np.arange(len(taken))
        new = ends[:-1] if "terminals" in arrays else np.ones(len(taken) - 1, bool)
    starts = np.append(0, np.flatnonzero(new) + 1)
    stops = np.append(starts[1:], len(taken))
    seen, actions, ends = seen[order], actions[order].astype(np.int32), ends[order]
    if ends.sum() > ends[stops - 1].sum():
        raise UserError("the array 'terminals' ends an episode before its last row.")
    return Demonstrations(
        tuple(Trajectory(seen[a:b], actions[a:b], bool(ends[b - 1])) for a, b in zip(starts, stops, strict=True)),
        levels,
        provenance={"source": [path.name]},
    )


def _check_plain(arrays: dict[str, np.ndarray]) -> None:
    taken = arrays["actions"]
    if taken.ndim != 1:
        raise UserError(f"the array 'actions' has shape {taken.shape}; it must be a list of one number per decision.")
    for name, array in arrays.items():
        if array.shape[:1] != taken.shape or (name != "observations" and array.ndim != 1):
            raise UserError(f"the array '{name}' has shape {array.shape}; it must have one entry per action.")
    if not len(taken):
        raise UserError("there are no actions in it.")
    if not np.isfinite(arrays.get("episodes", taken)).all() or not np.isfinite(taken).all():
        raise UserError("the arrays 'actions' and 'episodes' must hold finite numbers.")


def _few(taken: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """(the names of the actions, the number of each action that was taken)."""
    levels, actions = np.unique(taken, return_inverse=True)
    if not np.array_equal(levels, np.floor(levels)):
        raise UserError("the array 'actions' holds fractions; actions are a few numbered choices.")
    if len(levels) > MOST_ACTIONS:
        raise UserError(
            f"the array 'actions' has more than {MOST_ACTIONS:,} different values; an action is one of a few."
        )
    return tuple(str(int(level)) for level in levels), actions


def _sizes(path: Path) -> dict[str, int]:
    with zipfile.ZipFile(path) as archive:
        return {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}


def _members(path: Path, names: Sequence[str], needed: Sequence[str]) -> dict[str, np.ndarray]:
    sizes = _sizes(path)
    missing = [name for name in needed if name not in sizes]
    if missing:
        raise UserError(f"not a file of demonstrations: the array '{missing[0]}' is missing.")
    if sum(sizes.values()) > LARGEST_RATIO * path.stat().st_size + (1 << 26):
        raise UserError("unpacks to far more than its size; refused as a likely bomb.")
    if sizes.get("header", 0) > LARGEST_HEADER:
        raise UserError("its header is larger than 1 MiB; refused.")
    with zipfile.ZipFile(path) as archive:
        return {name: _member(archive, name, sizes[name]) for name in names}


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
    for name in ("lengths", "last", "terminal", "truncated", *(["groups"] if "groups" in arrays else [])):
        if arrays[name].shape != lengths.shape or lengths.ndim != 1:
            raise UserError(
                f"the array '{name}' has shape {arrays[name].shape}; it must have one entry per trajectory."
            )
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
        schema=Schema.from_json(header["schema"]) if "schema" in header else None,
        groups=arrays.get("groups"),
    )


def _header(content: np.ndarray) -> dict[str, Any]:
    try:
        header = json.loads(content.astype(np.uint8).tobytes(), parse_constant=_no_constant)
        json.dumps(header, ensure_ascii=False).encode()  # half a character is JSON and no text
    except (ValueError, RecursionError):
        raise UserError("its header is not readable JSON; the file is damaged.") from None
    if not isinstance(header, dict) or header.get("format") != MARK:
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


FORMAT = Format("NPZ", (".npz",), demonstrations=load)
