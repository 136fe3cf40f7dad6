"""Agents of Stable-Baselines3: networks and returns are the same here, and no code in their files is ever run."""

import base64
import collections
import contextlib
import copy
import io
import json
import os
import pickle
import sys
import types
import zipfile
from itertools import pairwise

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shared
from probes import loaded_or_refused, refused
from sbil import environments
from sbil.cli import main
from sbil.demonstrators.collect import collect
from sbil.demonstrators.sb3 import agent as agents
from sbil.demonstrators.sb3 import arrays, import_agent
from sbil.errors import UserError
from sbil.evaluation.live import Policies, call, play
from sbil.policy import Policy
from sbil.training import stack

# Files as torch and Stable-Baselines3 write them, made with modules that are theirs in name only.


def pretended(module, name):
    """A class called module.name."""
    return type(name, (), {"__module__": module, "__qualname__": name})


@contextlib.contextmanager
def pretending(*things):
    """Provide the modules that things claim to come from, so that they can be pickled by name."""
    before = dict(sys.modules)
    for thing in things:
        parts = thing.__module__.split(".")
        for depth in range(1, len(parts) + 1):
            name = ".".join(parts[:depth])
            if name not in sys.modules or sys.modules[name] is before.get(name):
                sys.modules[name] = types.ModuleType(name)
        setattr(sys.modules[thing.__module__], thing.__name__, thing)
    try:
        yield
    finally:
        for name in set(sys.modules) - set(before):
            del sys.modules[name]
        sys.modules.update(before)


def _rebuild_tensor_v2(*arguments):
    raise AssertionError("this is never called")


_rebuild_tensor_v2.__module__ = "torch._utils"
KINDS = {"f2": "Half", "f4": "Float", "f8": "Double", "i8": "Long"}
STORAGES = {np.dtype(number): pretended("torch", f"{name}Storage") for number, name in KINDS.items()}


class Storage:
    def __init__(self, numbers, key):
        self.numbers, self.key = numbers, key


class Tensor:
    """Is pickled as torch pickles a tensor."""

    def __init__(self, array, key, **changes):
        self.array, self.key, self.changes = np.asarray(array), key, changes

    def __reduce__(self):
        base = self.array.base if self.array.base is not None else self.array
        parts = {
            "storage": Storage(np.ascontiguousarray(base).ravel(), self.key),
            "offset": (self.array.ctypes.data - base.ctypes.data) // base.itemsize,
            "shape": self.array.shape,
            "strides": tuple(step // base.itemsize for step in self.array.strides),
        } | self.changes
        return _rebuild_tensor_v2, (*parts.values(), False, collections.OrderedDict())


def torch_file(state, order="little", root="archive"):
    """What torch.save makes of a state dictionary."""
    file, stored = io.BytesIO(), {}

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            if isinstance(thing, Storage):
                stored[thing.key] = thing.numbers
                return ("storage", STORAGES[thing.numbers.dtype], str(thing.key), "cpu", len(thing.numbers))
            return None

    with pretending(_rebuild_tensor_v2, *STORAGES.values()):
        Pickler(file, protocol=2).dump(state)
    sign = {"little": "<", "big": ">"}.get(order, "<")
    members = {f"{root}/data.pkl": file.getvalue(), f"{root}/byteorder": order.encode()}
    members |= {f"{root}/data/{key}": n.astype(n.dtype.newbyteorder(sign)).tobytes() for key, n in stored.items()}
    return zipped(members | {f"{root}/version": b"3\n"})


def zipped(members, packing=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def blob(thing, *named):
    """How an entry of 'data' that is not JSON is kept."""
    with pretending(*named):
        content = pickle.dumps(thing)
    return {":type:": str(type(thing)), ":serialized:": base64.b64encode(content).decode()}


ACTOR_CRITIC = pretended("stable_baselines3.common.policies", "ActorCriticPolicy")
DQN = pretended("stable_baselines3.dqn.policies", "DQNPolicy")
TANH, RELU, ELU, GELU = (pretended("torch.nn.modules.activation", name) for name in ("Tanh", "ReLU", "ELU", "GELU"))


def random_layers(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(o, i)), rng.normal(size=o)) for i, o in pairwise(sizes)]


