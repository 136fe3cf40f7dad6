"""Environments of gymnasium: worker processes play policies and seeds in blocks of episodes."""

from typing import Any, NamedTuple

import jax
import numpy as np

from sbil.environments.base import Played, Recorded
from sbil.environments.host import workers
from sbil.environments.host.lockstep import BLOCK
from sbil.environments.host.messages import Message
from sbil.errors import UserError
from sbil.mixtures import Adapted, Blend
from sbil.networks import MLP, Scaling


def play(
    name: str, networks: Any, seeds: np.ndarray, *, greedy: bool, record: bool = False, spec: str | None = None
) -> Played:
    """R policies (stacked, leading axis R) play one episode for each of their seeds [R, E].

    spec: the registration of the environment, as JSON, if gymnasium in a worker does not know its name.
    """
    policies, episodes = seeds.shape
    plain = _plain(name, networks, policies)
    if any(len(array) != policies for array in plain.arrays):
        counted = f"{len(plain.arrays[0])} policies to play {name}"
        raise UserError(f"there are seeds for {policies} policies, and {counted}.")
    header = {
        "name": name,
        "spec": spec,
        "path": workers.search_path(),  # it may be longer now than when the workers were started
        "activation": plain.activation,
        "greedy": greedy,
        "record": record,
    }
    blocks = [(policy, start) for policy in range(policies) for start in range(0, episodes, BLOCK)]
    answers = workers.deal(
        [
            Message(
                {**header, "temperature": float(plain.temperatures[p])},
                [np.asarray(seeds[p, start : start + BLOCK], np.int64), *(array[p] for array in plain.arrays)],
            )
            for p, start in blocks
        ]
    )
    returns = np.empty(seeds.shape, np.float64)
    recorded: list[list[Recorded]] = [[] for _ in range(policies)] if record else []
    for (policy, start), answer in zip(blocks, answers, strict=True):
        returns[policy, start : start + BLOCK] = answer.arrays[0]
        if record:
            recorded[policy] += _episodes(answer)
    return Played(returns, recorded)


class _Plain(NamedTuple):
    """What workers play: arrays of R policies, without JAX."""

    arrays: list[np.ndarray]  # weight and bias of every layer; then the weights of networks that decide together
    activation: str
    temperatures: np.ndarray


def _plain(name: str, networks: Any, policies: int) -> _Plain:
    """Return stacked policies as plain arrays; only fully connected networks, alone or together, have that form."""
    temperatures, together = np.ones(policies), []
    if isinstance(networks, Adapted) and isinstance(networks.network, Blend):
        temperatures, networks = np.asarray(networks.temperature, np.float64), _folded(networks)
    if isinstance(networks, Blend) and _alike(networks.parts):
        together = [np.asarray(networks.weights, np.float32)]
        networks = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *networks.parts)
    if not isinstance(networks, MLP):
        raise UserError(f"only fully connected networks play in {name}. Got {type(networks).__name__}.")
    layers = [np.asarray(leaf, np.float32) for layer in networks.layers for leaf in (layer.weight, layer.bias)]
    return _Plain([*layers, *together], networks.activation, temperatures)


def _folded(networks: Adapted) -> Blend:
    """Return the blend of plain observations, if its parts are fully connected."""
    scaling, blend = Scaling(networks.mean, networks.scale), networks.network
    parts = (scaling.folded_into(part) if isinstance(part, MLP) else part for part in blend.parts)
    return Blend(tuple(parts), blend.weights)


def _alike(parts: tuple[Any, ...]) -> bool:
    """Whether networks can be stacked."""
    shapes = {(jax.tree.structure(part), *(leaf.shape for leaf in jax.tree.leaves(part))) for part in parts}
    return len(shapes) == 1


def _episodes(answer: Message) -> list[Recorded]:
    _, observations, actions, lengths = answer.arrays
    ends = lengths.cumsum()
    seen = np.split(observations, (ends + np.arange(1, len(ends) + 1))[:-1])
    done = np.split(actions, ends[:-1])
    columns = zip(seen, done, answer.header["terminal"], strict=True)
    return [Recorded(s.copy(), a.copy(), terminal) for s, a, terminal in columns]
