"""sbil demos collect: demonstrations from a demonstrator that ships."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

EXAMPLES = (
    "sbil demos collect --env CartPole-v1 --trajectories 20 --out demos.npz",
    "sbil demos collect --env Acrobot-v1 --mode greedy --seed 1 --trajectories 5 --out acrobot.npz",
)


@dataclass(frozen=True)
class Collect:
    """Let a demonstrator play and record what it sees and does."""

    env: str
    """The environment: CartPole-v1 or Acrobot-v1."""
    out: Path
    """The file to write (NPZ)."""
    trajectories: int = 20
    """Whole episodes to record."""
    demonstrator: str = "ppo"
    """Which demonstrator of the environment: ppo, or dqn for CartPole-v1."""
    mode: Literal["sampled", "greedy"] = "sampled"
    """Whether the demonstrator draws its actions or takes the most probable one; it matters for imitators."""
    seed: int = 0
    """Seed of the episodes."""
    overwrite: bool = False
    """Replace the file if it exists."""
    json: bool = False
    """Print the result as JSON."""


Command = Annotated[Collect, tyro.conf.subcommand("collect")] | Annotated[None, tyro.conf.subcommand("list")]


def run(command: Collect | None) -> None:
    """Collect and write, or list the demonstrators."""
    from sbil import demonstrations, demonstrators, environments
    from sbil.errors import UserError

    if command is None:
        for task, measured in environments.returns().items():
            for name, modes in measured["demonstrators"].items():
                for mode, of in modes.items():
                    print(f"{task:14} {name:4} {mode:8} return {of['mean']:.1f} ± {of['sd']:.1f} (sd)")
        return
    environment = environments.get(command.env)
    policy = demonstrators.get(f"{environment.name}-{command.demonstrator}")
    environments.scale(environment.name, command.demonstrator, command.mode)  # refuses a mode it does not have
    if command.out.is_dir():
        raise UserError(f"{command.out} is a folder; name a file.")
    if command.out.suffix != ".npz":
        raise UserError(f"{command.out}: demonstrations are written as NPZ; name the file something.npz.")
    if command.out.exists() and not command.overwrite:
        raise UserError(f"{command.out} exists already; choose another --out, or replace it with --overwrite.")
    collected = demonstrators.collect(
        environment,
        policy,
        command.trajectories,
        command.seed,
        greedy=command.mode == "greedy",
        provenance={"demonstrator": command.demonstrator},
    )
    demonstrations.save(collected, command.out)
    if command.json:
        print(json.dumps({"file": str(command.out), "trajectories": len(collected), "steps": collected.steps}))
    else:
        print(f"wrote {command.out}: {collected}")
        print(f"next: sbil train edm --data {command.out} --out policy/")