def state_of(layers, names):
    state = collections.OrderedDict()
    for name, (weight, bias) in zip(names, layers, strict=True):
        state[f"{name}.weight"] = Tensor(weight.astype(np.float32), f"{name}w")
        state[f"{name}.bias"] = Tensor(bias.astype(np.float32), f"{name}b")
    return state


PPO_NAMES = ("mlp_extractor.policy_net.0", "mlp_extractor.policy_net.2", "action_net")
PPO_LAYERS = random_layers(3, 5, 4, 2)
Q_LAYERS = random_layers(3, 6, 2, seed=1)


def ppo_state():
    state = state_of(PPO_LAYERS, PPO_NAMES)
    state |= state_of(random_layers(3, 5, 1, seed=2), ("mlp_extractor.value_net.0", "value_net"))
    return state


def space(kind, **entries):
    return {":type:": f"<class 'gymnasium.spaces.{kind.lower()}.{kind}'>", ":serialized:": "", **entries}


def description(kind=ACTOR_CRITIC, /, **changes):
    return {
        "policy_class": blob(kind, kind),
        "policy_kwargs": {},
        "action_space": space("Discrete", n="2"),
        "observation_space": space("Box", shape=[3], dtype="float32"),
        "clip_range": 0.2,
    } | changes


def agent(state=None, data=None, **options):
    """The bytes of an agent's file."""
    weights = torch_file(ppo_state() if state is None else state, **options)
    return zipped({"data": json.dumps(data or description()), "policy.pth": weights, "_stable_baselines3_version": "2"})


@pytest.fixture
def write(tmp_path):
    def write(content, name="agent.zip"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


OBSERVATIONS = np.random.default_rng(7).normal(size=(50, 3)).astype(np.float32)
FUNCTIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
}


def by_hand(layers, activation, x=OBSERVATIONS):
    """The logits in float64."""
    for index, (weight, bias) in enumerate(layers):
        x = x @ weight.T + bias
        x = FUNCTIONS[activation](x) if index < len(layers) - 1 else x
    return x


# What is read


def test_ppo(write):
    policy = import_agent(write(agent()))
    np.testing.assert_allclose(policy.logits(OBSERVATIONS), by_hand(PPO_LAYERS, "tanh"), rtol=1e-4, atol=1e-5)
    assert policy.observation_names == ("observation_0", "observation_1", "observation_2")
    assert policy.action_names == ("action_0", "action_1")
    assert policy.standardisation is None
    assert policy.provenance["algorithm"] == "ppo"
    assert policy.provenance["trained_by"] == "Stable-Baselines3"
    assert policy.provenance["file"] == "agent.zip"
    assert len(policy.provenance["sha256"]) == 64


def test_the_command_prints_json(write, tmp_path, capsys):
    main(["demos", "import", str(write(agent())), "--out", str(tmp_path / "policy"), "--json"])
    found = {"policy": str(tmp_path / "policy"), "algorithm": "ppo", "actions": ["action_0", "action_1"]}
    assert json.loads(capsys.readouterr().out) == found
    assert Policy.load(tmp_path / "policy").action_names == ("action_0", "action_1")


def test_dqn_acts_by_its_own_network_and_not_by_the_target(write):
    state = state_of(Q_LAYERS, ("q_net.q_net.0", "q_net.q_net.2"))
    state |= state_of(random_layers(3, 6, 2, seed=9), ("q_net_target.q_net.0", "q_net_target.q_net.2"))
    policy = import_agent(write(agent(state, description(DQN))))
    np.testing.assert_allclose(policy.logits(OBSERVATIONS), by_hand(Q_LAYERS, "relu"), rtol=1e-4, atol=1e-5)
    assert policy.provenance["algorithm"] == "dqn"


