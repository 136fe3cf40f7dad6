"""ONNX: other programs get from the file what the policy gives, to rounding."""

import hashlib
import json
import sys
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest

import probes
from sbil import __version__, demonstrators
from sbil.dataset import Spec
from sbil.demonstrations import Column, Schema
from sbil.errors import UserError
from sbil.networks import ACTIVATIONS, MLP, ConvNet, Dense, Kernel, mlp, policy_network, seen, uniform_dense
from sbil.policy import WEIGHTS, Policy, Standardisation
from sbil.policy.guard import learned
from sbil.policy.onnx import OPERATORS, OPSET, as_bytes, export

RNG = np.random.default_rng(0)
COLUMNS, ACTIONS = ("heart rate [1/min]", 'a "b"\n|', "ü"), ("none", "dose, high")
SCALING = Standardisation(
    RNG.normal(100, 50, len(COLUMNS)).astype(np.float32), RNG.uniform(1, 500, len(COLUMNS)).astype(np.float32)
)
ENERGIES = np.sort(RNG.normal(size=1001)).astype(np.float32)
STATES = RNG.normal(size=(10_000, len(COLUMNS))).astype(np.float32)
STATES[5000:] *= 1000


def make(activation="elu", standardisation=SCALING, temperature=1.0, hidden=(64, 64)):
    layers = probes.network(len(COLUMNS), *hidden, len(ACTIONS)).layers
    return Policy(
        MLP(layers, activation),
        COLUMNS,
        ACTIONS,
        standardisation,
        {"algorithm": "edm", "seed": 3, "sbil": "0.0"},
        temperature=temperature,
        energies=ENERGIES,
    )


def make_images(kernels, shape=(36, 40, 2), actions=3):
    keys = jax.random.split(jax.random.key(0), len(kernels) + 1)
    sizes, last = seen(shape, kernels)
    layers = tuple(
        uniform_dense(key, size, kernel.outputs) for key, size, kernel in zip(keys, sizes, kernels, strict=False)
    )
    network = ConvNet(layers, mlp(keys[-1], (last, 16, actions), "relu"), shape, kernels)
    return Policy(network, (), tuple("abc"[:actions]), temperature=0.5)


def run(content, observations):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert names == ["logits", "probabilities", "energy"]
    return dict(zip(names, session.run(None, {"observation": observations}), strict=True))


def assert_same(policy, observations, content=None):
    """Logits and energies to 1e-5 of the largest logit of the row (float32 has no more), or absolutely where it is
    below 1; probabilities to what such an error of the logits can make of them, that is 1e-5 for all ordinary rows.
    """
    found = run(content or as_bytes(policy), observations)
    logits = policy.logits(observations)
    assert found["logits"].shape == logits.shape
    assert found["energy"].shape == (len(logits),)
    size = 1e-5 * np.maximum(1, np.abs(logits).max(axis=-1))
    assert (np.abs(found["logits"] - logits).max(axis=-1) <= size).all()
    assert (np.abs(found["energy"] - policy.energy(observations)) <= size).all()
    off = np.abs(found["probabilities"] - policy.probabilities(observations)).max(axis=-1)
    assert (off <= size / min(policy.temperature, 1)).all()
    np.testing.assert_allclose(found["probabilities"].sum(axis=-1), 1, atol=1e-6)
    sure = np.diff(np.sort(logits, axis=-1)[:, -2:], axis=-1)[:, 0] > 2 * size if logits.shape[1] > 1 else slice(None)
    np.testing.assert_array_equal(found["logits"].argmax(-1)[sure], policy.act(observations)[sure])


