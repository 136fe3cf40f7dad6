"""Networks as plain entries of policy.json and plain arrays, and back; what cannot be a network is refused."""

from dataclasses import fields
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np

from sbil.errors import UserError
from sbil.mixtures import Blend, Composed, InPieces, Pieces
from sbil.networks import ACTIVATIONS, MLP, Acting, ConvNet, Dense, Kernel, seen
from sbil.trees import Nodes, Trees

LARGEST_WIDTH = 1 << 20
TREES = ("rounds", "trees", "nodes")  # the sizes of the arrays of trees
WHOLE = ("trees.feature", "trees.child")  # arrays of whole numbers
COMPOSED: dict[str, tuple[str, ...]] = {"pieces": ("mlp",), "mixture": ("mlp", "trees", "pieces")}  # of what
MOST_PARTS = 64
PIECES = tuple(field.name for field in fields(Pieces))

Shapes = dict[str, tuple[int, ...]]


def described(network: Acting) -> dict[str, Any]:
    """Return a description of the network that gives the shape of every array."""
    if isinstance(network, Composed):
        parts = [described(part) for part in parts_of(network)]
        if isinstance(network, Blend):
            return {"kind": "mixture", "sizes": [parts[0]["sizes"][0], parts[0]["sizes"][-1]], "parts": parts}
        inputs, ranges = network.pieces.low.shape
        return {"kind": "pieces", "sizes": [inputs, parts[0]["sizes"][-1]], "ranges": ranges, "parts": parts}
    if isinstance(network, Trees):
        sizes = dict(zip(TREES, network.nodes.child.shape, strict=True))
        return {"kind": "trees", "sizes": [network.inputs, len(network.start)], **sizes}
    dense = network.head if isinstance(network, ConvNet) else network
    widths = [dense.layers[0].weight.shape[0], *(layer.weight.shape[1] for layer in dense.layers)]
    found: dict[str, Any] = {"kind": "mlp", "sizes": widths, "activation": dense.activation}
    if isinstance(network, ConvNet):
        kernels = [list(kernel) for kernel in network.kernels]
        found |= {"kind": "conv", "image": list(network.shape), "convolutions": kernels}
    return found if dense.level is None else found | {"level": True}


def in_words(description: dict[str, Any]) -> str:
    """Return the kind and the sizes of a described network in a line."""
    kind, parts = description["kind"], [in_words(part) for part in description.get("parts", ())]
    if parts:
        return f"mixture of {'; '.join(parts)}" if kind == "mixture" else f"{parts[0]}, columns in pieces"
    sizes = "-".join(map(str, description["sizes"]))
    more = f"{description['rounds']} rounds" if kind == "trees" else description["activation"]
    return f"{kind} {sizes}, {more}"


def arrays(network: Acting) -> dict[str, np.ndarray]:
    """Return every array of the network by its name in the file."""
    if isinstance(network, Composed):
        own = {name: np.asarray(part, np.float32) for name, part in _own_arrays(network).items()}
        inside = (_named(arrays(part), number) for number, part in enumerate(parts_of(network)))
        return {name: array for part in (own, *inside) for name, array in part.items()}
    if isinstance(network, Trees):
        found = {f"trees.{name}": np.asarray(part) for name, part in network.nodes._asdict().items()}
        return found | {"trees.start": np.asarray(network.start, np.float32)}
    convolutions = network.convolutions if isinstance(network, ConvNet) else ()
    dense = network.head if isinstance(network, ConvNet) else network
    layers = {f"convolutions.{index}": layer for index, layer in enumerate(convolutions)}
    layers |= {f"layers.{index}": layer for index, layer in enumerate(dense.layers)}
    layers |= {} if dense.level is None else {"level": dense.level}
    return {
        f"{name}.{part}": np.asarray(getattr(layer, part), np.float32)
        for name, layer in layers.items()
        for part in ("weight", "bias")
    }


def parts_of(network: Composed) -> tuple[Any, ...]:
    """Return the networks and trees that a policy is made of."""
    return network.parts if isinstance(network, Blend) else (network.network,)


def _own_arrays(network: Composed) -> dict[str, Any]:
    """Return what a policy holds beside the arrays of its parts."""
    if isinstance(network, Blend):
        return {"mixture.weights": network.weights}
    return {f"pieces.{name}": getattr(network.pieces, name) for name in PIECES}


