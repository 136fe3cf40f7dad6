"""Files of demonstrations: what is written comes back, and nothing a file holds can do harm."""

import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import probes
from probes import loaded_or_refused, refused
from sbil.demonstrations import Demonstrations, Trajectory, save
from sbil.demonstrations.formats.npz import load
from sbil.errors import UserError


def assert_equal(one, other):
    assert one.action_names == other.action_names
    assert one.observation_names == other.observation_names
    assert dict(one.provenance) == dict(other.provenance)
    assert len(one) == len(other)
    for a, b in zip(one.trajectories, other.trajectories, strict=True):
        np.testing.assert_array_equal(a.observations, b.observations)
        np.testing.assert_array_equal(a.actions, b.actions)
        assert (a.terminal, a.truncated, a.observations.dtype) == (b.terminal, b.truncated, b.observations.dtype)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("npz")


@pytest.fixture(scope="module")
def good(folder):
    """The bytes of a valid file."""
    demonstrations = Demonstrations(
        probes.demonstrations().trajectories, ("a", "b", "c"), ("x", "y", "z"), {"from": "tests", "seed": 3}
    )
    save(demonstrations, folder / "good.npz", overwrite=True)
    return (folder / "good.npz").read_bytes()


# JSON values that equal themselves after a round trip.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def any_demonstrations(draw):
    actions = draw(st.integers(1, 4))
    image = draw(st.booleans())
    shape = (2, 3, 1) if image else (draw(st.integers(1, 3)),)
    dtype = np.dtype("uint8") if image else draw(st.sampled_from([np.dtype("float32"), np.dtype("float64")]))
    elements = (
        hnp.from_dtype(dtype) if image else st.floats(-float(np.float32(3e38)), float(np.float32(3e38)), width=32)
    )  # what float32 can hold
    trajectories = []
    for _ in range(draw(st.integers(1, 3))):
        length, last, end = draw(st.integers(1, 4)), draw(st.booleans()), draw(st.integers(0, 2))
        observations = draw(hnp.arrays(dtype, (length + last, *shape), elements=elements))
        taken = draw(hnp.arrays(np.int32, length, elements=st.integers(0, actions - 1)))
        trajectories.append(Trajectory(observations, taken, end == 1, end == 2))
    names = st.text(max_size=6)
    return Demonstrations(
        tuple(trajectories),
        tuple(draw(st.lists(names, min_size=actions, max_size=actions))),
        () if image else tuple(draw(st.lists(names, min_size=shape[0], max_size=shape[0]))),
        draw(st.dictionaries(st.text(max_size=4), JSON, max_size=3)),
    )


@settings(max_examples=100)
@given(demonstrations=any_demonstrations())
def test_round_trip(folder, demonstrations):
    path = folder / "trip.npz"
    save(demonstrations, path, overwrite=True)
    first = path.read_bytes()
    loaded = load(path)
    assert_equal(loaded, demonstrations)
    save(loaded, path, overwrite=True)
    assert path.read_bytes() == first  # the same demonstrations, the same bytes


def test_numpy_reads_the_file_without_pickle(folder, good):
    path = folder / "plain.npz"
    path.write_bytes(good)
    with np.load(path, allow_pickle=False) as archive:
        assert set(archive) == {"header", "observations", "actions", "lengths", "last", "terminal", "truncated"}
        assert all(archive[name].dtype.byteorder in "=|" for name in archive)
        assert archive["lengths"].tolist() == [7, 5, 9, 6, 4, 8]


def test_file_is_compressed(folder):
    flat = Demonstrations((Trajectory(np.zeros((1_000, 4), np.float32), np.zeros(1_000, np.int32)),), ("only",))
    save(flat, folder / "flat.npz")
    assert (folder / "flat.npz").stat().st_size < 5_000  # the arrays have 20,000 bytes


def members(content):
    """The arrays of a file, by name."""
    with np.load(io.BytesIO(content)) as archive:
        return {name: archive[name] for name in archive}


