"""Demonstrations in one NPZ file of plain arrays. Loading a file never runs code.

Members (all arrays little-endian, none of objects):
    header        uint8   JSON: format, names, provenance, and the schema if they were read from a table
    observations  [V, ..] every recorded observation of every trajectory, one after the other
    actions       [N]     every action, in the same order
    lengths       [T]     number of actions of each trajectory
    last          [T]     1 where the observation after the last action was recorded
    terminal, truncated [T]
    groups        [T]     the group of each trajectory, if there are groups
    weights       [N]     how much each decision counts in training, if that differs
"""

import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from sbil import files
from sbil.demonstrations.description import as_text, describe, described
from sbil.demonstrations.formats import Format
from sbil.demonstrations.trajectory import Demonstrations, Trajectory
from sbil.errors import UserError, naming

MARK = "sbil-demonstrations"
VERSION = 1
STACKED = 2  # the version of files with frames, which say how many frames make an observation
BY_TRAJECTORY = ("lengths", "last", "terminal", "truncated", "groups")
MEMBERS = ("header", "observations", "actions", *BY_TRAJECTORY[:-1])
PLAIN = ("observations", "actions")  # of files that people write themselves
LARGEST_HEADER = 1 << 20
MOST_ACTIONS = 1_000
LARGEST_RATIO = 100  # a file that unpacks to more than this many times its size is a bomb, not data


def must_be_npz(path: str | Path) -> Path:
    """Refuse a file of another name."""
    path = files.as_path("path", path)
    if path.suffix.lower() != ".npz":
        raise UserError(f"{path}: demonstrations are written as NPZ; name the file something.npz.")
    return path


def save(demonstrations: Demonstrations, path: str | Path, overwrite: bool = False) -> None:
    """Write demonstrations to an NPZ file; the same demonstrations give the same bytes.

    overwrite: replace the file if it exists.
    """
    path = must_be_npz(path)
    if path.exists() and not overwrite:
        raise files.exists_already(path)
    trajectories = demonstrations.trajectories
    version = STACKED if demonstrations.stack else VERSION
    text = as_text({"format": MARK, "version": version, **describe(demonstrations)})
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
    if trajectories[0].weights is not None:
        arrays["weights"] = np.concatenate([t.weights for t in trajectories]).astype(np.float32)
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
    with naming(path, "not a readable file of demonstrations"):
        with zipfile.ZipFile(path) as archive:
            arrays = _arrays(archive, path.stat().st_size)
        return _assemble(arrays) if "header" in arrays else _plain(arrays, path.name)


def _arrays(archive: zipfile.ZipFile, packed: int) -> dict[str, np.ndarray]:
    """The arrays of a file of `packed` bytes."""
    sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
    plain = "actions" in sizes and not sizes.keys() & {"header", "lengths"}
    needed, more = (PLAIN, ("episodes", "terminals")) if plain else (MEMBERS, ("groups", "weights"))
    missing = [name for name in needed if name not in sizes]
    if missing:
        raise UserError(f"not a file of demonstrations: the array '{missing[0]}' is missing.")
    if sum(sizes.values()) > LARGEST_RATIO * packed + (1 << 26):
        raise UserError("unpacks to far more than its size; refused as a likely bomb.")
    if sizes.get("header", 0) > LARGEST_HEADER:
        raise UserError("its header is larger than 1 MiB; refused.")
    return {name: _member(archive, name, sizes[name]) for name in (*needed, *more) if name in sizes}


