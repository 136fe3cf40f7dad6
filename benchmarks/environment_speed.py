"""Environment steps per second: sbil's evaluation and bare environments against gymnasium's vector environments."""

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from benchmarks import machine
from benchmarks.settings import Keep, Record, Settings
from benchmarks.tables import line, show, spread
from sbil import demonstrators, environments
from sbil.environments.base import JaxEnvironment
from sbil.evaluation import Policies, call, play
from sbil.keys import named
from sbil.networks import MLP, Dense, policy_network

# Rules that play well: push towards where the pole falls; push the elbow the way it turns.
RULES = {"CartPole-v1": (1.0, 1.6, 18.7, 3.5), "Acrobot-v1": (0.0, 0.0, 0.0, 0.0, 0.0, 1.0)}


class Contestant(NamedTuple):
    """Something that takes steps: each call takes some and says (steps, seconds)."""

    environment: str
    name: str
    play: Callable[[], tuple[int, float]]
    close: Callable[[], None] = lambda: None


def run(settings: Settings, keep: Keep) -> None:
    """Measure in turns and print."""
    if not machine.has("gymnasium"):
        line('gymnasium is not installed: pip install "sbil[bench]" gives the comparison; JAX alone is timed.')
    records: list[Record] = []
    for name in RULES:
        environment = environments.known()[name]
        assert isinstance(environment, JaxEnvironment)
        records += _measure(_contestants(environment, settings), settings)
    for record in records:
        keep(record)
    _print(records)


def _measure(contestants: list[Contestant], settings: Settings) -> list[Record]:
    """Call every runner once to warm up, then in turns."""
    repeats = settings.repeats or (2 if settings.quick else 3)
    measured: list[list[tuple[int, float]]] = [[] for _ in contestants]
    for turn in range(repeats + 1):
        for contestant, results in zip(contestants, measured, strict=True):
            result = contestant.play()
            if turn:
                results.append(result)
    for contestant in contestants:
        contestant.close()
    return [_record(contestant, results) for contestant, results in zip(contestants, measured, strict=True)]


def _record(contestant: Contestant, results: list[tuple[int, float]]) -> Record:
    return {
        "environment": contestant.environment,
        "what": contestant.name,
        "steps": [steps for steps, _ in results],
        "seconds": [seconds for _, seconds in results],
        "steps per second": [steps / seconds for steps, seconds in results],
    }


def _print(records: list[Record]) -> None:
    columns = ["environment", "what", "steps a turn", "steps per second"]
    rows = [
        [
            record["environment"],
            record["what"],
            f"{median(record['steps']):,.0f}",
            spread(record["steps per second"]),
        ]
        for record in records
    ]
    device = machine.jax_device()
    caption = (
        f"JAX on {device['devices']} {device['platform']} device(s). evaluate: greedy policies, forward passes"
        " included, only steps of live episodes counted. Others: random actions drawn beforehand, no network;"
        " resets are not counted as steps."
    )
    show("Environment steps per second", columns, rows, caption, words=2)


def _contestants(environment: JaxEnvironment, settings: Settings) -> list[Contestant]:
    policies, episodes = (5, 50) if settings.quick else (200, 300) if settings.gpu else (50, 300)
    playing = []
    for name, network in _networks(environment, settings).items():
        wide = network.layers[0].weight.shape[1] > 64
        count = policies // 10 if wide else policies  # a wide network costs ten times as much
        play = partial(_evaluate, environment, network, count, episodes)
        playing.append(Contestant(environment.name, f"sbil evaluate, {count} x {episodes}, {name}", play))
    lanes, steps = policies * episodes, 50 if settings.quick else 500
    alone = partial(_steps_alone, *_bare(environment, lanes, steps))
    bare = Contestant(environment.name, f"sbil steps alone, {lanes:,} at once", alone)
    return [*playing, bare, *_gymnasium(environment.name, settings)]


def _networks(environment: JaxEnvironment, settings: Settings) -> dict[str, MLP]:
    """A network that plays a rule, and the demonstrators that ship for this environment."""
    networks = {"64-64 elu rule": rule_network(environment)}
    for name in () if settings.quick else demonstrators.names():
        if name.startswith(environment.name):
            network = demonstrators.get(name).network
            assert isinstance(network, MLP)
            hidden = "-".join(str(layer.weight.shape[1]) for layer in network.layers[:-1])
            networks[f"{hidden} {network.activation} {name.removeprefix(environment.name + '-')}"] = network
    return networks


