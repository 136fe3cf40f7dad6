"""Networks decide in float32, whatever a device does by default.

By default recent GPUs round the factors of products; CPUs do not. So the tests read what the programs ask for.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbil import demonstrators, devices, environments
from sbil.evaluation import call, live
from sbil.policy.policy import _forward
from sbil.training import stack

CARTPOLE, POLICY = environments.get("CartPole-v1"), demonstrators.get("CartPole-v1-dqn")
KEYS = jax.random.split(jax.random.key(0), 2)
COLLECTING = sys.modules["sbil.demonstrators.collect"]  # the package has a function of that name
PLAYERS = stack([POLICY.network])
PROGRAMS = {
    "collecting": lambda: COLLECTING._program(CARTPOLE, True).lower(POLICY.network, KEYS),
    "playing": lambda: live._program(CARTPOLE, call, 2, True, devices.over_runs(1)).lower(PLAYERS, KEYS[:1]),
    "predicting": lambda: _forward.lower(POLICY.network, jnp.zeros((3, 4))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_product_of_a_deciding_network_is_left_to_the_device(name):
    products = [line for line in PROGRAMS[name]().as_text().splitlines() if "dot_general" in line]
    assert len(products) == len(POLICY.network.layers)
    assert all("HIGHEST" in line for line in products)


def test_a_demonstrator_does_what_its_network_prefers():
    recorded, _ = demonstrators.collect(CARTPOLE, POLICY, 2, 0, greedy=True, provenance={})
    first = recorded.trajectories[0]
    best = np.asarray(POLICY.network(jnp.asarray(first.observations[:-1]))).argmax(axis=1)
    assert (best == first.actions).mean() > 0.99
