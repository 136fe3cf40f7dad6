"""Read the arrays in files of torch and NumPy from their bytes."""

import io
import math
import re
import zipfile
from typing import Any

import numpy as np

from sbil.demonstrators.sb3 import pickles
from sbil.demonstrators.sb3.pickles import Made, Name, Stored
from sbil.errors import UserError

LARGEST = 1 << 28  # bytes: the limit of a file and of its unpacked content
STORAGES = {"HalfStorage": "f2", "FloatStorage": "f4", "DoubleStorage": "f8"}
ORDERS = {b"little": "<", b"big": ">"}
MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")


class Archive:
    """A zip archive in memory."""

    def __init__(self, content: bytes, what: str) -> None:
        if not zipfile.is_zipfile(io.BytesIO(content)):
            raise UserError(f"{what} is not a zip archive; it is damaged, or from a torch before 1.6: save it again.")
        self.what = what
        self.archive = zipfile.ZipFile(io.BytesIO(content))
        self.names = self.archive.namelist()
        if sum(entry.file_size for entry in self.archive.infolist()) > LARGEST:
            raise UserError(f"{what} unpacks to more than {LARGEST >> 20} MiB; refused as a likely bomb.")

    def __getitem__(self, name: str) -> bytes:
        """The bytes of a member."""
        if name not in self.names:
            raise UserError(f"{self.what} has no '{name}'; it is not from Stable-Baselines3, or incomplete.")
        return self.archive.read(name)


def tensors(content: bytes) -> dict[str, np.ndarray]:
    """The arrays, by name, of a state dictionary that torch.save wrote."""
    archive = Archive(content, "policy.pth")
    root = next((name.removesuffix("data.pkl") for name in archive.names if name.endswith("/data.pkl")), "archive/")
    order = ORDERS.get(archive[f"{root}byteorder"] if f"{root}byteorder" in archive.names else b"little")
    if order is None:
        raise UserError("the byte order of policy.pth is unknown; it is damaged.")
    state = pickles.read(archive[f"{root}data.pkl"])
    if not (isinstance(state, Made) and state.what == Name("collections", "OrderedDict") and state.arguments == ()):
        raise UserError("policy.pth does not hold the state of a network.")
    for name in state.items:
        if not isinstance(name, str) or not re.fullmatch(r"[\w.]{1,200}", name):
            raise UserError("a tensor in policy.pth has a name that no layer can have; it is damaged.")
    return {name: _tensor(name, value, archive, root, order) for name, value in state.items.items()}


def _tensor(name: str, value: Any, archive: Archive, root: str, order: str) -> np.ndarray:
    known = isinstance(value, Made) and value.what == Name("torch._utils", "_rebuild_tensor_v2")
    if not known or not isinstance(value.arguments, tuple) or len(value.arguments) < 4:
        raise UserError(f"policy.pth: '{name}' is not a plain tensor; refused.")
    storage, offset, shape, strides = value.arguments[:4]
    numbers, count = _numbers(name, storage, archive, root, order)
    if len(numbers) != count or not _inside(offset, shape, strides, count):
        raise UserError(f"policy.pth: '{name}' declares a shape that its bytes do not fill.")
    steps = [stride * numbers.itemsize for stride in strides]
    with np.errstate(over="ignore"):
        array = np.lib.stride_tricks.as_strided(numbers[offset:], shape, steps).astype(np.float32)
    if not np.isfinite(array).all():
        raise UserError(f"policy.pth: '{name}' holds numbers that are not finite float32; refused.")
    return array


def _numbers(name: str, storage: Any, archive: Archive, root: str, order: str) -> tuple[np.ndarray, Any]:
    """The numbers that a tensor is a view of, and how many it says there are."""
    identity = storage.identity if isinstance(storage, Stored) else None
    if not (isinstance(identity, tuple) and len(identity) == 5 and identity[0] == "storage"):
        raise UserError(f"policy.pth: '{name}' does not say where its numbers lie; refused.")
    _, kind, key, _, count = identity
    if not isinstance(kind, Name) or kind.module != "torch" or kind.name not in STORAGES:
        raise UserError(f"policy.pth: '{name}' does not hold floating point numbers; refused.")
    if f"{root}data/{key}" not in archive.names:
        raise UserError(f"policy.pth: the numbers of '{name}' are missing; it is incomplete.")
    return np.frombuffer(archive[f"{root}data/{key}"], np.dtype(order + STORAGES[kind.name])), count


def _inside(offset: Any, shape: Any, strides: Any, count: Any) -> bool:
    """Whether a view lies inside an array of `count` numbers."""
    if not (_wholes((offset, count)) and _wholes(shape) and _wholes(strides)):
        return False
    if len(shape) != len(strides) or len(shape) > 4:
        return False
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    return 0 < math.prod(shape) <= count and bool(last < count)


def _wholes(numbers: Any) -> bool:
    """Whether these are whole numbers from 0 that an array can have."""
    return isinstance(numbers, tuple) and all(type(number) is int and 0 <= number < 1 << 40 for number in numbers)


def numpy_array(value: Any, what: str) -> np.ndarray:
    """A NumPy array of float32 or float64 that a pickle would make. It has one axis, so the order does not matter."""
    shape, dtype, content = _parts(value)
    number = _dtype(dtype)
    bytes_of_one_axis = isinstance(content, bytes | bytearray) and _wholes(shape) and len(shape) == 1
    if number is None or not bytes_of_one_axis or shape[0] * number.itemsize != len(content):
        raise UserError(f"{what} is not an array of finite numbers; refused.")
    array = np.frombuffer(content, number).astype(np.float64)
    if not np.isfinite(array).all():
        raise UserError(f"{what} is not an array of finite numbers; refused.")
    return array


def _parts(value: Any) -> tuple[Any, Any, Any]:
    """(shape, type, bytes) of an array that a pickle would make; three times None if it would make something else."""
    name = value.what if isinstance(value, Made) else None
    if name in [Name(module, "_reconstruct") for module in MULTIARRAY]:
        parts, places = value.state, (1, 2, 4)  # version, shape, type, whether by columns, bytes
    elif name in [Name(module, "_frombuffer") for module in NUMERIC]:
        parts, places = value.arguments, (2, 1, 0)  # bytes, type, shape, order
    else:
        return None, None, None
    if not isinstance(parts, tuple) or len(parts) <= max(places):
        return None, None, None
    shape, dtype, content = (parts[place] for place in places)
    return shape, dtype, content


def _dtype(value: Any) -> np.dtype[Any] | None:
    if not isinstance(value, Made) or value.what != Name("numpy", "dtype") or not isinstance(value.arguments, tuple):
        return None
    kind, order = value.arguments[:1], value.state[1:2] if isinstance(value.state, tuple) else ()
    if kind not in (("f4",), ("f8",)) or order not in (("<",), (">",)):
        return None
    return np.dtype(order[0] + kind[0])