def rule_network(environment: JaxEnvironment) -> MLP:
    """A 64-64 ELU network that plays the environment's rule: the same work as any other, and long episodes.

    elu(z) - elu(-z) has the sign of z, so two units per layer carry the rule; the other units are random.
    """
    network = policy_network(named("rule", environment.name), environment.spec)
    assert isinstance(network, MLP)
    first, second, last = network.layers
    rule, pair = jnp.array(RULES[environment.name]), jnp.zeros(64).at[0].set(1.0).at[1].set(-1.0)
    outputs = jnp.zeros(environment.spec.actions).at[0].set(-1.0).at[-1].set(1.0)
    head = Dense(jnp.outer(pair, outputs), jnp.zeros_like(last.bias))
    return MLP((_with_pair(first, rule), _with_pair(second, pair), head), network.activation)


def _with_pair(layer: Dense, direction: Array) -> Dense:
    weight = layer.weight.at[:, 0].set(direction).at[:, 1].set(-direction)
    return Dense(weight, layer.bias.at[:2].set(0.0))


def _evaluate(environment: JaxEnvironment, network: MLP, policies: int, episodes: int) -> tuple[int, float]:
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (policies, *leaf.shape)), network)
    started = perf_counter()
    returns = play(environment, Policies(call, stacked), named("steps"), episodes)
    return live_steps(environment, returns), perf_counter() - started


def live_steps(environment: JaxEnvironment, returns: np.ndarray) -> int:
    """Steps of all episodes, read off their returns: CartPole earns 1 per step; Acrobot -1, and 0 in the last step."""
    if environment.name == "CartPole-v1":
        return int(returns.sum())
    return int((-returns + (returns > -environment.time_limit)).sum())


def _steps_alone(program: Callable[..., Any], states: Any, actions: Array) -> tuple[int, float]:
    started = perf_counter()
    jax.block_until_ready(program(states, actions))
    return actions.size, perf_counter() - started


def _bare(environment: JaxEnvironment, lanes: int, steps: int) -> tuple[Callable[..., Any], Any, Array]:
    """(program, first states, random actions): steps without a network; an ended episode goes back to its start."""

    def play(starts: Any, actions: Array) -> Any:
        def step(carry: Any, action: Array) -> tuple[Any, None]:
            states, total = carry
            states, reward, terminal = jax.vmap(environment.step)(states, action)
            return (_where(terminal, starts, states), total + reward), None

        return jax.lax.scan(step, (starts, jnp.zeros(len(actions[0]))), actions)[0]

    mesh = Mesh(np.array(jax.local_devices()), ("lanes",))
    lanes -= lanes % mesh.size
    across, columns = PartitionSpec("lanes"), PartitionSpec(None, "lanes")
    states = jax.vmap(environment.reset)(jax.random.split(named("starts"), lanes))
    actions = jax.random.randint(named("actions"), (steps, lanes), 0, environment.spec.actions, jnp.int8)
    program = jax.shard_map(play, mesh=mesh, in_specs=(across, columns), out_specs=across, check_vma=False)
    states = jax.device_put(states, NamedSharding(mesh, across))
    return jax.jit(program), states, jax.device_put(actions, NamedSharding(mesh, columns))


def _where(mask: Array, yes: Any, no: Any) -> Any:
    def choose(a: Array, b: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, yes, no)


def _gymnasium(name: str, settings: Settings) -> list[Contestant]:
    """gymnasium's vector environments with random actions; an empty result if gymnasium is missing."""
    if not machine.has("gymnasium"):
        return []
    import gymnasium

    modes = {"sync": (32, 300), "async": (min(machine.cores(), 16), 1000)}
    if gymnasium.spec(name).vector_entry_point:
        modes["vector_entry_point"] = (1000, 500)
    shrink = 10 if settings.quick else 1
    return [_vector(name, mode, count, steps // shrink) for mode, (count, steps) in modes.items()]


def _vector(name: str, mode: str, count: int, steps: int) -> Contestant:
    import gymnasium

    # A forked process would inherit JAX's threads and locks.
    options = {"context": "spawn"} if mode == "async" else None
    environments = gymnasium.make_vec(name, num_envs=count, vectorization_mode=mode, vector_kwargs=options)
    environments.reset(seed=0)
    actions = np.random.default_rng(0).integers(environments.single_action_space.n, size=(steps, count))
    play = partial(_gymnasium_steps, environments, actions)
    return Contestant(name, f"gymnasium {mode}, {count:,} at once", play, environments.close)


def _gymnasium_steps(environments: Any, actions: np.ndarray) -> tuple[int, float]:
    """Count real steps: the call after the end of an episode resets that environment instead of stepping it."""
    resets = 0
    started = perf_counter()
    for action in actions:
        _, _, terminal, truncated, _ = environments.step(action)
        resets += int(np.count_nonzero(terminal | truncated))
    return actions.size - resets, perf_counter() - started
