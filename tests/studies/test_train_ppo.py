"""The PPO that trained two of the demonstrators: advantages by hand, a step that learns, a training taken up again."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sbil import environments
from sbil.checkpoint import Checkpoint
from sbil.dataset import Spec
from sbil.environments.host import lockstep
from sbil.errors import UserError
from studies import train_ppo
from studies.ppo import Rollout, act, acting, advantages, begin, learn, look
from studies.train_ppo import SETTINGS, changed, train

TINY = changed(SETTINGS["LunarLander-v3"], ("games=4", "steps=8", "batch=16", "decisions=96"))


def test_generalised_advantages_by_hand():
    """Two steps of one game with discount 0.9 and lambda 0.5; then the same with an end between them."""
    settings = changed(TINY, ("discount=0.9", "trace=0.5"))

    def gained(ended):
        rows = [jnp.array([[1.0], [2.0]]), jnp.array([[0.5], [1.5]]), jnp.array([[ended], [0.0]])]
        nothing = jnp.zeros((2, 1))
        return advantages(Rollout(nothing, nothing, nothing, rows[1], rows[0], rows[2]), jnp.array([3.0]), settings)

    last = 2.0 + 0.9 * 3.0 - 1.5
    np.testing.assert_allclose(gained(0.0)[:, 0], [1.0 + 0.9 * 1.5 - 0.5 + 0.45 * last, last], rtol=1e-6)
    np.testing.assert_allclose(gained(1.0)[:, 0], [1.0 - 0.5, last], rtol=1e-6)


def test_what_paid_becomes_more_probable():
    """One state, three actions of which the last pays: its probability grows round by round."""
    spec, settings = Spec((2,), 3), changed(TINY, ("learning_rate=0.01", "entropy=0"))
    network = begin(jax.random.key(0), spec, settings)
    optimiser = optax.adam(0.01)
    state, seen = optimiser.init(network), jnp.ones((8, 4, 2))
    chances = []
    for number in range(5):
        action, logs, value = jax.vmap(lambda key, rows: act(network, key, rows))(  # noqa: B023
            jax.random.split(jax.random.key(number), 8), seen
        )
        ended = jnp.ones((8, 4))
        rollout = Rollout(seen, action, logs, value, (action == 2).astype(jnp.float32), ended)
        network, state, _ = learn(network, state, jax.random.key(9), (rollout,), (jnp.zeros(4),), settings, optimiser)
        chances.append(float(jnp.exp(look(network, jnp.ones((1, 2)))[0][0, 2])))
    assert chances == sorted(chances)
    assert chances[0] > 1 / 3
    assert chances[-1] > 0.9


def test_the_policy_exported_is_the_network_without_its_value():
    spec = Spec((2,), 3)
    network, seen = begin(jax.random.key(1), spec, TINY), jax.random.normal(jax.random.key(2), (5, 2))
    assert network(seen).shape == (5, 4)
    np.testing.assert_allclose(acting(network, 2.0)(seen), 2 * network(seen)[:, :-1], atol=1e-6)


def test_episodes_of_the_lander_are_gymnasiums():
    """For fixed actions a group gives the observations and rewards of the environment; after an end it starts again."""
    group = train_ppo.Lander(2, seed=5)
    alone = environments.get("LunarLander-v3")
    assert group.seen.shape == (2, *alone.spec.observation_shape)
    paid, over = np.zeros(2), np.zeros(2, bool)
    while not over.all():
        group.send(np.array([0, 0]))
        reward, ended = group.receive()
        paid += np.where(over, 0, 20 * reward)
        over |= ended > 0
    simulator = lockstep.make("LunarLander-v3")
    for number in range(2):
        simulator.reset(seed=5 + number)
        total, ended = 0.0, False
        while not ended:
            _, reward, ended, _, _ = simulator.step(0)
            total += float(reward)
        np.testing.assert_allclose(paid[number], total, atol=1e-2)


def test_a_training_is_taken_up_again(tmp_path):
    """Three rounds of 32 decisions, the first in a call of its own."""
    said = []
    checkpoint = Checkpoint(tmp_path / "training", {"name": "one"})
    _, first = train("LunarLander-v3", changed(TINY, ("decisions=32",)), checkpoint, 60.0, said.append)
    _, both = train("LunarLander-v3", TINY, checkpoint, 60.0, said.append)
    assert (first, both) == (32, 96)
    assert "taken up after round 1 of 3" in said


@pytest.mark.parametrize("word", ["batch=7", "games=3", "hidden=4", "rate=1", "steps=many"])
def test_settings_that_cannot_be_are_refused(word):
    with pytest.raises(UserError):
        changed(SETTINGS["LunarLander-v3"], (word,))
