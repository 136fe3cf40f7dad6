"""A policy as one ONNX file, for programs without Python and JAX.

Input `observation`: float32 [batch, columns] in the units of the data, or uint8 [batch, height, width, channels].
Outputs `logits` and `probabilities` [batch, actions], `energy` [batch]. Standardisation and temperature are inside.
If the policy knows the ranges of its columns, output `outside` [batch, columns] says which numbers lie outside.
The metadata hold names, the quantiles of the training states' energies, the guard and the provenance of the policy, as
JSON. The same policy gives the same bytes.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from sbil import files
from sbil.errors import UserError
from sbil.mixtures import FAR, LARGEST, Blend, InPieces, Pieces
from sbil.networks import MLP, ConvNet, Dense, Kernel
from sbil.policy import folder
from sbil.policy.guard import Guard
from sbil.policy.outputs import must_be_free
from sbil.policy.policy import Policy
from sbil.trees import Nodes, Trees
from sbil.version import __version__

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    raise UserError("ONNX files need onnx; install it with: pip install 'sbil[onnx]'") from None

OPSET = 17  # ONNX Runtime 1.12 and later
IR = 8  # the file format that came with it
OPERATORS = {"elu": "Elu", "relu": "Relu", "tanh": "Tanh"}
INPUT = "observation"
FOREST = ("ai.onnx.ml", 3)  # the domain of trees, and its version
NODES = (
    *("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_values"),
    *("nodes_truenodeids", "nodes_falsenodeids"),
)
LEAVES = ("target_treeids", "target_nodeids", "target_ids", "target_weights")


def export(policy: Policy, path: Path, overwrite: bool = False) -> None:
    """Write the policy to the file `path`: the whole file, or nothing."""
    must_be_free(path, overwrite)
    files.write_bytes(path, as_bytes(policy))


def as_bytes(policy: Policy) -> bytes:
    """Return the content of the file."""
    graph = _Graph()
    if isinstance(policy.network, ConvNet):
        head, x = policy.network.head, _look(graph, policy.network)
        logits = _dense(graph, head, x)
    else:
        logits = _of_rows(graph, policy.network, _standardised(graph, policy))
    _answers(graph, logits, policy.temperature)
    if policy.guard:
        _outside(graph, policy.guard)
    model = _model(graph, policy)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


class _Graph:
    """Nodes and constants in the order in which they were added; a node has the name of its output.

    prefix: what the names of a part of a mixture begin with.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.prefix = ""

    def constant(self, name: str, value: Any, kind: type[np.generic] = np.float32) -> str:
        name = self.prefix + name
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(np.asarray(value, kind)), name))
        return name

    def node(self, operator: str, result: str, *inputs: str, **attributes: Any) -> str:
        result = self.prefix + result
        self.nodes.append(helper.make_node(operator, list(inputs), [result], name=result, **attributes))
        return result


def _standardised(graph: _Graph, policy: Policy) -> str:
    if policy.standardisation is None:
        return INPUT
    mean = graph.constant("standardisation.mean", policy.standardisation.mean)
    scale = graph.constant("standardisation.scale", policy.standardisation.scale)
    return graph.node("Div", "standardised", graph.node("Sub", "centred", INPUT, mean), scale)


def _look(graph: _Graph, network: ConvNet) -> str:
    """Add the convolutions: pixels to [-1, 1], channels first for ONNX, then channels last for the dense layers."""
    x = graph.node("Cast", "bytes", INPUT, to=TensorProto.FLOAT)
    x = graph.node("Div", "halves", x, graph.constant("half", 127.5))
    x = graph.node("Sub", "pixels", x, graph.constant("one", 1.0))
    x = graph.node("Transpose", "image", x, perm=[0, 3, 1, 2])
    channels = network.shape[-1]
    for index, (layer, kernel) in enumerate(zip(network.convolutions, network.kernels, strict=True)):
        name = f"convolutions.{index}"
        weight = graph.constant(f"{name}.weight", _kernel_weights(layer, kernel, channels))
        bias = graph.constant(f"{name}.bias", layer.bias)
        x = graph.node("Conv", f"{name}.sums", x, weight, bias, strides=[kernel.stride, kernel.stride])
        x = graph.node("Relu", name, x)
        channels = kernel.outputs
    return graph.node("Flatten", "seen", graph.node("Transpose", "rows", x, perm=[0, 2, 3, 1]), axis=1)


def _kernel_weights(layer: Dense, kernel: Kernel, channels: int) -> np.ndarray:
    """Return weights of patches [patch, outputs] in ONNX's order, [outputs, channels, height, width].

    A patch is made of squares of stride x stride pixels (`sbil.networks.patches`).
    """
    squares, stride = kernel.width // kernel.stride, kernel.stride
    parts = np.asarray(layer.weight).reshape(squares, squares, stride, stride, channels, kernel.outputs)
    square = parts.transpose(0, 2, 1, 3, 4, 5).reshape(kernel.width, kernel.width, channels, kernel.outputs)
    return square.transpose(3, 2, 0, 1)


