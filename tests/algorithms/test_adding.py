"""The skeleton of docs/adding_an_algorithm.md works as it stands."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

from sbil import algorithms
from sbil.algorithms.base import Entry
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.training import train_many

PAGE = Path(__file__).parents[2] / "docs" / "adding_an_algorithm.md"


@pytest.fixture(scope="module")
def skeleton() -> dict:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    names: dict = {"__name__": "skeleton"}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


@pytest.fixture
def demonstrations() -> Demonstrations:
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(3, 21, 2)).astype(np.float32)
    return Demonstrations(tuple(Trajectory(o, (o[:-1, 0] > 0).astype(int)) for o in observations), ("low", "high"))


def test_the_skeleton_trains_by_its_registered_name(skeleton, demonstrations, monkeypatch):
    entry = Entry("smooth", skeleton["smooth"], skeleton["SmoothConfig"], skeleton["PRESETS"], "pairs", "a reference")
    monkeypatch.setitem(algorithms.ALGORITHMS, "smooth", entry)
    config = algorithms.configure("smooth", "default", {"hidden": (16,), "smoothing": 0.2, "learning_rate": 0.01})
    dataset = make_dataset(demonstrations, [np.arange(3)] * 2)
    keys = jax.random.split(jax.random.key(0), 2)
    trained = train_many(algorithms.get("smooth").make, spec_of(demonstrations), config, dataset, keys, 500)
    logits = jax.vmap(lambda network: network(dataset.pool.observations))(trained.states.network)
    actions = np.asarray(logits.argmax(-1))[:, np.asarray(dataset.pool.row)]
    assert (actions == np.asarray(dataset.pool.action)).mean() > 0.95
    # With smoothing e over 2 actions the best confidence is 1 - e / 2 = 0.9; plain labels would drive it to 1.
    confidence = np.asarray(jax.nn.softmax(logits).max(-1))
    assert 0.85 < np.median(confidence) < 0.95


def test_without_smoothing_it_is_bc(skeleton, demonstrations):
    spec, dataset = spec_of(demonstrations), make_dataset(demonstrations, [np.arange(3)])
    keys = jax.random.split(jax.random.key(0), 1)
    plain = train_many(algorithms.bc, spec, algorithms.BCConfig(hidden=(16,)), dataset, keys, 50)
    config = skeleton["SmoothConfig"](smoothing=0.0, hidden=(16,))
    smooth = train_many(skeleton["smooth"], spec, config, dataset, keys, 50)
    for ours, theirs in zip(jax.tree.leaves(smooth.states.network), jax.tree.leaves(plain.states.network), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
