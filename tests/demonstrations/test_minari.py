"""Minari datasets: Minari opens what is written, its own files are read, and nothing that they name is imported."""

import json
import socket
import subprocess
import sys
import warnings

import gymnasium
import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import probes
from probes import loaded_or_refused, refused
from sbil.demonstrations import Column, Demonstrations, Schema, Trajectory
from sbil.demonstrations.formats.minari import read_minari, write_minari
from sbil.errors import UserError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import minari
    from minari.data_collector import EpisodeBuffer


@pytest.fixture(autouse=True)
def datasets(tmp_path, monkeypatch):
    """Where Minari keeps its datasets in these tests; and there is no network."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    def unreachable(*_):
        raise AssertionError("nothing is downloaded")

    monkeypatch.setattr(socket.socket, "connect", unreachable)
    return tmp_path


def rows(dtype=np.float32, stack=0, shape=(3,)):
    """Trajectories that end in every way, each with its last state."""
    rng = np.random.default_rng(0)
    trajectories = []
    for index, length in enumerate((4, 1, 6)):
        seen = rng.normal(size=(length + 1, *shape)) * 100
        taken = rng.integers(0, 3, length).astype(np.int32)
        trajectories.append(Trajectory(seen.astype(dtype), taken, terminal=index == 0, truncated=index == 1))
    names = ("x", "y", "z") if shape == (3,) else ()
    provenance = {"environment": "tests", "seed": 3, "nested": {"a": [1, None]}}
    return Demonstrations(tuple(trajectories), ("a", "b", "c"), names, provenance, stack)


def assert_equal(one, other):
    for field in ("action_names", "observation_names", "stack", "schema"):
        assert getattr(one, field) == getattr(other, field)
    assert dict(one.provenance) == dict(other.provenance)
    assert len(one) == len(other)
    for a, b in zip(one.trajectories, other.trajectories, strict=True):
        np.testing.assert_array_equal(a.observations, b.observations)
        np.testing.assert_array_equal(a.actions, b.actions)
        assert (a.terminal, a.truncated, a.observations.dtype) == (b.terminal, b.truncated, b.observations.dtype)


# Round trips

KINDS = {
    "float32": rows(),
    "float64": rows(np.float64),
    "bytes": rows(np.uint8),
    "frames": rows(np.uint8, stack=2, shape=(40, 36)),
    "small frames": rows(np.uint8, stack=1, shape=(4, 5)),
    "images": rows(np.uint8, shape=(33, 34, 3)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_what_minari_opens(kind, datasets):
    wrote = KINDS[kind]
    out = write_minari(wrote, "group/mine-v0")
    assert out == datasets / "group" / "mine-v0"
    opened = minari.load_dataset("group/mine-v0")
    assert opened.total_episodes == 3
    assert opened.total_steps == 11
    assert opened.action_space == gymnasium.spaces.Discrete(3)
    assert opened.observation_space.shape == wrote.trajectories[0].observations.shape[1:]
    assert opened.env_spec is None
    for episode, trajectory in zip(opened.iterate_episodes(), wrote.trajectories, strict=True):
        np.testing.assert_array_equal(episode.observations, trajectory.observations)
        assert episode.observations.dtype == opened.observation_space.dtype == trajectory.observations.dtype
        np.testing.assert_array_equal(episode.actions, trajectory.actions)
        assert (episode.terminations[-1], episode.truncations[-1]) == (trajectory.terminal, trajectory.truncated)
        assert not episode.terminations[:-1].any()
        assert np.isnan(episode.rewards).all()
    assert list(minari.list_local_datasets()) == ["group/mine-v0"]
    for name in ("group/mine-v0", out, out / "data"):
        assert_equal(read_minari(name), wrote)


def test_schema_and_groups_survive():
    columns = (Column("x", unit="mmHg"), Column("y", "category", ("low", "high")), Column("z", fill=0.5))
    schema = Schema("given", columns, ("a", "b", "c"), episode="stay", time="hour", group="patient")
    known = rows()
    wrote = Demonstrations(
        known.trajectories, ("a", "b", "c"), schema.observation_names, schema=schema, groups=np.array([7, 7, 2])
    )
    write_minari(wrote, "table-v1")
    read = read_minari("table-v1")
    assert_equal(read, wrote)
    np.testing.assert_array_equal(read.groups, [7, 7, 2])


@settings(max_examples=25)
@given(st.data())
def test_any_rows_survive(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("datasets")
    finite = st.floats(-float(np.float32(3e38)), float(np.float32(3e38)), width=32)
    lengths, width = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)), data.draw(st.integers(1, 3))
    trajectories = []
    for length in lengths:
        size = (length + 1) * width
        seen = np.array(data.draw(st.lists(finite, min_size=size, max_size=size)), np.float32).reshape(-1, width)
        taken = np.array(data.draw(st.lists(st.integers(0, 1), min_size=length, max_size=length)))
        trajectories.append(Trajectory(seen, taken, **{data.draw(st.sampled_from(["terminal", "truncated"])): True}))
    wrote = Demonstrations(tuple(trajectories), ("no", "yes"))
    assert_equal(read_minari(write_minari(wrote, "any-v0", folder=folder)), wrote)


def test_trajectories_without_a_last_state(datasets):
    """Lengths 7, 5, 9, 6, 4, 8; every other one lacks its last state."""
    wrote = probes.demonstrations()
    with pytest.raises(UserError, match="trajectory 0 has no state after its last action"):
        write_minari(wrote, "mine-v0")
    assert not list(datasets.iterdir())
    write_minari(wrote, "mine-v0", drop_last=True)
    read = read_minari("mine-v0")
    assert read.lengths.tolist() == [6, 5, 8, 6, 3, 8]
    for kept, whole in zip(read.trajectories, wrote.trajectories, strict=True):
        np.testing.assert_array_equal(kept.observations, whole.observations)
        np.testing.assert_array_equal(kept.actions, whole.actions[: len(kept)])
        if not whole.has_last_observation:
            assert (kept.terminal, kept.truncated) == (False, True)
    with pytest.raises(UserError, match="which Minari cannot store"):
        write_minari(probes.finite().demonstrations, "other-v0", drop_last=True)


def test_names_and_folders(datasets):
    for name in ("mine", "../mine-v0", "a b-v0", "/mine-v0", "mine-v0/", ""):
        with pytest.raises(UserError, match="is not a name of a Minari dataset"):
            write_minari(rows(), name)
    write_minari(rows(), "mine-v0")
    with pytest.raises(UserError, match="exists already"):
        write_minari(rows(np.float64), "mine-v0")
    write_minari(rows(np.float64), "mine-v0", overwrite=True)
    assert read_minari("mine-v0").trajectories[0].observations.dtype == np.float64
    odd = Demonstrations(rows().trajectories, ("a", "b", "c"), provenance={"x": {1, 2}})
    with pytest.raises(UserError, match="cannot be written as JSON"):
        write_minari(odd, "odd-v0")
    assert "there is no such Minari dataset" in refused(read_minari, datasets / "none-v0")
    (datasets / "empty-v0").mkdir()
    assert "there is no metadata.json" in refused(read_minari, datasets / "empty-v0")


# Datasets that Minari wrote


def buffers(make, actions=(0, 1, 1)):
    """Two episodes as Minari collects them: the first ends, the second is cut."""
    return [
        EpisodeBuffer(
            observations=[make(step) for step in range(len(actions) + 1)],
            actions=list(actions),
            rewards=[1.0] * len(actions),
            terminations=[False] * (len(actions) - 1) + [end],
            truncations=[False] * (len(actions) - 1) + [not end],
        )
        for end in (True, False)
    ]


def created(name, observed, make, *, acts=None, actions=(0, 1, 1), **options):
    acts = acts or gymnasium.spaces.Discrete(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return minari.create_dataset_from_buffers(
            name, buffers(make, actions), observation_space=observed, action_space=acts, **options
        )


BOX = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)


def pair(step):
    return np.array([step, -step / 8], np.float32)


@pytest.mark.parametrize("kind", ["hdf5", "arrow", "parquet"])
def test_minaris_own_files(kind):
    created("theirs-v0", BOX, pair, data_format=kind, env="CartPole-v1", algorithm_name="rule")
    read = read_minari("theirs-v0")
    assert len(read) == 2
    for trajectory in read.trajectories:
        np.testing.assert_array_equal(trajectory.observations, [pair(step) for step in range(4)])
        np.testing.assert_array_equal(trajectory.actions, [0, 1, 1])
        assert trajectory.observations.dtype == np.float32
    assert [(t.terminal, t.truncated) for t in read.trajectories] == [(True, False), (False, True)]
    assert read.action_names == ("0", "1")
    assert read.provenance["environment"] == "CartPole-v1"
    assert read.provenance["minari"] == "theirs-v0"
    assert read.provenance["algorithm"] == "rule"


@pytest.mark.parametrize("kind", ["hdf5", "arrow", "parquet"])
@pytest.mark.parametrize("jpeg", [False, True])
@pytest.mark.parametrize("shape", [(32, 40, 3), (32, 40)])
def test_images_of_minari(kind, jpeg, shape):
    """JPEG changes nothing in plain images but their brightness, by a little."""
    observed = gymnasium.spaces.Box(0, 255, shape, np.uint8)
    created(
        "images-v0", observed, lambda step: np.full(shape, 60 * step, np.uint8), data_format=kind, jpeg_encoding=jpeg
    )
    read = read_minari("images-v0")
    assert read.observation_shape == (*shape[:2], 1 if len(shape) == 2 else 3)
    for trajectory in read.trajectories:
        assert trajectory.observations.dtype == np.uint8
        wanted = 60 * np.arange(4).reshape(-1, *[1] * len(shape))
        assert np.abs(trajectory.observations.astype(int) - wanted).max() <= (3 if jpeg else 0)


def test_images_whose_jpegs_differ_in_length():
    rng = np.random.default_rng(0)
    frames = [np.full((32, 32), 9, np.uint8), *rng.integers(0, 255, (3, 32, 32), np.uint8)]
    dataset = created("images-v0", gymnasium.spaces.Box(0, 255, (32, 32), np.uint8), lambda step: frames[step])
    for mine, theirs in zip(read_minari("images-v0").trajectories, dataset.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(mine.observations, theirs.observations)


@pytest.mark.parametrize("kind", ["hdf5", "parquet"])
def test_actions_that_do_not_start_at_zero(kind):
    created("from-v0", BOX, pair, acts=gymnasium.spaces.Discrete(3, start=-1), actions=(-1, 1, 0), data_format=kind)
    read = read_minari("from-v0")
    assert read.action_names == ("-1", "0", "1")
    np.testing.assert_array_equal(read.trajectories[0].actions, [0, 2, 1])


def test_whole_numbers_become_floats():
    observed = gymnasium.spaces.Box(-9, 9, (2,), np.int32)
    created("whole-v0", observed, lambda step: np.array([step, -step], np.int32))
    seen = read_minari("whole-v0").trajectories[0].observations
    assert seen.dtype == np.float64
    np.testing.assert_array_equal(seen[3], [3, -3])


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Minari leaves its temporary folder to the collector
def test_collected_by_minari():
    """A real environment, played by Minari's own collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = minari.DataCollector(gymnasium.make("CartPole-v1"))
        env.action_space.seed(0)
        for episode in range(3):
            env.reset(seed=episode)
            while True:
                _, _, terminated, truncated, _ = env.step(env.action_space.sample())
                if terminated or truncated:
                    break
        dataset = env.create_dataset("cartpole/random-v0")
        env.close()
    read = read_minari("cartpole/random-v0")
    assert read.steps == dataset.total_steps
    assert all(t.terminal for t in read.trajectories)
    for mine, theirs in zip(read.trajectories, dataset.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(mine.observations, theirs.observations)
        np.testing.assert_array_equal(mine.actions, theirs.actions)
    assert_equal(read_minari(write_minari(read, "again-v0")), read)


S = gymnasium.spaces


@pytest.mark.parametrize(
    ("observed", "make", "acts", "actions", "words"),
    [
        (BOX, pair, S.Box(-1, 1, (1,)), [np.zeros(1, np.float32)] * 3, "its actions are continuous"),
        (BOX, pair, S.MultiDiscrete([2, 2]), [np.zeros(2, int)] * 3, "its actions are MultiDiscrete"),
        (S.Discrete(5), int, None, (0, 1, 1), "observations are of the space Discrete"),
        (S.Text(5), lambda _: "ab", None, (0, 1, 1), "observations are of the space Text"),
        (S.Box(-1, 1, (2, 2)), lambda _: np.zeros((2, 2), np.float32), None, (0, 1, 1), "have 2 axes"),
        (S.Box(-1, 1, ()), lambda _: np.float32(0), None, (0, 1, 1), "have 0 axes"),
    ],
)
def test_spaces_that_are_not_read(observed, make, acts, actions, words, datasets):
    created("other-v0", observed, make, acts=acts, actions=actions)
    assert words in refused(read_minari, datasets / "other-v0")


@pytest.mark.parametrize("kind", ["Dict", "Tuple"])
def test_spaces_of_many_parts(kind, datasets):
    write_minari(rows(), "mine-v0")
    spoil_metadata(datasets / "mine-v0", observation_space=json.dumps({"type": kind, "subspaces": []}))
    assert f"observations are of the space {kind}" in refused(read_minari, datasets / "mine-v0")


# Damage


def spoil_metadata(folder, **changes):
    path = folder / "data" / "metadata.json"
    metadata = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in metadata.items() if value is not ...}))


