"""Film a policy beside its demonstrator."""

import os
from pathlib import Path

from sbil import demonstrators, environments, files
from sbil.environments.base import HostEnvironment, JaxEnvironment
from sbil.errors import UserError, flag
from sbil.files import as_path
from sbil.policy import Policy
from sbil.policy.outputs import must_be_free
from sbil.rendering import Film, Player, Progress, make_film, silent


def watch(
    policy: Policy | str | Path,
    environment: str | JaxEnvironment | HostEnvironment,
    out: str | Path | None = None,
    *,
    name: str | None = None,
    against: str | None = None,
    alone: bool = False,
    sampled: bool = False,
    seed: int = 0,
    seconds: float = 20.0,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Film:
    """Film one episode of a policy beside one of its demonstrator, both from the same start.

        sbil.watch("policy/", "CartPole-v1", "policy.gif")

    policy: a Policy, or the path of its folder.
    out: also write the film to this file (GIF).
    name: what the film calls the policy; default: the name of its folder.
    against: a demonstrator that ships; default: the one that the policy learned from, else ppo, else none.
    alone: show no demonstrator.
    sampled: draw actions from the policies; otherwise the most probable action is taken.
    seed: the seed of the episode.
    seconds: the longest that the film may last; episodes that take longer are shown faster.
    overwrite: replace the file if it exists.
    progress: called with the share of the work that is done and a few words.
    """
    if out is not None:
        _must_be_writable(as_path("out", out), flag("overwrite", overwrite))
    alone, sampled = flag("alone", alone), flag("sampled", sampled)
    if alone and against:
        raise UserError("against shows a demonstrator, and alone shows none; give one of them.")
    if not isinstance(policy, Policy):
        name = Path(policy).resolve().name if name is None else name
        policy = Policy.load(policy)
    environment = environments.get(environment)
    environments.must_fit(environment, policy.spec)
    title = " ".join(word for word in (policy.provenance.get("algorithm"), "policy", name) if word)
    beside = [] if alone else _demonstrator(policy, environment.name, against, sampled)
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(driver, "dummy")  # pictures are drawn in memory: no window, no sound
    film = make_film(environment, [*beside, Player(title, policy, not sampled)], seed, seconds, progress)
    if out is not None:
        files.write_bytes(Path(out), film.content)
    return film


def _must_be_writable(out: Path, overwrite: bool) -> None:
    must_be_free(out, overwrite)
    if out.suffix.lower() != ".gif":
        raise UserError(f"{out}: films are written as GIF; name the file something.gif.")
    if not out.parent.is_dir():
        raise UserError(f"{out.parent}: there is no such folder; make it, or choose another.")


def _demonstrator(policy: Policy, environment: str, against: str | None, sampled: bool) -> list[Player]:
    """The demonstrator to show beside a policy, if one ships."""
    suited = demonstrators.suited(environment, against, policy)
    if against and not suited:
        raise UserError(f"no demonstrator of {environment} ships; leave out against to see the policy alone.")
    if not suited:
        return []
    name, expert = suited[0], demonstrators.get(f"{environment}-{suited[0]}")
    # The demonstrator dqn has no sampled mode: it always takes the best action.
    greedy = not sampled or "sampled" not in demonstrators.measured(environment)[name]
    return [Player(f"{name} demonstrator", expert, greedy)]