def packed(arrays, compression=zipfile.ZIP_DEFLATED):
    """A file of these arrays, or of raw bytes under a name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            if isinstance(array, bytes):
                member.write(array)
            else:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=True)
            archive.writestr(f"{name}.npy", member.getvalue())
    return content.getvalue()


def header(**changes):
    fields = {
        "format": "sbil-demonstrations",
        "version": 1,
        "action_names": ["a", "b", "c"],
        "observation_names": ["x", "y", "z"],
        "provenance": {},
    }
    fields = {name: value for name, value in {**fields, **changes}.items() if value is not ...}
    return np.frombuffer(json.dumps(fields).encode(), np.uint8)


def text(content):
    return np.frombuffer(content, np.uint8)


def nan(array):
    array = array.copy()
    array[3, 1] = np.nan
    return array


# How one array of a valid file is changed.
CHANGES = {
    "object array": ("actions", lambda a: a.astype(object)),
    "object header": ("header", lambda a: np.array([{"format": "sbil-demonstrations"}], object)),
    "text array": ("actions", lambda a: a.astype(str)),
    "dates": ("observations", lambda a: a.astype("datetime64[s]")),
    "structured": ("lengths", lambda a: a.view([("n", a.dtype)])),
    "complex": ("observations", lambda a: a.astype(complex)),
    "real actions": ("actions", lambda a: a.astype(float)),
    "real lengths": ("lengths", lambda a: a.astype(float)),
    "whole observations": ("observations", lambda a: a.astype(int)),
    "not a number": ("observations", nan),
    "infinite": ("observations", lambda a: a / 0),
    "action too large": ("actions", lambda a: a + 1),
    "negative action": ("actions", lambda a: a - 1),
    "fewer actions": ("actions", lambda a: a[:-1]),
    "more actions": ("actions", lambda a: np.append(a, 0)),
    "fewer observations": ("observations", lambda a: a[:-1]),
    "more observations": ("observations", lambda a: np.concatenate([a, a[:1]])),
    "flat observations": ("observations", lambda a: a.ravel()),
    "table of actions": ("actions", lambda a: a[:, None]),
    "other columns": ("observations", lambda a: a[:, :2]),
    "negative length": ("lengths", lambda a: np.append(a[:-2], [a[-2:].sum() + 1, -1])),
    "empty trajectory": ("lengths", lambda a: np.append(a[:-2], [a[-2:].sum(), 0])),
    "lengths that overflow": ("lengths", lambda a: np.append(a[:-2], [2**63 - 1, 2**63 - 1])),
    "unsigned lengths that overflow": ("lengths", lambda a: np.full(6, 2**63, np.uint64)),
    "fewer lengths": ("lengths", lambda a: a[:-1]),
    "no lengths": ("lengths", lambda a: a[:0]),
    "one length": ("lengths", lambda a: a[0]),
    "fewer ends": ("terminal", lambda a: a[:-1]),
    "negative end": ("truncated", lambda a: a.astype(np.int8) - 1),
    "both ends": ("truncated", lambda a: np.ones_like(a)),
    "last state missing": ("last", lambda a: 0 * a),
    "nothing": ("header", lambda a: b""),
    "no magic": ("actions", lambda a: b"not an array at all"),
    "npy of version 9": ("actions", lambda a: b"\x93NUMPY\x09\x00" + bytes(20)),
    "code for a dtype": (
        "actions",
        lambda a: npy("{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,)}"),
    ),
    "shape of a long": ("actions", lambda a: npy("{'descr': '<i4', 'fortran_order': False, 'shape': (10L,)}", 40)),
    "huge shape": ("actions", lambda a: npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1000000000000,)}", 4)),
    "negative shape": ("actions", lambda a: npy("{'descr': '<i4', 'fortran_order': False, 'shape': (-1, -1)}", 4)),
    "untrue shape": ("actions", lambda a: npy("{'descr': '<i4', 'fortran_order': False, 'shape': (True,)}", 8)),
    "deep header": ("actions", lambda a: npy("(" * 5000)),
    "raw pickle": ("actions", lambda a: pickle.dumps([1, 2, 3])),
    "header of no JSON": ("header", lambda a: text(b"{")),
    "header of deep JSON": ("header", lambda a: text(b"[" * 100_000)),
    "header of a list": ("header", lambda a: text(b"[]")),
    "header of no text": ("header", lambda a: text(b"\xff\xfe\xfd")),
    "header of numbers": ("header", lambda a: np.full(5, np.nan)),
    "header of a huge number": ("header", lambda a: text(b'{"version": ' + b"9" * 5000 + b"}")),
    "large header": ("header", lambda a: header(provenance={"x": "y" * (1 << 20)})),
    "foreign format": ("header", lambda a: header(format="else")),
    "newer version": ("header", lambda a: header(version=2)),
    "version of two lines": ("header", lambda a: header(version="1\n2")),
    "no version": ("header", lambda a: header(version=...)),
    "no provenance": ("header", lambda a: header(provenance=...)),
    "provenance of text": ("header", lambda a: header(provenance="x")),
    "no action names": ("header", lambda a: header(action_names=[])),
    "too few action names": ("header", lambda a: header(action_names=["a"])),
    "action names of numbers": ("header", lambda a: header(action_names=[1, 2, 3])),
    "action names of text": ("header", lambda a: header(action_names="abc")),
    "too few observation names": ("header", lambda a: header(observation_names=["x"])),
    "no observation names": ("header", lambda a: header(observation_names=...)),
}


def npy(description, data=0):
    """The bytes of an array with this header."""
    content = description.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(content)) + content + bytes(data)


@pytest.mark.parametrize("case", CHANGES)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:Casting complex")
def test_hostile_arrays_are_refused(folder, good, case):
    name, change = CHANGES[case]
    arrays = members(good)
    with np.errstate(all="ignore"):
        arrays[name] = change(arrays[name])
    path = folder / "hostile.npz"
    path.write_bytes(packed(arrays))
    refused(load, path)


def test_an_unchanged_file_packed_the_same_way_is_read(folder, good):
    """It shows that the cases above are refused because of their change."""
    path = folder / "repacked.npz"
    path.write_bytes(packed({**members(good), "header": header()}))
    assert len(load(path)) == 6


@pytest.mark.parametrize("name", ["header", "observations", "actions", "lengths", "last", "terminal", "truncated"])
def test_missing_arrays_are_named(folder, good, name):
    arrays = members(good)
    del arrays[name]
    path = folder / "missing.npz"
    path.write_bytes(packed(arrays))
    assert f"'{name}'" in refused(load, path)


class Trap:
    """Its pickle leaves a mark when it is loaded."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (str(self.mark),))


