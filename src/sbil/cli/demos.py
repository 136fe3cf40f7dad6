"""sbil demos: collect demonstrations from a demonstrator, import agents, export to Minari."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from sbil.cli.columns import COLUMNS, ColumnOptions
from sbil.cli.options import Printed, Written, with_options

EXAMPLES = (
    "sbil demos collect --env CartPole-v1 --trajectories 20 --out demos.npz",
    "sbil demos import ppo-Acrobot-v1.zip --env Acrobot-v1 --vecnormalize vecnormalize.pkl --out agent/",
    "sbil demos collect --env Acrobot-v1 --policy agent/ --trajectories 20 --out demos.npz",
    "sbil demos export demos.npz --minari cartpole/expert-v0 --folder datasets/",
    "sbil demos collect --env Acrobot-v1 --mode greedy --seed 1 --trajectories 5 --out acrobot.npz",
    "sbil demos list --json",
)


@dataclass(frozen=True, kw_only=True)
class Collect(Written):
    """Let a demonstrator play and record what it sees and does."""

    env: str
    """The environment: CartPole-v1, Acrobot-v1, LunarLander-v3 or BeamRiderNoFrameskip-v4."""
    out: Path
    """The file to write (NPZ)."""
    trajectories: int = 20
    """Whole episodes to record."""
    demonstrator: str | None = None
    """Which demonstrator of the environment (`sbil demos list` lists them; default: ppo if there is one, else dqn)."""
    policy: Path | None = None
    """The folder of a policy that demonstrates instead of one that ships."""
    mode: Literal["sampled", "greedy"] | None = None
    """Whether the demonstrator draws its actions (sampled, if it can) or takes the most probable one (greedy)."""
    seed: int = 0
    """Seed of the episodes."""


@dataclass(frozen=True, kw_only=True)
class Import(Written):
    """Turn an agent of Stable-Baselines3 (PPO, A2C or DQN on rows of numbers) into a policy; its code is not run."""

    agent: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="AGENT")]
    """The zip file that Stable-Baselines3 wrote."""
    out: Path
    """The policy folder to write."""
    env: str | None = None
    """The environment it was trained in: it gives the names of observations and actions, and must fit the agent."""
    vecnormalize: Path | None = None
    """The file of VecNormalize statistics, if the agent was trained with them."""


@dataclass(frozen=True, kw_only=True)
class Export(ColumnOptions, Written):
    """Write demonstrations as a Minari dataset, for other programs."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """The demonstrations: a table, NPZ, or minari:NAME."""
    minari: str
    """The name of the dataset, with its version: group/name-v0."""
    folder: Path | None = None
    """The folder of datasets (default: Minari's own)."""
    drop_last: bool = False
    """Leave out the last action of episodes whose last state was not recorded: Minari needs that state."""


@dataclass(frozen=True, kw_only=True)
class List(Printed):
    """List the demonstrators that ship, with their returns."""


Command = (
    Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Import, tyro.conf.subcommand("import")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[List, tyro.conf.subcommand("list")]
)


def run(command: Collect | Import | Export | List) -> None:
    """Collect and write, import, export, or list the demonstrators."""
    run_one: dict[type, Callable[[Any], None]] = {Collect: collect, Import: bring, Export: hand_on, List: listed}
    run_one[type(command)](command)


def listed(command: List) -> None:
    """Print every demonstrator that ships, with its return."""
    from sbil import environments

    rows = [
        {"environment": environment, "demonstrator": name, "mode": mode, **found}
        for environment, measured in environments.returns().items()
        for name, modes in measured["demonstrators"].items()
        for mode, found in modes.items()
    ]
    if command.json:
        print(json.dumps(rows))
        return
    for row in rows:
        who = f"{row['environment']:24} {row['demonstrator']:4} {row['mode']:8}"
        print(f"{who} return {row['mean']:.1f} ± {row['sd']:.1f} (sd)")


def bring(command: Import) -> None:
    """Read the agent and write the policy."""
    from sbil.demonstrators.sb3 import import_agent

    policy = import_agent(command.agent, command.env, command.vecnormalize)
    policy.save(command.out, command.overwrite)
    if command.json:
        actions, algorithm = list(policy.action_names), policy.provenance["algorithm"]
        print(json.dumps({"policy": str(command.out), "algorithm": algorithm, "actions": actions}))
        return
    print(f"wrote {command.out}: {policy.provenance['algorithm']}, {', '.join(policy.action_names)}")
    print(
        f"next: sbil evaluate {command.out} --env {command.env or 'NAME'}, or sbil demos collect --policy {command.out}"
    )


def hand_on(command: Export) -> None:
    """Write the dataset."""
    from sbil.demonstrations import read
    from sbil.demonstrations.formats.minari import write_minari

    data = read(command.data, **command.columns())
    aside = ("data", "minari", *COLUMNS)
    path = with_options(write_minari, command, aside=aside, demonstrations=data, name=command.minari)
    if command.json:
        print(json.dumps({"folder": str(path), "minari": command.minari}))
        return
    print(f"wrote {path}; its rewards are NaN, because none were recorded")


def collect(command: Collect) -> None:
    """Let the demonstrator play, and write what it saw and did."""
    from sbil.api.demonstrate import demonstrate

    made = with_options(demonstrate, command, aside=("env",), environment=command.env)
    if command.json:
        print(json.dumps({"file": str(command.out), **made.as_json()}))
        return
    low, high = made.returns.min(), made.returns.max()
    print(f"wrote {command.out}: {made.demonstrations}")
    print(f"mean return {made.mean:.2f} (min {low:g}, max {high:g}); it is not a part of the file")
    print(f"next: sbil train edm --data {command.out} --out policy/")