@pytest.mark.parametrize(("activation", "name"), [(TANH, "tanh"), (RELU, "relu"), (ELU, "elu")])
def test_activations(write, activation, name):
    settings = blob({"activation_fn": activation, "net_arch": [{"pi": [5, 4], "vf": [5]}]}, activation)
    policy = import_agent(write(agent(data=description(policy_kwargs=settings))))
    np.testing.assert_allclose(policy.logits(OBSERVATIONS), by_hand(PPO_LAYERS, name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ((3, 2), ("action_net",)),
        ((3, 4, 5, 2), ("mlp_extractor.shared_net.0", "mlp_extractor.policy_net.0", "action_net")),
        ((3, 4, 2), ("mlp_extractor.shared_net.0", "action_net")),
    ],
)
def test_shapes_of_networks(write, sizes, names):
    layers = random_layers(*sizes)
    without = {name: value for name, value in description().items() if name != "clip_range"}
    policy = import_agent(write(agent(state_of(layers, names), without)))
    np.testing.assert_allclose(policy.logits(OBSERVATIONS), by_hand(layers, "tanh"), rtol=1e-4, atol=1e-5)
    assert policy.provenance["algorithm"] == "a2c"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["little", "big"])
def test_numbers_of_any_width_and_order(write, dtype, order):
    weight, bias = (part.astype(dtype) for part in random_layers(3, 2)[0])
    state = collections.OrderedDict({"action_net.weight": Tensor(weight, 0), "action_net.bias": Tensor(bias, 1)})
    layer = import_agent(write(agent(state, order=order, root="weights"))).network.layers[0]
    np.testing.assert_array_equal(layer.weight, weight.T.astype(np.float32))
    np.testing.assert_array_equal(layer.bias, bias.astype(np.float32))


def test_views_of_a_storage(write):
    """A tensor may be any window of what was stored, transposed."""
    kept = np.arange(20, dtype=np.float32).reshape(5, 4)
    weight, bias = kept[1:4, 2:].T, kept[4, 1:3]
    assert weight.shape == (2, 3)
    state = collections.OrderedDict({"action_net.weight": Tensor(weight, 0), "action_net.bias": Tensor(bias, 0)})
    layer = import_agent(write(agent(state))).network.layers[0]
    np.testing.assert_array_equal(layer.weight, [[6, 7], [10, 11], [14, 15]])
    np.testing.assert_array_equal(layer.bias, [17, 18])


def test_names(write):
    path = write(agent())
    assert import_agent(path, action_names=("stay", "go")).action_names == ("stay", "go")
    with pytest.raises(UserError, match=r"agent\.zip: the agent has 2 actions\. Got 3 action names"):
        import_agent(path, action_names=("a", "b", "c"))
    with pytest.raises(UserError, match="sees 3 numbers and has 2 actions, which does not fit CartPole-v1"):
        import_agent(path, "CartPole-v1")
    with pytest.raises(UserError, match="unknown environment 'CartPole-v7'"):
        import_agent(path, "CartPole-v7")


def test_an_imported_policy_is_a_policy(write, tmp_path):
    layers = random_layers(4, 8, 2)
    data = description(observation_space=space("Box", shape=[4]))
    policy = import_agent(write(agent(state_of(layers, (PPO_NAMES[0], "action_net")), data)), "CartPole-v1")
    policy.save(tmp_path / "policy")
    again = Policy.load(tmp_path / "policy")
    seen = np.random.default_rng(0).normal(size=(100, 4))
    np.testing.assert_array_equal(again.logits(seen), policy.logits(seen))
    assert dict(again.provenance) == dict(policy.provenance)
    recorded, _ = collect(environments.get("CartPole-v1"), policy, 2, 0, greedy=True, provenance={})
    assert recorded.observation_names == policy.observation_names
    for trajectory in recorded.trajectories:
        np.testing.assert_array_equal(policy.act(trajectory.observations[:-1]), trajectory.actions)


# VecNormalize

NORMALISE = pretended("stable_baselines3.common.vec_env.vec_normalize", "VecNormalize")
MOMENTS = pretended("stable_baselines3.common.running_mean_std", "RunningMeanStd")
MEAN, VAR = np.array([0.5, -1.0, 3.0]), np.array([4.0, 0.25, 0.0])