BAD_METADATA = {
    "no version": ({"minari_version": ...}, "does not name a version of Minari that sbil reads (0.4 or 0.5)"),
    "an old version": ({"minari_version": "0.3.1"}, "does not name a version of Minari that sbil reads (0.4 or 0.5)"),
    "a later version": ({"minari_version": "1.0.0"}, "does not name a version of Minari that sbil reads (0.4 or 0.5)"),
    "a version of two lines": ({"minari_version": "0.5.4\nx"}, "does not name a version of Minari"),
    "format": ({"data_format": "pickle"}, "not in HDF5, Arrow or Parquet"),
    "no space": ({"action_space": ...}, "has no 'action_space'"),
    "a space of no kind": ({"observation_space": "{}"}, "of the space unknown"),
    "a space that is not JSON": ({"observation_space": "{"}, "'observation_space' is not readable JSON"),
    "a deep space": ({"observation_space": "[" * 100_000}, "'observation_space' is not readable JSON"),
    "a list for a space": ({"observation_space": "[]"}, "not a JSON object"),
    "no shape": ({"observation_space": '{"type": "Box"}'}, "has no shape"),
    "a negative shape": ({"observation_space": '{"type": "Box", "shape": [-3]}'}, "has no shape"),
    "another shape": (
        {"observation_space": '{"type": "Box", "shape": [4]}'},
        "not numbers of the announced shape (4,)",
    ),
    "actions without end": ({"action_space": '{"type": "Discrete", "n": 1000000000000}'}, "1 to 10000 actions"),
    "no actions": ({"action_space": '{"type": "Discrete", "n": 0}'}, "1 to 10000 actions"),
    "too few actions": ({"action_space": '{"type": "Discrete", "n": 1}', "sbil": ...}, "is not one of the 1 actions"),
    "no episodes": ({"total_episodes": 0}, "how many episodes there are"),
    "episodes in words": ({"total_episodes": "3"}, "how many episodes there are"),
    "more episodes": ({"total_episodes": 10**12}, "holds 3 episodes"),
    "our entry": ({"sbil": 3}, "the entry 'sbil'"),
    "our names": ({"sbil": {"action_names": [1], "observation_names": []}}, "the entry 'sbil'"),
    "other names": ({"action_space": '{"type": "Discrete", "n": 2}'}, "the entry 'sbil'"),
}


