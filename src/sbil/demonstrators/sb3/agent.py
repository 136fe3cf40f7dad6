"""The zip file of a Stable-Baselines3 agent as a policy: PPO or A2C (MlpPolicy), or DQN, with discrete actions.

    policy = import_agent("ppo-Acrobot-v1.zip", "Acrobot-v1", "ppo-Acrobot-v1-vecnormalize.pkl")

The scaling of observations by VecNormalize becomes the policy's standardisation. VecNormalize also clips them, by
default at 10 standard deviations. A policy does not clip, so the two differ for observations beyond that.
"""

import base64
import hashlib
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from sbil import environments
from sbil.demonstrators.sb3 import pickles
from sbil.demonstrators.sb3.arrays import LARGEST, Archive, numpy_array, tensors
from sbil.demonstrators.sb3.pickles import Made, Name
from sbil.errors import UserError, naming
from sbil.networks import MLP, Dense
from sbil.policy import Policy, Standardisation


class Kind(NamedTuple):
    """How the agents with one class of policy keep the network that acts."""

    stacks: tuple[str, ...]  # sequences of layers with activations between them, in order
    output: str | None  # the layer after them; None if the last of them is the output
    ignored: tuple[str, ...]  # networks that do not choose actions
    activation: str  # the default


KINDS = {
    Name("stable_baselines3.common.policies", "ActorCriticPolicy"): Kind(
        ("mlp_extractor.shared_net.", "mlp_extractor.policy_net."),
        "action_net",
        ("mlp_extractor.value_net.", "value_net."),
        "tanh",
    ),
    Name("stable_baselines3.dqn.policies", "DQNPolicy"): Kind(("q_net.q_net.",), None, ("q_net_target.",), "relu"),
}
ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "ELU": "elu"}
DAMAGED = "not a readable file"
FLATTEN = Name("stable_baselines3.common.torch_layers", "FlattenExtractor")


def import_agent(
    path: str | Path,
    environment: str | None = None,
    vecnormalize: str | Path | None = None,
    action_names: tuple[str, ...] | None = None,
) -> Policy:
    """Read the policy from an agent's zip file. Nothing in the file is run; what is not known is refused.

    environment: its names of observations and actions are taken, and the policy must fit it.
    vecnormalize: the file of the VecNormalize statistics, if the agent was trained with them.
    action_names: instead of those of the environment.

    The logits of a DQN are its action values. Its greedy policy is the agent; draws from their softmax are not.
    """
    content = _content(Path(path))
    with naming(path, DAMAGED):
        network, algorithm = _agent(content)
    inputs, actions = len(network.layers[0].weight), len(network.output.bias)
    standardisation, provenance = None, {}
    if vecnormalize is not None:
        statistics = _content(Path(vecnormalize))
        with naming(vecnormalize, DAMAGED):
            standardisation, clip = _standardisation(statistics, inputs)
        provenance = {
            "vecnormalize": Path(vecnormalize).name,
            "vecnormalize_sha256": hashlib.sha256(statistics).hexdigest(),
            "clip": clip,
        }
    task = environments.get(environment) if environment else None
    if action_names is None:
        action_names = task.action_names if task else tuple(f"action_{i}" for i in range(actions))
    if len(action_names) != actions:
        raise UserError(f"{path}: the agent has {actions} actions. Got {len(action_names)} action names.")
    if task and task.spec != ((inputs,), actions):
        raise UserError(
            f"{path}: the agent sees {inputs} numbers and has {actions} actions, which does not fit "
            f"{task.name}; give the environment it was trained in."
        )
    return Policy(
        network,
        task.observation_names if task else tuple(f"observation_{i}" for i in range(inputs)),
        tuple(action_names),
        standardisation=standardisation,
        provenance={
            **({"environment": task.name} if task else {}),
            "algorithm": algorithm,
            "trained_by": "Stable-Baselines3",
            "file": Path(path).name,
            "sha256": hashlib.sha256(content).hexdigest(),
            **provenance,
        },
    )


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise UserError(f"{path}: there is no such file.")
    with naming(path):
        if path.stat().st_size > LARGEST:
            raise UserError(f"larger than {LARGEST >> 20} MiB; refused.")
        return path.read_bytes()


def _agent(content: bytes) -> tuple[MLP, str]:
    """(the network that acts, the algorithm that trained it)."""
    archive = Archive(content, "the file")
    described = json.loads(archive["data"])
    if not isinstance(described, dict):
        raise UserError("'data' is not the description of an agent; it is damaged.")
    policy_class = _serialized(described.get("policy_class"))
    if not isinstance(policy_class, Name) or policy_class not in KINDS:
        raise UserError(f"its policy is {_called(policy_class)}; only MlpPolicy of PPO, A2C and DQN can be imported.")
    inputs = _spaces(described)
    settings = _serialized(described.get("policy_kwargs", {}))
    if not isinstance(settings, dict):
        raise UserError("'policy_kwargs' are not a dictionary; it is damaged.")
    extractor = settings.get("features_extractor_class", FLATTEN)
    if extractor != FLATTEN:
        raise UserError(f"its features come from {_called(extractor)}; only flat observations can be imported.")
    kind = KINDS[policy_class]
    network = MLP(_layers(tensors(archive["policy.pth"]), kind), _activation(settings, kind))
    if network.layers[0].weight.shape[0] != inputs:
        raise UserError(f"it sees {inputs} numbers, its network reads {network.layers[0].weight.shape[0]}.")
    algorithm = "dqn" if kind.output is None else "ppo" if "clip_range" in described else "a2c"
    return network, algorithm