def test_pickles_are_never_loaded(folder, good):
    mark, path = folder / "mark", folder / "trap.npz"
    path.write_bytes(pickle.dumps(Trap(mark)))
    refused(load, path)
    for name in members(good):
        arrays = members(good)
        arrays[name] = np.array([Trap(mark)], object)
        path.write_bytes(packed(arrays))
        refused(load, path)
    assert not mark.exists()
    with np.load(path, allow_pickle=True) as archive:  # the trap works
        archive[name]
    assert mark.exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"\x93NUMPY", b"x" * 1000])
def test_other_files_are_refused(folder, content):
    path = folder / "other.npz"
    path.write_bytes(content)
    refused(load, path)


def test_single_array_is_refused(folder):
    np.save(folder / "single.npy", np.zeros(3))
    refused(load, folder / "single.npy")


def test_missing_files_and_folders_are_refused(folder):
    assert "no such file" in refused(load, folder / "nowhere.npz")
    assert "folder" in refused(load, folder)
    refused(load, folder / "good.npz" / "inside.npz")


def test_truncated_files_are_refused(folder, good):
    path = folder / "truncated.npz"
    for length in [*range(0, len(good), 61), *range(len(good) - 40, len(good))]:
        path.write_bytes(good[:length])
        refused(load, path)


def loads_or_is_refused(path, content, original=None):
    """What loads can be written and read again, and equals the original if one is given."""
    path.write_bytes(content)
    if loaded := loaded_or_refused(load, path):
        if original:
            assert_equal(loaded, original)
        save(loaded, path, overwrite=True)
        assert_equal(load(path), loaded)


METHODS = {
    "stored": zipfile.ZIP_STORED,
    "deflate": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}