@pytest.mark.parametrize("case", BAD_METADATA)
def test_bad_metadata(case, datasets):
    changes, words = BAD_METADATA[case]
    write_minari(rows(), "mine-v0")
    spoil_metadata(datasets / "mine-v0", **changes)
    line = refused(read_minari, datasets / "mine-v0")
    assert words in line
    assert len(line) < 250 + len(str(datasets))


def replaced(group, name, content):
    del group[name]
    group[name] = content


def outside(file, folder):
    with h5py.File(folder / "secret.hdf5", "w") as secret:
        secret["numbers"] = np.ones((5, 3), np.float32)
    layout = h5py.VirtualLayout((5, 3), np.float32)
    layout[:] = h5py.VirtualSource(str(folder / "secret.hdf5"), "numbers", (5, 3))
    del file["episode_0/observations"]
    file["episode_0"].create_virtual_dataset("observations", layout)


def kept_elsewhere(file, folder):
    (folder / "secret.bin").write_bytes(bytes(60))
    del file["episode_0/observations"]
    file.create_dataset(
        "episode_0/observations", (5, 3), np.float32, external=[(str(folder / "secret.bin"), 0, h5py.h5f.UNLIMITED)]
    )


def bomb(file, _):
    del file["episode_0/observations"]
    file.create_dataset("episode_0/observations", (10**9, 3), np.float32, chunks=(1000, 3))


