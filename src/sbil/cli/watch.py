"""sbil watch: a policy folder -> a GIF of it playing beside its demonstrator."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from sbil.rendering import Film

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
    must_be_free(command.out, command.overwrite)
    from sbil import files, rendering
    from sbil.cli.progress import bar
    from sbil.policy import Policy

    with bar(1, "film") as progress:
        film = rendering.watch(
            Policy.load(command.policy),
            command.env,
            name=command.policy.resolve().name,
            against=command.against,
            alone=command.alone,
            greedy=not command.sampled,
            seed=command.seed,
            seconds=command.seconds,
            progress=progress,
        )
    files.write_bytes(command.out, film.content)
    if command.json:
        print(json.dumps({"file": str(command.out), **facts(film)}))
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


def must_be_free(out: Path, overwrite: bool) -> None:
    """Refuse a file that cannot be written, before anything is loaded."""
    from sbil.errors import UserError

    if out.is_dir():
        raise UserError(f"{out} is a folder; name a file.")
    if out.suffix.lower() != ".gif":
        raise UserError(f"{out}: films are written as GIF; name the file something.gif.")
    if not out.parent.is_dir():
        raise UserError(f"{out.parent}: there is no such folder; make it, or choose another --out.")
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists already; choose another --out, or replace it with --overwrite.")


def facts(film: "Film") -> dict[str, Any]:
    """A film as plain values."""
    return {
        "bytes": len(film.content),
        "seconds": film.cut.seconds,
        "speed": round(film.cut.speed, 2),
        "every": film.cut.every,
        "environment": film.environment,
        "seed": film.seed,
        "players": [
            {"name": player.name, "mode": player.mode, "return": episode.total, "steps": episode.steps}
            for player, episode in zip(film.players, film.episodes, strict=True)
        ],
    }
