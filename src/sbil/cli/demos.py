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
    """The environment: CartPole-v1, Acrobot-v1, LunarLander-v3 or BeamRiderNoFrameskip-v4."""
    out: Path
    """The file to write (NPZ)."""
    trajectories: int = 20
    """Whole episodes to record."""
    demonstrator: str | None = None
    """Which demonstrator of the environment (`sbil demos list`): ppo where there is one, else dqn."""
    mode: Literal["sampled", "greedy"] | None = None
    """Whether the demonstrator draws its actions (sampled, where it can) or takes the most probable one (greedy)."""
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
                    print(f"{task:24} {name:4} {mode:8} return {of['mean']:.1f} ± {of['sd']:.1f} (sd)")
        return
    environment = environments.get(command.env)
    shipped = environments.returns().get(environment.name, {}).get("demonstrators", {})
    if not shipped:
        raise UserError(f"no demonstrator ships for {environment.name}; sbil demos list names those that do.")
    name = command.demonstrator or ("ppo" if "ppo" in shipped else next(iter(shipped)))
    mode = command.mode or ("sampled" if "sampled" in shipped.get(name, ()) else "greedy")
    environments.scale(environment.name, name, mode)  # refuses one that is not there
    policy = demonstrators.get(f"{environment.name}-{name}")
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
        greedy=mode == "greedy",
        provenance={"demonstrator": name},
    )
    demonstrations.save(collected, command.out)
    if command.json:
        print(json.dumps({"file": str(command.out), "trajectories": len(collected), "steps": collected.steps}))
    else:
        print(f"wrote {command.out}: {collected}")
        print(f"next: sbil train edm --data {command.out} --out policy/")
