"""Measures what random policies and the shipped demonstrators reach, and writes it down.

    python -m sbil.experiments.returns [--missing] [ENVIRONMENT ...]

writes environments/returns.json (the 0 and the 1 of scaled scores) and the cards of the demonstrators; what is not
named stays as it was, and with --missing so does everything that was measured before.
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

EPISODES, GAMES = 1000, 100  # where observations are images, games


Task = JaxEnvironment | HostEnvironment


def episodes_of(environment: Task) -> int:
    """How many episodes are measured."""
    return EPISODES if len(environment.spec.observation_shape) == 1 else GAMES


def summary(returns: np.ndarray) -> dict[str, Any]:
    """Mean, spread and extremes of returns."""
    return {
        "mean": round(float(returns.mean()), 3),
        "sd": round(float(returns.std(ddof=1)), 3),
        "min": float(returns.min()),
        "max": float(returns.max()),
        "episodes": int(returns.size),
    }


def random_network(environment: Task) -> np.ndarray:
    """Freshly initialised networks act greedily for one episode each."""
    keys = jax.random.split(named("random network", environment.name), episodes_of(environment))
    networks = jax.vmap(lambda key: policy_network(jax.random.fold_in(key, 0), environment.spec))(keys)
    episodes = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)
    return play(environment, Policies(call, networks), episodes, episodes=1)


def uniform_actions(environment: Task) -> np.ndarray:
    """Every action equally likely: a network of zeros, sampled."""
    network = policy_network(jax.random.key(0), environment.spec)
    zeros = jax.tree.map(lambda leaf: 0 * leaf[None], network)
    key, episodes = named("uniform", environment.name), episodes_of(environment)
    return play(environment, Policies(call, zeros), key, episodes, greedy=False)


def demonstrator(environment: Task, policy: Policy, mode: str) -> np.ndarray:
    """A demonstrator in one of its modes."""
    key, episodes = named("demonstrator", environment.name), episodes_of(environment)
    return play(environment, Policies(call, stack([policy.network])), key, episodes, greedy=mode == "greedy")


Measure = Callable[[], np.ndarray]


def parts(environment: Task) -> Iterator[tuple[tuple[str, ...], Measure]]:
    """Everything that is known about returns in one environment, part by part: (where it stands, how it is found)."""
    yield ("random network",), partial(random_network, environment)
    yield ("uniform actions",), partial(uniform_actions, environment)
    for name in demonstrators.names():
        task, algorithm = name.rsplit("-", 1)
        for mode in modes(algorithm) if task == environment.name else ():
            yield (
                ("demonstrators", algorithm, mode),
                partial(demonstrator, environment, demonstrators.get(name), mode),
            )


def modes(name: str) -> tuple[str, ...]:
    """The modes of a demonstrator: the outputs of DQN are values and not logits, so it is not sampled."""
    return ("greedy",) if name == "dqn" else demonstrators.MODES


def card(name: str, policy: Policy, measured: dict[str, Any]) -> str:
    """The card that ships with a demonstrator."""
    settings = policy.provenance
    rows = "\n".join(
        f"| {mode} | {m['mean']} | {m['sd']} | {m['min']:g} | {m['max']:g} | {m['episodes']} |"
        for mode, m in measured.items()
    )
    lines = "\n".join(f"| {key} | {json.dumps(value)} |" for key, value in settings.items())
    return f"""# {name}

A demonstrator for {settings["environment"]}, trained by reinforcement learning with {settings["algorithm"]}:

    {command(name, settings)}
{stopped(settings)}
Returns, measured by `python -m sbil.experiments.returns`:

| actions | mean | sd | min | max | episodes |
|---|---|---|---|---|---|
{rows}

Trained with:

| setting | value |
|---|---|
{lines}

It is here to be imitated. It was chosen by its return in the environment, as demonstrators are; nothing that
learns from it may be.
"""


def stopped(settings: Mapping[str, Any]) -> str:
    """What is to be known of a training that did not run to its end."""
    made, asked = settings.get("decisions_made", 0), settings.get("decisions", 0)
    if made >= asked - settings.get("games", 0) * settings.get("steps", 0):
        return ""
    return f"\nIt was stopped (`--seconds`) after {made:,} of {asked:,} decisions.\n"


def command(name: str, settings: Mapping[str, Any]) -> str:
    """How it was trained."""
    if "trained_by" not in settings:
        who = f"{settings['environment']} {name.rsplit('-', 1)[1]}"
        return f"python -m sbil.demonstrators.train {who} --out demonstrators/"
    return f"python -m {settings['trained_by']} {settings['environment']} --out demonstrators/"


def write(measured: dict[str, Any]) -> None:
    """Write the registry."""
    content = {"measured_by": "python -m sbil.experiments.returns", "environments": measured}
    target = Path(environments.__file__).with_name("returns.json")
    files.write_text(target, json.dumps(content, indent=2) + "\n")


def main() -> None:
    """Measure the environments named, or all; write the registry after every part, and the cards."""
    only_missing = "--missing" in sys.argv
    asked = [word for word in sys.argv[1:] if word != "--missing"] or list(environments.known())
    measured = dict(environments.returns())
    for name in asked:
        for place, measure in parts(environments.get(name)):
            into = measured.setdefault(name, {})
            for step in place[:-1]:
                into = into.setdefault(step, {})
            if only_missing and place[-1] in into:
                continue
            into[place[-1]] = summary(measure())
            write(measured)
            print(name, *place, json.dumps(into[place[-1]]), flush=True)
    for name in demonstrators.names():
        environment, algorithm = name.rsplit("-", 1)
        if environment in asked:
            text = card(name, demonstrators.get(name), measured[environment]["demonstrators"][algorithm])
            files.write_text(demonstrators.folder() / name / "README.md", text)


if __name__ == "__main__":
    program("returns", main)
