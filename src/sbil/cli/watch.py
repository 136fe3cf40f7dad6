"""sbil watch: a policy folder -> a GIF of it playing beside its demonstrator."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from sbil.environments.base import Task
    from sbil.evaluation.stage import Player

EXAMPLES = (
    "sbil watch policy/ --env CartPole-v1 --out policy.gif",
    "sbil watch policy/ --env Acrobot-v1 --alone --seed 3 --seconds 10 --out alone.gif",
)


@dataclass(frozen=True)
class Command:
    """Film one episode of a policy beside one of its demonstrator, both from the same start."""

    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """The policy folder."""
    env: str
    """The environment to play in, for instance CartPole-v1."""
    out: Path
    """The file to write (GIF)."""
    against: str | None = None
    """The demonstrator to show beside it, for instance ppo; the one it learned from, or ppo, if not given."""
    alone: bool = False
    """Show the policy alone."""
    seed: int = 0
    """Seed of the episode."""
    sampled: bool = False
    """Draw actions from the policies instead of taking the most probable one."""
    seconds: float = 20.0
    """The longest that the film may last; episodes that take longer are shown faster."""
    overwrite: bool = False
    """Replace the file if it exists."""
    json: bool = False
    """Print the result as JSON."""


def run(command: Command) -> None:
    """Play, film, write and say what is to be seen."""
    _check(command)
    from sbil import environments, files
    from sbil.cli.progress import bar
    from sbil.evaluation import film, stage
    from sbil.policy import Policy

    environment = environments.get(command.env)
    policy = Policy.load(command.policy)
    environments.must_fit(environment, policy.spec)
    algorithm = policy.provenance.get("algorithm")
    name = (f"{algorithm} policy " if algorithm else "policy ") + command.policy.resolve().name
    players = [stage.Player(name, policy, greedy=not command.sampled)]
    if not command.alone:
        players = [*_demonstrator(command, policy, environment), *players]
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(driver, "dummy")  # pictures are drawn in memory: no window, no sound
    with bar(1, "film") as advance:
        made = film.film(environment, players, command.seed, command.seconds, advance)
    files.write_bytes(command.out, made.content)
    if command.json:
        print(json.dumps(_result(command, players, made)))
        return
    size = f"{len(made.content) / 1e6:.1f} MB" if len(made.content) >= 1e6 else f"{len(made.content) / 1e3:.0f} kB"
    where = f"{environment.name} from seed {command.seed}"
    print(f"wrote {command.out}: {made.cut.seconds:.1f} s, {size}; {where}, {made.cut}")
    for player, episode in zip(players, made.episodes, strict=True):
        print(f"  {player.name}, {player.mode}: return {film.number(episode.total)} in {episode.steps} steps")
    if len(players) == 1 and not command.alone:
        print(f"  no demonstrator of {environment.name} ships, so the policy is alone")
    print("  one episode shows how a policy plays, not how good it is; sbil evaluate says that")


def _check(command: Command) -> None:
    """Refuse what can be refused before anything is loaded."""
    from sbil.errors import UserError

    if command.out.is_dir():
        raise UserError(f"{command.out} is a folder; name a file.")
    if command.out.suffix.lower() != ".gif":
        raise UserError(f"{command.out}: films are written as GIF; name the file something.gif.")
    if not command.out.parent.is_dir():
        raise UserError(f"{command.out.parent}: there is no such folder; make it, or choose another --out.")
    if command.out.exists() and not command.overwrite:
        raise UserError(f"{command.out} exists already; choose another --out, or replace it with --overwrite.")
    if command.alone and command.against:
        raise UserError("give --against NAME to show a demonstrator, or --alone to show none (one of them).")


def _demonstrator(command: Command, policy: Any, environment: "Task") -> "list[Player]":
    """The one asked for, else the one the policy learned from, else ppo, else none."""
    from sbil import demonstrators, environments
    from sbil.errors import UserError, unknown
    from sbil.evaluation.stage import Player

    prefix = f"{environment.name}-"
    shipped = [name.removeprefix(prefix) for name in demonstrators.names() if name.startswith(prefix)]
    if command.against and not shipped:
        raise UserError(f"no demonstrator of {environment.name} ships; leave out --against to see the policy alone.")
    if command.against and command.against not in shipped:
        raise unknown(f"demonstrator of {environment.name}", command.against, shipped)
    source = policy.provenance.get("data", {}).get("provenance", {})
    learned = source.get("demonstrator") if source.get("environment") == environment.name else None
    name = next((name for name in (command.against, learned, "ppo") if name in shipped), None)
    if name is None:
        return []
    measured = environments.returns().get(environment.name, {}).get("demonstrators", {})
    sampled = command.sampled and "sampled" in measured.get(name, ("sampled",))  # dqn only ever acts greedily
    return [Player(f"{name} demonstrator", demonstrators.get(prefix + name), greedy=not sampled)]


def _result(command: Command, players: "list[Player]", made: Any) -> dict[str, Any]:
    return {
        "file": str(command.out),
        "bytes": len(made.content),
        "seconds": made.cut.seconds,
        "speed": round(made.cut.speed, 2),
        "every": made.cut.every,
        "environment": command.env,
        "seed": command.seed,
        "players": [
            {
                "name": player.name,
                "mode": player.mode,
                "return": episode.total,
                "steps": episode.steps,
            }
            for player, episode in zip(players, made.episodes, strict=True)
        ],
    }
