"""sbil export: a policy folder -> one ONNX file."""

import json
from dataclasses import dataclass
from pathlib import Path

from sbil.cli.options import Folder, Written

EXAMPLES = (
    "sbil export policy/ --onnx policy.onnx",
    "sbil export policy/ --onnx deployed/policy.onnx --overwrite --json",
)


@dataclass(frozen=True, kw_only=True)
class Command(Written):
    """Write a policy as ONNX: observations in, logits, probabilities and energy out; standardisation is inside."""

    policy: Folder
    onnx: Path
    """The file to write."""


def run(command: Command) -> None:
    """Write, and say what goes in and comes out."""
    from sbil.policy import Policy

    policy = Policy.load(command.policy)
    policy.export(command.onnx, command.overwrite)
    if command.json:
        inputs = policy.observation_names or policy.spec.observation_shape
        print(json.dumps({"onnx": str(command.onnx), "observation": inputs, "actions": policy.action_names}))
        return
    seen = ", ".join(policy.observation_names) or f"images of {policy.spec.observation_shape} bytes"
    print(f"wrote {command.onnx}\nin:  observation [rows, columns], float32: {seen}")
    actions = ", ".join(policy.action_names)
    print(f"out: logits and probabilities [rows, {len(policy.action_names)}] ({actions}); energy [rows]")
