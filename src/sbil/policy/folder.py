"""The folder of a policy: `policy.json` describes it, `weights.safetensors` holds its arrays.

Loading runs no code. It checks the weights against the hash and shapes that policy.json declares, and policy.json
against the hash of its own entries; anything else is refused. The hashes find damage, and entries changed by hand. They
are no signature: an attacker can write new ones.
"""

import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from sbil import files
from sbil.dataset import Standardisation
from sbil.demonstrations import Schema
from sbil.errors import UserError, named
from sbil.networks import ACTIVATIONS, MLP, ConvNet, Dense, Kernel, Network, seen
from sbil.policy.policy import Policy

FORMAT = "sbil-policy"
VERSION = 3
FIRST = 1  # the format before temperature, energies and schema; still read
UNSEALED = 2  # the last format without a hash of policy.json; still read, without this check
DESCRIPTION = "policy.json"
WEIGHTS = "weights.safetensors"
KNOWN = ("README.md", "metrics.csv")  # other files that may be in the folder; they are replaced too
SEAL = "sha256"  # the entry of policy.json that is the hash of all others
LARGEST_DESCRIPTION = 1 << 20
LARGEST_WIDTH = 1 << 20
ENERGIES = 1001  # quantiles of the training states' energies


def save(policy: Policy, path: Path, overwrite: bool, extra: Mapping[str, bytes]) -> None:
    """Write the whole folder, or nothing."""
    weights = safetensors.numpy.save(_tensors(policy))
    description = {
        "format": FORMAT,
        "version": VERSION,
        "network": _architecture(policy.network),
        "observation_names": list(policy.observation_names),
        "action_names": list(policy.action_names),
        "standardised": policy.standardisation is not None,
        "temperature": float(policy.temperature),
        "energies": policy.energies is not None,
        "schema": policy.schema.as_json() if policy.schema else None,
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "provenance": dict(policy.provenance),
    }
    if path.is_dir() and not any(path.iterdir()):
        overwrite = True  # there is nothing to lose
    if overwrite and path.is_dir():
        strange = sorted({entry.name for entry in path.iterdir()} - {DESCRIPTION, WEIGHTS, *KNOWN, *extra})
        if strange:
            raise UserError(f"{path} holds '{strange[0]}', which is not part of a policy; it is not overwritten.")
    with files.new_folder(path, overwrite) as folder:
        for name, content in extra.items():
            files.write_bytes(folder / name, content)
        files.write_bytes(folder / WEIGHTS, weights)
        text = json.dumps(sealed(description), indent=2, sort_keys=True, allow_nan=False)
        files.write_text(folder / DESCRIPTION, text + "\n")


def sealed(description: Mapping[str, Any]) -> dict[str, Any]:
    """Add to the entries of policy.json the hash of all others: of their JSON with sorted keys and no white space."""
    entries = {name: value for name, value in description.items() if name != SEAL}
    entries = json.loads(json.dumps(entries))  # as they are after reading: keys are text, tuples are lists
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    return {**entries, SEAL: hashlib.sha256(text.encode()).hexdigest()}


def pieces(policy: Policy) -> dict[str, Any]:
    """Return what a policy does, apart from its origin: two policies that always act the same have the same."""
    tensors = _tensors(policy)
    layers = {f"{name}.{part}" for name in _layers(policy.network) for part in ("weight", "bias")}
    scale = ("standardisation.mean", "standardisation.scale")
    return {
        "weights": {name: tensors[name].tobytes() for name in sorted(layers)},
        "network": _architecture(policy.network),
        "standardisation": [tensors[name].tobytes() for name in scale if name in tensors],
        "temperature": policy.temperature,
        "energies": tensors["energies"].tobytes() if "energies" in tensors else None,
        "observation names": policy.observation_names,
        "action names": policy.action_names,
        "schema": policy.schema.as_json() if policy.schema else None,
    }


def is_part(path: Path) -> bool:
    """Whether a file is part of a policy folder."""
    folder = path.parent
    own = (folder / name for name in (DESCRIPTION, WEIGHTS, *KNOWN))
    return (folder / DESCRIPTION).exists() and path.exists() and any(p.exists() and p.samefile(path) for p in own)


def load(path: Path) -> Policy:
    """Read a policy folder; a damaged, foreign or newer one is a UserError that names it."""
    if not path.is_dir():
        raise UserError(f"{path}: there is no such policy folder.")
    with named(path):
        return _load(path)


def _architecture(network: Network) -> dict[str, Any]:
    """Return a description of the network that gives the shape of every array."""
    dense = network.head if isinstance(network, ConvNet) else network
    sizes = [dense.layers[0].weight.shape[0], *(layer.weight.shape[1] for layer in dense.layers)]
    described: dict[str, Any] = {"kind": "mlp", "sizes": sizes, "activation": dense.activation}
    if isinstance(network, ConvNet):
        kernels = [list(kernel) for kernel in network.kernels]
        described |= {"kind": "conv", "image": list(network.shape), "convolutions": kernels}
    return described if dense.level is None else described | {"level": True}