def _of_rows(graph: _Graph, network: Any, x: str) -> str:
    """Add a network of rows of numbers, trees, or a policy that is made of others; return its logits."""
    if isinstance(network, Blend):
        return _mixture(graph, network, x)
    if isinstance(network, InPieces):
        return _dense(graph, network.network, _pieces(graph, network.pieces, x))
    return _trees(graph, network, x) if isinstance(network, Trees) else _dense(graph, network, x)


def _pieces(graph: _Graph, pieces: Pieces, x: str) -> str:
    """Add the squashed columns, and how far each column has come in its ranges."""
    lowest, highest = graph.constant("lowest", -LARGEST), graph.constant("highest", LARGEST)
    x = graph.node("Clip", "clipped", x, lowest, highest)
    z = graph.node("Sub", "from_centre", x, graph.constant("pieces.centre", pieces.centre))
    z = graph.node("Mul", "common", z, graph.constant("pieces.factor", pieces.factor))
    share = graph.node("Div", "share", z, graph.constant("far", FAR))
    unit, zero = graph.constant("unit", 1.0), graph.constant("zero", 0.0)
    square = graph.node("Add", "more", graph.node("Mul", "square", share, share), unit)
    squashed = graph.node("Div", "squashed", z, graph.node("Sqrt", "size", square))
    column = graph.node("Unsqueeze", "column", x, graph.constant("last_axis", [2], np.int64))
    place = graph.node("Sub", "from_low", column, graph.constant("pieces.low", pieces.low))
    place = graph.node("Mul", "in_range", place, graph.constant("pieces.slope", pieces.slope))
    place = graph.node("Flatten", "places", graph.node("Clip", "place", place, zero, unit), axis=1)
    return graph.node("Concat", "seen", squashed, place, axis=1)


def _mixture(graph: _Graph, network: Blend, x: str) -> str:
    """Add the parts and the log of the weighted mean of their probabilities, shifted by the largest share."""
    shares = []
    for number, (part, weight) in enumerate(zip(network.parts, np.asarray(network.weights), strict=True)):
        graph.prefix = f"parts.{number}."
        own = graph.node("LogSoftmax", "log_policy_of_part", _of_rows(graph, part, x), axis=1)
        shares.append(graph.node("Add", "log_share", own, graph.constant("log_weight", np.log(weight))))
    graph.prefix = ""
    most = graph.node("Max", "largest_share", *shares)
    powers = [
        graph.node("Exp", f"power.{number}", graph.node("Sub", f"below.{number}", share, most))
        for number, share in enumerate(shares)
    ]
    return graph.node("Add", "logits", graph.node("Log", "log_sum_of_shares", graph.node("Sum", "sum", *powers)), most)


def _dense(graph: _Graph, network: MLP, x: str) -> str:
    *hidden, output = network.layers
    for index, layer in enumerate(hidden):
        name = f"layers.{index}"
        x = graph.node(OPERATORS[network.activation], name, _affine(graph, layer, name, f"{name}.sums", x))
    if network.level is None:
        return _affine(graph, output, f"layers.{len(hidden)}", "logits", x)
    outputs = _affine(graph, output, f"layers.{len(hidden)}", "outputs", x)
    level = _affine(graph, network.level, "level", "minus_energy", x)
    return graph.node("Add", "logits", graph.node("LogSoftmax", "log_policy", outputs, axis=1), level)


def _affine(graph: _Graph, layer: Dense, name: str, result: str, x: str) -> str:
    weight = graph.constant(f"{name}.weight", layer.weight)
    return graph.node("Gemm", result, x, weight, graph.constant(f"{name}.bias", layer.bias))


def _trees(graph: _Graph, network: Trees, x: str) -> str:
    """Add the trees as one sum. Trees that are a single leaf of value 0 are left out."""
    first = len(network.start) - network.nodes.child.shape[-2]
    rounds = ([Nodes(*tree) for tree in zip(*nodes, strict=True)] for nodes in network.rounds())
    trees = [(action, tree) for together in rounds for action, tree in enumerate(together, first)]
    adding = [(action, tree) for action, tree in trees if tree.child[0] or tree.value[0]]
    columns: dict[str, list[Any]] = {name: [] for name in (*NODES, *LEAVES)}
    for number, (action, tree) in enumerate(adding or trees[:1]):
        _add_tree(columns, tree, number, action)
    total = graph.node("TreeEnsembleRegressor", "trees", x, domain=FOREST[0], n_targets=len(network.start), **columns)
    return graph.node("Add", "logits", total, graph.constant("trees.start", network.start))


