"""One episode of one policy in the simulator itself, with pictures of it.

An Atari policy plays on the small grey frames that it is made for; the pictures are the screen in colour.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from sbil.environments.base import Environment
from sbil.environments.host import atari, lockstep
from sbil.errors import UserError
from sbil.policy import Policy


@dataclass(frozen=True)
class Player:
    """A policy, the name shown above it, and how it acts."""

    name: str
    policy: Policy
    greedy: bool = True

    @property
    def mode(self) -> str:
        return "greedy" if self.greedy else "sampled"


class Episode(NamedTuple):
    """What a player did, and its rewards."""

    actions: np.ndarray  # [T]
    rewards: np.ndarray  # [T], float64
    rate: float  # steps per second at real speed

    def __str__(self) -> str:
        return f"{number(self.total)} in {self.steps} steps"

    @property
    def steps(self) -> int:
        return len(self.actions)

    @property
    def total(self) -> float:
        return float(self.rewards.sum())


def number(value: float) -> str:
    """A return for people: 500, -81.3."""
    return f"{value:.1f}".removesuffix(".0")


def play(
    environment: Environment, player: Player, seed: int, tell: Callable[[float], None] = lambda done: None
) -> Episode:
    """Play one episode, which depends on the player and the seed alone."""
    rng = np.random.default_rng(seed)
    actions: list[int] = []
    rewards: list[float] = []
    with closing(simulator_for(environment, filming=False)) as simulator:
        observation, over = simulator.reset(seed), False
        while not over and len(actions) < environment.time_limit:
            if player.greedy:
                action = int(player.policy.act(observation))
            else:
                chances = np.asarray(player.policy.probabilities(observation), np.float64)
                action = int(rng.choice(len(chances), p=chances / chances.sum()))
            observation, reward, over = simulator.step(action)
            actions.append(action)
            rewards.append(reward)
            if len(actions) % 20 == 0:
                tell(len(actions) / environment.time_limit)
    return Episode(np.array(actions), np.array(rewards, np.float64), simulator.rate)


def simulator_for(environment: Environment, filming: bool) -> "_Gymnasium | _Atari":
    """The simulator of an environment; for filming, one that draws."""
    try:
        return _Atari(filming) if environment.name == atari.BEAM_RIDER else _Gymnasium(environment.name, filming)
    except ImportError as error:
        raise _missing(environment.name, error) from None


def _missing(name: str, error: Exception) -> UserError:
    package = getattr(error, "name", None) or str(error).split(" ")[0]
    return UserError(f'watching {name} needs a simulator ({package} is missing); pip install "sbil[envs]"')


class _Gymnasium:
    def __init__(self, name: str, filming: bool) -> None:
        import gymnasium

        self.name = name
        try:
            self.env = gymnasium.make(name, render_mode="rgb_array") if filming else lockstep.make(name)
        except gymnasium.error.DependencyNotInstalled as error:
            raise _missing(name, error) from None
        except gymnasium.error.UnregisteredEnv:
            raise UserError(f"{name} cannot be filmed: it is not registered with gymnasium, which draws it.") from None
        except TypeError:
            raise UserError(f"{name} cannot be filmed: it takes no render_mode.") from None
        self.rate = float(self.env.metadata.get("render_fps", 30))
        self.close = self.env.close

    def reset(self, seed: int) -> np.ndarray:
        return np.asarray(self.env.reset(seed=seed)[0])

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        observation, reward, terminal, truncated, _ = self.env.step(action)
        return np.asarray(observation), float(reward), bool(terminal or truncated)

    def picture(self) -> Any:
        import gymnasium

        try:
            picture = self.env.render()
            if not isinstance(picture, np.ndarray):
                raise UserError(f"{self.name} cannot be filmed: it draws no picture.")
            return Image.fromarray(picture)
        except gymnasium.error.DependencyNotInstalled as error:
            raise _missing(self.name, error) from None


class _Atari:
    """The game as policies see it, with channels last; for filming, the same game with its screen in colour."""

    def __init__(self, filming: bool) -> None:
        screen = {"grayscale": False, "img_height": 210, "img_width": 160, "stack_num": 1}
        self.filming = filming
        self.rate = 60 / atari.SKIP
        self.env = atari.vector(1, 1, autoreset_mode="NextStep", **(screen if filming else {}))
        self.close = self.env.close

    def reset(self, seed: int) -> np.ndarray:
        return self._seen(self.env.reset(seed=seed)[0])

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        frames, rewards, terminal, truncated, _ = self.env.step(np.array([action]))
        return self._seen(frames), float(rewards[0]), bool(terminal[0] or truncated[0])

    def _seen(self, frames: np.ndarray) -> np.ndarray:
        self.newest = np.array(frames[0, -1])
        return self.newest if self.filming else np.ascontiguousarray(np.moveaxis(frames[0], 0, -1))

    def picture(self) -> Any:
        return Image.fromarray(np.repeat(self.newest, 2, axis=1))  # points of this screen are twice as wide as high
