"""Small environments of gymnasium whose episodes are known beforehand, or that misbehave."""

import os
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env):
    """The observation counts the steps; the reward is the action plus the seed's first draw."""

    def __init__(self, ends_at=1_000_000, stops_at=1_000_000, sleep=0.0, prints=False, dies="", fails=False):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Discrete(2)
        self.ends_at, self.stops_at, self.sleep = ends_at, stops_at, sleep
        self.prints, self.dies, self.fails = prints, dies, fails

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.draw = 0, self.np_random.random()
        return np.array([0.0, self.draw]), {}

    def step(self, action):
        self.count += 1
        time.sleep(self.sleep)
        if self.prints:
            print("noise on the standard output", flush=True)
            os.write(1, b"more noise\n")
        if self.dies and not Path(self.dies).exists():
            os._exit(3)
        if self.fails:
            raise ValueError("the simulator is broken")
        observation = np.array([float(self.count), self.draw])
        return observation, action + self.draw, self.count >= self.ends_at, self.count >= self.stops_at, {}


def register(name: str, *, limit: int | None = 20, entry_point="simulators:Counter", **kwargs) -> str:
    """Register a counter under `name`, and replace one that is registered already."""
    gymnasium.registry.pop(name, None)
    gymnasium.register(name, entry_point=entry_point, max_episode_steps=limit, kwargs=kwargs)
    return name


class Strange(Counter):
    """A counter with other spaces."""

    def __init__(self, kind):
        super().__init__()
        box = spaces.Box(-1, 1, (2,), np.float32)
        actions = {"continuous": box, "multi": spaces.MultiDiscrete([2, 2]), "late": spaces.Discrete(2, start=1)}
        image = spaces.Box(0, 255, (8, 8, 3), np.uint8)
        seen = {"image": image, "dict": spaces.Dict({"a": box}), "number": spaces.Discrete(3)}
        self.action_space = actions.get(kind, self.action_space)
        self.observation_space = seen.get(kind, self.observation_space)


class NeedsPackage(Counter):
    """An environment whose package is missing."""

    def __init__(self, message):
        raise gymnasium.error.DependencyNotInstalled(message)
