"""Atari games: ale-py emulates them in threads, the networks look at all games of a policy at once.

The usual preprocessing (Machado et al. 2018, without sticky actions; the Arcade Learning Environment calls this
NoFrameskip-v4): an action is held for 4 frames; a frame is grey, 84 x 84, the maximum over the last two; an observation
is the last 4 frames, black before the first; a game begins after 1 to 30 idle frames and the fire button, and is played
until all lives are lost, for at most five minutes (Mnih et al. 2015: a ship that idles would never end). Scores are not
clipped.
"""

import os
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sbil.dataset import as_inputs
from sbil.errors import UserError
from sbil.host.played import Played, Recorded

BEAM_RIDER = "BeamRiderNoFrameskip-v4"
ROM = "beam_rider"
STACK, SIZE = 4, 84
FRAMES = 18_000  # of a game at most: five minutes
SKIP = 4
BLOCK = 5  # games of one policy that step together
SLOTS = (1, 2, 8, 32)  # blocks that the networks look at in one call; the larger number in each of two halves


def vector(games: int, threads: int = 0, **options: Any) -> Any:
    """So many games as one vector environment of ale-py; threads 0: one a core."""
    try:
        import ale_py
        from ale_py.vector_env import AtariVectorEnv
    except ImportError:
        raise UserError('Atari games need ale-py; install it with: pip install "sbil[envs]"') from None
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return AtariVectorEnv(
        ROM,
        games,
        num_threads=min(threads or cores(), games),
        max_num_frames_per_episode=FRAMES,
        repeat_action_probability=0.0,
        img_height=SIZE,
        img_width=SIZE,
        stack_num=STACK,
        frameskip=SKIP,
        maxpool=True,
        noop_max=30,
        use_fire_reset=True,
        reward_clipping=False,
        autoreset_mode="SameStep",
        **options,
    )


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Block(NamedTuple):
    """Some games of one policy."""

    policy: int
    games: np.ndarray  # their numbers
    seeds: np.ndarray


class Table:
    """A block of games under way."""

    def __init__(self, block: Block, record: bool) -> None:
        self.block, self.record = block, record
        games = len(block.seeds)
        self.envs = vector(games, threads=1)
        self.image, _ = self.envs.reset(seed=block.seeds.astype(np.int64))
        self.alive, self.terminal = np.ones(games, bool), np.zeros(games, bool)
        self.total, self.time = np.zeros(games), 0
        self.frames = [[image[-1].copy()] for image in self.image]
        self.actions: list[list[int]] = [[] for _ in range(games)]

    def send(self, actions: np.ndarray) -> None:
        """Let the games move, not waited for."""
        self.sent = actions[: len(self.alive)].astype(np.int32)
        self.envs.send(self.sent)

    def receive(self) -> None:
        """Take in what the move brought; a game that is over counts no more."""
        self.image, reward, terminal, truncated, info = self.envs.recv()
        self.total += np.where(self.alive, reward, 0)
        over = (terminal | truncated) & self.alive
        if self.record:
            for game in np.flatnonzero(self.alive):
                shown = info["final_obs"] if over[game] else self.image
                self.frames[game].append(shown[game, -1].copy())
                self.actions[game].append(int(self.sent[game]))
        self.terminal |= over & terminal
        self.alive &= ~over
        self.time += 1

    def recorded(self, game: int) -> Recorded:
        """What was seen and done in one of the games."""
        actions = np.array(self.actions[game], np.int32)
        return Recorded(np.stack(self.frames[game]), actions, bool(self.terminal[game]))


@partial(jax.jit, static_argnames="greedy")
def _choose(networks: Any, policy: Array, image: Array, seeds: Array, time: Array, greedy: bool) -> Array:
    """[blocks, games], the actions in all games of some blocks."""

    def of(policy: Array, image: Array, seeds: Array, time: Array) -> Array:
        network = jax.tree.map(lambda leaf: leaf[policy], networks)
        logits = network(as_inputs(jnp.moveaxis(image, 1, -1)))
        if greedy:
            return logits.argmax(axis=-1)
        keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), time))(seeds)
        return jax.vmap(jax.random.categorical)(keys, logits)

    return jax.vmap(of)(policy, image, seeds, time)


def decide(networks: Any, tables: list[Table], greedy: bool) -> Array:
    """The actions at some tables, not waited for; one call for all of them.

    Missing games and tables are filled up, so that there are few shapes to compile, whatever the number of cores.
    """
    room = next(size for size in SLOTS if size >= len(tables))
    image = np.zeros((room, BLOCK, STACK, SIZE, SIZE), np.uint8)
    seeds = np.zeros((room, BLOCK), np.int32)
    for place, table in enumerate(tables):
        image[place, : len(table.alive)] = table.image
        seeds[place, : len(table.alive)] = table.block.seeds
    policy, time = np.zeros(room, np.int32), np.zeros(room, np.int32)
    policy[: len(tables)] = [table.block.policy for table in tables]
    time[: len(tables)] = [table.time for table in tables]
    return _choose(networks, policy, image, seeds, time, greedy)


def play(networks: Any, seeds: np.ndarray, *, greedy: bool, record: bool = False) -> Played:
    """R networks play a game a seed, in blocks of a few games of one network.

    Blocks are under way in two halves: while one half moves, the networks look at the other.
    """
    runs, games = seeds.shape
    parts = np.array_split(np.arange(games), range(BLOCK, games, BLOCK))
    waiting = iter([Block(run, part, seeds[run, part]) for run in range(runs) for part in parts])
    returns = np.zeros((runs, games))
    episodes: list[list[Any]] = [[None] * games for _ in range(runs)]

    def start(count: int) -> list[Table]:
        return [Table(block, record) for _, block in zip(range(count), waiting, strict=False)]

    def move(tables: list[Table]) -> None:
        if tables:
            for table, actions in zip(tables, np.asarray(decide(networks, tables, greedy)), strict=False):
                table.send(actions)

    def settle(tables: list[Table]) -> list[Table]:
        """Take in a move; blocks that are over make room for waiting ones."""
        for table in tables:
            table.receive()
            if not table.alive.any():
                for place, game in enumerate(table.block.games):
                    returns[table.block.policy, game] = table.total[place]
                    if record:
                        episodes[table.block.policy][game] = table.recorded(place)
        going = [table for table in tables if table.alive.any()]
        return going + start(len(tables) - len(going))

    half = min(SLOTS[-1], -(-runs * len(parts) // 2))
    halves = [start(half), start(half)]
    for tables in halves:
        move(tables)
    while any(halves):
        for number, tables in enumerate(halves):
            halves[number] = settle(tables)
            move(halves[number])
    return Played(returns, episodes if record else [])
