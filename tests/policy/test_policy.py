"""Policies: what is saved comes back bit for bit, and no folder can do harm."""

import ast
import hashlib
import json
import os
import struct
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import probes
import sbil
from probes import loaded_or_refused, refused
from sbil import files
from sbil.demonstrations import Column, Schema
from sbil.errors import UserError
from sbil.networks import MLP, Dense
from sbil.policy import DESCRIPTION, WEIGHTS, Policy, Standardisation
from sbil.policy.folder import SEAL, sealed
from sbil.policy.guard import learned
from sbil.policy.guard_measures import fitted

RNG = np.random.default_rng(0)
OBSERVATIONS = RNG.normal(size=(50, 4)).astype(np.float32)
ENERGIES = np.sort(RNG.normal(-1.5, 0.3, 1001)).astype(np.float32)
SCHEMA = Schema(
    action="treatment",
    columns=(Column("position", unit="m"), Column("speed", fill=0.5), Column("side", "one-hot", ("L", "R"))),
    actions=("left", "stay", "right"),
    episode="ride",
    missing="mean",
)
SCALING = Standardisation(RNG.normal(size=4).astype(np.float32), RNG.uniform(0.5, 2, 4).astype(np.float32))
STATES = RNG.normal(size=(200, 4))
MEASURE = replace(fitted("distance", STATES), scores=np.linspace(0, 3, 1001).astype(np.float32))
GUARD = replace(learned(STATES, np.arange(200)), measure=MEASURE)
GUARDED = ("guard.", "measure.")  # how the names of its arrays begin


def make(seed=0, standardisation=SCALING, hidden=(64, 64), temperature=1.0):
    return Policy(
        probes.network(4, *hidden, 3, seed=seed),
        ("position", "speed", "angle", "spin"),
        ("left", "stay", "right"),
        standardisation,
        {"algorithm": "edm", "seed": 3},
        temperature=temperature,
        energies=ENERGIES,
        guard=GUARD,
    )


