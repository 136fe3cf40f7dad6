"""How the demonstrators for LunarLander and BeamRider were trained: PPO (Schulman et al. 2017) in JAX.

    pip install "sbil[envs]"
    python -m sbil.demonstrators.train_ppo LunarLander-v3 --out demonstrators/

The games are those that policies are scored in, but for what helps training: of BeamRider, rewards are clipped to their
sign and the loss of a life counts as an end; of LunarLander, rewards are a twentieth. Games play in two groups: while
the network looks at one, the other moves. Training that was interrupted, or that was asked for fewer decisions, is
taken up from its checkpoint.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sbil import environments
from sbil.checkpoint import Checkpoint
from sbil.dataset import Spec, as_inputs
from sbil.errors import UserError, unknown
from sbil.host import atari, lockstep
from sbil.networks import Dense, Network, make_network, orthogonal_dense
from sbil.policy import Policy

GROUPS = 2


@dataclass(frozen=True)
class Settings:
    """Settings of PPO."""

    decisions: int  # in all
    games: int  # played at a time
    steps: int  # decisions of each game between two rounds of learning
    batch: int  # decisions a gradient step
    learning_rate: float  # of Adam at the beginning; it falls to zero in a straight line
    discount: float
    trace: float  # lambda of the generalised advantages
    clip: float  # how far the ratio of probabilities may move
    hidden: tuple[int, ...]  # of images, convolutions stand for the first
    sharpness: float  # the policy exported draws from PPO's probabilities to this power
    epochs: int = 4  # passes over what a round has collected
    entropy: float = 0.01  # weight of the entropy bonus
    value: float = 0.5  # weight of the value's loss
    norm: float = 0.5  # largest norm of a gradient
    seed: int = 0


SETTINGS = {
    "LunarLander-v3": Settings(3_000_000, 64, 256, 256, 1e-3, 0.999, 0.98, 0.2, (128, 128), 1.0),
    # Fewer slips than PPO's own draws, and games still differ, which without chance they hardly do.
    "BeamRiderNoFrameskip-v4": Settings(6_000_000, 256, 32, 512, 3e-4, 0.99, 0.95, 0.1, (0, 256), 2.0),
}


class Rollout(NamedTuple):
    """What a round has collected; leading axes are steps and games."""

    seen: Array  # images are uint8 [steps, games, stack, height, width]
    action: Array
    log_probability: Array
    value: Array
    reward: Array
    ended: Array


def begin(key: PRNGKeyArray, spec: Spec, settings: Settings) -> Network:
    """One network for both: a logit an action, and last the value."""
    outer, last = jax.random.split(key)

    def layer(key: PRNGKeyArray, inputs: int, outputs: int) -> Dense:
        drawn = orthogonal_dense(key, inputs, outputs)
        return Dense(2**0.5 * drawn.weight, drawn.bias)

    activation = "tanh" if len(spec.observation_shape) == 1 else "relu"
    network = make_network(outer, spec, settings.hidden, spec.actions + 1, activation, layer=layer)
    gains = jnp.append(jnp.full(spec.actions, 0.01), 1.0)
    output = gains * orthogonal_dense(last, settings.hidden[-1], spec.actions + 1).weight
    return eqx.tree_at(lambda network: network.output.weight, network, output)


def look(network: Network, seen: Array) -> tuple[Float[Array, "n actions"], Float[Array, " n"]]:
    """(log-probabilities, values) for rows of numbers, or images [n, stack, height, width]."""
    out = network(as_inputs(jnp.moveaxis(seen, 1, -1)) if seen.ndim == 4 else seen)
    return jax.nn.log_softmax(out[:, :-1]), out[:, -1]


@jax.jit
def act(network: Network, key: PRNGKeyArray, seen: Array) -> tuple[Array, Array, Array]:
    """Drawn actions, their log-probabilities, and the values."""
    logs, value = look(network, seen)
    action = jax.random.categorical(key, logs)
    return action, jnp.take_along_axis(logs, action[:, None], axis=1)[:, 0], value


def advantages(rollout: Rollout, after: Float[Array, " games"], settings: Settings) -> Float[Array, "steps games"]:
    """Generalised advantages (Schulman et al. 2016); nothing is carried over an end."""

    def back(carry: tuple[Array, Array], step: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        advantage, following = carry
        reward, value, ended = step
        goes_on = settings.discount * (1 - ended)
        advantage = reward + goes_on * following - value + goes_on * settings.trace * advantage
        return (advantage, value), advantage

    steps = rollout.reward, rollout.value, rollout.ended
    return jax.lax.scan(back, (jnp.zeros_like(after), after), steps, reverse=True)[1]


@partial(jax.jit, static_argnames=("settings", "optimiser"), donate_argnums=(0, 1))
def learn(
    network: Network,
    optimiser_state: optax.OptState,
    key: PRNGKeyArray,
    rollouts: tuple[Rollout, ...],
    after: tuple[Array, ...],
    settings: Settings,
    optimiser: optax.GradientTransformationExtraArgs,
) -> tuple[Network, optax.OptState, dict[str, Array]]:
    """A few passes over what was collected."""
    gained = [advantages(rollout, value, settings) for rollout, value in zip(rollouts, after, strict=True)]
    flat = lambda arrays: jnp.concatenate([a.reshape(-1, *a.shape[2:]) for a in arrays])  # noqa: E731
    seen, action, old, value, *_ = (flat(column) for column in zip(*rollouts, strict=True))
    advantage = flat(gained)
    goal = advantage + value

    def loss(network: Network, rows: Array) -> tuple[Array, dict[str, Array]]:
        logs, found = look(network, seen[rows])
        ratio = jnp.exp(jnp.take_along_axis(logs, action[rows, None], axis=1)[:, 0] - old[rows])
        mine = advantage[rows]
        mine = (mine - mine.mean()) / (mine.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
        policy = -jnp.minimum(ratio * mine, clipped * mine).mean()
        critic = jnp.square(found - goal[rows]).mean() / 2
        entropy = -(jnp.exp(logs) * logs).sum(axis=1).mean()
        return policy + settings.value * critic - settings.entropy * entropy, {
            "entropy": entropy,
            "value_loss": critic,
            "moved": jnp.abs(ratio - 1).mean(),
        }

    def step(carry: Any, rows: Array) -> Any:
        network, optimiser_state = carry
        gradient, metrics = jax.grad(loss, has_aux=True)(network, rows)
        change, optimiser_state = optimiser.update(gradient, optimiser_state, network)
        return (optax.apply_updates(network, change), optimiser_state), metrics

    orders = [jax.random.permutation(jax.random.fold_in(key, e), len(action)) for e in range(settings.epochs)]
    batches: Int[Array, "steps batch"] = jnp.concatenate(orders).reshape(-1, settings.batch)
    (network, optimiser_state), metrics = jax.lax.scan(step, (network, optimiser_state), batches)
    return network, optimiser_state, {name: values.mean() for name, values in metrics.items()}


class Group(Protocol):
    """Some of the games under way."""

    seen: np.ndarray
    finished: list[float]  # scores of whole games

    def send(self, action: np.ndarray) -> None:
        """Let the games move."""

    def receive(self) -> tuple[np.ndarray, np.ndarray]:
        """(rewards to learn from, what counts as an end); `seen` is what they show now."""


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
    """A round of play: (what each group collected, the values where it stopped)."""
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
    environment: str, settings: Settings, checkpoint: Checkpoint, seconds: float, say: Callable[[str], None]
) -> tuple[Network, int]:
    """(the network, the decisions made); stops early when `seconds` are over."""
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


def acting(network: Network, sharpness: float) -> Network:
    """The network without its value."""
    last = network.output
    kept = sharpness * last.weight[:, :-1], sharpness * last.bias[:-1]
    return eqx.tree_at(lambda network: (network.output.weight, network.output.bias), network, kept)


@dataclass(frozen=True)
class Command:
    """Train one of the demonstrators that ship, and export it."""

    environment: tyro.conf.Positional[str]
    """LunarLander-v3 or BeamRiderNoFrameskip-v4."""
    out: Path
    """Folder in which the policy folder ENVIRONMENT-ppo is written."""
    set: tuple[str, ...] = ()
    """Settings changed, as name=value: decisions=1000000."""
    seconds: float = float("inf")
    """Stop after so many seconds; the next call goes on."""


def changed(settings: Settings, words: tuple[str, ...]) -> Settings:
    """Settings with numbers changed as name=value."""
    kinds = {field.name: type(getattr(settings, field.name)) for field in fields(settings)}
    changes: dict[str, Any] = {}
    for word in words:
        name, _, text = word.partition("=")
        numbers = [name for name, kind in kinds.items() if kind in (int, float)]
        try:
            changes[name] = kinds[name](float(text)) if name in numbers else None
        except ValueError:
            changes[name] = None
        if changes[name] is None:
            raise UserError(f"--set {word}: name one of the numbers {', '.join(numbers)} and its value.")
    new = replace(settings, **changes)
    if new.games % GROUPS or new.epochs * new.games * new.steps % new.batch:
        raise UserError(f"games must be even, and batch {new.batch} divide epochs x games x steps.")
    return new


def main() -> None:
    """Train, export, and say where."""
    command = tyro.cli(Command, prog="python -m sbil.demonstrators.train_ppo")
    if command.environment not in SETTINGS:
        raise unknown("environment to train in", command.environment, SETTINGS)
    settings = changed(SETTINGS[command.environment], command.set)
    command.out.mkdir(parents=True, exist_ok=True)
    folder = command.out / f"{command.environment}-ppo"
    # More decisions than before continue a training: the learning rate falls on a flatter line from then on.
    checkpoint = Checkpoint.beside(folder, {**asdict(settings), "decisions": 0, "sharpness": 0})
    say = lambda text: print(text, flush=True)  # noqa: E731
    network, decisions = train(command.environment, settings, checkpoint, command.seconds, say)
    task = environments.get(command.environment)
    provenance = {
        "environment": task.name,
        "algorithm": "ppo",
        "trained_by": "sbil.demonstrators.train_ppo",
        **asdict(settings),
        "decisions_made": decisions,
    }
    acts = acting(network, settings.sharpness)
    Policy(acts, task.observation_names, task.action_names, provenance=provenance).save(folder, overwrite=True)
    say(f"wrote {folder} after {decisions} decisions")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"train_ppo: {error}")