def looped(file, _):
    del file["episode_1"]
    file["episode_1"] = h5py.SoftLink("/episode_1")


def linked(name, link):
    return lambda file, _: replaced(file, name, link)


BAD_EPISODES = {
    "missing episode": (lambda file, _: file.__delitem__("episode_1"), "episodes are missing"),
    "renamed episode": (lambda file, _: file.move("episode_1", "episode_9"), "episode 1 is missing"),
    "external link": (linked("episode_1", h5py.ExternalLink("other.hdf5", "/")), "is a link to another place"),
    "linked numbers": (linked("episode_0/actions", h5py.SoftLink("/episode_1/actions")), "'actions' is a link"),
    "linked file": (linked("episode_0/actions", h5py.ExternalLink("/etc/passwd", "/")), "'actions' is a link"),
    "loop of links": (looped, "episode 1 is a link"),
    "loop of groups": (lambda file, _: replaced(file["episode_0"], "actions", file["episode_0"]), "not a dataset"),
    "virtual": (outside, "keeps its numbers in other files"),
    "kept elsewhere": (kept_elsewhere, "keeps its numbers in other files"),
    "bomb": (bomb, "bomb"),
    "an array for an episode": (lambda file, _: replaced(file, "episode_1", [1]), "episode 1 is not a group"),
    "missing column": (lambda file, _: file.__delitem__("episode_0/actions"), "'actions' is missing"),
    "missing ends": (lambda file, _: file.__delitem__("episode_0/truncations"), "'truncations' is missing"),
    "no last state": (
        lambda file, _: replaced(file, "episode_0/observations", np.zeros((4, 3), np.float32)),
        "4 observations for 4 actions",
    ),
    "too many states": (
        lambda file, _: replaced(file, "episode_0/observations", np.zeros((6, 3), np.float32)),
        "6 observations for 4 actions",
    ),
    "NaN": (
        lambda file, _: replaced(file, "episode_0/observations", np.full((5, 3), np.nan, np.float32)),
        "not a finite float32 number",
    ),
    "words": (lambda file, _: replaced(file, "episode_0/observations", ["a"] * 5), "bytes and not the announced rows"),
    "complex": (lambda file, _: replaced(file, "episode_0/observations", np.zeros((5, 3), complex)), "not numbers"),
    "fractions of actions": (lambda file, _: replaced(file, "episode_0/actions", np.ones(4)), "not a list of whole"),
    "many actions a step": (lambda file, _: replaced(file, "episode_0/actions", np.ones((4, 2), int)), "not a list"),
    "no actions": (lambda file, _: replaced(file, "episode_0/actions", np.zeros(0, int)), "not a list"),
    "one action": (lambda file, _: replaced(file, "episode_0/actions", 3), "not a list"),
    "unknown action": (lambda file, _: replaced(file, "episode_0/actions", [0, 1, 2, 3]), "step 3: action 3"),
    "an action beyond 32 bits": (lambda file, _: replaced(file, "episode_0/actions", [0, 1, 2, 2**32]), "step 3"),
    "too few ends": (lambda file, _: replaced(file, "episode_0/terminations", [True]), "one truth value per action"),
    "an early end": (
        lambda file, _: replaced(file, "episode_0/terminations", [False, True, False, False]),
        "episode 0, step 1: terminations say that the episode ends here",
    ),
}


