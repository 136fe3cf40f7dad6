"""Tiny finite problems with known answers, and small data that has every kind of trajectory."""

import dataclasses
import os
from collections.abc import Callable, Iterable
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbil.cli import main
from sbil.dataset import Dataset, Rows, Transitions, make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.networks import MLP, Dense
from sbil.training import train_one

# Sizes that make every algorithm small; an algorithm without such a setting ignores it. Whole numbers that are not
# named here are made small where they are large.
TINY = {
    "hidden": (8,),
    "batch": 8,
    **{"buffer_size": 32, "chain_length": 3, "chains": 8},
    **{"trunk": (8, 4), "head": (6,), "rounds": 3, "margin": 0.6},
    **{"warm_updates": 4, "warm_batch": 8, "feature_updates": 4, "feature_batch": 8},
    **{"value_updates": 4, "value_batch": 8},
    **{"trees": 6, "leaves": 3, "leaf_rows": 1, "folds": 1},
    **{"members": 2, "steps": 3},
    **{"horizon": 2, "starts": 8, "centres": 8, "dynamics_hidden": (6,), "tolerance": 1e6},
    **{"rule": "median"},
}

# Values for one algorithm alone: every switch is on, so that one program serves all tests.
OWN = {
    "BCRegularisedConfig": {
        **{"temperature": 0.5, "brier": 0.3, "smoothing": 0.5, "mixup": 0.4, "noise": 0.1, "dropout": 0.2},
        **{"spectral": 0.5, "entropy": 0.1, "jacobian": 0.1, "average": 0.5},
    },
}


def small(config: type[Any]) -> Any:
    """The settings of an algorithm that make it small."""
    large = {f.name: 8 for f in dataclasses.fields(config) if type(f.default) is int and f.default > 1000}
    known = {name: value for name, value in TINY.items() if name in config.__dataclass_fields__}
    return config(**{**large, **known, **OWN.get(config.__name__, {})})


class Finite(NamedTuple):
    """Decisions at a few states seen as one-hot vectors; their frequencies are the answer to learn."""

    observation: np.ndarray  # [n, states]
    action: np.ndarray  # [n]
    frequency: np.ndarray  # [states], of the states
    policy: np.ndarray  # [states, actions], of the actions at each state

    @property
    def demonstrations(self) -> Demonstrations:
        """Every decision as a trajectory of one step."""
        pairs = zip(self.observation, self.action, strict=True)
        return Demonstrations(
            tuple(Trajectory(o[None], a[None]) for o, a in pairs), tuple(map(str, range(self.policy.shape[1])))
        )


def finite(counts: tuple[tuple[int, ...], ...] = ((3, 1), (2, 2), (1, 3), (4, 4))) -> Finite:
    """The problem in which action a was taken counts[s][a] times at state s."""
    table = np.array(counts)
    states, actions = np.nonzero(table)
    repeats = table[states, actions]
    state, action = np.repeat(states, repeats), np.repeat(actions, repeats)
    visits = table.sum(1)
    return Finite(
        np.eye(len(table), dtype=np.float32)[state],
        action.astype(np.int32),
        visits / visits.sum(),
        table / visits[:, None],
    )


def table(logits: np.ndarray) -> MLP:
    """The network that answers the one-hot vector of state s with logits[s]."""
    weight = jnp.asarray(logits)
    return MLP((Dense(weight, jnp.zeros_like(weight[0])),), "elu")


def network(*sizes: int, seed: int = 0) -> MLP:
    """A random network, in the precision that JAX is set to."""
    rng = np.random.default_rng(seed)
    layers = (Dense(rng.normal(size=(i, o)) * i**-0.5, rng.normal(size=o) * 0.1) for i, o in pairwise(sizes))
    return jax.tree.map(jnp.asarray, MLP(tuple(layers), "elu"))


def separable(count: int = 40) -> Demonstrations:
    """Points of the plane whose action is their side of a line; none is nearer to it than 0.2."""
    rng = np.random.default_rng(5)
    points = rng.uniform(-1, 1, (4 * count, 2))
    side = points @ np.array([1.0, -0.5]) - 0.1
    points, side = points[np.abs(side) > 0.2][:count], side[np.abs(side) > 0.2][:count]
    return Demonstrations((Trajectory(points.astype(np.float32), (side > 0).astype(np.int32)),), ("left", "right"))