def statistics(protocol=4, moments=None, **changes):
    """The bytes of a file of statistics; the variance of the last number is 0."""
    kept, rms = NORMALISE(), MOMENTS()
    rms.__dict__.update({"mean": MEAN, "var": VAR, "count": 10.0} | (moments or {}))
    entries = {"num_envs": 1, "obs_rms": rms, "clip_obs": 10.0, "gamma": 0.99, "epsilon": 1e-2, "norm_obs": True}
    kept.__dict__.update(entries | {"old_obs": OBSERVATIONS} | changes)
    with pretending(NORMALISE, MOMENTS):
        return pickle.dumps(kept, protocol)


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4"])
def test_statistics_standardise(write, protocol, dtype):
    moments = {"mean": MEAN.astype(dtype), "var": VAR.astype(dtype)}
    path = write(statistics(protocol, moments), "vecnormalize.pkl")
    policy = import_agent(write(agent()), vecnormalize=path)
    np.testing.assert_array_equal(policy.standardisation.mean, MEAN.astype(np.float32))
    np.testing.assert_array_equal(policy.standardisation.scale, np.sqrt(VAR + 1e-2).astype(np.float32))
    seen = (OBSERVATIONS - MEAN) / np.sqrt(VAR + 1e-2)
    np.testing.assert_allclose(policy.logits(OBSERVATIONS), by_hand(PPO_LAYERS, "tanh", seen), rtol=1e-3, atol=1e-4)
    assert policy.provenance["vecnormalize"] == "vecnormalize.pkl"
    assert policy.provenance["clip"] == 10


def test_statistics_of_rewards_alone_change_nothing(write):
    path = write(statistics(norm_obs=False, obs_rms=None), "vecnormalize.pkl")
    assert import_agent(write(agent()), vecnormalize=path).standardisation is None


# What is refused


