"""Environments of gymnasium: worker processes play policies and seeds in blocks of episodes."""

from typing import Any

import numpy as np

from sbil.environments.base import Played, Recorded
from sbil.environments.host import workers
from sbil.environments.host.lockstep import BLOCK
from sbil.environments.host.messages import Message
from sbil.errors import UserError
from sbil.networks import MLP


def play(
    name: str, networks: Any, seeds: np.ndarray, *, greedy: bool, record: bool = False, spec: str | None = None
) -> Played:
    """R policies (stacked, leading axis R) play one episode for each of their seeds [R, E].

    spec: the registration of the environment, as JSON, if gymnasium in a worker does not know its name.
    """
    if not isinstance(networks, MLP):
        raise UserError(f"only fully connected networks play in {name}. Got {type(networks).__name__}.")
    policies, episodes = seeds.shape
    arrays = [np.asarray(leaf, np.float32) for layer in networks.layers for leaf in (layer.weight, layer.bias)]
    if any(len(array) != policies for array in arrays):
        raise UserError(f"there are seeds for {policies} policies, and {len(arrays[0])} policies to play {name}.")
    header = {
        "name": name,
        "spec": spec,
        "path": workers.search_path(),  # it may be longer now than when the workers were started
        "activation": networks.activation,
        "greedy": greedy,
        "record": record,
    }
    blocks = [(policy, start) for policy in range(policies) for start in range(0, episodes, BLOCK)]
    answers = workers.deal(
        [
            Message(header, [np.asarray(seeds[p, start : start + BLOCK], np.int64), *(array[p] for array in arrays)])
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


def _episodes(answer: Message) -> list[Recorded]:
    _, observations, actions, lengths = answer.arrays
    ends = lengths.cumsum()
    seen = np.split(observations, (ends + np.arange(1, len(ends) + 1))[:-1])
    done = np.split(actions, ends[:-1])
    columns = zip(seen, done, answer.header["terminal"], strict=True)
    return [Recorded(s.copy(), a.copy(), terminal) for s, a, terminal in columns]
