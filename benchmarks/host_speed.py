"""LunarLander steps per second: sbil's evaluation in worker processes against a bare loop over gymnasium."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import mean, median
from time import perf_counter
from typing import NamedTuple

import jax

from benchmarks import machine
from benchmarks.settings import Keep, Record, Settings
from benchmarks.tables import line, number, show, spread
from sbil.environments.host import workers
from sbil.environments.lunar_lander import ENVIRONMENT as LUNAR_LANDER
from sbil.evaluation import Policies, call, play
from sbil.evaluation.live import seeds
from sbil.keys import named
from sbil.networks import MLP, policy_network
from sbil.training import stack

EPISODES = 50
# One environment as gymnasium.make gives it, reset whenever an episode ends; prints the seconds.
BARE = """
import sys, time
import gymnasium, numpy
environment = gymnasium.make(sys.argv[1])
environment.reset(seed=0)
actions = numpy.random.default_rng(0).integers(environment.action_space.n, size=int(sys.argv[2])).tolist()
started = time.perf_counter()
for action in actions:
    _, _, terminated, truncated, _ = environment.step(action)
    if terminated or truncated:
        environment.reset()
print(time.perf_counter() - started)
"""


class Contestant(NamedTuple):
    """Something that takes steps: each call takes some and says (steps, seconds)."""

    name: str
    cores: int
    bare: bool
    play: Callable[[], tuple[int, float]]


def run(settings: Settings, keep: Keep) -> None:
    """Measure in turns and print."""
    if not (machine.has("gymnasium") and machine.has("Box2D")):
        line('gymnasium with Box2D is not installed: pip install "sbil[bench]".')
        return
    records = _measure(_contestants(settings), settings.repeats or (2 if settings.quick else 5))
    for record in records:
        keep(record)
    _print(records)


def _measure(contestants: list[Contestant], repeats: int) -> list[Record]:
    """Call every runner once to warm up (workers start then), and then in turns.

    Compare each with the bare loops of the same turn in as many processes.
    """
    turns = [[contestant.play() for contestant in contestants] for _ in range(repeats + 1)][1:]
    places = {contestant.cores: place for place, contestant in enumerate(contestants) if contestant.bare}
    records: list[Record] = []
    for place, contestant in enumerate(contestants):
        other = places[contestant.cores]
        rates = [turn[place][0] / turn[place][1] / contestant.cores for turn in turns]
        bare = [turn[other][0] / turn[other][1] / contestant.cores for turn in turns]
        records.append(
            {
                "what": contestant.name,
                "cores": contestant.cores,
                "steps": [turn[place][0] for turn in turns],
                "seconds": [turn[place][1] for turn in turns],
                "steps per second and core": rates,
                "against the bare loop": [rate / base for rate, base in zip(rates, bare, strict=True)],
            }
        )
    return records


def _print(records: list[Record]) -> None:
    columns = ["what", "processes", "steps a turn", "steps per second and core", "against the bare loop"]
    rows = [
        [
            record["what"],
            str(record["cores"]),
            number(median(record["steps"])),
            spread(record["steps per second and core"]),
            spread(record["against the bare loop"]),
        ]
        for record in records
    ]
    caption = (
        "evaluate: greedy 64-64 ELU networks, forward passes included, only steps of live episodes counted. Bare loop:"
        " one environment in a process. Resets take time and are not counted as steps; both have them."
    )
    show("LunarLander-v3 steps per second", columns, rows, caption)


def _contestants(settings: Settings) -> list[Contestant]:
    policies = 4 if settings.quick else 20
    networks = stack([policy_network(named("lander", i), LUNAR_LANDER.spec) for i in range(policies)])
    steps = _steps(networks, policies)
    what = f"sbil evaluate, {policies} x {EPISODES}"
    contestants = []
    for count in sorted({1, machine.cores()}):
        bare, ours = partial(_bare, count, steps // count), partial(_evaluate, networks, steps, count)
        contestants.append(Contestant("gymnasium, bare loops, random actions", count, True, bare))
        contestants.append(Contestant(what, count, False, ours))
    return contestants


def _steps(networks: MLP, policies: int) -> int:
    """How many steps the episodes take, counted once: greedy episodes are the same every time."""
    keys = jax.numpy.broadcast_to(named("steps"), (policies,))
    played = LUNAR_LANDER.play(networks, seeds(keys, EPISODES), greedy=True, record=True)
    return sum(len(episode.actions) for episodes in played.episodes for episode in episodes)


def _evaluate(networks: MLP, steps: int, count: int) -> tuple[int, float]:
    with _workers(count):
        started = perf_counter()
        play(LUNAR_LANDER, Policies(call, networks), named("steps"), EPISODES)
        return steps, perf_counter() - started


@contextmanager
def _workers(count: int) -> Iterator[None]:
    before = os.environ.get(workers.VARIABLE)
    os.environ[workers.VARIABLE] = str(count)
    try:
        yield
    finally:
        del os.environ[workers.VARIABLE]
        if before is not None:
            os.environ[workers.VARIABLE] = before


def _bare(count: int, steps: int) -> tuple[int, float]:
    """Bare loops in `count` processes at once; the seconds are their mean, without starting."""
    command = [sys.executable, "-W", "ignore", "-c", BARE, LUNAR_LANDER.name, str(steps)]
    loops = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return count * steps, mean(float(loop.communicate()[0]) for loop in loops)