def tabular():
    """A policy that was trained on a table."""
    return replace(make(hidden=(5,)), schema=SCHEMA, observation_names=SCHEMA.observation_names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved policy, small; tests copy its files and change them."""
    path = tmp_path_factory.mktemp("policy") / "good"
    make(hidden=(5,)).save(path)
    return path


@pytest.fixture
def copy(folder, tmp_path):
    return written(tmp_path / "copy", (folder / DESCRIPTION).read_bytes(), (folder / WEIGHTS).read_bytes())


def written(path, description, weights):
    path.mkdir(exist_ok=True)
    (path / DESCRIPTION).write_bytes(description)
    (path / WEIGHTS).write_bytes(weights)
    return path


def loads_or_is_refused(path):
    """What loads can act."""
    if policy := loaded_or_refused(Policy.load, path):
        logits = policy.logits(np.zeros(len(policy.observation_names)))
        assert logits.shape == (len(policy.action_names),)


# Acting


def test_logits_are_those_of_the_network_on_scaled_observations():
    policy = make()
    expected = policy.network((OBSERVATIONS - SCALING.mean) / SCALING.scale)
    np.testing.assert_allclose(policy.logits(OBSERVATIONS), expected, rtol=1e-5, atol=1e-6)
    assert np.abs(policy.logits(OBSERVATIONS) - make(standardisation=None).logits(OBSERVATIONS)).max() > 0.1


def test_one_row_equals_many_rows():
    """Equal up to rounding: one row is multiplied by other instructions than many rows."""
    policy = make()
    many = policy.logits(OBSERVATIONS)
    assert many.shape == (50, 3)
    for count in (1, 2, 7, 33):
        np.testing.assert_allclose(policy.logits(OBSERVATIONS[:count]), many[:count], rtol=0, atol=2e-6)
    alone = [policy.logits(observation) for observation in OBSERVATIONS]
    assert alone[0].shape == (3,)
    np.testing.assert_allclose(alone, many, rtol=0, atol=2e-6)


def test_act_is_the_most_probable_action():
    policy = make()
    np.testing.assert_array_equal(policy.act(OBSERVATIONS), policy.logits(OBSERVATIONS).argmax(-1))
    np.testing.assert_array_equal(policy.act(OBSERVATIONS), policy.probabilities(OBSERVATIONS).argmax(-1))
    assert policy.act(OBSERVATIONS[0]) == policy.act(OBSERVATIONS)[0]
    assert len(set(policy.act(OBSERVATIONS).tolist())) > 1


def test_probabilities_sum_to_one():
    probabilities = make().probabilities(OBSERVATIONS)
    assert (probabilities > 0).all()
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(make().probabilities(OBSERVATIONS[0]), probabilities[0], rtol=0, atol=2e-6)


def test_energy_is_minus_log_sum_exp():
    policy = make()
    expected = -np.log(np.exp(policy.logits(OBSERVATIONS).astype(float)).sum(-1))
    np.testing.assert_allclose(policy.energy(OBSERVATIONS), expected, rtol=1e-5, atol=1e-6)
    assert policy.energy(OBSERVATIONS[0]).shape == ()


@pytest.mark.parametrize("shape", [(), (3,), (5,), (0,), (2, 3), (2, 2, 4), (4, 1)])
def test_observations_of_another_shape_are_refused(shape):
    with pytest.raises(UserError, match="position, speed, angle, spin"):
        make().logits(np.zeros(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
def test_observations_that_are_not_finite_are_refused_by_name(bad):
    observation = np.zeros((3, 4))
    observation[1, 2] = bad
    with pytest.raises(UserError, match="'angle'"):
        make().act(observation)


def test_the_temperature_changes_probabilities_and_neither_actions_nor_energies():
    warm, cold = make(temperature=2.5), make()
    logits = cold.logits(OBSERVATIONS).astype(float) / 2.5
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(warm.probabilities(OBSERVATIONS), expected, rtol=1e-5)
    np.testing.assert_array_equal(warm.act(OBSERVATIONS), cold.act(OBSERVATIONS))
    np.testing.assert_array_equal(warm.energy(OBSERVATIONS), cold.energy(OBSERVATIONS))


def test_the_percentile_is_the_share_of_training_states_with_a_lower_energy():
    policy = replace(make(), guard=None)
    expected = [100 * (energy > ENERGIES).mean() for energy in policy.energy(OBSERVATIONS)]
    np.testing.assert_allclose(policy.percentile(OBSERVATIONS), expected, atol=0.11)
    assert np.ptp(policy.percentile(OBSERVATIONS)) > 0
    policy = replace(policy, guard=None)
    everything = replace(policy, energies=np.full(1001, 9, np.float32))
    assert everything.percentile(OBSERVATIONS[0]) == 0
    nothing = replace(policy, energies=np.full(1001, -99, np.float32))
    assert nothing.percentile(OBSERVATIONS[0]) == 100
    with pytest.raises(UserError, match="energies of its training states"):
        replace(policy, energies=None).percentile(OBSERVATIONS)


def test_the_plain_network_sees_what_people_see():
    policy = make()
    np.testing.assert_allclose(policy.plain_network(OBSERVATIONS), policy.logits(OBSERVATIONS), rtol=1e-4, atol=1e-5)
    assert make(standardisation=None).plain_network is not None


def test_predict_is_as_in_stable_baselines():
    action, state = make().predict(OBSERVATIONS[0])
    assert (action, state) == (make().act(OBSERVATIONS[0]), None)
    np.testing.assert_array_equal(make().predict(OBSERVATIONS)[0], make().act(OBSERVATIONS))
    with pytest.raises(UserError, match="most probable"):
        make().predict(OBSERVATIONS[0], deterministic=False)


def test_many_rows_are_seen_in_parts():
    from sbil.policy.policy import ROWS

    policy, rows = make(hidden=(5,)), np.tile(OBSERVATIONS, (ROWS // 50 + 2, 1))
    np.testing.assert_allclose(policy.logits(rows)[-50:], policy.logits(OBSERVATIONS), atol=2e-6)
    assert policy.logits(rows[:0]).shape == (0, 3)


# Saving and loading


def test_everything_a_policy_is_comes_back(tmp_path):
    policy = replace(tabular(), temperature=1.75)
    policy.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    assert (loaded.schema, loaded.temperature) == (SCHEMA, 1.75)
    np.testing.assert_array_equal(loaded.energies, ENERGIES)
    np.testing.assert_array_equal(loaded.percentile(OBSERVATIONS), policy.percentile(OBSERVATIONS))


def test_a_folder_of_the_first_format_is_still_read(copy):
    tensors = tensors_of(copy)
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(("energies", *GUARDED))}
    rewrite(copy, tensors=tensors, version=1, temperature=..., energies=..., schema=..., guard=..., sha256=...)
    loaded = Policy.load(copy)
    assert (loaded.temperature, loaded.energies, loaded.schema) == (1, None, None)
    np.testing.assert_array_equal(loaded.logits(OBSERVATIONS), make(hidden=(5,)).logits(OBSERVATIONS))


def test_a_folder_without_a_hash_of_its_entries_is_still_read(copy):
    """In the format before it, and only there, a changed entry is not noticed."""
    tensors = {name: tensor for name, tensor in tensors_of(copy).items() if not name.startswith(GUARDED)}
    rewrite(copy, tensors=tensors, version=2, guard=..., sha256=..., temperature=2.5)
    assert Policy.load(copy).temperature == 2.5
    for changes in ({"version": 2}, {"sha256": ...}):
        make(hidden=(5,)).save(copy, overwrite=True)
        rewrite(copy, **changes)
        assert "damaged" in refused(Policy.load, copy)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"temperature": 1.0', '"temperature": 1.5'),
        ('"fill": 0.5', '"fill": 0.6'),
        ('"unit": "m"', '"unit": "k"'),
        ('"seed": 3', '"seed": 4'),
        ('"version": 4', '"version": 3'),
    ],
)
def test_an_entry_changed_by_hand_is_refused(tmp_path, old, new):
    tabular().save(tmp_path / "policy")
    text = (tmp_path / "policy" / DESCRIPTION).read_text()
    assert text.count(old) == 1
    (tmp_path / "policy" / DESCRIPTION).write_text(text.replace(old, new))
    assert "the folder is damaged" in refused(Policy.load, tmp_path / "policy")


def test_actions_that_were_swapped_are_refused(tmp_path):
    """They are swapped in the list of names and in the schema, so that only the hash differs."""
    tabular().save(tmp_path / "policy")
    text = (tmp_path / "policy" / DESCRIPTION).read_text()
    swapped = text.replace('"left"', '"?"').replace('"right"', '"left"').replace('"?"', '"right"')
    (tmp_path / "policy" / DESCRIPTION).write_text(swapped)
    assert "hash differs" in refused(Policy.load, tmp_path / "policy")
    (tmp_path / "policy" / DESCRIPTION).write_text(json.dumps(sealed(json.loads(swapped))))  # a hash is no signature
    assert Policy.load(tmp_path / "policy").action_names == ("right", "stay", "left")


def test_white_space_says_nothing(copy):
    """An editor or a checkout may change line ends."""
    (copy / DESCRIPTION).write_bytes((copy / DESCRIPTION).read_bytes().replace(b"\n", b"\r\n"))
    assert Policy.load(copy).action_names == ("left", "stay", "right")


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "policy").mkdir()
    make(hidden=(5,)).save(tmp_path / "policy")
    assert Policy.load(tmp_path / "policy").action_names == ("left", "stay", "right")
    with pytest.raises(UserError, match="exists already"):
        make(1, hidden=(5,)).save(tmp_path / "policy")


def test_an_energy_of_its_own_comes_back(tmp_path):
    policy = make(hidden=(5,))
    level = Dense(jnp.asarray(np.random.default_rng(3).normal(size=(5, 1)), jnp.float32), jnp.ones(1))
    policy = replace(policy, network=MLP(policy.network.layers, policy.network.activation, level))
    policy.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    np.testing.assert_array_equal(loaded.logits(OBSERVATIONS), policy.logits(OBSERVATIONS))
    np.testing.assert_array_equal(loaded.energy(OBSERVATIONS), policy.energy(OBSERVATIONS))
    rewrite(
        tmp_path / "policy",
        network={**json.loads((tmp_path / "policy" / "policy.json").read_text())["network"], "level": False},
    )
    with pytest.raises(UserError, match="'level' is missing or wrong"):
        Policy.load(tmp_path / "policy")


@pytest.mark.parametrize("standardisation", [None, SCALING], ids=["plain", "standardised"])
def test_round_trip_is_bit_for_bit(tmp_path, standardisation):
    policy = make(standardisation=standardisation)
    policy.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    np.testing.assert_array_equal(loaded.logits(OBSERVATIONS), policy.logits(OBSERVATIONS))
    assert loaded.observation_names == policy.observation_names
    assert loaded.action_names == policy.action_names
    assert loaded.provenance == policy.provenance
    assert (loaded.standardisation is None) == (standardisation is None)


def test_same_policy_same_bytes(tmp_path):
    for name in ("one", "other"):
        make().save(tmp_path / name)
    for file in (DESCRIPTION, WEIGHTS):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [DESCRIPTION, WEIGHTS]


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_save_does_not_overwrite_unasked(tmp_path):
    make(0).save(tmp_path / "policy")
    before = contents(tmp_path / "policy")
    with pytest.raises(UserError, match="exists already"):
        make(1).save(tmp_path / "policy")
    assert contents(tmp_path / "policy") == before
    make(1).save(tmp_path / "policy", overwrite=True)
    np.testing.assert_array_equal(Policy.load(tmp_path / "policy").logits(OBSERVATIONS), make(1).logits(OBSERVATIONS))
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]  # nothing is left behind


def test_save_does_not_replace_a_file(tmp_path):
    (tmp_path / "policy").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(UserError):
            make().save(tmp_path / "policy", overwrite)
    assert (tmp_path / "policy").read_text() == "precious"


@pytest.mark.parametrize("failing", ["fsync", "rename of the folder", "rename of a file"])
@pytest.mark.parametrize("call", [1, 2])
def test_an_error_while_saving_leaves_the_old_folder(tmp_path, monkeypatch, failing, call):
    """The disk is full or a rename fails, at the first or at the second call."""
    make(0).save(tmp_path / "policy")
    before = contents(tmp_path / "policy")
    calls = []

    def fail_at(original):
        def wrapper(*args, **kwargs):
            calls.append(args)
            if len(calls) == call:
                raise OSError(28, "No space left on device")
            return original(*args, **kwargs)

        return wrapper

    place, name = {
        "fsync": (os, "fsync"),
        "rename of the folder": (Path, "rename"),
        "rename of a file": (os, "replace"),
    }[failing]
    with monkeypatch.context() as patch:
        patch.setattr(place, name, fail_at(getattr(place, name)))
        with pytest.raises(OSError, match="No space"):
            make(1).save(tmp_path / "policy", overwrite=True)
    assert len(calls) >= call
    assert contents(tmp_path / "policy") == before
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_interrupted_save_leaves_no_folder(tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make().save(tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


# Hostile folders


def description_of(path):
    return json.loads((path / DESCRIPTION).read_text())


def rewrite(path, tensors=None, weights=None, **changes):
    """Write other weights and other entries of the description with the right hashes; `...` removes an entry."""
    if tensors is not None:
        weights = safetensors.numpy.save(tensors)
    description = description_of(path)
    if weights is not None:
        (path / WEIGHTS).write_bytes(weights)
        description["weights_sha256"] = hashlib.sha256(weights).hexdigest()
    description.update(changes)
    description = {name: value for name, value in description.items() if value is not ...}
    if SEAL in description and SEAL not in changes:
        description = sealed(description)
    (path / DESCRIPTION).write_text(json.dumps(description))


def tensors_of(path):
    return safetensors.numpy.load((path / WEIGHTS).read_bytes())


def test_the_copy_is_good(copy):
    """It shows that the cases below are refused because of their change."""
    rewrite(copy, tensors=tensors_of(copy))
    assert Policy.load(copy).action_names == ("left", "stay", "right")


NETWORK = {"kind": "mlp", "sizes": [4, 5, 3], "activation": "elu"}
ENTRIES = {
    "newer version": {"version": 5},
    "version 0": {"version": 0},
    "version of truth": {"version": True},
    "version of text": {"version": "1\n2"},
    "foreign format": {"format": "else"},
    "format of a list": {"format": []},
    "extra entry": {"extra": 1},
    "other kind": {"network": {**NETWORK, "kind": "cnn"}},
    "unknown activation": {"network": {**NETWORK, "activation": "os.system"}},
    "activation of a list": {"network": {**NETWORK, "activation": ["elu"]}},
    "network of a list": {"network": []},
    "network of text": {"network": "mlp"},
    "extra in network": {"network": {**NETWORK, "extra": 1}},
    "sizes too short": {"network": {**NETWORK, "sizes": [4]}},
    "sizes too many": {"network": {**NETWORK, "sizes": [4, *[5] * 100, 3]}},
    "sizes of another network": {"network": {**NETWORK, "sizes": [4, 6, 3]}},
    "huge sizes": {"network": {**NETWORK, "sizes": [4, 10**12, 3]}},
    "large sizes": {"network": {**NETWORK, "sizes": [4, 1 << 20, 1 << 20, 3]}},
    "negative sizes": {"network": {**NETWORK, "sizes": [4, -5, 3]}},
    "zero size": {"network": {**NETWORK, "sizes": [4, 0, 3]}},
    "size of truth": {"network": {**NETWORK, "sizes": [4, True, 3]}},
    "size of a real number": {"network": {**NETWORK, "sizes": [4, 5.0, 3]}},
    "too few observation names": {"observation_names": ["a"]},
    "observation names of numbers": {"observation_names": [1, 2, 3, 4]},
    "observation names of text": {"observation_names": "abcd"},
    "too many action names": {"action_names": ["a", "b", "c", "d"]},
    "standardised of text": {"standardised": "yes"},
    "not standardised": {"standardised": False},
    "temperature 0": {"temperature": 0},
    "temperature of text": {"temperature": "1"},
    "no energies": {"energies": False},
    "energies of text": {"energies": "yes"},
    "schema of text": {"schema": "treatment"},
    "schema of other columns": {"schema": SCHEMA.as_json()},
    "schema with a stranger": {"schema": {**SCHEMA.as_json(), "stranger": 1}},
    "wrong hash": {"weights_sha256": "0" * 64},
    "hash of a number": {"weights_sha256": 0},
    "wrong hash of the entries": {"sha256": "0" * 64},
    "number for the hash of the entries": {"sha256": 0},
    "provenance of a list": {"provenance": []},
    **{f"no {name}": {name: ...} for name in (
        "format", "version", "network", "observation_names", "action_names",
        "standardised", "temperature", "energies", "schema", "weights_sha256", "provenance", "sha256", "guard",
    )},
    **{f"guard: {case}": {"guard": described} for case, described in {
        "a list": [], "a word": "yes", "none, but its arrays are there": None, "without counts": {"measure": None},
        "inside too much": {**GUARD.as_json(), "inside": 1.5}, "inside of text": {**GUARD.as_json(), "inside": "1"},
        "rows of a fraction": {**GUARD.as_json(), "rows": 1.5}, "a stranger": {**GUARD.as_json(), "x": 1},
        "no measure": {**GUARD.as_json(), "measure": None},
        "a measure of text": {**GUARD.as_json(), "measure": "energy"},
        **{f"a measure with {change}": {**GUARD.as_json(), "measure": {**GUARD.as_json()["measure"], **change}}
           for change in ({"name": "os.system"}, {"name": ["energy"]}, {"name": "energy"}, {"centres": 10**9},
                          {"centres": True}, {"record": 1}, {"record": {"words": 1}}, {"x": 1})},
    }.items()},
}  # fmt: skip


@pytest.mark.parametrize("case", ENTRIES)
def test_hostile_entries_are_refused(copy, case):
    rewrite(copy, **ENTRIES[case])
    refused(Policy.load, copy)


def nan(tensors):
    tensors["layers.0.weight"][1, 2] = np.nan


def infinite(tensors):
    tensors["layers.1.bias"][0] = np.inf


def missing(tensors):
    del tensors["layers.1.bias"]


def extra(tensors):
    tensors["extra"] = np.zeros(1, np.float32)


def renamed(tensors):
    tensors["layers.9.bias"] = tensors.pop("layers.1.bias")


def transposed(tensors):
    tensors["layers.0.weight"] = np.ascontiguousarray(tensors["layers.0.weight"].T)


def whole_numbers(tensors):
    tensors["layers.0.weight"] = tensors["layers.0.weight"].view(np.int32)


def double(tensors):
    tensors["layers.1.bias"] = tensors["layers.1.bias"].astype(np.float64)


def no_scale(tensors):
    tensors["standardisation.scale"][0] = 0


def falling_energies(tensors):
    tensors["energies"] = np.ascontiguousarray(tensors["energies"][::-1])


def range_that_ends_before_it_begins(tensors):
    tensors["guard.low"][0] = tensors["guard.high"][0] + 1


def falling_quantiles(tensors):
    tensors["guard.quantiles"] = np.ascontiguousarray(tensors["guard.quantiles"][:, ::-1])


def no_spread(tensors):
    tensors["measure.spread"][0] = 0


def falling_scores(tensors):
    tensors["measure.scores"] = np.ascontiguousarray(tensors["measure.scores"][::-1])


def other_centres(tensors):
    tensors["measure.centres"] = tensors["measure.centres"][:-1]


def negative_scale(tensors):
    tensors["standardisation.scale"][0] = -1


@pytest.mark.parametrize(
    "change",
    [
        nan,
        infinite,
        missing,
        extra,
        renamed,
        transposed,
        whole_numbers,
        double,
        no_scale,
        negative_scale,
        falling_energies,
        range_that_ends_before_it_begins,
        falling_quantiles,
        no_spread,
        falling_scores,
        other_centres,
    ],
    ids=lambda change: change.__name__,
)
def test_hostile_tensors_are_refused(copy, change):
    tensors = tensors_of(copy)
    change(tensors)
    rewrite(copy, tensors=tensors)
    refused(Policy.load, copy)


@pytest.mark.parametrize(
    "weights",
    [
        b"",
        b"\x00" * 300,
        b"\xff" * 300,
        struct.pack("<Q", 2**63) + b"{}" + bytes(300),
        struct.pack("<Q", 2) + b"{}" + bytes(300),
    ],
    ids=["empty", "zeros", "ones", "huge header", "no tensors"],
)
def test_weights_that_are_no_safetensors_are_refused(copy, weights):
    rewrite(copy, weights=weights)
    refused(Policy.load, copy)


def test_weights_far_larger_than_the_network_are_refused(copy):
    tensors = {**tensors_of(copy), "extra": np.zeros(1 << 19, np.float32)}
    rewrite(copy, tensors=tensors)
    assert "size" in refused(Policy.load, copy)


def test_weights_of_another_policy_are_refused(copy):
    tensors = tensors_of(copy)
    tensors["layers.0.weight"] *= 2
    (copy / WEIGHTS).write_bytes(safetensors.numpy.save(tensors))
    assert "hash" in refused(Policy.load, copy)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"{",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"format": NaN}',
        b'{"format": Infinity}',
        b"9" * 10_000,
        b'{"version": ' + b"9" * 10_000 + b"}",
        b" " * (1 << 20) + b"{}",
    ],
    ids=[
        "empty",
        "null",
        "list",
        "no text",
        "open",
        "deep",
        "deep objects",
        "NaN",
        "infinity",
        "huge",
        "huge version",
        "large",
    ],
)
def test_hostile_descriptions_are_refused(copy, text):
    (copy / DESCRIPTION).write_bytes(text)
    refused(Policy.load, copy)


def test_keys_given_twice_are_refused(copy):
    text = (copy / DESCRIPTION).read_text()
    (copy / DESCRIPTION).write_text(text.replace('"version": 4', '"version": 4, "version": 4'))
    refused(Policy.load, copy)
    inner = text.replace('"kind": "mlp"', '"kind": "cnn", "kind": "mlp"')
    assert inner != text
    (copy / DESCRIPTION).write_text(inner)
    refused(Policy.load, copy)


def test_incomplete_folders_are_refused(copy, tmp_path):
    (copy / WEIGHTS).unlink()
    assert WEIGHTS in refused(Policy.load, copy)
    (copy / WEIGHTS).mkdir()
    refused(Policy.load, copy)
    (copy / DESCRIPTION).unlink()
    assert DESCRIPTION in refused(Policy.load, copy)
    refused(Policy.load, tmp_path / "nowhere")
    (tmp_path / "file").write_text("{}")
    refused(Policy.load, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    refused(Policy.load, tmp_path / "empty")


CHANGES = st.lists(
    st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=4), st.sampled_from("rid")), min_size=1, max_size=4
)


def mutated(content, changes):
    for place, new, kind in changes:
        place %= len(content)
        keep = place + (len(new) if kind in "rd" else 0)
        content = content[:place] + (b"" if kind == "d" else new) + content[keep:] or b"?"
    return content


@settings(max_examples=200)
@given(changes=CHANGES)
def test_mutated_descriptions_do_no_harm(folder, changes):
    description, weights = (folder / DESCRIPTION).read_bytes(), (folder / WEIGHTS).read_bytes()
    loads_or_is_refused(written(folder.parent / "mutated", mutated(description, changes), weights))


@settings(max_examples=100)
@given(changes=CHANGES)
def test_mutated_weights_are_refused(folder, changes):
    description, weights = (folder / DESCRIPTION).read_bytes(), (folder / WEIGHTS).read_bytes()
    new = mutated(weights, changes)
    path = written(folder.parent / "mutated", description, new)
    if new == weights:
        Policy.load(path)
    else:
        refused(Policy.load, path)


@settings(max_examples=200)
@given(changes=CHANGES)
def test_mutated_weights_with_the_right_hash_do_no_harm(folder, changes):
    description, weights = (folder / DESCRIPTION).read_bytes(), (folder / WEIGHTS).read_bytes()
    path = written(folder.parent / "mutated", description, weights)
    rewrite(path, weights=mutated(weights, changes))
    loads_or_is_refused(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200)
@given(data=st.data())
def test_entries_of_any_json_do_no_harm(folder, data):
    path = written(folder.parent / "mutated", (folder / DESCRIPTION).read_bytes(), (folder / WEIGHTS).read_bytes())
    description = description_of(path)
    where = data.draw(st.sampled_from([description, description["network"]]))
    where[data.draw(st.sampled_from(sorted(where)))] = data.draw(JSON)
    (path / DESCRIPTION).write_text(json.dumps(sealed(description) if data.draw(st.booleans()) else description))
    loads_or_is_refused(path)


# The source


FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def offences(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").split(".")[0]]
        else:
            names = []
        yield from (f"{node.lineno}: import {name}" for name in names if name in FORBIDDEN_MODULES)
        if isinstance(node, ast.Name) and node.id in FORBIDDEN_CALLS:
            yield f"{node.lineno}: {node.id}"
        if (
            isinstance(node, ast.keyword)
            and node.arg in ("allow_pickle", "shell")
            and ast.unparse(node.value) != "False"
        ):
            yield f"{node.value.lineno}: {node.arg}"


@pytest.mark.parametrize(
    "bad",
    [
        "import pickle",
        "from pickle import loads",
        "import yaml",
        "eval('1')",
        "f = exec",
        "np.load(p, allow_pickle=True)",
    ],
)
def test_the_search_finds(bad):
    assert list(offences(ast.parse(bad)))


def test_the_source_runs_nothing_that_it_reads():
    sources = list(Path(sbil.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    found = {str(path): list(offences(ast.parse(path.read_text()))) for path in sources}
    assert not {path: lines for path, lines in found.items() if lines}
