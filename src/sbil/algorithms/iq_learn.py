"""IQ-Learn without an environment: BC whose logits are Q over a small temperature, and imply a small reward.

    L = -temperature * mean log pi(a|s) + penalty * mean R(s,a,s')^2,     pi = softmax Q(s) / temperature
    R(s,a,s') = Q(s,a) - discount * (1 - terminal) * V(s')
    V(s) = temperature * log sum_a exp Q(s,a) / temperature

Needs triples. Garg et al. (2021), "IQ-Learn: Inverse soft-Q Learning for Imitation", with the chi-squared divergence;
the penalty is 1 / (4 alpha) in the paper's symbols. As in the authors' offline code, the mean over demonstrated states
stands for the first states, and the gradient goes through V(s'). Over the temperature, L is the loss of `rcal` with the
squared norm and the coefficient temperature * penalty. What is new is that the network gives Q. So the logits begin
1 / temperature times larger, and Adam moves their layer 1 / temperature times faster. With temperature 1 and
penalty 0 this is BC. The network that acts and is saved gives the logits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, adam, config, setting
from sbil.algorithms.bc import BCConfig, policy_loss
from sbil.algorithms.rcal import implied_reward
from sbil.dataset import Dataset, Spec, Transitions
from sbil.networks import Network, cooled, policy_network


@config
class IQLearnConfig(BCConfig):
    """Settings of offline IQ-Learn."""

    batch: int = setting(64, "triples per update", "N", low=1)
    temperature: float = setting(0.001, "temperature by which Q is divided", "tau", open_low=True)
    penalty: float = setting(0.5, "weight of the squared implied reward, 1 / (4 alpha); 0 leaves the policy term")
    discount: float = setting(0.99, "discount", "gamma", high=1)


class IQLearnState(NamedTuple):
    """Q, its optimiser, and the temperature."""

    q: Network
    optimiser: optax.OptState
    temperature: Float[Array, ""]

    @property
    def network(self) -> Network:
        """Return the policy as a network of logits."""
        return cooled(self.q, self.temperature)


def iq_loss(q: Network, batch: Transitions, config: IQLearnConfig) -> tuple[Array, Metrics]:
    """Return L, and its two terms: -mean log pi(a|s), and the mean of R^2 over the steps with a known successor."""
    policy = cooled(q, config.temperature)
    l_pi = policy_loss(policy, batch)
    reward = config.temperature * implied_reward(policy, batch, config.discount)
    l_reward = jnp.square(reward).sum(where=batch.known) / jnp.maximum(batch.known.sum(), 1)
    metrics = {"policy_loss": l_pi, "reward_norm": l_reward}
    return config.temperature * l_pi + config.penalty * l_reward, metrics


def iq_learn(spec: Spec, config: IQLearnConfig) -> Algorithm:
    """Offline IQ-Learn as three pure functions."""
    optimiser = adam(config)

    def init(key: PRNGKeyArray, dataset: Dataset) -> IQLearnState:
        q = policy_network(jax.random.fold_in(key, 0), spec, config.hidden)
        return IQLearnState(q, optimiser.init(q), jnp.asarray(config.temperature, jnp.float32))

    def update(key: PRNGKeyArray, state: IQLearnState, dataset: Dataset) -> tuple[IQLearnState, Metrics]:
        batch = dataset.batch(jax.random.fold_in(key, 0), config.batch)
        gradient, metrics = jax.grad(iq_loss, has_aux=True)(state.q, batch, config)
        step, optimiser_state = optimiser.update(gradient, state.optimiser, state.q)
        return IQLearnState(optax.apply_updates(state.q, step), optimiser_state, state.temperature), metrics

    return Algorithm(init, update, batch=config.batch)


ENTRY = Entry(
    make=iq_learn,
    presets={
        "default": IQLearnConfig(),
        "released": IQLearnConfig(learning_rate=1e-4, batch=32),
        "plain": IQLearnConfig(temperature=1.0),
    },
    needs="triples",
    reference="Garg, Chakraborty, Cundy, Song and Ermon (2021)",
    titles={"default": "IQ-Learn", "released": "IQ-Learn, released code", "plain": "IQ-Learn, temperature 1"},
    updates={"default": 10_000, "released": 100_000},
)
