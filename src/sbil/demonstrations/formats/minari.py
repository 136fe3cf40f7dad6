"""Minari datasets in and out: https://minari.farama.org.

    demonstrations = read_minari("cartpole/expert-v0")
    write_minari(demonstrations, "cartpole/mine-v0")

A dataset is a folder `data` with `metadata.json` and the episodes, in HDF5, Arrow or Parquet. Its files are read as
they lie on the disk. Nothing is downloaded. The metadata name an environment; the name is only text and nothing is
imported. Minari needs rewards and demonstrations have none: the rewards that are written are not-a-number.
"""

import importlib
import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sbil import files
from sbil.demonstrations.description import as_text, describe, described
from sbil.demonstrations.formats import Format
from sbil.demonstrations.trajectory import Demonstrations, Trajectory
from sbil.errors import UserError, naming

METADATA = "metadata.json"
EPISODES = "main_data.hdf5"
VERSION = "0.5.4"  # the version of Minari whose format is written
READABLE = re.compile(r"0\.[45]\.\d+")
NAME = re.compile(r"([-\w]+/)*[-\w]+-v\d+")
COLUMNS = ("observations", "actions", "terminations", "truncations")
LARGEST_METADATA = 1 << 26  # it has the bounds of every pixel
LARGEST_RATIO = 1000  # JPEG shrinks a plain frame to a hundredth
MOST_ACTIONS = 10_000


def read_minari(name: str | Path) -> Demonstrations:
    """Read a dataset on this machine, by its folder or by its name in the folder of Minari."""
    data = _data(name)
    with naming(name, "not a readable Minari dataset"):
        return _read(data)


