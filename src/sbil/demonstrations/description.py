"""What demonstrations are besides their arrays, as JSON: in the header of NPZ files and in the metadata of Minari."""

import json
from collections.abc import Mapping
from typing import Any

from sbil.demonstrations.schema import Schema
from sbil.demonstrations.trajectory import Demonstrations
from sbil.errors import UserError

MOST_STACKED = 64  # frames
# Names in the provenance of a table that earlier versions wrote with spaces.
SPACED = (
    *("rows in file", "dropped rows", "filled values", "left out columns", "sorted rows"),
    *("excluded rows", "excluded episodes", "kept episodes"),
)


def describe(demonstrations: Demonstrations) -> dict[str, Any]:
    """Return plain values, without the groups."""
    schema = demonstrations.schema
    return {
        "action_names": list(demonstrations.action_names),
        "observation_names": list(demonstrations.observation_names),
        "provenance": dict(demonstrations.provenance),
        **({"stack": demonstrations.stack} if demonstrations.stack else {}),
        **({"schema": schema.as_json()} if schema else {}),
    }


def described(content: Any, where: str) -> dict[str, Any]:
    """Check what `describe` gave and return keywords of `Demonstrations`."""
    if not isinstance(content, Mapping):
        raise UserError(f"{where} is damaged: it is not a JSON object.")
    names = {key: content.get(key) for key in ("action_names", "observation_names")}
    for key, value in names.items():
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise UserError(f"{where} is damaged: it has no list of {key}.")
    if not isinstance(content.get("provenance"), dict):
        raise UserError(f"{where} is damaged: it has no provenance.")
    stack, schema = content.get("stack", 0), content.get("schema")
    if type(stack) is not int or not 0 <= stack <= MOST_STACKED:
        raise UserError(f"{where} is damaged: it does not say how many frames make an observation.")
    return {
        **{key: tuple(value or ()) for key, value in names.items()},
        "provenance": renamed(content["provenance"]),
        "stack": stack,
        "schema": None if schema is None else Schema.from_json(schema),
    }


def renamed(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return a provenance with the names of today."""
    return {name.replace(" ", "_") if name in SPACED else name: value for name, value in provenance.items()}


def as_text(content: Mapping[str, Any]) -> str:
    """Write plain values as JSON."""
    try:
        return json.dumps(content, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"the provenance of these demonstrations cannot be written as JSON ({error}).") from None