@pytest.mark.parametrize("case", BAD_EPISODES)
def test_bad_episodes(case, datasets):
    spoil, words = BAD_EPISODES[case]
    write_minari(rows(), "mine-v0")
    with h5py.File(datasets / "mine-v0" / "data" / "main_data.hdf5", "a") as file:
        spoil(file, datasets)
    line = refused(read_minari, datasets / "mine-v0")
    assert words in line
    assert len(line) < 250 + len(str(datasets))


@pytest.mark.parametrize("kind", ["hdf5", "arrow", "parquet"])
def test_files_cut_short_or_missing(kind, datasets):
    created("theirs-v0", BOX, pair, data_format=kind)
    folder = datasets / "theirs-v0"
    path = folder / "data" / ("main_data.hdf5" if kind == "hdf5" else f"1/part-0.{kind}")
    content = path.read_bytes()
    for length in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        if kind != "hdf5" or length < len(content) - 1:
            refused(read_minari, folder)
        else:
            loaded_or_refused(read_minari, folder)
    path.unlink()
    assert "is missing" in refused(read_minari, folder)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_bad_tables(kind, datasets):
    import polars as pl

    created("theirs-v0", BOX, pair, data_format=kind)
    folder = datasets / "theirs-v0"
    path = folder / "data" / "1" / f"part-0.{kind}"
    read, write = (pl.read_ipc, "write_ipc") if kind == "arrow" else (pl.read_parquet, "write_parquet")
    good = read(path.read_bytes())
    spoiled = {
        "'actions' is missing": good.drop("actions"),
        "missing values": good.with_columns(actions=pl.lit(None, pl.Int64)),
        "not a list of whole numbers": good.with_columns(actions=pl.lit("a")),
        "not numbers of the announced shape": good.with_columns(observations=pl.lit(1.0)),
        "bytes and not the announced rows": good.with_columns(observations=pl.lit(b"a")),
        "one truth value": good.with_columns(terminations=pl.lit(0.5)),
    }
    for words, table in spoiled.items():
        getattr(table, write)(path)
        assert words in refused(read_minari, folder)
    constant = pl.select(pl.repeat(0, 30_000_000, dtype=pl.Int8).alias("actions"))
    zeros = {name: pl.lit(False) for name in ("terminations", "truncations")}
    pair_of_zeros = pl.concat_list(pl.lit(0, pl.Int8), pl.lit(0, pl.Int8)).list.to_array(2)
    if kind == "parquet":  # it can store one number for all rows
        constant.with_columns(**zeros).with_columns(observations=pair_of_zeros).write_parquet(path)
        assert path.stat().st_size < 1 << 19
        assert "bomb" in refused(read_minari, folder)