def _layers(network: Network) -> dict[str, Dense]:
    """Return every layer by its name in the file."""
    convolutions = network.convolutions if isinstance(network, ConvNet) else ()
    dense = network.head if isinstance(network, ConvNet) else network
    named = {f"convolutions.{index}": layer for index, layer in enumerate(convolutions)}
    named |= {f"layers.{index}": layer for index, layer in enumerate(dense.layers)}
    return named if dense.level is None else named | {"level": dense.level}


def _shapes(described: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return (inputs, outputs) of every layer of the described network."""
    shapes: dict[str, tuple[int, int]] = {}
    if described["kind"] == "conv":
        kernels = _kernels(described)
        patches, _ = seen(tuple(described["image"]), kernels)
        for index, (patch, kernel) in enumerate(zip(patches, kernels, strict=True)):
            shapes[f"convolutions.{index}"] = (patch, kernel.outputs)
    shapes |= {f"layers.{index}": pair for index, pair in enumerate(pairwise(described["sizes"]))}
    return shapes | {"level": (described["sizes"][-2], 1)} if "level" in described else shapes


def _kernels(described: dict[str, Any]) -> tuple[Kernel, ...]:
    return tuple(Kernel(*numbers) for numbers in described["convolutions"])


def _tensors(policy: Policy) -> dict[str, np.ndarray]:
    tensors = {}
    for name, layer in _layers(policy.network).items():
        tensors[f"{name}.weight"] = np.asarray(layer.weight, np.float32)
        tensors[f"{name}.bias"] = np.asarray(layer.bias, np.float32)
    if policy.standardisation:
        tensors["standardisation.mean"] = np.asarray(policy.standardisation.mean, np.float32)
        tensors["standardisation.scale"] = np.asarray(policy.standardisation.scale, np.float32)
    if policy.energies is not None:
        tensors["energies"] = np.asarray(policy.energies, np.float32)
    return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def _load(path: Path) -> Policy:
    description = _description(path / DESCRIPTION)
    described = description["network"]
    layers = _shapes(described)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (inputs, outputs) in layers.items():
        shapes |= {f"{name}.weight": (inputs, outputs), f"{name}.bias": (outputs,)}
    if description["standardised"]:
        shapes["standardisation.mean"] = shapes["standardisation.scale"] = (described["sizes"][0],)
    if description["energies"]:
        shapes["energies"] = (ENERGIES,)
    tensors = _weights(path / WEIGHTS, shapes, description["weights_sha256"])
    filled = {name: Dense(*(jnp.asarray(tensors[f"{name}.{part}"]) for part in ("weight", "bias"))) for name in layers}
    stacked = tuple(layer for name, layer in filled.items() if name.startswith("layers"))
    dense = MLP(stacked, described["activation"], filled.get("level"))
    network: Network = dense
    if described["kind"] == "conv":
        convolutions = tuple(layer for name, layer in filled.items() if name.startswith("convolutions"))
        network = ConvNet(convolutions, dense, tuple(described["image"]), _kernels(described))
    standardisation = None
    if description["standardised"]:
        standardisation = Standardisation(tensors["standardisation.mean"], tensors["standardisation.scale"])
        if not (standardisation.scale > 0).all():
            raise UserError(f"{WEIGHTS}: a scale of the standardisation is not positive; the folder is damaged.")
    if description["energies"] and (np.diff(tensors["energies"]) < 0).any():
        raise UserError(f"{WEIGHTS}: the quantiles of the energies do not ascend; the folder is damaged.")
    return Policy(
        network=network,
        observation_names=tuple(description["observation_names"]),
        action_names=tuple(description["action_names"]),
        standardisation=standardisation,
        provenance=description["provenance"],
        temperature=float(description["temperature"]),
        energies=tensors.get("energies"),
        schema=_schema(description),
    )


def _schema(description: dict[str, Any]) -> Schema | None:
    """Return the schema; it must give exactly the names of the policy."""
    if description["schema"] is None:
        return None
    with named(DESCRIPTION):
        schema = Schema.from_json(description["schema"])
    names = list(schema.observation_names), list(schema.actions)
    if names != (description["observation_names"], description["action_names"]):
        raise UserError(f"{DESCRIPTION}: the schema does not give the names of the policy; the folder is damaged.")
    return schema


def _description(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{DESCRIPTION} is missing; this is not a policy folder.")
    if path.stat().st_size > LARGEST_DESCRIPTION:
        raise UserError(f"{DESCRIPTION} is larger than 1 MiB; refused.")
    description = files.json_object(path.read_bytes(), DESCRIPTION, "the folder")
    if description.get("format") != FORMAT:
        raise UserError(f"{DESCRIPTION} does not describe a policy of sbil.")
    if type(description.get("version")) is not int or not FIRST <= description["version"] <= VERSION:
        raise UserError(
            f"the policy is in format {description.get('version')!r}, this sbil reads format {FIRST} to {VERSION}; "
            "load it with the sbil that wrote it, or upgrade."
        )
    if description["version"] == FIRST:
        description = {"temperature": 1.0, "energies": False, "schema": None} | description
    for what, good in _conditions(description).items():
        if not good:
            raise UserError(f"{DESCRIPTION}: {what} is missing or wrong; the folder is damaged.")
    if description["version"] > UNSEALED and sealed(description)[SEAL] != description[SEAL]:
        raise UserError(f"{DESCRIPTION} was changed after it was written (hash differs); the folder is damaged.")
    return description


def _conditions(description: dict[str, Any]) -> dict[str, bool]:
    network = description.get("network")
    network = network if isinstance(network, dict) else {}
    sizes: Any = network.get("sizes")
    good_sizes = _whole(sizes, LARGEST_WIDTH) and 2 <= len(sizes) <= 64
    ends = (sizes[0], sizes[-1]) if sizes and good_sizes else (None, None)
    images = network.get("kind") == "conv"
    good_images = not images or (good_sizes and _sound_convolutions(network))
    counts = 11 + (description["version"] > UNSEALED), (5 if images else 3) + ("level" in network)
    return {
        "the network's kind": network.get("kind") in ("mlp", "conv"),
        "the list of convolutions": good_images,
        "the network's activation": isinstance(network.get("activation"), str) and network["activation"] in ACTIVATIONS,
        "the list of layer sizes": good_sizes,
        "'level'": network.get("level", True) is True,
        "the list of observation names": _names(description.get("observation_names"), 0 if images else ends[0]),
        "the list of action names": _names(description.get("action_names"), ends[1]),
        "'standardised'": description.get("standardised") in ((False,) if images else (False, True)),
        "the temperature": _temperature(description.get("temperature")),
        "'energies'": description.get("energies") in (False, True),
        "the schema": "schema" in description,
        "the hash of the weights": isinstance(description.get("weights_sha256"), str),
        "the provenance": _sound_provenance(description.get("provenance")),
        "its own hash": description["version"] <= UNSEALED or isinstance(description.get(SEAL), str),
        "the list of entries": (len(description), len(network)) == counts,
    }


def _sound_provenance(made: Any) -> bool:
    """Whether it is a dictionary, and so are those of its parts that are read."""
    if not isinstance(made, dict):
        return False
    data = made.get("data", {})
    parts = (made.get("settings", {}), data, data.get("provenance", {}) if isinstance(data, dict) else None)
    return all(isinstance(part, dict) for part in parts)


def _sound_convolutions(network: dict[str, Any]) -> bool:
    """Whether image, convolutions and the first dense layer fit together."""
    image, kernels = network.get("image"), network.get("convolutions")
    if not isinstance(kernels, list) or not 1 <= len(kernels) <= 16:
        return False
    if not all(_whole(numbers, 4096) and len(numbers) == 3 for numbers in (image, *kernels)):
        return False
    if any(width % stride for _, width, stride in kernels):
        return False
    try:
        _, last = seen(tuple(image), _kernels(network))  # type: ignore[arg-type]
    except UserError:
        return False
    return bool(last == network["sizes"][0])


def _whole(numbers: Any, most: int) -> bool:
    """Whether it is a list of whole numbers from 1 to `most`."""
    return isinstance(numbers, list) and all(type(number) is int and 0 < number <= most for number in numbers)


def _temperature(number: Any) -> bool:
    """Whether logits can be divided by it: outside these bounds they would leave the range of float32."""
    return isinstance(number, int | float) and type(number) is not bool and 1e-9 <= number <= 1e9


def _names(names: Any, count: int | None) -> bool:
    return isinstance(names, list) and len(names) == count and all(isinstance(name, str) for name in names)


def _weights(path: Path, shapes: dict[str, tuple[int, ...]], sha256: str) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UserError(f"{WEIGHTS} is missing; the folder is incomplete.")
    expected = 4 * sum(int(np.prod(shape, dtype=object)) for shape in shapes.values())
    if not expected <= path.stat().st_size <= expected + LARGEST_DESCRIPTION:
        raise UserError(f"{WEIGHTS} has not the size of the network described; the folder is damaged.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UserError(f"{WEIGHTS} is not the file that {DESCRIPTION} was written for (hash differs).")
    try:
        tensors: dict[str, np.ndarray] = safetensors.numpy.load(content)
    except Exception as error:  # the parser raises its own types for each kind of damage
        raise UserError(f"{WEIGHTS} is not a readable safetensors file ({type(error).__name__}).") from None
    if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
        raise UserError(f"{WEIGHTS} does not hold the arrays of the network described.")
    if any(tensor.dtype != np.float32 or not np.isfinite(tensor).all() for tensor in tensors.values()):
        raise UserError(f"{WEIGHTS} holds numbers that are not finite float32; refused.")
    return tensors
