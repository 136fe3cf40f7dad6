"""How the demonstrator for BeamRider was trained: PPO (Schulman et al. 2017) in JAX, games in threads of ale-py.

    pip install "sbil[envs]"
    python -m sbil.demonstrators.train_atari --decisions 10_000_000 --out demonstrators/

The games are those it is scored in (see `sbil.host.atari`), but for what is usual in training: rewards are clipped to
their sign, and the loss of a life counts as an end. Games play in two groups: while the network looks at one, the
other moves. Training that was interrupted, or that was asked for fewer decisions, is taken up from its checkpoint.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
from sbil.host import atari
from sbil.networks import ConvNet, Dense, make_network, orthogonal_dense
from sbil.policy import Policy

GROUPS = 2


@dataclass(frozen=True)
class Settings:
    """Settings of PPO."""

    decisions: int = 10_000_000
    """Decisions in all; each lasts four frames."""
    games: int = 256
    """Games played at a time."""
    steps: int = 64
    """Decisions of each game between two rounds of learning."""
    epochs: int = 4
    """Passes over what a round has collected."""
    batch: int = 1024
    """Decisions a gradient step."""
    learning_rate: float = 5e-4
    """Step of Adam at the beginning; it falls to zero in a straight line."""
    discount: float = 0.99
    trace: float = 0.95
    """Lambda of the generalised advantages."""
    clip: float = 0.1
    """How far the ratio of probabilities may move."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""
    value: float = 0.5
    """Weight of the value's loss."""
    norm: float = 0.5
    """Largest norm of a gradient."""
    hidden: int = 256
    """Width of the layer after the convolutions."""
    sharpness: float = 2.0
    """The policy that is exported draws from PPO's probabilities to this power: it errs less, and games still differ."""
    seed: int = 0


class Rollout(NamedTuple):
    """What a round has collected; leading axes are steps and games."""

    image: Any  # uint8 [steps, games, stack, height, width]
    action: Array
    log_probability: Array
    value: Array
    reward: Array
    ended: Array


def begin(key: PRNGKeyArray, spec: Spec, settings: Settings) -> ConvNet:
    """One network for both: a logit an action, and last the value."""
    outer, last = jax.random.split(key)

    def layer(key: PRNGKeyArray, inputs: int, outputs: int) -> Dense:
        drawn = orthogonal_dense(key, inputs, outputs)
        return Dense(2**0.5 * drawn.weight, drawn.bias)

    network = make_network(outer, spec, (0, settings.hidden), spec.actions + 1, "relu", layer=layer)
    assert isinstance(network, ConvNet)
    output = (
        orthogonal_dense(last, settings.hidden, spec.actions + 1).weight * jnp.r_[jnp.full(spec.actions, 0.01), 1.0]
    )
    return eqx.tree_at(lambda network: network.output.weight, network, output)


def look(network: ConvNet, images: Array) -> tuple[Float[Array, "n actions"], Float[Array, " n"]]:
    """(log-probabilities, values) for images [n, stack, height, width]."""
    out = network(as_inputs(jnp.moveaxis(images, 1, -1)))
    return jax.nn.log_softmax(out[:, :-1]), out[:, -1]


@jax.jit
def act(network: ConvNet, key: PRNGKeyArray, images: Array) -> tuple[Array, Array, Array]:
    """Drawn actions, their log-probabilities, and the values."""
    logs, value = look(network, images)
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
    network: ConvNet,
    optimiser_state: optax.OptState,
    key: PRNGKeyArray,
    rollouts: tuple[Rollout, ...],
    after: tuple[Array, ...],
    settings: Settings,
    optimiser: optax.GradientTransformationExtraArgs,
) -> tuple[ConvNet, optax.OptState, dict[str, Array]]:
    """A few passes over what was collected."""
    gained = [advantages(rollout, value, settings) for rollout, value in zip(rollouts, after, strict=True)]
    flat = lambda arrays: jnp.concatenate([a.reshape(-1, *a.shape[2:]) for a in arrays])  # noqa: E731
    image, action, old, value, *_ = (flat(column) for column in zip(*rollouts, strict=True))
    advantage = flat(gained)
    goal = advantage + value

    def loss(network: ConvNet, rows: Array) -> tuple[Array, dict[str, Array]]:
        logs, found = look(network, image[rows])
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


