"""Pictures of episodes: a film of a policy that plays beside its demonstrator."""

import os
from typing import Any

from sbil import demonstrators, environments
from sbil.environments.base import Environment
from sbil.errors import UserError, unknown
from sbil.policy import Policy
from sbil.rendering.film import Film, Progress, make_film, silent
from sbil.rendering.stage import Player


def watch(
    policy: Policy,
    environment: Environment | str,
    *,
    name: str = "",
    against: str | None = None,
    alone: bool = False,
    greedy: bool = True,
    seed: int = 0,
    seconds: float = 20.0,
    progress: Progress = silent,
) -> Film:
    """Film one episode of a policy beside one of its demonstrator, both from the same start.

    name: what the film calls the policy; default, its algorithm.
    against: a demonstrator that ships; default, the one that the policy learned from, else ppo, else none.
    alone: show no demonstrator.
    greedy: take the most probable action; otherwise draw actions.
    seed, seconds: of the episode, and the longest that the film may last.
    """
    if alone and against:
        raise UserError("against shows a demonstrator, and alone shows none; give one of them.")
    if isinstance(environment, str):
        environment = environments.get(environment)
    environments.must_fit(environment, policy.spec)
    title = " ".join(word for word in (policy.provenance.get("algorithm"), "policy", name) if word)
    players = [Player(title, policy, greedy)]
    if not alone and (shown := _demonstrator(policy, environment.name, against)):
        modes = environments.returns().get(environment.name, {}).get("demonstrators", {}).get(shown, ("sampled",))
        expert = demonstrators.get(f"{environment.name}-{shown}")
        # The demonstrator dqn has no sampled mode: it always takes the best action.
        players.insert(0, Player(f"{shown} demonstrator", expert, greedy or "sampled" not in modes))
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(driver, "dummy")  # pictures are drawn in memory: no window, no sound
    return make_film(environment, players, seed, seconds, progress)


def _demonstrator(policy: Policy, environment: str, against: str | None) -> str | None:
    """The demonstrator that was asked for, else the one that the policy learned from, else ppo, else none."""
    shipped = demonstrators.of(environment)
    if against and not shipped:
        raise UserError(f"no demonstrator of {environment} ships; leave out against to see the policy alone.")
    if against and against not in shipped:
        raise unknown(f"demonstrator of {environment}", against, shipped)
    source: dict[str, Any] = policy.provenance.get("data", {}).get("provenance", {})
    learned = source.get("demonstrator") if source.get("environment") == environment else None
    return next((name for name in (against, learned, "ppo") if name in shipped), None)


__all__ = ["Film", "Player", "make_film", "watch"]
