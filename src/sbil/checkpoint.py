"""Checkpoints: interrupted training continues where it stopped, and ends with the same bytes.

The state after each chunk of updates is held in memory. It is written from time to time, and at once if training is
interrupted.
"""

import glob
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors
import safetensors.numpy

from sbil import files

SECONDS_BETWEEN = float(os.environ.get("SBIL_CHECKPOINT_SECONDS", "20"))


PATIENCE = 5.0  # seconds to wait for another thread that writes
_writing = threading.Lock()
_running: "list[Checkpoint]" = []  # of the trainings that run now


class Saved(NamedTuple):
    """What a checkpoint holds."""

    done: int
    tree: Any
    notes: dict[str, Any]


@dataclass
class Checkpoint:
    """One file that training writes its state to from time to time.

    identity: everything that the training depends on; a checkpoint with another identity is not used.
    keep: also write the state of finished training, because more work follows.
    """

    path: Path
    identity: dict[str, Any]
    keep: bool = False
    _last: float = field(default_factory=time.monotonic)
    _held: tuple[int, list[np.ndarray], Callable[[], dict[str, Any]]] | None = None

    @classmethod
    def beside(cls, target: Path, identity: dict[str, Any]) -> "Checkpoint":
        """Return the checkpoint beside the future `target`; each identity has its own file."""
        one = cls(target, identity)
        return cls(target.with_name(f".{target.name}.{one._name[:8]}.checkpoint"), identity)

    def part(self, name: str) -> "Checkpoint":
        """Return the checkpoint of one of several trainings."""
        path = self.path.with_name(f"{self.path.stem}.{name}.checkpoint")
        return Checkpoint(path, {**self.identity, "part": name}, keep=True)

    def _parts(self) -> list["Checkpoint"]:
        others = self.path.parent.glob(f"{glob.escape(self.path.stem)}.*.checkpoint")
        return [self.part(path.name[len(self.path.stem) + 1 : -len(".checkpoint")]) for path in others]

    def remove(self) -> None:
        """Delete the file and its parts, because training has ended."""
        for one in (self, *self._parts()):
            one.path.unlink(missing_ok=True)

    @property
    def _name(self) -> str:
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True, default=str).encode()).hexdigest()

    def due(self) -> bool:
        """Whether enough time has passed to write again."""
        return time.monotonic() - self._last >= SECONDS_BETWEEN

    def hold(self, done: int, tree: Any, notes: Callable[[], dict[str, Any]]) -> None:
        """Keep a copy of the state after `done` updates; `notes` gives what else to keep, as values of JSON."""
        self._held = done, [np.array(leaf, order="C") for leaf in jax.tree.leaves(tree)], notes

    def save(self, done: int, tree: Any, notes: dict[str, Any]) -> None:
        """Write the state after `done` updates, with notes that JSON can hold."""
        self.hold(done, tree, lambda: notes)
        self.write()

    def write(self) -> None:
        """Write the state that is held, unless it is written already."""
        if not _writing.acquire(timeout=PATIENCE):
            return
        try:
            if self._held:
                self._write(*self._held)
            self._held = None
        finally:
            _writing.release()

    def _write(self, done: int, leaves: list[np.ndarray], notes: Callable[[], dict[str, Any]]) -> None:
        words = {"identity": self._name, "notes": json.dumps([done, notes()])}
        content = safetensors.numpy.save({f"{i:04d}": leaf for i, leaf in enumerate(leaves)}, metadata=words)
        files.write_bytes(self.path, content, private=True)  # chains can lie on rows of the data
        self._last = time.monotonic()

    @contextmanager
    def written_if_interrupted(self) -> Iterator[None]:
        """Write what is held if the block is interrupted, also if `write_running` is called in another thread."""
        _running.append(self)
        try:
            yield
        except KeyboardInterrupt:
            self.write()
            raise
        finally:
            _running[:] = [one for one in _running if one is not self]

    def load(self, like: Any) -> Saved | None:
        """Return what was saved, with the tree in the shape of `like`; None without a usable checkpoint."""
        saved = self._read()
        leaves, structure = jax.tree.flatten(like)
        shapes = [(leaf.shape, leaf.dtype) for leaf in leaves]
        if saved is None or [(leaf.shape, leaf.dtype) for leaf in saved.tree] != shapes:
            return None
        return saved._replace(tree=jax.tree.unflatten(structure, saved.tree))

    def usable(self) -> int:
        """Return the number of updates that need not be made again."""
        found = (one._read() for one in (self, *self._parts()))
        return sum(saved.done for saved in found if saved)

    def _read(self) -> Saved | None:
        if not self.path.is_file():
            return None
        try:
            with safetensors.safe_open(self.path, framework="numpy") as file:
                metadata = file.metadata() or {}
                leaves = [file.get_tensor(name) for name in sorted(file.keys())]
            done, notes = json.loads(metadata["notes"])
        except (OSError, ValueError, KeyError, safetensors.SafetensorError):
            return None  # damaged: begin again
        return Saved(done, leaves, notes) if metadata.get("identity") == self._name else None


def write_running() -> None:
    """Write the checkpoints of the trainings that run now, because the process ends."""
    for one in [*_running]:
        one.write()