def test_images_that_are_none(datasets):
    shape = (32, 40)
    created("images-v0", gymnasium.spaces.Box(0, 255, shape, np.uint8), lambda step: np.zeros(shape, np.uint8))
    path = datasets / "images-v0" / "data" / "main_data.hdf5"
    with h5py.File(path, "a") as file:
        good = file["episode_0/observations"][()]
        replaced(file, "episode_0/observations", np.zeros_like(good))
    assert "damaged" in refused(read_minari, datasets / "images-v0")
    created("larger-v0", gymnasium.spaces.Box(0, 255, (64, 64), np.uint8), lambda step: np.zeros((64, 64), np.uint8))
    with h5py.File(path, "a") as file, h5py.File(datasets / "larger-v0" / "data" / "main_data.hdf5") as other:
        replaced(file, "episode_0/observations", other["episode_0/observations"][()])
    assert "another size" in refused(read_minari, datasets / "images-v0")


def test_an_evil_environment_is_text(datasets, tmp_path):
    """Minari would import the entry point if asked for the environment; here it is a name in the provenance."""
    mark = tmp_path / "mark"
    (tmp_path / "evil_module.py").write_text(f"open({str(mark)!r}, 'w')\nclass Env: pass\n")
    created("theirs-v0", BOX, pair, env="CartPole-v1")
    spec = json.loads(json.loads((datasets / "theirs-v0" / "data" / "metadata.json").read_text())["env_spec"])
    evil = spec | {"entry_point": "evil_module:Env", "id": "Evil-v0"}
    spoil_metadata(datasets / "theirs-v0", env_spec=json.dumps(evil), eval_env_spec=json.dumps(evil))
    reads = (
        "import sys; from sbil.demonstrations.formats.minari import read_minari; "
        "print(read_minari('theirs-v0').provenance['environment']); "
        "assert not {'evil_module', 'gymnasium', 'minari'} & set(sys.modules)"
    )
    python = {"cwd": tmp_path, "capture_output": True, "text": True, "check": True, "timeout": 100}
    assert subprocess.run([sys.executable, "-c", reads], **python).stdout == "Evil-v0\n"
    assert not mark.exists()
    for spec in ("not JSON", "[]", '{"id": 3}'):
        spoil_metadata(datasets / "theirs-v0", env_spec=spec)
        assert "environment" not in read_minari("theirs-v0").provenance
    # The environment is not asked for spaces that only it knows.
    spoil_metadata(datasets / "theirs-v0", env_spec=json.dumps(evil), observation_space=...)
    assert "sbil does not ask the environment" in refused(read_minari, datasets / "theirs-v0")
    subprocess.run([sys.executable, "-c", "import evil_module"], **python)  # the trap works
    assert mark.exists()


@settings(max_examples=60)
@given(st.data())
def test_any_damage_is_refused_or_read(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damaged")
    out = write_minari(rows(), "mine-v0", folder=folder)
    path = out / "data" / data.draw(st.sampled_from(["main_data.hdf5", "metadata.json"]))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    loaded_or_refused(read_minari, out)


def test_h5py_is_asked_for(monkeypatch, datasets):
    write_minari(rows(), "mine-v0")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match=r"pip install 'sbil\[minari\]'"):
        write_minari(rows(), "other-v0")
    assert "pip install 'sbil[minari]'" in refused(read_minari, datasets / "mine-v0")
