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
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbil import files
from sbil.demonstrations.formats import Format
from sbil.demonstrations.schema import Schema
from sbil.demonstrations.trajectory import Demonstrations, Trajectory
from sbil.errors import UserError

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
    try:
        return _read(data)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    except Exception as error:  # decoders of damaged files raise many kinds
        kind = type(error).__name__
        raise UserError(f"{name}: not a readable Minari dataset; damaged or incomplete ({kind}).") from None


def write_minari(
    demonstrations: Demonstrations,
    name: str,
    *,
    folder: Path | None = None,
    drop_last: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write a dataset that Minari opens (HDF5), complete or not at all; returns its folder.

    name: a name of Minari, which ends with a version: cartpole/expert-v0.
    folder: where to write the dataset; by default where Minari looks for datasets.
    drop_last: leave out the last action of trajectories without a last state, because Minari needs that state.
    """
    if not NAME.fullmatch(name):
        raise UserError(f"'{name}' is not a name of a Minari dataset; write it like group/name-v0.")
    h5py = _package("h5py")
    demonstrations = _complete(demonstrations, drop_last)
    try:
        text = json.dumps(_metadata_of(demonstrations, name), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"the provenance of these demonstrations cannot be written as JSON ({error}).") from None
    out = (folder or _root()) / name
    with files.new_folder(out, overwrite) as temporary:
        content = io.BytesIO()
        with h5py.File(content, "w") as file:
            for index, trajectory in enumerate(demonstrations.trajectories):
                _write_episode(file.create_group(f"episode_{index}"), index, trajectory)
        files.write_bytes(temporary / "data" / EPISODES, content.getvalue())
        files.write_text(temporary / "data" / METADATA, text)
    return out


def _package(name: str) -> Any:
    """Import a package that a plain installation does not have."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"this Minari dataset needs {name}: pip install 'sbil[minari]'.") from None


def _root() -> Path:
    """Where Minari keeps datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


# Reading


class _Episode(NamedTuple):
    observations: np.ndarray
    actions: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray


class _Box(NamedTuple):
    """What is observed."""

    shape: tuple[int, ...]

    @property
    def image(self) -> bool:
        return len(self.shape) > 1


def _data(name: str | Path) -> Path:
    """The folder with the metadata of a dataset."""
    places = (Path(name), _root() / name)
    for place in places:
        for data in (place / "data", place):
            if (data / METADATA).is_file():
                return data
    if any(place.exists() for place in places):
        raise UserError(f"{name}: not a Minari dataset; there is no {METADATA} in it.")
    raise UserError(
        f"{name}: there is no such Minari dataset, as a folder or in {_root()}; sbil downloads nothing: "
        "use 'minari download'."
    )


def _read(data: Path) -> Demonstrations:
    metadata = _metadata(data / METADATA)
    version, kind = metadata.get("minari_version"), metadata.get("data_format", "hdf5")
    if not isinstance(version, str) or not READABLE.fullmatch(version):
        raise UserError(f"its {METADATA} does not name a version of Minari that sbil reads (0.4 or 0.5).")
    if kind not in ("hdf5", "arrow", "parquet"):
        raise UserError("its data are not in HDF5, Arrow or Parquet.")
    box, actions, start = _box(metadata), *_discrete(metadata)
    count = metadata.get("total_episodes")
    if type(count) is not int or count < 1:
        raise UserError(f"its {METADATA} does not say how many episodes there are, or there are none.")
    episodes = _hdf5(data / EPISODES, box, count) if kind == "hdf5" else _tables(data, kind, box, count)
    trajectories = tuple(_trajectory(episode, index, box, start) for index, episode in enumerate(episodes))
    described: dict[str, Any] = {
        "action_names": tuple(str(start + action) for action in range(actions)),
        "stack": 1 if len(box.shape) == 2 else 0,
        "provenance": _provenance(metadata),
    }
    return Demonstrations(trajectories, **(described | _own(metadata, actions)))


def _metadata(path: Path) -> dict[str, Any]:
    if path.stat().st_size > LARGEST_METADATA:
        raise UserError(f"its {METADATA} is larger than {LARGEST_METADATA >> 20} MiB; refused.")
    return _json(path.read_bytes(), f"its {METADATA}")


def _json(text: str | bytes, what: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{what} is not readable JSON; the dataset is damaged.") from None
    if not isinstance(content, dict):
        raise UserError(f"{what} is not a JSON object; the dataset is damaged.")
    return content


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


def _box(metadata: dict[str, Any]) -> _Box:
    kind, space = _space(metadata, "observation_space")
    if kind != "Box":
        raise UserError(f"its observations are of the space {kind}; sbil reads rows of numbers and images (Box).")
    shape = space.get("shape")
    if not isinstance(shape, list) or not all(type(length) is int and 0 < length < 1 << 24 for length in shape):
        raise UserError("its 'observation_space' has no shape; the dataset is damaged.")
    if len(shape) != 1 and not (len(shape) in (2, 3) and space.get("dtype") == "uint8"):
        raise UserError(
            f"its observations have {len(shape)} axes; sbil reads rows of numbers, and images of bytes (uint8) of "
            "height x width (x channels)."
        )
    return _Box(tuple(shape))


def _hdf5(path: Path, box: _Box, count: int) -> Iterator[_Episode]:
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
    budget = _Budget(path.stat().st_size)
    with h5py.File(path, "r") as file:
        if len(file) != count:
            raise UserError(
                f"{EPISODES} holds {len(file)} episodes, but {METADATA} says {count}; episodes are missing."
            )
        for index in range(count):
            group = inside(file, f"episode_{index}", h5py.Group, f"episode {index}")
            columns = [inside(group, name, h5py.Dataset, f"episode {index}: '{name}'") for name in COLUMNS]
            for column in columns:
                budget.take(column.nbytes)
            if h5py.check_vlen_dtype(columns[0].dtype) or (box.image and columns[0].ndim == 2):
                budget.take(len(columns[0]) * math.prod(box.shape))
                observations = _decoded((columns[0][row].tobytes() for row in range(len(columns[0]))), box)
            else:
                observations = columns[0][()]
            yield _Episode(observations, *(column[()] for column in columns[1:]))


def _tables(data: Path, kind: str, box: _Box, count: int) -> Iterator[_Episode]:
    """Episodes in Arrow or Parquet: one table per episode; its last row has only a state."""
    for index in range(count):
        path = data / str(index) / f"part-0.{kind}"
        if not path.is_file():
            raise UserError(f"episode {index} is missing; the dataset is incomplete.")
        table = _table(path.read_bytes(), kind, box, f"episode {index}")
        seen, *rest = (column.combine_chunks() for column in table.columns)
        if any(column.null_count for column in (seen, *rest)):
            raise UserError(f"episode {index}: there are missing values in it.")
        if str(seen.type).startswith("fixed_size_list"):
            observations = seen.flatten().to_numpy(zero_copy_only=False).reshape(len(seen), -1)
        elif "binary" in str(seen.type):
            observations = _decoded((frame.as_py() for frame in seen), box)
        else:
            observations = seen.to_numpy(zero_copy_only=False)
        if observations.ndim == 2 and observations.shape[1] == math.prod(box.shape):
            observations = observations.reshape(-1, *box.shape)
        yield _Episode(observations, *(column.to_numpy(zero_copy_only=False)[:-1] for column in rest))


def _table(content: bytes, kind: str, box: _Box, where: str) -> Any:
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
        width = max(getattr(schema.field("observations").type, "list_size", 0), math.prod(box.shape))
        _Budget(len(content)).take(file.metadata.num_rows * (8 * width + 10))
    table = file.read(columns=list(COLUMNS)) if kind == "parquet" else file.read_all()
    table.validate(full=True)
    return table.select(COLUMNS)


class _Budget:
    """How many bytes a file may unpack to; more is a bomb, not data."""

    def __init__(self, size: int) -> None:
        self.left = LARGEST_RATIO * size + (1 << 26)

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise UserError("it unpacks to far more than its size; refused as a likely bomb.")


def _decoded(frames: Any, box: _Box) -> np.ndarray:
    """Frames that were stored as JPEG."""
    from PIL import Image

    if not box.image:
        raise UserError("its observations are bytes and not the announced rows of numbers; the dataset is damaged.")
    decoded = []
    for frame in frames:
        with Image.open(io.BytesIO(frame), formats=["JPEG"]) as image:
            if image.size[::-1] != box.shape[:2]:
                raise UserError(f"it holds an image of another size than the announced {box.shape[:2]}.")
            decoded.append(np.asarray(image))
    return np.stack(decoded)


def _trajectory(episode: _Episode, index: int, box: _Box, start: int) -> Trajectory:
    try:
        _check_steps(episode, box)
        for name, flags in (("terminations", episode.terminations), ("truncations", episode.truncations)):
            _check_flags(name, flags, len(episode.actions))
    except UserError as error:
        raise UserError(f"episode {index}{error}") from None
    observations = episode.observations
    if observations.dtype.kind in "iu" and observations.dtype != np.uint8:
        observations = observations.astype(np.float64)
    terminal = bool(episode.terminations[-1])
    truncated = bool(episode.truncations[-1]) and not terminal
    return Trajectory(observations, episode.actions.astype(np.int64) - start, terminal, truncated)


def _check_steps(episode: _Episode, box: _Box) -> None:
    observations, actions = episode.observations, episode.actions
    if observations.shape[1:] != box.shape or observations.dtype.kind not in "fiu":
        raise UserError(f": its observations are not numbers of the announced shape {box.shape}.")
    if box.image and observations.dtype != np.uint8:
        raise UserError(": its images are not bytes (uint8).")
    if actions.ndim != 1 or actions.dtype.kind not in "iu" or not len(actions):
        raise UserError(": its actions are not a list of whole numbers.")
    if len(observations) != len(actions) + 1:
        counts = f"{len(observations)} observations for {len(actions)} actions"
        raise UserError(f": {counts}; there must be one more, the state that the last action led to.")


def _check_flags(name: str, flags: np.ndarray, steps: int) -> None:
    if flags.shape != (steps,) or flags.dtype.kind not in "biu":
        raise UserError(f": its {name} are not one truth value per action.")
    early = np.flatnonzero(flags[:-1])
    if len(early):
        raise UserError(f", step {early[0]}: {name} say that the episode ends here, but it goes on; split it there.")


def _provenance(metadata: dict[str, Any]) -> dict[str, Any]:
    """Where the dataset comes from, if its metadata say so."""
    spec = metadata.get("env_spec")
    try:
        environment = _json(spec, "env_spec").get("id") if isinstance(spec, str) else None
    except UserError:
        environment = None
    said = {
        "environment": environment,
        "minari": metadata.get("dataset_id"),
        "minari_version": metadata.get("minari_version"),
        "algorithm": metadata.get("algorithm_name"),
    }
    return {name: text for name, text in said.items() if isinstance(text, str) and len(text) < 1000}


def _own(metadata: dict[str, Any], actions: int) -> dict[str, Any]:
    """What `write_minari` adds for sbil itself: names, schema and groups, which Minari has no place for."""
    own = metadata.get("sbil")
    if own is None:
        return {}
    if not isinstance(own, dict) or not all(good(own.get(name)) for name, good in OWN.items()):
        raise UserError(f"the entry 'sbil' of its {METADATA} is damaged; remove it to read the dataset without names.")
    if len(own["action_names"]) != actions:
        raise UserError(
            f"the entry 'sbil' of its {METADATA} is damaged: it does not name {actions} actions; remove it."
        )
    groups, schema = own.get("groups"), own.get("schema")
    return {
        **{name: tuple(own[name]) for name in ("action_names", "observation_names")},
        "stack": own["stack"],
        "provenance": own["provenance"],
        "groups": None if groups is None else np.array(groups, np.int64),
        "schema": None if schema is None else Schema.from_json(schema),
    }


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _are_groups(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(type(g) is int and abs(g) < 1 << 62 for g in value))


# What each part of the entry of sbil must be.
OWN: dict[str, Callable[[Any], bool]] = {
    "action_names": _are_names,
    "observation_names": _are_names,
    "stack": lambda value: type(value) is int and 0 <= value <= 64,
    "groups": _are_groups,
    "provenance": lambda value: isinstance(value, dict),
}


# Writing


def _complete(demonstrations: Demonstrations, drop_last: bool) -> Demonstrations:
    """Demonstrations whose trajectories all have their last state."""
    trajectories = demonstrations.trajectories
    without = [index for index, trajectory in enumerate(trajectories) if not trajectory.has_last_observation]
    if not without:
        return demonstrations
    if not drop_last:
        raise UserError(
            f"trajectory {without[0]} has no state after its last action, and Minari needs one; leave such actions out "
            "with drop_last (--drop-last)."
        )
    kept = [i for i, trajectory in enumerate(trajectories) if trajectory.has_last_observation or len(trajectory) > 1]
    if not kept:
        raise UserError("every trajectory is a single decision without a state after it, which Minari cannot store.")
    shortened = {i: Trajectory(t.observations, t.actions[:-1], truncated=True) for i, t in enumerate(trajectories)}
    left = tuple(trajectories[i] if trajectories[i].has_last_observation else shortened[i] for i in kept)
    return replace(demonstrations.select(kept), trajectories=left)


def _metadata_of(demonstrations: Demonstrations, name: str) -> dict[str, Any]:
    first = demonstrations.trajectories[0].observations
    shape, image = first.shape[1:], first.dtype == np.uint8
    low, high = (0, 255) if image else (-math.inf, math.inf)
    box = {"type": "Box", "dtype": str(first.dtype), "shape": list(shape)}
    box |= {"low": np.full(shape, low).tolist(), "high": np.full(shape, high).tolist()}
    actions = {"type": "Discrete", "dtype": "int64", "start": 0, "n": len(demonstrations.action_names)}
    groups, schema = demonstrations.groups, demonstrations.schema
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
        "sbil": {
            "action_names": list(demonstrations.action_names),
            "observation_names": list(demonstrations.observation_names),
            "provenance": dict(demonstrations.provenance),
            "stack": demonstrations.stack,
            "groups": None if groups is None else [int(group) for group in groups],
            "schema": None if schema is None else schema.as_json(),
        },
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
