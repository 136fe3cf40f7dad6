"""Systems whose dynamics are known, and triples of them."""

import jax
import jax.numpy as jnp
import numpy as np

from sbil.dataset import make_dataset
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.dynamics.model import learn
from sbil.dynamics.triples import LEVELS, triples_of

ACTIONS = 2
WIDTH = 120  # triples: with equal shapes one program learns all systems
TURN = np.array([[0.98, 0.15, 0.0], [-0.15, 0.98, 0.0], [0.0, 0.1, 0.9]])
PUSH = np.array([[0.0, 0.1, 0.2], [0.0, -0.1, -0.2]])


def linear(state, action, _random):
    """A turn, with a push that depends on the action."""
    return TURN @ state + PUSH[action]


def steered(state, action, _random):
    """The action decides which way it turns."""
    return TURN @ state if action else TURN.T @ state


def nonlinear(state, action, random):
    """A column that a regression cannot predict, a random walk, and a column of random numbers."""
    return np.array([np.sin(3 * state[2]) * (1.5 if action else 1), state[1] + random.normal(), random.uniform(-1, 1)])


def still(state, action, _random):
    """A column that never changes, one that grows by 1, and one that is pushed."""
    return np.array([state[0], state[1] + 1, 0.5 * state[2] + PUSH[action][2]])


def rising(state, action, _random):
    """A column that rises quickly or slowly."""
    return state + np.array([0.15 if action else 0.05, 0, 0])


def trajectory(step, first, length, seed, ends=None):
    """One trajectory of random actions. ends: a test of a state, after which the trajectory is over."""
    random = np.random.default_rng(seed)
    states, actions = [np.asarray(first, float)], []
    while len(actions) < length and not (actions and ends and ends(states[-1])):
        actions.append(int(random.integers(ACTIONS)))
        states.append(np.asarray(step(states[-1], actions[-1], random), float))
    terminal = bool(ends and ends(states[-1]))
    return Trajectory(np.array(states, np.float32), np.array(actions, np.int32), terminal)


def demonstrations(step=linear, count=4, length=30, inputs=3, ends=None, first=None):
    """Several trajectories from random first states."""
    random = np.random.default_rng(99)
    firsts = [random.normal(size=inputs) if first is None else first(random) for _ in range(count)]
    found = [trajectory(step, first, length, seed, ends) for seed, first in enumerate(firsts)]
    return Demonstrations(tuple(found), tuple("ab"))


def triples(made, thin=1, **options):
    """The triples of one draw with everything."""
    return only(triples_of(make_dataset(made, [np.arange(len(made))], thin=thin), **options))


def padded(triples, filler=np.nan):
    """The same triples with padding up to WIDTH."""
    more = WIDTH - len(triples.state)
    fills = {"state": filler, "after": filler, "following": -1}
    rows = {name: leaf for name, leaf in triples._asdict().items() if name not in ("levels", "groups")}
    levels = jnp.pad(triples.levels, [(0, 0), (0, LEVELS - triples.levels.shape[-1])], constant_values=np.nan)
    return triples._replace(
        levels=levels,
        **{
            name: jnp.pad(leaf, [(0, more)] + [(0, 0)] * (leaf.ndim - 1), constant_values=fills.get(name, 0))
            for name, leaf in rows.items()
        },
    )


def learned(every, updates=200):
    """The models and the trust of several triples of equal shapes, by one program; every draw has the same key."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *every)
    key = jax.random.key(0)
    return jax.vmap(lambda own: learn(key, own, ACTIONS, updates))(stacked)


def only(tree, draw=0):
    """Of one draw."""
    return jax.tree.map(lambda leaf: leaf[draw], tree)