def _add_tree(columns: dict[str, list[Any]], tree: Nodes, number: int, action: int) -> None:
    """Add the nodes of one tree that its root leads to."""
    waiting = [0]
    while waiting:
        place = waiting.pop()
        child = int(tree.child[place])
        leaf = child == place
        waiting += [] if leaf else [child, child + 1]
        mode, true, false = ("LEAF", 0, 0) if leaf else ("BRANCH_LEQ", child, child + 1)
        values = (number, place, int(tree.feature[place]), mode, float(tree.threshold[place]), true, false)
        for name, value in zip(NODES, values, strict=True):
            columns[name].append(value)
        if leaf:
            for name, value in zip(LEAVES, (number, place, action, float(tree.value[place])), strict=True):
                columns[name].append(value)


def _answers(graph: _Graph, logits: str, temperature: float) -> None:
    """Add probabilities at the temperature, and the energy, shifted by the largest logit against overflow."""
    cooled = graph.node("Div", "cooled", logits, graph.constant("temperature", temperature))
    graph.node("Softmax", "probabilities", cooled, axis=1)
    largest = graph.node("ReduceMax", "largest", logits, axes=[1], keepdims=1)
    powers = graph.node("Exp", "powers", graph.node("Sub", "shifted", logits, largest))
    axis = graph.constant("axis", [1], np.int64)
    total = graph.node("Log", "log_total", graph.node("ReduceSum", "total", powers, axis, keepdims=1))
    negative = graph.node("Neg", "negative", graph.node("Add", "log_sum", total, largest))
    graph.node("Squeeze", "energy", negative, axis)


def _outside(graph: _Graph, guard: Guard) -> None:
    """Add which numbers lie outside their range in training; a code must be whole."""
    below = graph.node("Less", "below", INPUT, graph.constant("guard.low", guard.low))
    above = graph.node("Greater", "above", INPUT, graph.constant("guard.high", guard.high))
    broken = graph.node("Not", "not_whole", graph.node("Equal", "same", graph.node("Floor", "floor", INPUT), INPUT))
    broken = graph.node("And", "no_code", broken, graph.constant("guard.whole", guard.whole > 0, np.bool_))
    graph.node("Or", "outside", graph.node("Or", "beyond", below, above), broken)


def _model(graph: _Graph, policy: Policy) -> onnx.ModelProto:
    shape, actions = policy.spec
    forest = [helper.make_opsetid(*FOREST)] if _has_trees(policy.network) else []
    kind = TensorProto.UINT8 if isinstance(policy.network, ConvNet) else TensorProto.FLOAT
    sizes = {"logits": ["batch", actions], "probabilities": ["batch", actions], "energy": ["batch"]}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in sizes.items()]
    if policy.guard:
        outputs.append(helper.make_tensor_value_info("outside", TensorProto.BOOL, ["batch", *shape]))
    made = helper.make_graph(
        graph.nodes,
        "policy",
        [helper.make_tensor_value_info(INPUT, kind, ["batch", *shape])],
        outputs,
        initializer=graph.constants,
    )
    model = helper.make_model(
        made,
        opset_imports=[helper.make_opsetid("", OPSET), *forest],
        ir_version=IR,
        producer_name="sbil",
        producer_version=__version__,
        doc_string="Observations in their own units give logits, probabilities and the energy of each row. "
        "Rows must be finite numbers: the outputs of other rows have no meaning.",
    )
    helper.set_model_props(model, _metadata(policy))
    return model


def _has_trees(network: Any) -> bool:
    return any(isinstance(part, Trees) for part in (network.parts if isinstance(network, Blend) else [network]))


def _guard(guard: Guard) -> dict[str, Any]:
    """The guard with its arrays as lists."""
    return {**guard.as_json(), "arrays": {name: array.tolist() for name, array in guard.arrays().items()}}


def _metadata(policy: Policy) -> dict[str, str]:
    weights = safetensors.numpy.save(folder._tensors(policy))
    entries = {
        "format": "sbil-policy-onnx",
        "sbil": __version__,
        "observation_names": list(policy.observation_names),
        "action_names": list(policy.action_names),
        "temperature": float(policy.temperature),
        "energies": None if policy.energies is None else [float(str(number)) for number in policy.energies],
        "guard": _guard(policy.guard) if policy.guard else None,
        "schema": policy.schema.as_json() if policy.schema else None,
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "provenance": {key: value for key, value in policy.provenance.items() if key != "baselines"},  # small counts
    }
    how: dict[str, Any] = {"sort_keys": True, "ensure_ascii": False, "allow_nan": False}
    return {name: json.dumps(value, **how) for name, value in entries.items()}
