"""One unit of work: a block of episodes of one policy, stepped together, with one forward pass per step."""

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from sbil.environments.base import Recorded
from sbil.environments.host.forward import Layers, forward
from sbil.errors import UserError

BLOCK = 50  # the most episodes in a unit
STREAM = 0x5B11  # sets the random numbers of the actions apart from the environment's, which has the same seed
DRAWS = 512  # numbers drawn at once for each episode
MISSING = 'gymnasium is not installed; install it with: pip install "sbil[envs]"'


class Stepper(NamedTuple):
    """An environment of gymnasium without its outer wrappers, and its time limit, which a wrapper had kept."""

    environment: Any
    limit: int


def make(name: str, spec: str | None = None) -> Any:
    """Make an environment of gymnasium; `spec` (JSON) registers it if gymnasium does not know the name."""
    try:
        import gymnasium
        from gymnasium.envs.registration import EnvSpec
    except ImportError:
        raise UserError(MISSING) from None
    what = name if spec is None or name in gymnasium.registry else EnvSpec.from_json(spec)
    try:
        with warnings.catch_warnings():
            # The import of Box2D's bindings gives this warning, and crashes if warnings are errors.
            warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
            return gymnasium.make(what, disable_env_checker=True)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        reason = " ".join(str(error).split())
        how = '; install it with: pip install "sbil[envs]"' if "box2d" in reason.lower() else f" ({reason})."
        raise UserError(f"{name} needs a package that is not installed{how}") from None


def check(name: str, spec: str | None = None) -> None:
    """Refuse an environment that cannot be made here."""
    make(name, spec).close()


def stepper(environment: Any) -> Stepper:
    """Remove the wrappers that count steps and check the order of calls, since `play` does both."""
    from gymnasium.wrappers import OrderEnforcing, TimeLimit

    limit = environment.spec.max_episode_steps
    while type(environment) in (TimeLimit, OrderEnforcing):
        environment = environment.env
    if environment is environment.unwrapped and type(environment.action_space) is _trusting().__base__:
        environment.action_space.__class__ = _trusting()
    return Stepper(environment, limit)


@cache
def _trusting() -> Any:
    """Discrete actions that are not checked at every step: that takes an eighth of LunarLander's time for nothing."""
    from gymnasium.spaces import Discrete

    return type("Trusting", (Discrete,), {"contains": lambda self, x: True})


def play(
    steppers: Sequence[Stepper],
    layers: Layers,
    activation: str,
    seeds: Sequence[int],
    *,
    greedy: bool,
    record: bool,
    weights: np.ndarray | None = None,
    temperature: float = 1.0,
) -> tuple[np.ndarray, list[Recorded]]:
    """(returns float64 [n], what was recorded): episode i is played in steppers[i] from seeds[i].

    An episode depends on its seed and the policy alone, not on the episodes beside it.
    """
    first = [s.environment.reset(seed=int(seed))[0] for s, seed in zip(steppers, seeds, strict=True)]
    observations = np.array(first, np.float32)
    inputs = layers[0][0].shape[-2]
    if observations.shape[1:] != (inputs,):
        raise UserError(f"the policy sees {inputs} numbers; the environment shows {observations.shape[1:]}.")
    choose = _greedy if greedy else _Sampled(seeds)
    seen, done = [[row.copy()] for row in observations], [list[int]() for _ in first]
    totals, terminal = [0.0] * len(first), [False] * len(first)
    alive, time = np.arange(len(first)), 0
    while len(alive):
        time += 1
        actions = choose(forward(layers, activation, observations, weights) / temperature, alive, time)
        ended = []
        for row, (episode, action) in enumerate(zip(alive.tolist(), actions, strict=True)):
            environment, limit = steppers[episode]
            observation, reward, terminated, truncated, _ = environment.step(action)
            observations[row] = observation
            totals[episode] += reward
            if record:
                seen[episode].append(observations[row].copy())
                done[episode].append(action)
                terminal[episode] = bool(terminated)
            if terminated or truncated or time >= limit:
                ended.append(row)
        if ended:
            observations, alive = np.delete(observations, ended, axis=0), np.delete(alive, ended)
    episodes = zip(seen, done, terminal, strict=True) if record else ()
    recorded = [Recorded(np.array(shown), np.array(acts, np.int32), over) for shown, acts, over in episodes]
    return np.array(totals, np.float64), recorded


def _greedy(logits: np.ndarray, alive: np.ndarray, time: int) -> list[int]:
    return logits.argmax(axis=1).tolist()


class _Sampled:
    """Actions drawn from softmax(logits); every episode has its own stream of random numbers, one per step."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._streams = [np.random.default_rng([int(seed), STREAM]) for seed in seeds]
        self._numbers = np.empty((len(self._streams), DRAWS))

    def __call__(self, logits: np.ndarray, alive: np.ndarray, time: int) -> list[int]:
        column = (time - 1) % DRAWS
        if column == 0:
            for episode in alive.tolist():
                self._streams[episode].random(out=self._numbers[episode])
        weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
        sums = weights.cumsum(axis=1)
        thresholds = self._numbers[alive, column] * sums[:, -1]
        return (sums[:, :-1] <= thresholds[:, None]).sum(axis=1).tolist()
