"""Trains the demonstrators of LunarLander and BeamRider with PPO (Schulman et al. 2017) in JAX.

    pip install "sbil[envs]"
    python -m studies.train_ppo LunarLander-v3 --out demonstrators/

The games are those in which policies are scored, with two changes that help training. BeamRider: rewards are clipped
to their sign, and the loss of a life counts as an end. LunarLander: rewards are divided by 20.

Games play in two groups: the network looks at one group while the other moves. A training that was interrupted
continues from its checkpoint. So does a training that was asked for fewer decisions before.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from jaxtyping import Array, PRNGKeyArray

from sbil import environments
from sbil.algorithms.base import change, parse, settings_of
from sbil.checkpoint import Checkpoint
from sbil.environments.host import atari, lockstep
from sbil.errors import UserError, program, unknown
from sbil.networks import Network
from sbil.policy import Policy
from studies.ppo import PPOConfig, Rollout, act, acting, begin, learn

GROUPS = 2
SETTINGS = {
    "LunarLander-v3": PPOConfig(),
    "BeamRiderNoFrameskip-v4": PPOConfig(
        decisions=6_000_000,
        games=256,
        steps=32,
        batch=512,
        learning_rate=3e-4,
        discount=0.99,
        trace=0.95,
        clip=0.1,
        hidden=(256, 256),
        sharpness=2.0,  # fewer slips than PPO's own draws; without any chance all games would be alike
    ),
}


class Group(Protocol):
    """Some of the games that are being played."""

    seen: np.ndarray
    finished: list[float]  # scores of whole games

    def send(self, action: np.ndarray) -> None:
        """Let the games move."""

    def receive(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (rewards to learn from, what counts as an end); `seen` is what the games show now."""


class Atari:
    """Games of BeamRider."""

    def __init__(self, games: int, seed: int) -> None:
        self.vector = atari.vector(games, life_loss_info=True)
        self.seen, info = self.vector.reset(seed=np.arange(seed, seed + games))
        self.frame = info["episode_frame_number"].copy()
        self.score = np.zeros(games)
        self.finished: list[float] = []

    def send(self, action: np.ndarray) -> None:
        self.vector.send(action.astype(np.int32))

    def receive(self) -> tuple[np.ndarray, np.ndarray]:
        self.seen, reward, ended, cut, info = self.vector.recv()
        self.score += reward
        over = (ended | cut) & (info["episode_frame_number"] < self.frame)
        self.frame = info["episode_frame_number"].copy()
        self.finished += self.score[over].tolist()
        self.score[over] = 0
        return np.sign(reward).astype(np.float32), (ended | cut).astype(np.float32)


class Lander:
    """Episodes of LunarLander."""

    def __init__(self, games: int, seed: int) -> None:
        self.steppers = [lockstep.stepper(lockstep.make("LunarLander-v3")) for _ in range(games)]
        first = [stepper.environment.reset(seed=seed + number)[0] for number, stepper in enumerate(self.steppers)]
        self.seen = np.array(first, np.float32)
        self.time, self.score = np.zeros(games, int), np.zeros(games)
        self.finished: list[float] = []

    def send(self, action: np.ndarray) -> None:
        self.action = action.tolist()

    def receive(self) -> tuple[np.ndarray, np.ndarray]:
        self.seen, rewards, ends = self.seen.copy(), np.zeros(len(self.action)), np.zeros(len(self.action))
        self.time += 1
        for number, (stepper, action) in enumerate(zip(self.steppers, self.action, strict=True)):
            seen, rewards[number], ended, _, _ = stepper.environment.step(action)
            self.score[number] += rewards[number]
            if ended or self.time[number] >= stepper.limit:
                ends[number], self.time[number] = 1, 0
                self.finished.append(float(self.score[number]))
                self.score[number] = 0
                seen, _ = stepper.environment.reset()
            self.seen[number] = seen
        return rewards.astype(np.float32) / 20, ends.astype(np.float32)


GROUP: dict[str, Callable[[int, int], Group]] = {"LunarLander-v3": Lander, atari.BEAM_RIDER: Atari}


def collect(
    network: Network, groups: list[Group], key: PRNGKeyArray, steps: int
) -> tuple[tuple[Rollout, ...], tuple[Array, ...]]:
    """Play one round. Return (what each group collected, the values where it stopped)."""
    columns: list[list[list[Any]]] = [[[] for _ in Rollout._fields] for _ in groups]

    def decide(number: int, group: Group, kept: list[list[Any]], time: int) -> None:
        seen = jnp.asarray(group.seen)
        chosen = act(network, jax.random.fold_in(key, time * GROUPS + number), seen)
        for column, value in zip(kept, (seen, *chosen), strict=False):
            column.append(value)
        group.send(np.asarray(chosen[0]))

    for number, group in enumerate(groups):
        decide(number, group, columns[number], 0)
    for time_ in range(1, steps + 1):
        for number, (group, kept) in enumerate(zip(groups, columns, strict=True)):
            reward, ended = group.receive()
            kept[4].append(reward)
            kept[5].append(ended)
            if time_ < steps:
                decide(number, group, kept, time_)
    after = tuple(act(network, key, jnp.asarray(group.seen))[2] for group in groups)
    stacked = (Rollout(*(jnp.stack([jnp.asarray(v) for v in column]) for column in kept)) for kept in columns)
    return tuple(stacked), after


