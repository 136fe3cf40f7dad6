"""Atari games: ale-py emulates them in threads, the networks look at all games of a policy at once.

The usual preprocessing (Machado et al. 2018, without sticky actions; the Arcade Learning Environment calls this
NoFrameskip-v4): an action is held for 4 frames; a frame is grey, 84 x 84, the maximum over the last two; an observation
is the last 4 frames, black before the first; a game begins after 1 to 30 idle frames and the fire button, and is played
until all lives are lost. Scores are not clipped.
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
FRAMES = 108_000  # of a game at most: half an hour
SKIP = 4
BLOCK = 5  # games of one policy that step together


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

    def __init__(self, block: Block, network: Any, greedy: bool, record: bool) -> None:
        self.block, self.network, self.greedy, self.record = block, network, greedy, record
        games = len(block.seeds)
        self.envs = vector(games, threads=1)
        self.image, _ = self.envs.reset(seed=block.seeds.astype(np.int64))
        self.alive, self.total, self.terminal, self.time = (
            np.ones(games, bool),
            np.zeros(games),
            np.zeros(games, bool),
            0,
        )
        self.frames = [[image[-1].copy()] for image in self.image]
        self.actions: list[list[int]] = [[] for _ in range(games)]

    def decide(self) -> Array:
        """The actions now, not waited for; always for a full block, which rounds alike whatever the number of games."""
        missing = BLOCK - len(self.alive)
        image = np.pad(self.image, ((0, missing), (0, 0), (0, 0), (0, 0))) if missing else self.image
        return _choose(self.network, image, np.pad(self.block.seeds, (0, missing)), self.time, self.greedy)

    def send(self, actions: Array) -> None:
        """Let the games move, not waited for."""
        self.sent = np.asarray(actions, np.int32)[: len(self.alive)]
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
def _choose(network: Any, image: Array, seeds: Array, time: Array, greedy: bool) -> Array:
    logits = network(as_inputs(jnp.moveaxis(image, 1, -1)))
    if greedy:
        return logits.argmax(axis=-1)
    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), time))(seeds)
    return jax.vmap(jax.random.categorical)(keys, logits)


def play(networks: Any, seeds: np.ndarray, *, greedy: bool, record: bool = False) -> Played:
    """R networks play a game a seed; a game depends on its network and its seed alone.

    Blocks of games are under way in two halves: while one half moves, the networks look at the other.
    """
    runs, games = seeds.shape
    each = [jax.tree.map(lambda leaf, run=run: leaf[run], networks) for run in range(runs)]
    parts = np.array_split(np.arange(games), range(BLOCK, games, BLOCK))
    waiting = iter([Block(run, part, seeds[run, part]) for run in range(runs) for part in parts])
    returns = np.zeros((runs, games))
    episodes: list[list[Any]] = [[None] * games for _ in range(runs)]

    def start(count: int) -> list[Table]:
        blocks = [block for _, block in zip(range(count), waiting, strict=False)]
        return [Table(block, each[block.policy], greedy, record) for block in blocks]

    def move(tables: list[Table]) -> None:
        decided = [table.decide() for table in tables]
        for table, actions in zip(tables, decided, strict=True):
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

    halves = [start(2 * cores()), start(2 * cores())]
    for tables in halves:
        move(tables)
    while any(halves):
        for number, tables in enumerate(halves):
            halves[number] = settle(tables)
            move(halves[number])
    return Played(returns, episodes if record else [])