@pytest.mark.parametrize("standardisation", [None, SCALING], ids=["plain", "standardised"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_onnx_gives_what_the_policy_gives(activation, standardisation):
    assert_same(make(activation, standardisation, temperature=1.7), STATES)


@pytest.mark.parametrize("standardisation", [None, SCALING], ids=["plain", "standardised"])
def test_an_energy_of_its_own(standardisation):
    policy = make("elu", standardisation, temperature=1.7)
    rng = np.random.default_rng(3)
    level = Dense(jnp.asarray(rng.normal(size=(policy.network.output.weight.shape[0], 1)), jnp.float32), jnp.ones(1))
    network = MLP(policy.network.layers, "elu", level)
    assert_same(replace(policy, network=network), STATES)


def test_ordinary_rows_agree_absolutely():
    """In the units of the data, through the standardisation: nothing is off by more than 1e-5."""
    policy = make(temperature=0.7)
    rows = SCALING.mean + STATES[:5000] * SCALING.scale
    found = run(as_bytes(policy), rows)
    for name in ("logits", "probabilities", "energy"):
        assert np.abs(found[name] - getattr(policy, name)(rows)).max() <= 1e-5
    np.testing.assert_array_equal(found["logits"].argmax(-1), policy.act(rows))


def test_every_activation_has_an_operator():
    assert OPERATORS.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_number_of_rows(count):
    assert_same(make(), STATES[:count])


def test_no_hidden_layer_and_one_action():
    assert_same(make(hidden=()), STATES[:100])
    one = replace(make(), network=probes.network(3, 4, 1), action_names=("only",))
    assert_same(one, STATES[:100])


def test_the_energy_of_enormous_logits_is_finite():
    """log sum exp of (1000, 0) is 1000: exp(1000) would be infinite."""
    policy = Policy(probes.table(np.array([[1000.0, 0.0], [-1000.0, -1001.0]], np.float32)), ("a", "b"), ACTIONS)
    found = run(as_bytes(policy), np.eye(2, dtype=np.float32))
    np.testing.assert_allclose(found["energy"], [-1000, 1000 - np.log1p(np.exp(-1))], rtol=1e-6)
    np.testing.assert_allclose(found["probabilities"][0], [1, 0])


def test_the_temperature_is_inside():
    """A table of logits (2, 0) at temperature 2: the odds are e."""
    policy = Policy(probes.table(np.array([[2.0, 0.0]], np.float32)), ("a",), ACTIONS, temperature=2.0)
    found = run(as_bytes(policy), np.ones((1, 1), np.float32))
    np.testing.assert_allclose(found["probabilities"], [[np.e / (1 + np.e), 1 / (1 + np.e)]], rtol=1e-6)
    np.testing.assert_allclose(found["energy"], -np.log(np.e**2 + 1), rtol=1e-6)


@pytest.mark.parametrize("kernels", [(Kernel(8, 8, 4), Kernel(6, 4, 2)), (Kernel(4, 6, 2), Kernel(5, 3, 3))])
def test_images(kernels):
    policy = make_images(kernels)
    images = RNG.integers(0, 256, (70, 36, 40, 2), dtype=np.uint8)
    assert_same(policy, images)
    assert_same(policy, images[:1])


def test_images_of_the_papers_network():
    policy = Policy(policy_network(jax.random.key(1), Spec((36, 36, 4), 3)), (), ("a", "b", "c"))
    assert_same(policy, RNG.integers(0, 256, (8, 36, 36, 4), dtype=np.uint8))


@cache
def demonstrator(name):
    return demonstrators.get(name)


@pytest.mark.parametrize("name", demonstrators.names())
def test_shipped_demonstrators(name):
    policy = demonstrator(name)
    if isinstance(policy.network, ConvNet):
        observations = RNG.integers(0, 256, (8, *policy.network.shape), dtype=np.uint8)
    else:
        observations = RNG.normal(size=(10_000, len(policy.observation_names))).astype(np.float32)
    assert_same(policy, observations)


def test_what_is_outside_is_an_output():
    """Also what is not a code: 1.5 lies between two of them."""
    rng = np.random.default_rng(1)
    states = np.column_stack([rng.normal(100, 10, 300), rng.normal(size=300), rng.integers(0, 4, 300)])
    policy = replace(make(), guard=learned(states, np.arange(300), (0, 0, 4)))
    rows = np.concatenate([states, states * 3, states + 0.5, -states]).astype(np.float32)
    session = onnxruntime.InferenceSession(as_bytes(policy), providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["logits", "probabilities", "energy", "outside"]
    (found,) = session.run(["outside"], {"observation": rows})
    np.testing.assert_array_equal(found, policy.outside(rows))
    assert 0 < found.sum() < found.size
    model = onnx.load_from_string(as_bytes(policy))
    guard = next(json.loads(entry.value) for entry in model.metadata_props if entry.key == "guard")
    assert guard["measure"]["name"] == "range"
    np.testing.assert_array_equal(np.array(guard["arrays"]["guard.high"], np.float32), policy.guard.high)


# The file


def test_the_file_says_what_it_is(tmp_path):
    policy = make(temperature=1.25)
    export(policy, tmp_path / "policy.onnx")
    policy.save(tmp_path / "policy")
    model = onnx.load(tmp_path / "policy.onnx")
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", OPSET)]
    metadata = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert metadata["observation_names"] == list(COLUMNS)
    assert metadata["action_names"] == list(ACTIONS)
    assert metadata["temperature"] == 1.25
    assert metadata["provenance"] == policy.provenance
    assert metadata["sbil"] == __version__
    assert metadata["weights_sha256"] == hashlib.sha256((tmp_path / "policy" / WEIGHTS).read_bytes()).hexdigest()
    np.testing.assert_array_equal(np.array(metadata["energies"], np.float32), ENERGIES)
    assert metadata["schema"] is None


def test_the_schema_travels_with_it():
    schema = Schema("drug", (Column("a", unit="m"), Column("b"), Column("c")), ("none", "dose"))
    policy = replace(make(), schema=schema, observation_names=schema.observation_names)
    model = onnx.load_from_string(as_bytes(policy))
    (found,) = (json.loads(entry.value) for entry in model.metadata_props if entry.key == "schema")
    assert Schema.from_json(found) == schema


def test_the_same_policy_gives_the_same_bytes(tmp_path):
    make().save(tmp_path / "policy")
    assert as_bytes(make()) == as_bytes(make()) == as_bytes(Policy.load(tmp_path / "policy"))
    assert as_bytes(make()) != as_bytes(make(temperature=1.1))


def test_a_file_is_replaced_only_when_asked(tmp_path):
    path = tmp_path / "policy.onnx"
    path.write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        export(make(), path)
    assert path.read_text() == "mine"
    export(make(), path, overwrite=True)
    assert path.read_bytes() == as_bytes(make())
    with pytest.raises(UserError, match="is a folder"):
        export(make(), tmp_path, overwrite=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["policy.onnx"]


def test_without_onnx_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "sbil.policy.onnx")
    with pytest.raises(UserError, match=r"^[^\n]*pip install 'sbil\[onnx\]'$"):
        import sbil.policy.onnx  # noqa: F401