class Group:
    """Some of the games: what they show, and the score of each so far."""

    def __init__(self, games: int, seed: int, threads: int) -> None:
        self.envs = atari.vector(games, threads, life_loss_info=True)
        image, info = self.envs.reset(seed=np.arange(seed, seed + games))
        self.image = image
        self.frame = info["episode_frame_number"].copy()
        self.score = np.zeros(games)
        self.finished: list[float] = []

    def send(self, action: np.ndarray) -> None:
        self.envs.send(action.astype(np.int32))

    def receive(self) -> tuple[np.ndarray, np.ndarray]:
        """(rewards clipped to their sign, which games lost a life); `image` is what they show now."""
        self.image, reward, ended, _, info = self.envs.recv()
        self.score += reward
        over = ended & (info["episode_frame_number"] < self.frame)
        self.frame = info["episode_frame_number"].copy()
        self.finished += self.score[over].tolist()
        self.score[over] = 0
        return np.sign(reward).astype(np.float32), ended.astype(np.float32)


def collect(
    network: ConvNet, groups: list[Group], key: PRNGKeyArray, steps: int
) -> tuple[tuple[Rollout, ...], tuple[Array, ...]]:
    """A round of play: (what each group collected, the values where it stopped)."""
    columns: list[list[list[Any]]] = [[[] for _ in Rollout._fields] for _ in groups]

    def decide(number: int, group: Group, kept: list[list[Any]], time: int) -> None:
        image = jnp.asarray(group.image)
        chosen = act(network, jax.random.fold_in(key, time * GROUPS + number), image)
        for column, value in zip(kept, (image, *chosen), strict=False):
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
    after = tuple(act(network, key, jnp.asarray(group.image))[2] for group in groups)
    stacked = (Rollout(*(jnp.stack([jnp.asarray(v) for v in column]) for column in kept)) for kept in columns)
    return tuple(stacked), after


def train(
    settings: Settings, checkpoint: Checkpoint, threads: int, seconds: float, say: Callable[[str], None]
) -> tuple[ConvNet, int]:
    """(the network, the decisions made); stops early when `seconds` are over."""
    spec = environments.get(atari.BEAM_RIDER).spec
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
    groups = [Group(share, seed, threads) for seed in first]
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


def acting(network: ConvNet, sharpness: float) -> ConvNet:
    """The network without its value."""
    last = network.output
    kept = sharpness * last.weight[:, :-1], sharpness * last.bias[:-1]
    return eqx.tree_at(lambda network: (network.output.weight, network.output.bias), network, kept)


@dataclass(frozen=True)
class Command:
    """Train the demonstrator for BeamRider, and export it."""

    out: Path
    """Folder in which the policy folder BeamRiderNoFrameskip-v4-ppo is written."""
    settings: tyro.conf.OmitArgPrefixes[Settings]
    seconds: float = float("inf")
    """Stop after so many seconds; the next call goes on."""
    threads: int = 0
    """Threads that play, of each of two groups; 0: one a core."""


def main() -> None:
    """Train, export, and say where."""
    command = tyro.cli(Command, prog="python -m sbil.demonstrators.train_atari")
    command.out.mkdir(parents=True, exist_ok=True)
    folder = command.out / f"{atari.BEAM_RIDER}-ppo"
    # More decisions than before continue a training: the learning rate falls on a flatter line from then on.
    checkpoint = Checkpoint.beside(folder, {**asdict(command.settings), "decisions": 0, "sharpness": 0})
    say = lambda text: print(text, flush=True)  # noqa: E731
    network, decisions = train(command.settings, checkpoint, command.threads, command.seconds, say)
    task = environments.get(atari.BEAM_RIDER)
    provenance = {
        "environment": task.name,
        "algorithm": "ppo",
        "trained_by": "sbil.demonstrators.train_atari",
        **asdict(command.settings),
        "decisions_made": decisions,
    }
    Policy(acting(network, command.settings.sharpness), (), task.action_names, provenance=provenance).save(
        folder, overwrite=True
    )
    say(f"wrote {folder} after {decisions} decisions")


if __name__ == "__main__":
    main()
