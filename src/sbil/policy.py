"""A finished policy: act, probabilities, energy; saved as a folder that is safe to load.

The folder holds `policy.json` (what the policy is) and `weights.safetensors` (its arrays). Loading runs no
code, checks the weights against the hash and shapes that policy.json declares, and refuses anything else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike

from sbil import files
from sbil.dataset import Spec, as_inputs
from sbil.errors import UserError
from sbil.networks import ACTIVATIONS, MLP, ConvNet, Dense, Kernel, Network, energy, seen

FORMAT = "sbil-policy"
VERSION = 1
DESCRIPTION = "policy.json"
WEIGHTS = "weights.safetensors"
KNOWN = ("README.md", "metrics.csv")  # what may lie beside them and is replaced with them
LARGEST_DESCRIPTION = 1 << 20
LARGEST_WIDTH = 1 << 20
IMAGES = 64  # seen at a time


class Standardisation(NamedTuple):
    """What is done to an observation before the network sees it: (observation - mean) / scale."""

    mean: np.ndarray
    scale: np.ndarray


@dataclass(frozen=True, eq=False)
class Policy:
    """A trained network with the names of what it sees and does; one observation or many at a time."""

    network: Network
    observation_names: tuple[str, ...]  # none for images
    action_names: tuple[str, ...]
    standardisation: Standardisation | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> Spec:
        """The shape of the task the policy is for."""
        shape = self.network.shape if isinstance(self.network, ConvNet) else (len(self.observation_names),)
        return Spec(shape, len(self.action_names))

    def logits(self, observations: ArrayLike) -> np.ndarray:
        """One logit an action for an observation [d] or for many [n, d]; images are uint8 [height, width, channels]."""
        if isinstance(self.network, ConvNet):
            return self._logits_of_images(np.asarray(observations), self.network)
        with np.errstate(over="ignore"):
            array = np.asarray(observations, np.float32)
        if array.ndim not in (1, 2) or array.shape[-1] != len(self.observation_names):
            raise UserError(
                f"this policy sees {len(self.observation_names)} numbers ({', '.join(self.observation_names)}). "
                f"Got an array of shape {array.shape}."
            )
        if not np.isfinite(array).all():
            column = np.argwhere(~np.isfinite(array))[0][-1]
            raise UserError(f"'{self.observation_names[column]}' is not a finite number in the observation given.")
        if self.standardisation:
            array = (array - self.standardisation.mean) / self.standardisation.scale
        # XLA rounds a single row differently from many: it goes in twice, so that company changes no bit.
        rows = np.atleast_2d(array)
        logits = np.asarray(_forward(self.network, np.repeat(rows, 2, axis=0) if len(rows) == 1 else rows))
        return logits[0] if array.ndim == 1 else logits[: len(rows)]

    def _logits_of_images(self, images: np.ndarray, network: ConvNet) -> np.ndarray:
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[-3:] != network.shape:
            raise UserError(
                f"this policy sees images of bytes (uint8) of shape {network.shape}. Got {images.dtype} of shape "
                f"{images.shape}."
            )
        rows = images.reshape(-1, *network.shape)
        parts = []
        for start in range(0, len(rows), IMAGES):
            batch = rows[start : start + IMAGES]
            padding = np.zeros((IMAGES - len(batch), *network.shape), np.uint8)  # batches of one size round alike
            parts.append(np.asarray(_see(network, np.concatenate([batch, padding])))[: len(batch)])
        logits = np.concatenate(parts) if parts else np.zeros((0, len(self.action_names)), np.float32)
        return logits[0] if images.ndim == 3 else logits

    def act(self, observations: ArrayLike) -> np.ndarray:
        """The most probable action (its number) for one observation or many."""
        return self.logits(observations).argmax(axis=-1)

    def probabilities(self, observations: ArrayLike) -> np.ndarray:
        """The probability of each action; sums to one."""
        return np.asarray(jax.nn.softmax(self.logits(observations), axis=-1))

    def energy(self, observations: ArrayLike) -> np.ndarray:
        """E(s), low where the training states were dense (meaningful for EDM)."""
        return np.asarray(energy(jnp.asarray(self.logits(observations))))

    def save(self, path: str | Path, overwrite: bool = False, extra: Mapping[str, bytes] | None = None) -> None:
        """Write the folder `path`, whole or not at all; `extra` files (metrics, say) go beside the policy."""
        weights = safetensors.numpy.save(_tensors(self))
        description = {
            "format": FORMAT,
            "version": VERSION,
            "network": _architecture(self.network),
            "observation_names": list(self.observation_names),
            "action_names": list(self.action_names),
            "standardised": self.standardisation is not None,
            "weights_sha256": hashlib.sha256(weights).hexdigest(),
            "provenance": dict(self.provenance),
        }
        if overwrite and Path(path).is_dir():
            strange = sorted(
                {entry.name for entry in Path(path).iterdir()} - {DESCRIPTION, WEIGHTS, *KNOWN, *(extra or {})}
            )
            if strange:
                raise UserError(f"{path} holds '{strange[0]}', which is no part of a policy; it is not overwritten.")
        with files.new_folder(Path(path), overwrite) as folder:
            for name, content in (extra or {}).items():
                files.write_bytes(folder / name, content)
            files.write_bytes(folder / WEIGHTS, weights)
            files.write_text(
                folder / DESCRIPTION, json.dumps(description, indent=2, sort_keys=True, allow_nan=False) + "\n"
            )

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy folder; a damaged, foreign or newer one is a UserError that names it."""
        path = Path(path)
        if not path.is_dir():
            raise UserError(f"{path}: there is no such policy folder.")
        try:
            return _load(path)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror or error}).") from None


