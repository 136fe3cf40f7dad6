"""The folder of a policy: `policy.json` describes it, `weights.safetensors` holds its arrays.

Loading runs no code. It checks the weights against the hash and shapes that policy.json declares, and policy.json
against the hash of its own entries; anything else is refused. The hashes find damage, and entries changed by hand. They
are no signature: an attacker can write new ones.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from sbil import files
from sbil.dataset import Standardisation
from sbil.demonstrations import Schema
from sbil.demonstrations.description import renamed
from sbil.errors import UserError, naming
from sbil.policy import architecture, guard
from sbil.policy.policy import Policy

FORMAT = "sbil-policy"
VERSION = 4
FIRST = 1  # the format before temperature, energies and schema; still read
UNSEALED = 2  # the last format without a hash of policy.json; still read, without this check
UNGUARDED = 3  # the last format without a guard; still read
DESCRIPTION = "policy.json"
WEIGHTS = "weights.safetensors"
KNOWN = ("README.md", "metrics.csv")  # other files that may be in the folder; they are replaced too
SEAL = "sha256"  # the entry of policy.json that is the hash of all others
LARGEST_DESCRIPTION = 1 << 20
ENERGIES = 1001  # quantiles of the training states' energies


def save(policy: Policy, path: Path, overwrite: bool, extra: Mapping[str, bytes]) -> None:
    """Write the whole folder, or nothing."""
    weights = safetensors.numpy.save(_tensors(policy))
    description = {
        "format": FORMAT,
        "version": VERSION,
        "network": architecture.described(policy.network),
        "observation_names": list(policy.observation_names),
        "action_names": list(policy.action_names),
        "standardised": policy.standardisation is not None,
        "temperature": float(policy.temperature),
        "energies": policy.energies is not None,
        "guard": policy.guard.as_json() if policy.guard else None,
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
    scale = ("standardisation.mean", "standardisation.scale")
    return {
        "weights": {name: tensors[name].tobytes() for name in sorted(architecture.arrays(policy.network))},
        "network": architecture.described(policy.network),
        "standardisation": [tensors[name].tobytes() for name in scale if name in tensors],
        "temperature": policy.temperature,
        "energies": tensors["energies"].tobytes() if "energies" in tensors else None,
        "guard": {name: part.tobytes() for name, part in policy.guard.arrays().items()} if policy.guard else None,
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
    with naming(path):
        return _load(path)


def _tensors(policy: Policy) -> dict[str, np.ndarray]:
    tensors = architecture.arrays(policy.network)
    if policy.standardisation:
        tensors["standardisation.mean"] = np.asarray(policy.standardisation.mean, np.float32)
        tensors["standardisation.scale"] = np.asarray(policy.standardisation.scale, np.float32)
    if policy.energies is not None:
        tensors["energies"] = np.asarray(policy.energies, np.float32)
    if policy.guard:
        tensors |= policy.guard.arrays()
    return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def _load(path: Path) -> Policy:
    description = _description(path / DESCRIPTION)
    described = description["network"]
    shapes = architecture.shapes(described)
    if description["standardised"]:
        shapes["standardisation.mean"] = shapes["standardisation.scale"] = (described["sizes"][0],)
    if description["energies"]:
        shapes["energies"] = (ENERGIES,)
    if description["guard"] is not None:
        shapes |= guard.shapes_of(description["guard"], len(description["observation_names"]))
    tensors = _weights(path / WEIGHTS, shapes, description["weights_sha256"])
    with naming(WEIGHTS):
        network = architecture.built(described, tensors)
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
        provenance=_of_today(description["provenance"]),
        temperature=float(description["temperature"]),
        energies=tensors.get("energies"),
        schema=_schema(description),
        guard=None if description["guard"] is None else guard.restored(description["guard"], tensors),
    )


def _of_today(made: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance; what earlier versions recorded of the data gets the names of today."""
    data = made.get("data", {})
    if "provenance" not in data:
        return made
    return {**made, "data": {**data, "provenance": renamed(data["provenance"])}}


def _schema(description: dict[str, Any]) -> Schema | None:
    """Return the schema; it must give exactly the names of the policy."""
    if description["schema"] is None:
        return None
    with naming(DESCRIPTION):
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
    unguarded = description["version"] <= UNGUARDED
    for what, good in _conditions(description).items():
        if not good:
            raise UserError(f"{DESCRIPTION}: {what} is missing or wrong; the folder is damaged.")
    if description["version"] > UNSEALED and sealed(description)[SEAL] != description[SEAL]:
        raise UserError(f"{DESCRIPTION} was changed after it was written (hash differs); the folder is damaged.")
    return description | {"guard": None} if unguarded else description


def _conditions(description: dict[str, Any]) -> dict[str, bool]:
    found, ends = architecture.conditions(description.get("network"))
    images = found["the network's kind"] and description["network"]["kind"] == "conv"
    guarded = description["version"] > UNGUARDED
    return {
        **found,
        "the list of observation names": _names(description.get("observation_names"), 0 if images else ends[0]),
        "the list of action names": _names(description.get("action_names"), ends[1]),
        "'standardised'": description.get("standardised") in ((False,) if images else (False, True)),
        "the temperature": _temperature(description.get("temperature")),
        "'energies'": description.get("energies") in (False, True),
        "the schema": "schema" in description,
        "the guard": not guarded or _sound_guard(description.get("guard", ...), images),
        "the hash of the weights": isinstance(description.get("weights_sha256"), str),
        "the provenance": _sound_provenance(description.get("provenance")),
        "its own hash": description["version"] <= UNSEALED or isinstance(description.get(SEAL), str),
        "the list of entries": len(description) == 11 + guarded + (description["version"] > UNSEALED),
    }


def _sound_provenance(made: Any) -> bool:
    """Whether it is a dictionary, and so are those of its parts that are read."""
    if not isinstance(made, dict):
        return False
    data = made.get("data", {})
    parts = (made.get("settings", {}), data, data.get("provenance", {}) if isinstance(data, dict) else None)
    return all(isinstance(part, dict) for part in parts)


def _sound_guard(described: Any, images: bool) -> bool:
    """Whether it may be the description of a guard; images have none."""
    return described is None or (isinstance(described, dict) and not images)


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
        raise UserError(f"{WEIGHTS}: its size does not match the network in {DESCRIPTION}; the folder is damaged.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UserError(f"{WEIGHTS} is not the file that {DESCRIPTION} was written for (hash differs).")
    try:
        tensors: dict[str, np.ndarray] = safetensors.numpy.load(content)
    except Exception as error:  # the parser raises its own types for each kind of damage
        raise UserError(f"{WEIGHTS} is not a readable safetensors file ({type(error).__name__}).") from None
    if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
        raise UserError(f"{WEIGHTS} does not hold the arrays of the network described.")
    for name, tensor in tensors.items():
        if (
            tensor.dtype != (np.int32 if name.endswith(architecture.WHOLE) else np.float32)
            or not np.isfinite(tensor).all()
        ):
            raise UserError(f"{WEIGHTS} holds numbers that are not finite float32; refused.")
    return tensors
