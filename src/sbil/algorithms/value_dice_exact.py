"""ValueDICE with exact expectations over the actions: nu gives one value per action; nothing is drawn or relaxed.

    max_pi min_nu  log mean exp(nu(s)[a] - discount * sum_a' pi(a'|s') nu(s')[a'])
                   - (1 - discount) * mean sum_a pi(a|s) nu(s)[a]

Needs triples. With few discrete actions the sums are cheap; they remove the variance of drawn actions and the bias of a
draw inside the exponential, and nu cannot exploit the difference between relaxed and real actions. The rest is as in
`value_dice`; the gradient penalty is on the slope of nu in the state.
"""

import jax
from jaxtyping import Array, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, config
from sbil.algorithms.value_dice import DICEConfig, dice
from sbil.dataset import Spec
from sbil.networks import Network


@config
class ValueDICEExactConfig(DICEConfig):
    """Settings of ValueDICE with exact expectations."""


def nu(critic: Network, state: Array, action: Array) -> Array:
    """Return sum_a action[a] nu(s)[a]: the value of an action, or the expected value of a policy's actions."""
    return (critic(state) * action).sum(axis=-1)


def value_dice_exact(spec: Spec, config: ValueDICEExactConfig) -> Algorithm:
    """ValueDICE with exact expectations as three pure functions."""

    def act(key: PRNGKeyArray, logits: Array) -> Array:
        return jax.nn.softmax(logits)

    def slopes(critic: Network, state: Array, action: Array) -> Array:
        return jax.grad(lambda state: nu(critic, state, action).sum())(state)

    return dice(spec, config, 1, spec.actions, nu, act, slopes)


ENTRY = Entry(
    make=value_dice_exact,
    presets={"default": ValueDICEExactConfig()},
    needs="triples",
    reference="Kostrikov, Nachum and Tompson (2020)",
    titles={"default": "ValueDICE, exact"},
)