@jax.jit
def _forward(network: Network, observations: jax.Array) -> jax.Array:
    return network(observations)


@jax.jit
def _see(network: ConvNet, images: jax.Array) -> jax.Array:
    return network(as_inputs(images))


def _architecture(network: Network) -> dict[str, Any]:
    """The network in words: enough to know the shape of every array."""
    dense = network.head if isinstance(network, ConvNet) else network
    sizes = [dense.layers[0].weight.shape[0], *(layer.weight.shape[1] for layer in dense.layers)]
    described: dict[str, Any] = {"kind": "mlp", "sizes": sizes, "activation": dense.activation}
    if isinstance(network, ConvNet):
        kernels = [list(kernel) for kernel in network.kernels]
        described |= {"kind": "conv", "image": list(network.shape), "convolutions": kernels}
    return described


def _layers(network: Network) -> dict[str, Dense]:
    """Every layer by its name in the file."""
    convolutions = network.convolutions if isinstance(network, ConvNet) else ()
    dense = network.head if isinstance(network, ConvNet) else network
    named = {f"convolutions.{index}": layer for index, layer in enumerate(convolutions)}
    return named | {f"layers.{index}": layer for index, layer in enumerate(dense.layers)}


def _shapes(described: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """(inputs, outputs) of every layer of the network described."""
    shapes: dict[str, tuple[int, int]] = {}
    if described["kind"] == "conv":
        kernels = _kernels(described)
        patches, _ = seen(tuple(described["image"]), kernels)
        for index, (patch, kernel) in enumerate(zip(patches, kernels, strict=True)):
            shapes[f"convolutions.{index}"] = (patch, kernel.outputs)
    return shapes | {f"layers.{index}": pair for index, pair in enumerate(pairwise(described["sizes"]))}


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
    return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def _load(path: Path) -> Policy:
    description = _description(path / DESCRIPTION)
    described = description["network"]
    layers = _shapes(described)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (inputs, outputs) in layers.items():
        shapes[f"{name}.weight"] = (inputs, outputs)
        shapes[f"{name}.bias"] = (outputs,)
    if description["standardised"]:
        shapes["standardisation.mean"] = shapes["standardisation.scale"] = (described["sizes"][0],)
    tensors = _weights(path / WEIGHTS, shapes, description["weights_sha256"])
    filled = {name: Dense(*(jnp.asarray(tensors[f"{name}.{part}"]) for part in ("weight", "bias"))) for name in layers}
    dense = MLP(tuple(layer for name, layer in filled.items() if name.startswith("layers")), described["activation"])
    network: Network = dense
    if described["kind"] == "conv":
        convolutions = tuple(layer for name, layer in filled.items() if name.startswith("convolutions"))
        network = ConvNet(convolutions, dense, tuple(described["image"]), _kernels(described))
    standardisation = None
    if description["standardised"]:
        standardisation = Standardisation(tensors["standardisation.mean"], tensors["standardisation.scale"])
        if not (standardisation.scale > 0).all():
            raise UserError(f"{WEIGHTS}: a scale of the standardisation is not positive; the folder is damaged.")
    return Policy(
        network=network,
        observation_names=tuple(description["observation_names"]),
        action_names=tuple(description["action_names"]),
        standardisation=standardisation,
        provenance=description["provenance"],
    )


def _description(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{DESCRIPTION} is missing; this is not a policy folder.")
    if path.stat().st_size > LARGEST_DESCRIPTION:
        raise UserError(f"{DESCRIPTION} is larger than 1 MiB; refused.")
    try:
        description = json.loads(path.read_bytes(), parse_constant=_no_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise UserError(f"{DESCRIPTION} is not readable JSON; the folder is damaged.") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise UserError(f"{DESCRIPTION} does not describe a policy of sbil.")
    if description.get("version") != VERSION:
        raise UserError(
            f"the policy is in format {description.get('version')!r}, this sbil reads format {VERSION}; "
            "load it with the sbil that wrote it, or upgrade."
        )
    for what, good in _conditions(description).items():
        if not good:
            raise UserError(f"{DESCRIPTION}: {what} is missing or wrong; the folder is damaged.")
    return description


def _conditions(description: dict[str, Any]) -> dict[str, bool]:
    network = description.get("network")
    network = network if isinstance(network, dict) else {}
    sizes = network.get("sizes")
    good_sizes = (
        isinstance(sizes, list)
        and 2 <= len(sizes) <= 64
        and all(type(size) is int and 0 < size <= LARGEST_WIDTH for size in sizes)
    )
    ends = (sizes[0], sizes[-1]) if sizes and good_sizes else (None, None)
    images = network.get("kind") == "conv"
    good_images = not images or (good_sizes and _sound_convolutions(network))
    return {
        "the network's kind": network.get("kind") in ("mlp", "conv"),
        "the list of convolutions": good_images,
        "the network's activation": isinstance(network.get("activation"), str) and network["activation"] in ACTIVATIONS,
        "the list of layer sizes": good_sizes,
        "the list of observation names": _names(description.get("observation_names"), 0 if images else ends[0]),
        "the list of action names": _names(description.get("action_names"), ends[1]),
        "'standardised'": description.get("standardised") in ((False,) if images else (False, True)),
        "the hash of the weights": isinstance(description.get("weights_sha256"), str),
        "the provenance": isinstance(description.get("provenance"), dict),
        "the list of entries": len(description) == 8 and len(network) == (5 if images else 3),
    }


def _sound_convolutions(network: dict[str, Any]) -> bool:
    """Whether image, convolutions and the first dense layer fit each other."""
    image, kernels = network.get("image"), network.get("convolutions")
    whole = lambda numbers, most: (  # noqa: E731
        isinstance(numbers, list) and len(numbers) == 3 and all(type(n) is int and 0 < n <= most for n in numbers)
    )
    if not whole(image, 4096) or not isinstance(kernels, list) or not 1 <= len(kernels) <= 16:
        return False
    if not all(whole(kernel, 4096) and kernel[1] % kernel[2] == 0 for kernel in kernels):
        return False
    try:
        _, last = seen(tuple(image), _kernels(network))  # type: ignore[arg-type]
    except UserError:
        return False
    return bool(last == network["sizes"][0])


def _names(names: Any, count: int | None) -> bool:
    return isinstance(names, list) and len(names) == count and all(isinstance(name, str) for name in names)


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key is given twice")
    return entries


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
