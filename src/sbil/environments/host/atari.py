"""Atari games: ale-py emulates them in threads, the networks look at many games at once.

The usual preprocessing (Machado et al. 2018, without sticky actions; the Arcade Learning Environment calls this
NoFrameskip-v4). An action is held for 4 frames. A frame is grey, 84 x 84 points, the maximum over the last two. An
observation is the last 4 frames, black before the first. A game begins after 1 to 30 idle frames and the fire button.
It ends when all lives are lost, or after five minutes (Mnih et al. 2015), since a ship that idles would never end.
Scores are not clipped.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from sbil.dataset import stacked
from sbil.environments.base import Played, Recorded
from sbil.environments.host.workers import cores
from sbil.errors import UserError

BEAM_RIDER = "BeamRiderNoFrameskip-v4"
ROM = "beam_rider"
STACK, SIZE = 4, 84
FRAMES = 18_000  # of a game at most: five minutes
SKIP = 4
MACHINES = 320  # games that are played at once


def vector(games: int, threads: int = 0, **options: Any) -> Any:
    """Several games as one vector environment of ale-py.

    threads: 0 means one per core. options: of AtariVectorEnv, instead of the usual ones of this module.
    """
    try:
        import ale_py
        from ale_py.vector_env import AtariVectorEnv
    except ImportError:
        raise UserError('Atari games need ale-py; install it with: pip install "sbil[envs]"') from None
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    usual = {
        "max_num_frames_per_episode": FRAMES,
        "repeat_action_probability": 0.0,
        "img_height": SIZE,
        "img_width": SIZE,
        "stack_num": STACK,
        "frameskip": SKIP,
        "maxpool": True,
        "noop_max": 30,
        "use_fire_reset": True,
        "reward_clipping": False,
        "autoreset_mode": "SameStep",
    }
    return AtariVectorEnv(ROM, games, num_threads=min(threads or cores(), games), **(usual | options))


def check() -> None:
    """Refuse where ale-py is not installed."""
    vector(1)


class Hall:
    """Machines that play. A machine takes the next waiting game when its own is over."""

    def __init__(self, machines: int, seeds: np.ndarray, waiting: Iterator[tuple[int, int]], record: bool) -> None:
        self.seeds, self.waiting, self.record = seeds, waiting, record
        self.games = [next(waiting) for _ in range(machines)]  # (policy, number) at each machine
        self.busy = np.ones(machines, bool)
        self.total, self.time = np.zeros(machines), np.zeros(machines, np.int32)
        self.frames: list[list[np.ndarray]] = [[] for _ in range(machines)]
        self.actions: list[list[int]] = [[] for _ in range(machines)]
        self.vector = vector(machines)
        self.image, _ = self.vector.reset(seed=self._seeds(range(machines)))
        self._note(range(machines), self.image)

    def move(self, networks: Any, greedy: bool) -> None:
        """Choose the actions of all games that are not over and send them, without waiting for the frames."""
        places = np.flatnonzero(self.busy)
        room = 1 << (len(places) - 1).bit_length()  # few shapes to compile
        shown = np.resize(places, min(room, len(self.games)))
        policy = np.array([self.games[machine][0] for machine in shown], np.int32)
        chosen = _choose(networks, policy, self.image[shown], self._seeds(shown), self.time[shown], greedy)
        self.sent = np.zeros(len(self.games), np.int32)
        self.sent[places] = np.asarray(chosen)[: len(places)]
        self.vector.send(self.sent)

    def receive(self) -> list[tuple[tuple[int, int], float, Recorded | None]]:
        """Receive the frames; return the games that are over, with their scores. Waiting games take their places."""
        self.image, reward, terminal, truncated, info = self.vector.recv()
        self.total += reward
        self.time += 1
        over = np.flatnonzero((terminal | truncated) & self.busy)
        if self.record:
            for machine in np.flatnonzero(self.busy):
                self.actions[machine].append(int(self.sent[machine]))
            self._note(np.flatnonzero(self.busy & ~(terminal | truncated)), self.image)
            if len(over):
                self._note(over, info["final_obs"])
        finished = [(self.games[m], float(self.total[m]), self._recorded(int(m), bool(terminal[m]))) for m in over]
        renewed = np.zeros(len(self.games), bool)
        for machine, game in zip(over, self.waiting, strict=False):
            self.games[machine], renewed[machine] = game, True
        self.busy[over] = renewed[over]
        self.total[over] = self.time[over] = 0
        if renewed.any():
            places = np.flatnonzero(renewed)
            self.image, _ = self.vector.reset(seed=self._seeds(places), options={"reset_mask": renewed})
            for machine in places:
                self.frames[machine], self.actions[machine] = [], []
            self._note(places, self.image)
        return finished

    def _seeds(self, machines: Iterable[int]) -> np.ndarray:
        return np.array([self.seeds[self.games[machine]] for machine in machines], np.int64)

    def _note(self, machines: Iterable[int], image: np.ndarray) -> None:
        if self.record:
            for machine in machines:
                self.frames[machine].append(image[machine, -1].copy())

    def _recorded(self, machine: int, terminal: bool) -> Recorded | None:
        if not self.record:
            return None
        return Recorded(np.stack(self.frames[machine]), np.array(self.actions[machine], np.int32), terminal)


@partial(jax.jit, static_argnames="greedy")
def _choose(networks: Any, policy: Array, image: Array, seeds: Array, time: Array, greedy: bool) -> Array:
    """The action at each machine, chosen by the network of its game."""
    inputs = stacked(image)
    if len(jax.tree.leaves(networks)[0]) == 1:
        logits = jax.tree.map(lambda leaf: leaf[0], networks)(inputs)
    else:
        logits = jax.vmap(lambda network, row: network(row))(jax.tree.map(lambda leaf: leaf[policy], networks), inputs)
    if greedy:
        return logits.argmax(axis=-1)
    keys = jax.vmap(lambda seed, time: jax.random.fold_in(jax.random.key(seed), time))(seeds, time)
    return jax.vmap(jax.random.categorical)(keys, logits)


def play(networks: Any, seeds: np.ndarray, *, greedy: bool, record: bool = False) -> Played:
    """R networks play one game per seed, in two halls: while one hall moves, the networks look at the other.

    A game depends on its network and its seed alone, but for rounding: networks round by the number of games that they
    look at. So a near tie between two actions may end differently when other games are played beside it.
    """
    runs, games = seeds.shape
    waiting = iter([(run, game) for run in range(runs) for game in range(games)])
    machines = min(MACHINES, runs * games)
    halls = [Hall(count, seeds, waiting, record) for count in (machines - machines // 2, machines // 2) if count]
    returns = np.zeros((runs, games))
    episodes: list[list[Any]] = [[None] * games for _ in range(runs)]
    for hall in halls:
        hall.move(networks, greedy)
    while halls:
        for hall in list(halls):
            for (run, game), score, episode in hall.receive():
                returns[run, game], episodes[run][game] = score, episode
            if hall.busy.any():
                hall.move(networks, greedy)
            else:
                halls.remove(hall)
    return Played(returns, episodes if record else [])
