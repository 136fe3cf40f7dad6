"""sbil watch: a policy folder -> a GIF of it playing beside its demonstrator."""

import json
from dataclasses import dataclass
from pathlib import Path

from sbil.cli.options import Folder, Written, with_options

EXAMPLES = (
    "sbil watch policy/ --env CartPole-v1 --out policy.gif",
    "sbil watch policy/ --env Acrobot-v1 --alone --seed 3 --seconds 10 --out alone.gif",
)


@dataclass(frozen=True, kw_only=True)
class Command(Written):
    """Film one episode of a policy beside one of its demonstrator, both from the same start."""

    policy: Folder
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


def run(command: Command) -> None:
    """Play, film, write and say what is to be seen."""
    from sbil.api.watch import watch
    from sbil.cli.progress import bar

    with bar(1, "film") as progress:
        film = with_options(watch, command, aside=("env",), environment=command.env, progress=progress)
    if command.json:
        print(json.dumps({"file": str(command.out), **film.as_json()}))
        return
    size = f"{len(film.content) / 1e6:.1f} MB" if len(film.content) >= 1e6 else f"{len(film.content) / 1e3:.0f} kB"
    print(
        f"wrote {command.out}: {film.cut.seconds:.1f} s, {size}; {film.environment} from seed {film.seed}, {film.cut}"
    )
    for player, episode in zip(film.players, film.episodes, strict=True):
        print(f"  {player.name}, {player.mode}: return {episode}")
    if len(film.players) == 1 and not command.alone:
        print(f"  no demonstrator of {film.environment} ships, so the policy is alone")
    print("  one episode shows how a policy plays, not how good it is; sbil evaluate says that")