def _serialized(entry: Any) -> Any:
    """An entry of 'data', or the content of its pickle."""
    if isinstance(entry, dict) and ":serialized:" in entry:
        return pickles.read(base64.b64decode(entry[":serialized:"], validate=True))
    return entry


def _called(value: Any) -> str:
    return f"'{value.name}'" if isinstance(value, Name) else "of another class"


def _spaces(described: dict[str, Any]) -> int:
    """How many numbers are observed; refuse other spaces."""
    acts, sees = (described.get(name) for name in ("action_space", "observation_space"))
    for space, what, wanted in ((acts, "actions", "Discrete"), (sees, "observations", "Box")):
        kind = re.search(r"(\w{1,64})'>$", str(space.get(":type:"))) if isinstance(space, dict) else None
        if not kind or kind[1] != wanted:
            raise UserError(
                f"its {what} are of {kind[1] if kind else 'an unknown space'}; only discrete actions and observations "
                "that are rows of numbers (Box) can be imported."
            )
    shape = sees["shape"] if isinstance(sees, dict) else None
    if not (isinstance(shape, list) and len(shape) == 1 and type(shape[0]) is int):
        raise UserError("it observes images or other arrays; only rows of numbers can be imported.")
    return shape[0]


def _activation(settings: dict[Any, Any], kind: Kind) -> str:
    if "activation_fn" not in settings:
        return kind.activation
    chosen = settings["activation_fn"]
    if not isinstance(chosen, Name) or chosen.module != "torch.nn.modules.activation" or chosen.name not in ACTIVATIONS:
        raise UserError(f"its activation is {_called(chosen)}; only {', '.join(ACTIVATIONS)} can be imported.")
    return ACTIVATIONS[chosen.name]


def _layers(arrays: dict[str, np.ndarray], kind: Kind) -> tuple[Dense, ...]:
    """The layers that act, in order."""
    arrays = {name: array for name, array in arrays.items() if not name.startswith(kind.ignored)}
    layers = []
    for stack in kind.stacks:
        depth = 0
        while f"{stack}{depth}.weight" in arrays:
            layers.append(_layer(arrays, f"{stack}{depth}"))
            depth += 2  # the activation stands between
    if kind.output:
        layers.append(_layer(arrays, kind.output))
    if arrays:
        raise UserError(f"policy.pth holds '{min(arrays)}', which no plain network has; it cannot be imported.")
    shapes = [layer.weight.shape for layer in layers]
    if not layers or any(one[1] != other[0] for one, other in pairwise(shapes)):
        raise UserError(f"policy.pth: its layers of {shapes} do not fit each other.")
    return tuple(layers)


def _layer(arrays: dict[str, np.ndarray], name: str) -> Dense:
    """Take a layer out of `arrays`; torch keeps its matrix as [outputs, inputs]."""
    weight, bias = arrays.pop(f"{name}.weight", None), arrays.pop(f"{name}.bias", None)
    if weight is None or bias is None:
        raise UserError(f"policy.pth has no weight and bias '{name}'; it is not from MlpPolicy, or incomplete.")
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise UserError(f"policy.pth: the weight and bias '{name}' have shapes {weight.shape} and {bias.shape}.")
    return Dense(jnp.asarray(weight.T), jnp.asarray(bias))


def _standardisation(content: bytes, inputs: int) -> tuple[Standardisation | None, float]:
    """(standardisation or None, where observations are clipped) of VecNormalize statistics."""
    kept = pickles.read(content)
    normalise = Name("stable_baselines3.common.vec_env.vec_normalize", "VecNormalize")
    if not isinstance(kept, Made) or kept.what != normalise or not isinstance(kept.state, dict):
        raise UserError("these are not the statistics of VecNormalize.")
    epsilon, clip = (_positive(kept.state.get(name), name) for name in ("epsilon", "clip_obs"))
    if kept.state.get("norm_obs") is False:
        return None, clip
    moments = kept.state.get("obs_rms")
    if not isinstance(moments, Made) or not isinstance(moments.state, dict):
        raise UserError("the statistics have no mean and variance of the observations (or many, of a dictionary).")
    mean, variance = (numpy_array(moments.state.get(name), f"'{name}' of the statistics") for name in ("mean", "var"))
    if mean.shape != (inputs,) or variance.shape != (inputs,) or not (variance >= 0).all():
        seen = f"the statistics are of {len(mean)} numbers, the agent sees {inputs}"
        raise UserError(f"{seen}; give those it was trained with.")
    return Standardisation(mean.astype(np.float32), np.sqrt(variance + epsilon).astype(np.float32)), clip


def _positive(number: Any, name: str) -> float:
    if not isinstance(number, float | int) or not 0 < number < float("inf"):
        raise UserError(f"'{name}' of the statistics is not a positive number; they are damaged.")
    return float(number)