def demonstrations(
    features: int = 3, actions: int = 3, lengths: tuple[int, ...] = (7, 5, 9, 6, 4, 8)
) -> Demonstrations:
    """Random trajectories that end by termination, by truncation and in neither way, with and without a last state."""
    rng = np.random.default_rng(0)
    trajectories = []
    for index, length in enumerate(lengths):
        visited = length + (index % 2)
        observations = rng.normal(size=(visited, features)).astype(np.float32)
        taken = rng.integers(0, actions, length).astype(np.int32)
        trajectories.append(Trajectory(observations, taken, terminal=index % 3 == 1, truncated=index % 3 == 2))
    return Demonstrations(tuple(trajectories), tuple(f"action {i}" for i in range(actions)))


def transitions(observation: np.ndarray, action: np.ndarray) -> Transitions:
    """A minibatch of pairs; nothing is known of what follows them."""
    no = np.zeros(len(action), bool)
    return triples(observation, action, observation, no, no)


def triples(
    observation: np.ndarray, action: np.ndarray, following: np.ndarray, has_next: np.ndarray, terminal: np.ndarray
) -> Transitions:
    """A minibatch of triples; no decision that follows is known."""
    time, no = np.zeros(len(action), int), np.zeros(len(action), bool)
    steps = Transitions(observation, action, following, has_next, terminal, time, action, no)
    return jax.tree.map(jnp.asarray, steps)


def run_of(dataset: Dataset, run: int) -> Dataset:
    """What one of many runs learns from."""
    labelled, unlabelled = dataset.labelled, dataset.unlabelled
    return Dataset(
        dataset.pool,
        Rows(labelled.indices[run], labelled.size[run]),
        Rows(unlabelled.indices[run], unlabelled.size[run]),
    )


def one_run(make: Callable[..., Any], config: Any, dataset: Dataset | None = None) -> Any:
    """The network after one run of 50 updates, as `train` does it, by default on all of `demonstrations`."""
    spec = spec_of(demonstrations())
    program = jax.jit(lambda key, data: train_one(make(spec, config), 50, key, data)[0].network)
    return program(jax.random.key(7), dataset or make_dataset(demonstrations()))


def assert_same_bits(one: Any, other: Any) -> None:
    """If XLA optimises, it fuses and rounds the two programs differently; then they agree to 1e-6."""
    for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
        if "--xla_backend_optimization_level=0" in os.environ["XLA_FLAGS"]:  # the default of these tests
            assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


def refused(load: Callable[[Path], Any], path: Path) -> str:
    """The one line with which `load` refuses `path`; it names the path."""
    with pytest.raises(UserError) as raised:
        load(path)
    line = str(raised.value)
    assert "\n" not in line
    assert str(path) in line
    return line


def loaded_or_refused(load: Callable[[Path], Any], path: Path) -> Any:
    """What `load` makes of `path`, or nothing if it is refused; any other error goes on."""
    try:
        return load(path)
    except UserError:
        refused(load, path)
        return None


def refusal(capsys, *words: object) -> str:
    """The one line with which a command refuses; anything else fails the test."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as leaving:
        main([str(word) for word in words])
    output, error = capsys.readouterr()
    assert leaving.value.code == 2
    assert output == ""
    assert error.startswith("sbil: ")
    assert error.count("\n") == 1, error
    assert "Traceback" not in error
    return error


# Compiled for more than three seconds, or anew for each of many settings.
SLOW = (
    *("avril", "bc_early_stopping", "bc_ensemble", "bc_regularised", "ckil", "corrective", "dsfn", "edm_imagined"),
    *("edm_robust", "table_network", "tril", "value_dice", "value_dice_exact"),
)


# Methods for comparison, which no other method builds on: each takes ten seconds or more of the contract.
RARE = ("avril", "bc_early_stopping", "bc_ensemble", "ckil", "corrective", "edm_metropolis", "value_dice_exact")


def by_need(names: Iterable[str]) -> list[Any]:
    """Algorithms as parameters of the contract; methods for comparison keep it before a release."""
    return [pytest.param(name, marks=[pytest.mark.release] if name in RARE else []) for name in names]


def by_speed(names: Iterable[str]) -> list[Any]:
    """Algorithms as parameters of a test; those that take long to compile are for releases."""
    return [pytest.param(name, marks=[pytest.mark.release] if name in SLOW else []) for name in names]


def durations(content: bytes) -> list[int]:
    """How long each frame of a GIF is shown, in milliseconds."""
    from PIL import Image

    with Image.open(BytesIO(content)) as image:
        found = []
        for index in range(image.n_frames):
            image.seek(index)
            found.append(image.info["duration"])
    return found