def _named(found: dict[str, Any], number: int) -> dict[str, Any]:
    """Return what belongs to a part, with the number of the part in its names."""
    return {f"parts.{number}.{name}": one for name, one in found.items()}


def _of_part(tensors: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    """Return the arrays of a part by the names that they have within it."""
    start = f"parts.{number}."
    return {name.removeprefix(start): array for name, array in tensors.items() if name.startswith(start)}


def shapes(description: dict[str, Any]) -> Shapes:
    """Return the shape of every array of the described network."""
    sizes = description["sizes"]
    if description["kind"] in COMPOSED:
        parts = description["parts"]
        inside = {name: shape for n, part in enumerate(parts) for name, shape in _named(shapes(part), n).items()}
        if description["kind"] == "mixture":
            return {"mixture.weights": (len(parts),), **inside}
        columns, ranges = (sizes[0],), (sizes[0], description["ranges"])
        own = dict(zip(PIECES, (columns, columns, ranges, ranges), strict=True))
        return {**{f"pieces.{name}": shape for name, shape in own.items()}, **inside}
    if description["kind"] == "trees":
        nodes = tuple(description[name] for name in TREES)
        return {**{f"trees.{name}": nodes for name in Nodes._fields}, "trees.start": (sizes[-1],)}
    layers: dict[str, tuple[int, int]] = {}
    if description["kind"] == "conv":
        kernels = _kernels(description)
        patches, _ = seen(tuple(description["image"]), kernels)
        for index, (patch, kernel) in enumerate(zip(patches, kernels, strict=True)):
            layers[f"convolutions.{index}"] = (patch, kernel.outputs)
    layers |= {f"layers.{index}": pair for index, pair in enumerate(pairwise(sizes))}
    if "level" in description:
        layers["level"] = (sizes[-2], 1)
    found: Shapes = {}
    for name, (inputs, outputs) in layers.items():
        found |= {f"{name}.weight": (inputs, outputs), f"{name}.bias": (outputs,)}
    return found


def built(description: dict[str, Any], tensors: dict[str, np.ndarray]) -> Acting:
    """Return the network that is described, of arrays with the right shapes."""
    if description["kind"] in COMPOSED:
        return _composed(description, tensors)
    if description["kind"] == "trees":
        nodes = Nodes(*(jnp.asarray(tensors[f"trees.{name}"]) for name in Nodes._fields))
        if not _sound_trees(nodes, description["sizes"][0]):
            raise UserError("the trees do not lead from their roots to leaves; the folder is damaged.")
        return Trees(nodes, jnp.asarray(tensors["trees.start"]), description["sizes"][0])

    def layer(name: str) -> Dense:
        return Dense(*(jnp.asarray(tensors[f"{name}.{part}"]) for part in ("weight", "bias")))

    stacked = tuple(layer(f"layers.{index}") for index in range(len(description["sizes"]) - 1))
    dense = MLP(stacked, description["activation"], layer("level") if "level" in description else None)
    if description["kind"] != "conv":
        return dense
    kernels = _kernels(description)
    convolutions = tuple(layer(f"convolutions.{index}") for index in range(len(kernels)))
    height, width, channels = description["image"]
    return ConvNet(convolutions, dense, (height, width, channels), kernels)


def _composed(description: dict[str, Any], tensors: dict[str, np.ndarray]) -> Composed:
    """Return the policy that is made of others."""
    parts = tuple(built(part, _of_part(tensors, number)) for number, part in enumerate(description["parts"]))
    if description["kind"] == "pieces":
        return InPieces(Pieces(*(jnp.asarray(tensors[f"pieces.{name}"]) for name in PIECES)), parts[0])
    weights = tensors["mixture.weights"]
    if not (weights > 0).all() or abs(float(weights.sum()) - 1) > 1e-3:
        raise UserError("the weights of the mixture are not positive or do not sum to 1; the folder is damaged.")
    return Blend(parts, jnp.asarray(weights))


def _sound_trees(nodes: Nodes, inputs: int) -> bool:
    """Whether every node asks for a feature that exists and is a leaf or leads to two later nodes."""
    child, feature = np.asarray(nodes.child), np.asarray(nodes.feature)
    place = np.arange(child.shape[-1])
    later = (child > place) & (child < len(place) - 1)
    return bool(((feature >= 0) & (feature < inputs)).all() and (later | (child == place)).all())


def _kernels(description: dict[str, Any]) -> tuple[Kernel, ...]:
    return tuple(Kernel(*numbers) for numbers in description["convolutions"])


def conditions(network: Any) -> tuple[dict[str, bool], tuple[int | None, int | None]]:
    """Return (what a description must be, and whether it is; the numbers of its inputs and outputs, if sound)."""
    network = network if isinstance(network, dict) else {}
    if network.get("kind") in ("pieces", "mixture"):
        return _conditions_of_composed(network)
    sizes, kind, activation = network.get("sizes"), network.get("kind"), network.get("activation")
    trees = kind == "trees"
    good_sizes = whole_numbers(sizes, LARGEST_WIDTH) and (len(sizes) == 2 if trees else 2 <= len(sizes) <= 64)
    found = {
        "the network's kind": kind in ("mlp", "conv", "trees"),
        "the list of convolutions": kind != "conv" or (good_sizes and _sound_convolutions(network)),
        "the network's activation": trees or (isinstance(activation, str) and activation in ACTIVATIONS),
        "the list of layer sizes": good_sizes,
        "'level'": network.get("level", True) is True and not (trees and "level" in network),
        "the sizes of the trees": not trees or (good_sizes and _sound_sizes(network)),
        "the list of the network's entries": len(network)
        == {"mlp": 3, "conv": 5, "trees": 5}.get(str(kind), 0) + ("level" in network),
    }
    return found, (sizes[0], sizes[-1]) if sizes and good_sizes else (None, None)


def _conditions_of_composed(network: dict[str, Any]) -> tuple[dict[str, bool], tuple[int | None, int | None]]:
    """`conditions` of a policy that is made of others."""
    sizes, mixed = network.get("sizes"), network["kind"] == "mixture"
    parts: Any = network.get("parts")
    ranges: Any = 0 if mixed else network.get("ranges")
    good_sizes = isinstance(sizes, list) and whole_numbers(sizes, LARGEST_WIDTH) and len(sizes) == 2
    good_ranges = mixed or whole_numbers([ranges], LARGEST_WIDTH)
    good_parts = isinstance(parts, list) and 1 <= len(parts) <= (MOST_PARTS if mixed else 1)
    if sizes and good_sizes and good_ranges and good_parts:
        ends = (sizes[0] * (1 + ranges), sizes[1])
        good_parts = all(_sound_part(part, COMPOSED[network["kind"]], ends) for part in parts)
    found = {
        "the network's kind": True,
        "the list of layer sizes": good_sizes,
        "the count of ranges": good_ranges,
        "the list of parts": good_parts,
        "the list of the network's entries": len(network) == (3 if mixed else 4),
    }
    return found, (sizes[0], sizes[1]) if sizes and good_sizes else (None, None)


def _sound_part(part: Any, kinds: tuple[str, ...], ends: tuple[int, int]) -> bool:
    """Whether it describes one of some kinds of networks, with these inputs and outputs."""
    if not isinstance(part, dict) or part.get("kind") not in kinds:
        return False
    found, own = conditions(part)
    return all(found.values()) and own == ends


def _sound_sizes(network: dict[str, Any]) -> bool:
    """Whether the arrays of trees have sizes, and no more trees per round than actions."""
    sizes = [network.get(name) for name in TREES]
    return whole_numbers(sizes, LARGEST_WIDTH) and network["trees"] <= network["sizes"][-1]


def _sound_convolutions(network: dict[str, Any]) -> bool:
    """Whether image, convolutions and the first dense layer fit together."""
    image, kernels = network.get("image"), network.get("convolutions")
    if not isinstance(kernels, list) or not 1 <= len(kernels) <= 16:
        return False
    if not all(whole_numbers(numbers, 4096) and len(numbers) == 3 for numbers in (image, *kernels)):
        return False
    if any(width % stride for _, width, stride in kernels):
        return False
    try:
        _, last = seen(tuple(image), _kernels(network))  # type: ignore[arg-type]
    except UserError:
        return False
    return bool(last == network["sizes"][0])


def whole_numbers(numbers: Any, most: int) -> bool:
    """Whether it is a list of whole numbers from 1 to `most`."""
    return isinstance(numbers, list) and all(type(number) is int and 0 < number <= most for number in numbers)