def write_minari(
    demonstrations: Demonstrations,
    name: str,
    *,
    folder: str | Path | None = None,
    drop_last: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write a dataset that Minari opens (HDF5), complete or not at all; return its folder.

        sbil.write_minari(data, "stays/recorded-v0", folder="datasets/")

    name: a name of Minari, which ends with a version: cartpole/expert-v0.
    folder: where to write the dataset; by default where Minari looks for datasets.
    drop_last: leave out the last action of trajectories without a last state, because Minari needs that state.
    """
    if not NAME.fullmatch(name):
        raise UserError(f"'{name}' is not a name of a Minari dataset; write it like group/name-v0.")
    h5py = _package("h5py")
    demonstrations = _complete(demonstrations, drop_last)
    text = as_text(_metadata_of(demonstrations, name))
    out = Path(folder or _root()) / name
    with files.new_folder(out, overwrite) as temporary:
        content = io.BytesIO()
        with h5py.File(content, "w") as file:
            for index, trajectory in enumerate(demonstrations.trajectories):
                _write_episode(file.create_group(f"episode_{index}"), index, trajectory)
        files.write_bytes(temporary / "data" / EPISODES, content.getvalue())
        files.write_text(temporary / "data" / METADATA, text)
    return out


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"this Minari dataset needs {name}: pip install 'sbil[minari]'.") from None


def _root() -> Path:
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


# Reading


Shape = tuple[int, ...]
Episode = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # what COLUMNS names


def _data(name: str | Path) -> Path:
    """The folder with the metadata of a dataset."""
    places = (Path(name), _root() / name)
    for place in places:
        for data in (place / "data", place):
            if (data / METADATA).is_file():
                return data
    if any(place.exists() for place in places):
        raise UserError(f"{name}: not a Minari dataset; there is no {METADATA} in it.")
    raise UserError(f"{name}: there is no such Minari dataset, as a folder or in {_root()}; use 'minari download'.")


def _read(data: Path) -> Demonstrations:
    if (data / METADATA).stat().st_size > LARGEST_METADATA:
        raise UserError(f"its {METADATA} is larger than {LARGEST_METADATA >> 20} MiB; refused.")
    metadata = _json((data / METADATA).read_bytes(), f"its {METADATA}")
    version, kind = metadata.get("minari_version"), metadata.get("data_format", "hdf5")
    if not isinstance(version, str) or not READABLE.fullmatch(version):
        raise UserError(f"its {METADATA} does not name a version of Minari that sbil reads (0.4 or 0.5).")
    if kind not in ("hdf5", "arrow", "parquet"):
        raise UserError("its data are not in HDF5, Arrow or Parquet.")
    shape = _shape(metadata)
    actions, start = _discrete(metadata)
    count = metadata.get("total_episodes")
    if type(count) is not int or count < 1:
        raise UserError(f"its {METADATA} does not say how many episodes there are, or there are none.")
    episodes = _hdf5(data / EPISODES, shape, count) if kind == "hdf5" else _tables(data, kind, shape, count)
    trajectories = tuple(_trajectory(episode, f"episode {i}", shape, start) for i, episode in enumerate(episodes))
    if metadata.get("sbil") is not None:
        return Demonstrations(trajectories, **_own(metadata["sbil"], actions))
    names = tuple(str(start + action) for action in range(actions))
    return Demonstrations(trajectories, names, provenance=_provenance(metadata), stack=1 if len(shape) == 2 else 0)


def _json(text: str | bytes, what: str) -> dict[str, Any]:
    return files.json_object(text, what, "the dataset", finite=False)


def _space(metadata: dict[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    """(its kind, its description) of a space."""
    text = metadata.get(name)
    if not isinstance(text, str):
        raise UserError(f"its {METADATA} has no '{name}'; sbil does not ask the environment for it.")
    space = _json(text, f"'{name}'")
    kind = space.get("type")
    return (kind if isinstance(kind, str) and re.fullmatch(r"\w{1,30}", kind) else "unknown"), space


def _discrete(metadata: dict[str, Any]) -> tuple[int, int]:
    """(how many actions there are, the number of the first)."""
    kind, space = _space(metadata, "action_space")
    if kind != "Discrete":
        why = "continuous" if kind == "Box" else kind
        raise UserError(f"its actions are {why}; sbil learns decisions among a few numbered actions (Discrete).")
    count, start = space.get("n"), space.get("start", 0)
    if type(count) is not int or not 1 <= count <= MOST_ACTIONS or type(start) is not int or abs(start) >= 1 << 31:
        raise UserError(f"its 'action_space' must have 1 to {MOST_ACTIONS} actions, numbered in a row.")
    return count, start


def _shape(metadata: dict[str, Any]) -> Shape:
    """The shape of an observation; what has several axes is an image."""
    kind, space = _space(metadata, "observation_space")
    if kind != "Box":
        raise UserError(f"its observations are of the space {kind}; sbil reads rows of numbers and images (Box).")
    shape = space.get("shape")
    if not isinstance(shape, list) or not all(type(length) is int and 0 < length < 1 << 24 for length in shape):
        raise UserError("its 'observation_space' has no shape; the dataset is damaged.")
    if len(shape) != 1 and not (len(shape) in (2, 3) and space.get("dtype") == "uint8"):
        readable = "rows of numbers, and uint8 images (height, width, channels)"
        raise UserError(f"its observations have {len(shape)} axes; sbil reads {readable}.")
    return tuple(shape)


def _hdf5(path: Path, shape: Shape, count: int) -> Iterator[Episode]:
    h5py = _package("h5py")

    def inside(group: Any, name: str, kind: Any, where: str) -> Any:
        """A member of a group, which must be in this file: a link may lead to any file."""
        link = group.get(name, getlink=True)
        if link is None:
            raise UserError(f"{where} is missing; the dataset is incomplete.")
        if not isinstance(link, h5py.HardLink):
            raise UserError(f"{where} is a link to another place; refused.")
        member = group[name]
        if not isinstance(member, kind):
            raise UserError(f"{where} is not a {kind.__name__.lower()} of HDF5; the dataset is damaged.")
        if kind is h5py.Dataset and (member.is_virtual or member.external):
            raise UserError(f"{where} keeps its numbers in other files; refused.")
        return member

    if not path.is_file():
        raise UserError(f"{EPISODES} is missing; the dataset is incomplete.")
    packed, unpacked = path.stat().st_size, 0
    with h5py.File(path, "r") as file:
        if len(file) != count:
            raise UserError(f"{EPISODES} holds {len(file)} episodes of the {count} announced; episodes are missing.")
        for index in range(count):
            group = inside(file, f"episode_{index}", h5py.Group, f"episode {index}")
            columns = [inside(group, name, h5py.Dataset, f"episode {index}: '{name}'") for name in COLUMNS]
            as_jpeg = h5py.check_vlen_dtype(columns[0].dtype) or (len(shape) > 1 and columns[0].ndim == 2)
            unpacked += sum(column.nbytes for column in columns)
            unpacked += len(columns[0]) * math.prod(shape) if as_jpeg else 0
            _must_fit(unpacked, packed)
            if as_jpeg:
                observations = _decoded((columns[0][row].tobytes() for row in range(len(columns[0]))), shape)
            else:
                observations = columns[0][()]
            yield observations, *(column[()] for column in columns[1:])


def _tables(data: Path, kind: str, shape: Shape, count: int) -> Iterator[Episode]:
    """Episodes in Arrow or Parquet: one table per episode; its last row has only a state."""
    for index in range(count):
        path = data / str(index) / f"part-0.{kind}"
        if not path.is_file():
            raise UserError(f"episode {index} is missing; the dataset is incomplete.")
        table = _table(path.read_bytes(), kind, shape, f"episode {index}")
        seen, *rest = (column.combine_chunks() for column in table.columns)
        if any(column.null_count for column in (seen, *rest)):
            raise UserError(f"episode {index}: there are missing values in it.")
        if str(seen.type).startswith("fixed_size_list"):
            observations = seen.flatten().to_numpy(zero_copy_only=False).reshape(len(seen), -1)
        elif "binary" in str(seen.type):
            observations = _decoded((frame.as_py() for frame in seen), shape)
        else:
            observations = seen.to_numpy(zero_copy_only=False)
        if observations.ndim == 2 and observations.shape[1] == math.prod(shape):
            observations = observations.reshape(-1, *shape)
        yield observations, *(column.to_numpy(zero_copy_only=False)[:-1] for column in rest)


def _table(content: bytes, kind: str, shape: Shape, where: str) -> Any:
    """The columns of an episode that are needed, checked."""
    pyarrow = _package("pyarrow")
    file: Any
    if kind == "parquet":
        file = _package("pyarrow.parquet").ParquetFile(pyarrow.BufferReader(content))
        schema = file.schema_arrow
    else:
        file = _package("pyarrow.ipc").open_file(pyarrow.BufferReader(content))
        schema = file.schema
    missing = [name for name in COLUMNS if name not in schema.names]
    if missing:
        raise UserError(f"{where}: '{missing[0]}' is missing; the dataset is incomplete.")
    if kind == "parquet":  # which may write a number once for all rows
        width = max(getattr(schema.field("observations").type, "list_size", 0), math.prod(shape))
        _must_fit(file.metadata.num_rows * (8 * width + 10), len(content))
    table = file.read(columns=list(COLUMNS)) if kind == "parquet" else file.read_all()
    table.validate(full=True)
    return table.select(COLUMNS)


def _must_fit(unpacked: int, packed: int) -> None:
    if unpacked > LARGEST_RATIO * packed + (1 << 26):
        raise UserError("it unpacks to far more than its size; refused as a likely bomb.")


def _decoded(frames: Iterable[bytes], shape: Shape) -> np.ndarray:
    """Frames that were stored as JPEG."""
    from PIL import Image

    if len(shape) == 1:
        raise UserError("its observations are bytes and not the announced rows of numbers; the dataset is damaged.")
    decoded = []
    for frame in frames:
        with Image.open(io.BytesIO(frame), formats=["JPEG"]) as image:
            if image.size[::-1] != shape[:2]:
                raise UserError(f"it holds an image of another size than the announced {shape[:2]}.")
            decoded.append(np.asarray(image))
    return np.stack(decoded)


def _trajectory(episode: Episode, where: str, shape: Shape, start: int) -> Trajectory:
    observations, actions, terminations, truncations = episode
    numbers = observations.dtype == np.uint8 if len(shape) > 1 else observations.dtype.kind in "fiu"
    if observations.shape[1:] != shape or not numbers:
        raise UserError(f"{where}: its observations are not numbers of the announced shape {shape}.")
    if actions.ndim != 1 or actions.dtype.kind not in "iu" or not len(actions):
        raise UserError(f"{where}: its actions are not a list of whole numbers.")
    if len(observations) != len(actions) + 1:
        counts = f"{len(observations)} observations for {len(actions)} actions"
        raise UserError(f"{where}: {counts}; there must be one more, the state that the last action led to.")
    for name, flags in (("terminations", terminations), ("truncations", truncations)):
        if flags.shape != actions.shape or flags.dtype.kind not in "biu":
            raise UserError(f"{where}: its {name} are not one truth value per action.")
        if flags[:-1].any():
            step = np.argmax(flags)
            raise UserError(f"{where}, step {step}: {name} say that the episode ends here, but it goes on; split it.")
    if observations.dtype.kind in "iu" and observations.dtype != np.uint8:
        observations = observations.astype(np.float64)
    terminal = bool(terminations[-1])
    return Trajectory(observations, actions.astype(np.int64) - start, terminal, bool(truncations[-1]) and not terminal)


def _provenance(metadata: dict[str, Any]) -> dict[str, Any]:
    """Where the dataset comes from, if its metadata say so."""
    spec = metadata.get("env_spec")
    try:
        environment = _json(spec, "env_spec").get("id") if isinstance(spec, str) else None
    except UserError:
        environment = None
    known = {"minari": "dataset_id", "minari_version": "minari_version", "algorithm": "algorithm_name"}
    said = {"environment": environment, **{name: metadata.get(entry) for name, entry in known.items()}}
    return {name: text for name, text in said.items() if isinstance(text, str) and len(text) < 1000}


def _own(content: Any, actions: int) -> dict[str, Any]:
    """What `write_minari` adds for sbil itself: names, schema and groups, which Minari has no place for."""
    where = f"the entry 'sbil' of its {METADATA}"
    said = described(content, where)
    if len(said["action_names"]) != actions:
        raise UserError(f"{where} is damaged: it does not name {actions} actions; remove it.")
    groups = content.get("groups")
    if groups is None:
        return said
    if not isinstance(groups, list) or not all(type(group) is int and abs(group) < 1 << 62 for group in groups):
        raise UserError(f"{where} is damaged: its groups are not a list of whole numbers.")
    return {**said, "groups": np.array(groups, np.int64)}


# Writing


def _complete(demonstrations: Demonstrations, drop_last: bool) -> Demonstrations:
    """Demonstrations whose trajectories all have their last state."""
    whole = [trajectory.has_last_observation for trajectory in demonstrations.trajectories]
    if all(whole):
        return demonstrations
    if not drop_last:
        which = f"trajectory {whole.index(False)} has no state after its last action, and Minari needs one"
        raise UserError(f"{which}; leave such actions out with drop_last (--drop-last).")
    kept = np.flatnonzero((demonstrations.lengths > 1) | whole)
    if not len(kept):
        raise UserError("every trajectory is a single decision without a state after it, which Minari cannot store.")
    chosen = demonstrations.select(kept)
    return replace(chosen, trajectories=tuple(map(_shortened, chosen.trajectories)))


def _shortened(trajectory: Trajectory) -> Trajectory:
    """Leave out the last action if its successor is not known."""
    if trajectory.has_last_observation:
        return trajectory
    return Trajectory(trajectory.observations, trajectory.actions[:-1], truncated=True)


def _metadata_of(demonstrations: Demonstrations, name: str) -> dict[str, Any]:
    first = demonstrations.trajectories[0].observations
    shape, image = first.shape[1:], first.dtype == np.uint8
    low, high = (0, 255) if image else (-math.inf, math.inf)
    box = {"type": "Box", "dtype": str(first.dtype), "shape": list(shape)}
    box |= {"low": np.full(shape, low).tolist(), "high": np.full(shape, high).tolist()}
    actions = {"type": "Discrete", "dtype": "int64", "start": 0, "n": len(demonstrations.action_names)}
    groups = demonstrations.groups
    return {
        "dataset_id": name,
        "minari_version": VERSION,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(box),
        "action_space": json.dumps(actions),
        "total_episodes": len(demonstrations),
        "total_steps": demonstrations.steps,
        "dataset_size": round(sum(t.observations.nbytes for t in demonstrations.trajectories) / 1e6, 1),
        "description": "Recorded decisions, written by sbil. Rewards were not recorded: they are not-a-number.",
        "sbil": {**describe(demonstrations), **({} if groups is None else {"groups": groups.tolist()})},
    }


def _write_episode(group: Any, index: int, trajectory: Trajectory) -> None:
    steps = len(trajectory)
    last = np.arange(steps) == steps - 1
    group.attrs["id"], group.attrs["total_steps"] = index, steps
    group["observations"] = trajectory.observations
    group["actions"] = trajectory.actions.astype(np.int64)
    group["rewards"] = np.full(steps, np.nan)
    group["terminations"] = last & trajectory.terminal
    group["truncations"] = last & trajectory.truncated


def _recognises(source: Any) -> bool:
    """Whether a source is `minari:NAME`, or a folder with a dataset in it."""
    if not isinstance(source, str | Path):
        return False
    data = Path(source) / "data"
    return str(source).startswith("minari:") or (data / EPISODES).exists() or (data / METADATA).exists()


FORMAT = Format(
    "Minari", demonstrations=lambda source: read_minari(str(source).removeprefix("minari:")), recognises=_recognises
)
