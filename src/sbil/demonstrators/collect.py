"""Collecting demonstrations: a demonstrator plays, and everything it sees and does is recorded."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from sbil.demonstrations import Demonstrations, Trajectory
from sbil.environments import must_fit
from sbil.environments.base import HostEnvironment, JaxEnvironment, Recorded
from sbil.errors import whole
from sbil.evaluation.live import choose, seeds
from sbil.keys import named
from sbil.networks import in_float32
from sbil.policy import Policy
from sbil.training import stack


def collect(
    environment: JaxEnvironment | HostEnvironment,
    policy: Policy,
    trajectories: int,
    seed: int,
    *,
    greedy: bool,
    provenance: dict[str, Any],
) -> tuple[Demonstrations, np.ndarray]:
    """Return (`trajectories` whole episodes of a policy, the return of each); demonstrations hold no rewards."""
    trajectories = whole("trajectories", trajectories, 1)
    must_fit(environment, policy.spec)
    network = policy.plain_network
    key = named("collect", environment.name, seed)
    if isinstance(environment, HostEnvironment):
        numbers = seeds(key[None], trajectories)
        played = environment.play(stack([network]), numbers, greedy=greedy, record=True)
        recorded, returns = played.episodes[0], played.returns[0]
    else:
        keys = jax.random.split(key, trajectories)
        *columns, rewards = jax.device_get(_program(environment, greedy)(network, keys))
        recorded = [_cut(*(column[i] for column in columns)) for i in range(trajectories)]
        returns = np.array([rewards[i, : len(recorded[i].actions)].sum() for i in range(trajectories)], float)
    episodes = tuple(Trajectory(*episode, truncated=not episode.terminal) for episode in recorded)
    names = environment.action_names, environment.observation_names
    whence = {"environment": environment.name, "mode": "greedy" if greedy else "sampled", "seed": seed, **provenance}
    return Demonstrations(episodes, *names, provenance=whence, stack=environment.stack), returns


@lru_cache(maxsize=16)
def _program(environment: JaxEnvironment, greedy: bool) -> Any:
    def episode(network: Any, key: PRNGKeyArray) -> tuple[Array, Array, Array, Array]:
        def step(state: Any, key: PRNGKeyArray) -> tuple[Any, tuple[Array, Array, Array, Array]]:
            observation = environment.observe(state)
            with in_float32():
                action = choose(key, network(observation), greedy)
            successor, reward, terminal = environment.step(state, action)
            return successor, (observation, action, terminal, reward)

        start_key, action_key = jax.random.split(key)
        start = environment.reset(start_key)
        last, (observations, actions, terminals, rewards) = jax.lax.scan(
            step, start, jax.random.split(action_key, environment.time_limit)
        )
        seen = jnp.concatenate([observations, environment.observe(last)[None]])
        return seen, actions, terminals, rewards

    return jax.jit(jax.vmap(episode, in_axes=(None, 0)))


def _cut(observations: np.ndarray, actions: np.ndarray, terminals: np.ndarray) -> Recorded:
    """Cut the record at the first terminal step; without one the time limit truncated the episode."""
    terminal = bool(terminals.any())
    length = int(terminals.argmax()) + 1 if terminal else len(actions)
    return Recorded(observations[: length + 1].copy(), actions[:length].astype(np.int32), terminal)
