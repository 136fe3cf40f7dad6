"""Messages between processes: a JSON header and plain arrays, with their lengths before them. There is no pickle."""

import json
from typing import Any, BinaryIO, NamedTuple

import numpy as np


class Message(NamedTuple):
    """A header, and the arrays that go with it."""

    header: dict[str, Any]
    arrays: list[np.ndarray]


def send(stream: BinaryIO, message: Message) -> None:
    """Write a message and flush."""
    arrays = [np.ascontiguousarray(array) for array in message.arrays]
    shapes = [[array.dtype.str, array.shape] for array in arrays]
    text = json.dumps({"header": message.header, "arrays": shapes}).encode()
    stream.write(len(text).to_bytes(8, "little"))
    stream.write(text)
    for array in arrays:
        stream.write(array.tobytes())
    stream.flush()


def receive(stream: BinaryIO) -> Message:
    """Read a message; raise EOFError if the other side has ended."""
    text = json.loads(_exactly(stream, int.from_bytes(_exactly(stream, 8), "little")))
    arrays = []
    for name, shape in text["arrays"]:
        dtype = np.dtype(name)
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(_exactly(stream, size), dtype).reshape(shape))
    return Message(text["header"], arrays)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content