def train(
    environment: str, settings: PPOConfig, checkpoint: Checkpoint, seconds: float, say: Callable[[str], None]
) -> tuple[Network, int]:
    """Return (the network, the number of decisions). Training stops early when `seconds` are over."""
    spec = environments.get(environment).spec
    rounds = settings.decisions // (settings.games * settings.steps)
    gradients = rounds * settings.epochs * settings.games * settings.steps // settings.batch
    schedule = optax.linear_schedule(settings.learning_rate, 0.0, gradients)
    optimiser = optax.chain(optax.clip_by_global_norm(settings.norm), optax.adam(schedule, eps=1e-5))
    key = jax.random.key(settings.seed)
    network = begin(jax.random.fold_in(key, 2**31), spec, settings)
    optimiser_state, done = optimiser.init(network), 0
    if saved := checkpoint.load((network, optimiser_state)):
        done = saved.done
        network, optimiser_state = jax.tree.map(jnp.asarray, saved.tree)
        say(f"taken up after round {done} of {rounds}")
    share = settings.games // GROUPS
    first = [settings.seed + done * settings.games + number * share for number in range(GROUPS)]
    groups = [GROUP[environment](share, seed) for seed in first]
    started, shown = time.monotonic(), time.monotonic()
    begun = done
    while done < rounds and time.monotonic() - started < seconds:
        own = jax.random.fold_in(key, done)
        rollouts, after = collect(network, groups, own, settings.steps)
        learning = jax.random.fold_in(own, 2**31)
        network, optimiser_state, metrics = learn(
            network, optimiser_state, learning, rollouts, after, settings, optimiser
        )
        done += 1
        if time.monotonic() - shown > 15 or done == rounds:
            shown = time.monotonic()
            speed = (done - begun) * settings.games * settings.steps / (shown - started)
            scores = [score for group in groups for score in group.finished[-50:]]
            numbers = ", ".join(f"{name} {float(value):.3f}" for name, value in metrics.items())
            average = f"{np.mean(scores):.0f}" if scores else "none"
            say(f"round {done}/{rounds}: last scores {average}, {numbers}, {speed:.0f} decisions/s")
            checkpoint.save(done, (network, optimiser_state), {})
    checkpoint.save(done, (network, optimiser_state), {})
    return network, done * settings.games * settings.steps


@dataclass(frozen=True)
class Command:
    """Train one of the demonstrators that ship, and export it."""

    environment: tyro.conf.Positional[str]
    """LunarLander-v3 or BeamRiderNoFrameskip-v4."""
    out: Path
    """Folder in which the policy folder ENVIRONMENT-ppo is written."""
    set: tuple[str, ...] = ()
    """Settings to change, as name=value: decisions=1000000."""
    seconds: float = float("inf")
    """Stop after this many seconds; the next call continues."""


def changed(settings: PPOConfig, words: tuple[str, ...]) -> PPOConfig:
    """Return settings with changes given as name=value."""
    new = change(settings, parse(PPOConfig, words))
    if new.games % GROUPS or new.epochs * new.games * new.steps % new.batch:
        raise UserError(f"games must be even, and batch {new.batch} divide epochs x games x steps.")
    return new


def main() -> None:
    """Train, export, and say where."""
    command = tyro.cli(Command, prog="python -m studies.train_ppo")
    if command.environment not in SETTINGS:
        raise unknown("environment to train in", command.environment, SETTINGS)
    settings = changed(SETTINGS[command.environment], command.set)
    command.out.mkdir(parents=True, exist_ok=True)
    folder = command.out / f"{command.environment}-ppo"
    # Asking for more decisions than before continues a training; the learning rate then falls more slowly.
    checkpoint = Checkpoint.beside(folder, {**settings_of(settings), "decisions": 0, "sharpness": 0})
    say = lambda text: print(text, flush=True)  # noqa: E731
    network, decisions = train(command.environment, settings, checkpoint, command.seconds, say)
    task = environments.get(command.environment)
    provenance = {
        "environment": task.name,
        "algorithm": "ppo",
        "trained_by": "studies.train_ppo",
        **settings_of(settings),
        "decisions_made": decisions,
    }
    acts = acting(network, settings.sharpness)
    Policy(acts, task.observation_names, task.action_names, provenance=provenance).save(folder, overwrite=True)
    say(f"wrote {folder} after {decisions} decisions")


if __name__ == "__main__":
    program("train_ppo", main)