def _member(archive: zipfile.ZipFile, name: str, size: int) -> np.ndarray:
    with archive.open(f"{name}.npy") as file:
        content = io.BytesIO(file.read(size + 1))
    major, _ = np.lib.format.read_magic(content)
    read_header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(content)
    if dtype.kind not in "fiub":
        raise UserError(f"the array '{name}' holds {dtype}, not plain numbers; refused.")
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != size - content.tell():
        raise UserError(f"the array '{name}' declares a shape that its bytes do not fill.")
    content.seek(0)
    array: np.ndarray = np.lib.format.read_array(content, allow_pickle=False)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _plain(arrays: dict[str, np.ndarray], name: str) -> Demonstrations:
    """Arrays `observations` [N, ...] and `actions` [N]; `episodes` [N] says which rows belong together.

    `terminals` [N] is 1 where a process ended; without `episodes`, a new episode begins after it. Without both, every
    row is an episode.
    """
    _check_plain(arrays)
    seen, taken = arrays["observations"], arrays["actions"]
    levels, actions = _few(taken)
    if seen.dtype != np.uint8:
        with np.errstate(over="ignore"):
            seen = seen.astype(np.float32)
    ends = arrays.get("terminals", np.zeros(len(taken))) != 0
    if "episodes" in arrays:
        order = np.argsort(arrays["episodes"], kind="stable")
        new = np.diff(arrays["episodes"][order]) != 0
    else:
        order = np.arange(len(taken))
        new = ends[:-1] if "terminals" in arrays else np.ones(len(taken) - 1, bool)
    starts = np.flatnonzero(new) + 1
    parts = [np.split(array[order], starts) for array in (seen, actions.astype(np.int32), ends)]
    if any(end[:-1].any() for end in parts[2]):
        raise UserError("the array 'terminals' ends an episode before its last row.")
    trajectories = tuple(Trajectory(o, a, bool(end[-1])) for o, a, end in zip(*parts, strict=True))
    return Demonstrations(trajectories, levels, provenance={"source": [name]})


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
        raise UserError(f"the array 'actions' has more than {MOST_ACTIONS:,} values; an action is one of a few.")
    return tuple(str(int(level)) for level in levels), actions


def _assemble(arrays: dict[str, np.ndarray]) -> Demonstrations:
    said = _header(arrays["header"])
    lengths, observations, actions = arrays["lengths"], arrays["observations"], arrays["actions"]
    for name in BY_TRAJECTORY:
        array = arrays.get(name, lengths)
        if array.shape != lengths.shape or lengths.ndim != 1:
            raise UserError(f"the array '{name}' has shape {array.shape}; it must have one entry per trajectory.")
        if array.dtype.kind not in "iub" or (array < 0).any():
            raise UserError(f"the array '{name}' must hold whole numbers from 0.")
    if actions.ndim != 1 or observations.ndim < 2:
        raise UserError("actions must be a list and observations a table; their shapes disagree with that.")
    visits = lengths + (arrays["last"] > 0)
    announced = f"{int(lengths.sum())} actions and {int(visits.sum())} observations"
    if len(actions) != lengths.sum() or len(observations) != visits.sum():
        raise UserError(f"lengths announce {announced}, the file holds {len(actions)} and {len(observations)}.")
    weights = arrays.get("weights")
    if weights is not None and weights.shape != actions.shape:
        raise UserError(f"the array 'weights' has shape {weights.shape}; it must have one entry per action.")
    none = [None] * len(lengths)
    parts = zip(
        np.split(observations, np.cumsum(visits)[:-1]),
        np.split(actions, np.cumsum(lengths)[:-1]),
        (arrays["terminal"] > 0).tolist(),
        (arrays["truncated"] > 0).tolist(),
        none if weights is None else np.split(weights, np.cumsum(lengths)[:-1]),
        strict=True,
    )
    return Demonstrations(tuple(Trajectory(*part) for part in parts), **said, groups=arrays.get("groups"))


def _header(content: np.ndarray) -> dict[str, Any]:
    """What the header says, as keywords of `Demonstrations`."""
    header = files.json_object(content.astype(np.uint8).tobytes(), "its header", "the file")
    if header.get("format") != MARK:
        raise UserError("not a file of demonstrations of sbil.")
    version = header.get("version")
    if version not in (VERSION, STACKED):
        raise UserError(f"written in format {version!r}, this sbil reads {VERSION} and {STACKED}; upgrade sbil.")
    said = described(header, "its header")
    if (version == STACKED) != bool(said["stack"]):
        raise UserError("its header does not say how many frames make an observation; the file is damaged.")
    return said


FORMAT = Format("NPZ", (".npz",), demonstrations=load)
