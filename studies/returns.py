"""Measures the returns of random policies and of the demonstrators that ship.

    python -m studies.returns [--missing] [ENVIRONMENT ...]

It writes environments/returns.json (the 0 and the 1 of scaled scores) and the cards of the demonstrators. Environments
that are not named stay as they are. With --missing, everything that was measured before stays as it is.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sbil import demonstrators, environments, files
from sbil.environments.base import HostEnvironment, JaxEnvironment
from sbil.errors import program
from sbil.evaluation import Policies, call, play
from sbil.keys import named
from sbil.networks import policy_network
from sbil.policy import Policy
from sbil.training import stack
from studies import train_sb3

EPISODES, GAMES = 1000, 100  # games: episodes whose observations are images

Task = JaxEnvironment | HostEnvironment


def episodes_of(environment: Task) -> int:
    """Return how many episodes to measure."""
    return EPISODES if len(environment.spec.observation_shape) == 1 else GAMES


def summary(returns: np.ndarray) -> dict[str, Any]:
    """Return mean, spread and extremes of returns."""
    return {
        "mean": round(float(returns.mean()), 3),
        "sd": round(float(returns.std(ddof=1)), 3),
        "min": float(returns.min()),
        "max": float(returns.max()),
        "episodes": int(returns.size),
    }


def random_network(environment: Task) -> np.ndarray:
    """Play one greedy episode with each of many freshly initialised networks."""
    keys = jax.random.split(named("random network", environment.name), episodes_of(environment))
    networks = jax.vmap(lambda key: policy_network(jax.random.fold_in(key, 0), environment.spec))(keys)
    episodes = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)
    return play(environment, Policies(call, networks), episodes, episodes=1)


def uniform_actions(environment: Task) -> np.ndarray:
    """Play with equally likely actions: sample from a network of zeros."""
    network = policy_network(jax.random.key(0), environment.spec)
    zeros = jax.tree.map(lambda leaf: 0 * leaf[None], network)
    key, episodes = named("uniform", environment.name), episodes_of(environment)
    return play(environment, Policies(call, zeros), key, episodes, greedy=False)


def demonstrator(environment: Task, policy: Policy, mode: str) -> np.ndarray:
    """Play with a demonstrator in one of its modes."""
    key, episodes = named("demonstrator", environment.name), episodes_of(environment)
    return play(environment, Policies(call, stack([policy.network])), key, episodes, greedy=mode == "greedy")


Measure = Callable[[], np.ndarray]


def parts(environment: Task) -> Iterator[tuple[tuple[str, ...], Measure]]:
    """Yield every part of what is known about returns in one environment: (its place in the file, its measurement)."""
    yield ("random network",), partial(random_network, environment)
    yield ("uniform actions",), partial(uniform_actions, environment)
    for name in demonstrators.names():
        task, algorithm = name.rsplit("-", 1)
        for mode in modes(algorithm) if task == environment.name else ():
            played = partial(demonstrator, environment, demonstrators.get(name), mode)
            yield ("demonstrators", algorithm, mode), played


def modes(name: str) -> tuple[str, ...]:
    """Return the modes of a demonstrator. The outputs of DQN are values and not logits, so it is not sampled."""
    return ("greedy",) if name == "dqn" else demonstrators.MODES


def card(name: str, policy: Policy, measured: dict[str, Any]) -> str:
    """Write the card that ships with a demonstrator."""
    settings = policy.provenance
    rows = "\n".join(
        f"| {mode} | {m['mean']} | {m['sd']} | {m['min']:g} | {m['max']:g} | {m['episodes']} |"
        for mode, m in measured.items()
    )
    lines = "\n".join(f"| {key} | {json.dumps(value)} |" for key, value in settings.items() if key != "trained_by")
    return f"""# {name}

A demonstrator for {settings["environment"]}, trained by reinforcement learning with {settings["algorithm"]}:

    {command(name)}
{stopped(settings)}
Returns, measured by `python -m studies.returns`:

| actions | mean | sd | min | max | episodes |
|---|---|---|---|---|---|
{rows}

Trained with:

| setting | value |
|---|---|
{lines}

It ships to be imitated. It was chosen by its return in the environment, as demonstrators are. Policies that learn
from it must not be chosen in that way.
"""


def stopped(settings: Mapping[str, Any]) -> str:
    """Say that a training did not run to its end."""
    made, asked = settings.get("decisions_made", 0), settings.get("decisions", 0)
    if made >= asked - settings.get("games", 0) * settings.get("steps", 0):
        return ""
    return f"\nIt was stopped (`--seconds`) after {made:,} of {asked:,} decisions.\n"


def command(name: str) -> str:
    """Return the command that trained a demonstrator."""
    environment, algorithm = name.rsplit("-", 1)
    if (environment, algorithm) in train_sb3.SETTINGS:
        return f"python -m studies.train_sb3 {environment} {algorithm} --out demonstrators/"
    return f"python -m studies.train_ppo {environment} --out demonstrators/"


def write(measured: dict[str, Any]) -> None:
    """Write the file of returns."""
    content = {"measured_by": "python -m studies.returns", "environments": measured}
    target = Path(environments.__file__).with_name("returns.json")
    files.write_text(target, json.dumps(content, indent=2) + "\n")


def main() -> None:
    """Measure the environments named, or all. Write the file after every part, and the cards at the end."""
    only_missing = "--missing" in sys.argv
    asked = [word for word in sys.argv[1:] if word != "--missing"] or list(environments.known())
    measured = dict(environments.returns())
    for name in asked:
        measure(environments.get(name), measured, only_missing)
    for name in demonstrators.names():
        environment, algorithm = name.rsplit("-", 1)
        if environment in asked:
            text = card(name, demonstrators.get(name), measured[environment]["demonstrators"][algorithm])
            files.write_text(demonstrators.folder() / name / "README.md", text)


def measure(environment: Task, measured: dict[str, Any], only_missing: bool) -> None:
    """Measure every part of one environment, and write the file after each."""
    for (*path, last), found in parts(environment):
        into = measured.setdefault(environment.name, {})
        for step in path:
            into = into.setdefault(step, {})
        if not (only_missing and last in into):
            into[last] = summary(found())
            write(measured)
            print(environment.name, *path, last, json.dumps(into[last]), flush=True)


if __name__ == "__main__":
    program("returns", main)