@pytest.mark.parametrize("method", METHODS)
def test_flipped_bytes_do_no_harm(folder, good, method):
    """Each decoder has its own exceptions. An array with a checksum never comes back changed."""
    content, original = packed(members(good), METHODS[method]), load(folder / "good.npz")
    for place in range(0, len(content), 11):
        changed = bytearray(content)
        changed[place] ^= 1 << (place % 8)
        loads_or_is_refused(folder / "flipped.npz", bytes(changed), original)


def mutations(length):
    """Replacements of a few bytes at a few places; the ends hold most of the structure."""
    place = st.integers(0, length - 1) | st.integers(1, 800).map(lambda i: length - min(i, length))
    return st.lists(st.tuples(place, st.binary(min_size=1, max_size=4), st.sampled_from("rid")), min_size=1, max_size=4)


def mutated(content, changes):
    for place, new, kind in changes:
        keep = place + (len(new) if kind in "rd" else 0)
        content = content[:place] + (b"" if kind == "d" else new) + content[keep:]
    return content


@settings(max_examples=300)
@given(data=st.data())
def test_mutated_files_do_no_harm(folder, good, data):
    changes = data.draw(mutations(len(good)))
    loads_or_is_refused(folder / "mutated.npz", mutated(good, changes), load(folder / "good.npz"))


@settings(max_examples=200)
@given(data=st.data())
def test_mutated_arrays_do_no_harm(folder, good, data):
    """Damage inside an array, with the checksum of the archive made good again."""
    arrays = {}
    for name, array in members(good).items():
        member = io.BytesIO()
        np.lib.format.write_array(member, array)
        arrays[name] = member.getvalue()
    name = data.draw(st.sampled_from(sorted(arrays)))
    arrays[name] = mutated(arrays[name], data.draw(mutations(len(arrays[name]))))
    loads_or_is_refused(folder / "member.npz", packed(arrays))


@pytest.mark.parametrize("method", [1, 6, 9, 12, 14, 93, 97])
def test_other_ways_of_compression_are_read_or_refused(folder, good, method):
    """The archive names a way of compression that its bytes do not have."""
    arrays = members(good)
    content = bytearray(packed(arrays))
    at = content.find(b"PK\x01\x02")
    while at >= 0:
        content[at + 10 : at + 12] = struct.pack("<H", method)
        at = content.find(b"PK\x01\x02", at + 4)
    path = folder / "method.npz"
    path.write_bytes(bytes(content))
    refused(load, path)


def peak_of(action):
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_bombs_are_refused_before_they_unpack(folder, good):
    """96 MiB of zeros in a file of some kilobytes."""
    arrays = {**members(good), "observations": np.zeros(96 << 18, np.float32)}
    path = folder / "bomb.npz"
    path.write_bytes(packed(arrays, zipfile.ZIP_BZIP2))
    assert path.stat().st_size < 1 << 14
    assert peak_of(lambda: refused(load, path)) < 8 << 20


def test_bombs_that_hide_their_size_are_refused(folder, good):
    """The archive announces 100 bytes for an array that unpacks to 96 MiB."""
    arrays = {**members(good), "observations": np.zeros(96 << 18, np.float32)}
    content = bytearray(packed(arrays))
    at = content.find(b"PK\x01\x02")
    while not content[at + 46 :].startswith(b"observations"):
        at = content.find(b"PK\x01\x02", at + 4)
    content[at + 24 : at + 28] = struct.pack("<I", 100)
    path = folder / "hidden.npz"
    path.write_bytes(bytes(content))
    assert peak_of(lambda: refused(load, path)) < 8 << 20


def test_nothing_is_replaced_unless_told(tmp_path):
    demonstrations, path = probes.demonstrations(), tmp_path / "kept.npz"
    save(demonstrations, path)
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"kept.npz exists already"):
        save(demonstrations, path)
    assert path.read_bytes() == before
    save(demonstrations, path, overwrite=True)
    table = tmp_path / "stays.csv"
    table.write_text("a,b\n")
    with pytest.raises(UserError, match=r"stays.csv: demonstrations are written as NPZ"):
        save(demonstrations, table, overwrite=True)
    assert table.read_text() == "a,b\n"