class Trap:
    """Its pickle leaves a mark when it is loaded."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


HEARD = []
LISTENING = False


def listen(event, arguments):
    if LISTENING and event in ("os.system", "subprocess.Popen", "os.exec", "pickle.find_class"):
        HEARD.append((event, arguments))


sys.addaudithook(listen)


@contextlib.contextmanager
def silence():
    """Fail if anything in a file is run while the block runs."""
    global LISTENING
    HEARD.clear()
    LISTENING = True
    try:
        yield
    finally:
        LISTENING = False
    assert not HEARD


def statistics_of(path):
    """Import a good agent with the statistics at `path`."""
    good = path.with_name("good.zip")
    good.write_bytes(agent())
    return import_agent(good, vecnormalize=path)


def changed(state, **changes):
    """A state in which one tensor is pickled with other arguments."""
    state = copy.copy(state)
    weight = state["action_net.weight"]
    state["action_net.weight"] = Tensor(weight.array, weight.key, **changes)
    return state


def with_array(array):
    return ppo_state() | {"action_net.weight": Tensor(array, "x")}


def test_traps_are_never_sprung(write, tmp_path):
    mark = tmp_path / "mark"
    trap = Trap(mark)
    traps = {
        "the state": agent(trap),
        "a tensor": agent(collections.OrderedDict(ppo_state() | {"action_net.weight": trap})),
        "a storage": agent(changed(ppo_state(), storage=trap)),
        "an unused tensor": agent(collections.OrderedDict(ppo_state() | {"value_net.bias": trap})),
        "the class": agent(data=description(policy_class=blob(trap))),
        "the settings": agent(data=description(policy_kwargs=blob(trap))),
        "the activation": agent(data=description(policy_kwargs=blob({"activation_fn": trap}))),
        "the extractor": agent(data=description(policy_kwargs=blob({"features_extractor_class": trap}))),
    }
    for where, content in traps.items():
        path = write(content)
        with silence():
            assert refused(import_agent, path), where
    for where, content in {
        "all": pickle.dumps(trap),
        "moments": statistics(obs_rms=trap),
        "mean": statistics(moments={"mean": trap}),
        "epsilon": statistics(epsilon=trap),
    }.items():
        path = write(content, "vecnormalize.pkl")
        with silence():
            assert refused(statistics_of, path), where
    # A trap in an entry that is not read does nothing either.
    harmless = [agent(data=description(_last_obs=blob(trap))), agent(data=description(policy_kwargs=blob({"x": trap})))]
    for content in harmless:
        path = write(content)
        with silence():
            import_agent(path)
    with silence():
        statistics_of(write(statistics(action_space=trap), "vecnormalize.pkl"))
    assert not mark.exists()
    pickle.loads(pickle.dumps(trap))  # the trap works
    assert mark.exists()


CNN = pretended("stable_baselines3.common.policies", "ActorCriticCnnPolicy")
RECURRENT = pretended("sb3_contrib.common.recurrent.policies", "RecurrentActorCriticPolicy")
NATURE = pretended("stable_baselines3.common.torch_layers", "NatureCNN")
REFUSED = {
    "continuous": (lambda: agent(data=description(action_space=space("Box", shape=[2]))), "its actions are of Box"),
    "several actions": (lambda: agent(data=description(action_space=space("MultiDiscrete"))), "MultiDiscrete"),
    "dictionary": (lambda: agent(data=description(observation_space=space("Dict"))), "observations are of Dict"),
    "one number": (lambda: agent(data=description(observation_space=space("Discrete"))), "are of Discrete"),
    "images": (lambda: agent(data=description(observation_space=space("Box", shape=[84, 84, 4]))), "images"),
    "no space": (lambda: agent(data=description(action_space=None)), "unknown"),
    "convolutions": (lambda: agent(data=description(CNN)), "its policy is 'ActorCriticCnnPolicy'"),
    "recurrent": (lambda: agent(data=description(RECURRENT)), "'RecurrentActorCriticPolicy'"),
    "no class": (lambda: agent(data=description(policy_class=None)), "another class"),
    "activation": (lambda: agent(data=description(policy_kwargs=blob({"activation_fn": GELU}, GELU))), "'GELU'"),
    "extractor": (
        lambda: agent(data=description(policy_kwargs=blob({"features_extractor_class": NATURE}, NATURE))),
        "'NatureCNN'",
    ),
    "settings": (lambda: agent(data=description(policy_kwargs=[1])), "'policy_kwargs' are not a dictionary"),
    "bad base64": (lambda: agent(data=description(policy_kwargs={":serialized:": "!"})), "damaged"),
    "bad pickle": (lambda: agent(data=description(policy_kwargs={":serialized:": "AAAA"})), "damaged"),
    "empty pickle": (lambda: agent(data=description(policy_kwargs={":serialized:": ""})), "damaged"),
    "data is a list": (lambda: zipped({"data": "[]", "policy.pth": b""}), "'data' is not the description"),
    "data is not JSON": (lambda: zipped({"data": "{", "policy.pth": b""}), "damaged"),
    "deep JSON": (lambda: zipped({"data": "[" * 100_000}), "damaged"),
    "no data": (lambda: zipped({"policy.pth": b""}), "has no 'data'"),
    "no weights": (lambda: zipped({"data": json.dumps(description())}), "has no 'policy.pth'"),
    "old torch": (lambda: zipped({"data": json.dumps(description()), "policy.pth": b"\x80\x02."}), "torch before 1.6"),
    "no pickle": (
        lambda: zipped({"data": json.dumps(description()), "policy.pth": zipped({"a/version": b"3"})}),
        "policy.pth has no 'archive/data.pkl'",
    ),
    "empty file": (lambda: b"", "not a zip archive"),
    "truncated": (lambda: agent()[:2000], "not a zip archive"),
    "plain dictionary": (lambda: agent({"a": 1}), "does not hold the state of a network"),
    "not a tensor": (lambda: agent(collections.OrderedDict(a=1)), "'a' is not a plain tensor"),
    "a name of two lines": (lambda: agent(collections.OrderedDict({"a\nb": 1})), "that no layer can have"),
    "a number for a name": (lambda: agent(collections.OrderedDict({3: 1})), "that no layer can have"),
    "order": (lambda: agent(order="middle"), "byte order"),
    "continuous parameters": (lambda: agent(ppo_state() | {"log_std": Tensor(np.zeros(2, "f4"), "s")}), "'log_std'"),
    "a layer between": (
        lambda: agent(ppo_state() | {"mlp_extractor.policy_net.1.weight": Tensor(np.zeros(5, "f4"), "s")}),
        "'mlp_extractor.policy_net.1.weight', which no plain network has",
    ),
    "no output": (lambda: agent(state_of(PPO_LAYERS[:2], PPO_NAMES[:2])), "no weight and bias 'action_net'"),
    "empty state": (lambda: agent(collections.OrderedDict(), description(DQN)), "do not fit each other"),
    "layers that do not fit": (lambda: agent(with_array(np.zeros((2, 9), "f4"))), "do not fit each other"),
    "weights of one axis": (lambda: agent(with_array(np.zeros(4, "f4"))), "have shapes (4,) and (2,)"),
    "other input": (lambda: agent(data=description(observation_space=space("Box", shape=[4]))), "it sees 4 numbers"),
    "NaN": (lambda: agent(with_array(np.full((2, 4), np.nan, "f4"))), "not finite"),
    "too large": (lambda: agent(with_array(np.full((2, 4), 1e300))), "not finite"),
    "whole numbers": (lambda: agent(with_array(np.zeros((2, 4), "i8"))), "does not hold floating point numbers"),
    "no storage": (lambda: agent(changed(ppo_state(), storage=None)), "where its numbers lie"),
    "too many numbers": (lambda: agent(changed(ppo_state(), shape=(3, 4))), "bytes do not fill"),
    "beyond the end": (lambda: agent(changed(ppo_state(), offset=1)), "bytes do not fill"),
    "before the beginning": (lambda: agent(changed(ppo_state(), offset=-1)), "bytes do not fill"),
    "backwards": (lambda: agent(changed(ppo_state(), strides=(-4, 1))), "bytes do not fill"),
    "leaps": (lambda: agent(changed(ppo_state(), strides=(10**9, 1))), "bytes do not fill"),
    "one number for all": (lambda: agent(changed(ppo_state(), shape=(10**6, 10**6), strides=(0, 0))), "do not fill"),
    "strides of another rank": (lambda: agent(changed(ppo_state(), strides=(1,))), "bytes do not fill"),
    "lists for shapes": (lambda: agent(changed(ppo_state(), shape=[2, 4])), "bytes do not fill"),
    "no numbers": (lambda: agent(changed(ppo_state(), shape=(0, 4))), "bytes do not fill"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(write, case):
    make, words = REFUSED[case]
    path = write(make())
    with silence():
        line = refused(import_agent, path)
    assert words in line
    assert len(line) < 200 + len(str(path))


def test_bombs(write, monkeypatch):
    """A file that unpacks to more than any agent is refused; the bomb may be the inner archive or the outer one."""
    monkeypatch.setattr(arrays, "LARGEST", 1 << 20)
    bomb = zipped({"archive/data.pkl": bytes(1 << 21)}, zipfile.ZIP_DEFLATED)
    data = json.dumps(description())
    for content in (zipped({"data": data, "policy.pth": bomb}), bomb):
        assert "unpacks to more than 1 MiB; refused as a likely bomb" in refused(import_agent, write(content))
    monkeypatch.setattr(agents, "LARGEST", 100)
    assert "larger than" in refused(import_agent, write(agent()))


def test_numbers_that_are_missing(write):
    weights = zipfile.ZipFile(io.BytesIO(torch_file(ppo_state())))
    members = {name: weights.read(name) for name in weights.namelist() if not name.endswith("action_netw")}
    path = write(zipped({"data": json.dumps(description()), "policy.pth": zipped(members)}))
    assert "the numbers of 'action_net.weight' are missing" in refused(import_agent, path)


def test_no_file(tmp_path):
    assert "no such file" in refused(import_agent, tmp_path / "none.zip")
    assert "no such file" in refused(import_agent, tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"moments": {"mean": MEAN[:2]}}, "the statistics are of 2 numbers, the agent sees 3"),
        ({"moments": {"var": -VAR}}, "the agent sees 3"),
        ({"moments": {"var": np.array([1, np.nan, 1])}}, "'var' of the statistics is not an array of finite numbers"),
        ({"moments": {"mean": np.zeros((3, 1))}}, "'mean' of the statistics"),
        ({"moments": {"mean": np.zeros(3, int)}}, "'mean' of the statistics"),
        ({"moments": {"mean": np.array([None] * 3)}}, "'mean' of the statistics"),
        ({"moments": {"mean": [1.0, 2.0, 3.0]}}, "'mean' of the statistics"),
        ({"obs_rms": {"image": 1}}, "of a dictionary"),
        ({"epsilon": "small"}, "'epsilon' of the statistics is not a positive number"),
        ({"clip_obs": float("inf")}, "'clip_obs'"),
    ],
)
def test_statistics_refused(write, changes, words):
    for protocol in (4, 5):
        path = write(statistics(protocol, **changes), "vecnormalize.pkl")
        with silence():
            assert words in refused(statistics_of, path)


@pytest.mark.parametrize("content", [b"", b"\x80\x04", pickle.dumps({"obs_rms": 1}), b"(lp0\n.", b"\x80\x04\x82\x01."])
def test_pickles_refused(write, content):
    refused(statistics_of, write(content, "vecnormalize.pkl"))


GOOD = {"zip": agent(), "pickle": statistics(), "weights": torch_file(ppo_state())}


@given(st.sampled_from(sorted(GOOD)), st.data())
def test_any_damage_is_refused_or_harmless(tmp_path_factory, which, data):
    content = bytearray(GOOD[which])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    if which == "weights":
        content = zipped({"data": json.dumps(description()), "policy.pth": content})
    path = tmp_path_factory.getbasetemp() / f"damaged.{which}"
    path.write_bytes(content)
    with silence():
        loaded_or_refused(statistics_of if which == "pickle" else import_agent, path)


# The agents of the RL Baselines3 Zoo

AGENTS = shared.path("sb3-agents")
ZOO = pytest.mark.shared("sb3-agents")
# Mean returns of 100 episodes, played by Stable-Baselines3: file, environment, greedy, sampled.
RETURNS = [
    ("ppo-CartPole-v1", "CartPole-v1", 500.0, 500.0),
    ("ppo-Acrobot-v1", "Acrobot-v1", -73.1, -76.8),
    ("ppo-LunarLander-v2", "LunarLander-v3", 244.2, 145.5),
    ("dqn-CartPole-v1", "CartPole-v1", 500.0, None),
    ("dqn-Acrobot-v1", "Acrobot-v1", -77.2, None),
    ("dqn-LunarLander-v2", "LunarLander-v3", 148.9, None),
]


def zoo(name, environment):
    found = AGENTS / f"{name}-vecnormalize.pkl"
    with silence():
        return import_agent(AGENTS / f"{name}.zip", environment, found if found.exists() else None)


@ZOO
@pytest.mark.parametrize(("name", "environment", "greedy", "sampled"), RETURNS)
def test_returns_of_the_zoo(name, environment, greedy, sampled):
    policy = zoo(name, environment)
    policies = Policies(call, stack([policy.plain_network]))
    for listed, mode in ((greedy, True), (sampled, False)):
        if listed is not None:
            reached = play(environments.get(environment), policies, jax.random.key(0), 60, mode)[0]
            error = reached.std() * (1 / 60 + 1 / 100) ** 0.5
            assert abs(reached.mean() - listed) <= 4 * error


@ZOO
def test_clipping_never_binds_in_acrobot():
    """No state of Acrobot is as far from the mean as VecNormalize clips."""
    policy = zoo("ppo-Acrobot-v1", "Acrobot-v1")
    high = np.array([1, 1, 1, 1, 4 * np.pi, 9 * np.pi])
    furthest = (high + np.abs(policy.standardisation.mean)) / policy.standardisation.scale
    assert furthest.max() < policy.provenance["clip"]


@ZOO
def test_without_its_statistics_the_agent_is_another():
    bare = import_agent(AGENTS / "ppo-Acrobot-v1.zip", "Acrobot-v1")
    reached = play(environments.get("Acrobot-v1"), Policies(call, stack([bare.network])), jax.random.key(0), 30)
    assert reached.mean() < -80
