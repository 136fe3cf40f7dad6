"""ValueDICE, offline: match the demonstrator's discounted distribution of states and actions by a saddle point.

    max_pi min_nu  log mean exp(nu(s,a) - discount * nu(s',a')) - (1 - discount) * mean nu(s,a0),
                   a' ~ pi(.|s'),   a0 ~ pi(.|s)

At the inner optimum this is -KL(d_pi || d_demonstrator). Needs triples. Kostrikov, Nachum and Tompson (2020),
"Imitation Learning via Off-Policy Distribution Matching". As in its code, every demonstrated state counts as an
initial one. Offline there is no replay buffer: its coefficient is 0, and the gradient penalty interpolates between the
demonstrator's steps and the policy's. Actions are Gumbel-softmax draws; states are standardised; true ends lead to an
absorbing state.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, config, cross_entropy, setting
from sbil.dataset import Dataset, Pool, Rows, Spec, Transitions
from sbil.networks import Network, Scaling, make_network, orthogonal_dense, scaling


@config
class DICEConfig:
    """Settings of both forms of ValueDICE."""

    actor_learning_rate: float = setting(1e-5, "step of Adam for the policy", open_low=True)
    critic_learning_rate: float = setting(1e-3, "step of Adam for nu", open_low=True)
    batch: int = setting(64, "triples per update", low=1)
    hidden: tuple[int, ...] = setting((64, 64), "hidden layers of the policy and of nu")
    discount: float = setting(0.99, "discount", "gamma", high=1)
    gradient_penalty: float = setting(10.0, "weight of the gradient penalty on nu")
    orthogonality: float = setting(1e-4, "weight of the orthogonal regulariser of the policy")


@config
class ValueDICEConfig(DICEConfig):
    """Settings of ValueDICE."""

    temperature: float = setting(1.0, "temperature of the Gumbel-softmax draws", open_low=True)
    straight_through: bool = setting(False, "draw one-hot actions, with the gradient of the soft ones")


class Triples(NamedTuple):
    """A minibatch with absorbing states. States are standardised; a last column is 1 for absorbing states, else 0."""

    state: Float[Array, "batch inputs"]
    action: Float[Array, "batch actions"]  # one-hot
    next_state: Float[Array, "batch inputs"]


class ValueDICEState(NamedTuple):
    """The policy and nu with their optimisers, and the scaling of their inputs."""

    actor: Network
    critic: Network
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    scaling: Scaling
    steps: Rows  # those whose successor is known
    endings: Float[Array, ""]  # share of the absorbing state among the triples

    @property
    def network(self) -> Network:
        """Return the policy as a network of unscaled observations."""
        return self.scaling.folded_into(self.actor)


def share_of_endings(pool: Pool, steps: Rows) -> Float[Array, ""]:
    """Return the share of absorbing steps: every true end adds one step from the absorbing state to itself."""
    ends = pool.terminal[steps.indices].sum(where=steps.mask)
    return ends / jnp.maximum(steps.size + ends, 1)


def triples(key: PRNGKeyArray, batch: Transitions, scaling: Scaling, endings: Array, actions: int) -> Triples:
    """Draw a minibatch with absorbing states: true ends lead there, and action 0 there leads there again."""
    absorbing = jnp.zeros(batch.observation.shape[1] + 1).at[-1].set(1.0)
    gone = jax.random.uniform(key, batch.action.shape) < endings
    real = lambda states: jnp.pad(scaling(states), ((0, 0), (0, 1)))  # noqa: E731
    state = jnp.where(gone[:, None], absorbing, real(batch.observation))
    next_state = jnp.where((gone | batch.terminal)[:, None], absorbing, real(batch.next_observation))
    action = jax.nn.one_hot(jnp.where(gone, 0, batch.action), actions)
    return Triples(state, action, next_state)


def objective(
    difference: Float[Array, " batch"],
    first: Float[Array, " batch"],
    discount: float | Array,
    weight: Array | None = None,
    first_weight: Array | None = None,
) -> Float[Array, ""]:
    """Return log mean exp(difference) - (1 - discount) * mean first, with weights that sum to one."""
    weight = jnp.full(difference.shape, 1 / difference.size) if weight is None else weight
    start = first.mean() if first_weight is None else first @ first_weight
    return jax.nn.logsumexp(difference, b=weight) - (1 - discount) * start


def gumbel_softmax(
    key: PRNGKeyArray, logits: Float[Array, "batch actions"], temperature: float | Array, straight_through: bool
) -> Float[Array, "batch actions"]:
    """Draw from softmax(logits), relaxed so that the draw has a gradient."""
    soft = jax.nn.softmax((logits + jax.random.gumbel(key, logits.shape)) / temperature)
    if not straight_through:
        return soft
    hard = jax.nn.one_hot(soft.argmax(axis=-1), soft.shape[-1])
    return hard + soft - jax.lax.stop_gradient(soft)


def orthogonality(network: Network) -> Float[Array, ""]:
    """Return the sum over layers of the squares of W'W off its diagonal: 0 if the columns of W are orthogonal.

    The W of a convolution is a matrix from patch to outputs.
    """
    grams = (leaf.T @ leaf for leaf in jax.tree.leaves(network) if leaf.ndim == 2)
    return sum((jnp.square(gram * (1 - jnp.eye(len(gram)))).sum() for gram in grams), jnp.zeros(()))


def mixed(key: PRNGKeyArray, one: Array, other: Array) -> Array:
    """Draw points between the rows of `one` and the rows of `other`, shuffled by a shift (rows are independent)."""
    share = jax.random.uniform(key, (len(one), 1))
    return jax.lax.stop_gradient(share * one + (1 - share) * jnp.roll(other, 1, axis=0))


def gradient_penalty(slopes: Float[Array, "batch inputs"]) -> Float[Array, ""]:
    """Return the mean of (|slope| - 1)^2."""
    # A slope of exactly zero has no direction; the small number keeps the derivative finite.
    return jnp.square(jnp.sqrt(jnp.square(slopes).sum(axis=-1) + 1e-12) - 1).mean()


Nu = Callable[[Network, Array, Array], Float[Array, " batch"]]  # (critic, states, actions in the simplex) -> values
Act = Callable[[PRNGKeyArray, Array], Float[Array, "batch actions"]]  # (key, logits) -> actions in the simplex
Slopes = Callable[[Network, Array, Array], Float[Array, "batch inputs"]]  # of nu, at states and actions


def dice(spec: Spec, config: DICEConfig, inputs: int, outputs: int, nu: Nu, act: Act, slopes: Slopes) -> Algorithm:
    """Return the saddle point as three pure functions, for one way to value actions and one way to choose them.

    inputs: how many numbers nu sees beside the observation; outputs: how many numbers it gives.
    """
    actor_optimiser = optax.adam(config.actor_learning_rate)
    critic_optimiser = optax.adam(config.critic_learning_rate)

    def init(key: PRNGKeyArray, dataset: Dataset) -> ValueDICEState:
        make = partial(make_network, hidden=config.hidden, activation="relu", layer=orthogonal_dense)
        actor = make(jax.random.fold_in(key, 0), spec, outputs=spec.actions, more=1)
        critic = make(jax.random.fold_in(key, 1), spec, outputs=outputs, more=inputs)
        optimisers = actor_optimiser.init(actor), critic_optimiser.init(critic)
        steps = dataset.triples
        ends = share_of_endings(dataset.pool, steps)
        return ValueDICEState(actor, critic, *optimisers, scaling(dataset), steps, ends)

    def saddle(actor: Network, critic: Network, key: PRNGKeyArray, batch: Triples) -> tuple[Array, tuple[Array, Array]]:
        """Return the objective, the policy's actions at the next states, and its logits at the states."""
        # Both networks are called once, on all rows that need them.
        both = actor(jnp.concatenate([batch.state, batch.next_state]))
        start, after = jnp.split(act(key, both), 2)
        states = jnp.concatenate([batch.state, batch.next_state, batch.state])
        taken, next_value, first = jnp.split(nu(critic, states, jnp.concatenate([batch.action, after, start])), 3)
        return objective(taken - config.discount * next_value, first, config.discount), (after, both[: len(after)])

    def penalty(critic: Network, key: PRNGKeyArray, batch: Triples, after: Array) -> Array:
        """Return the gradient penalty between the demonstrator's steps and the policy's."""
        theirs = jnp.concatenate([batch.state, batch.action], axis=-1)
        ours = jnp.concatenate([batch.next_state, after], axis=-1)
        states, actions = jnp.split(mixed(key, theirs, ours), [batch.state.shape[-1]], axis=-1)
        return gradient_penalty(slopes(critic, states, actions))

    def update(key: PRNGKeyArray, state: ValueDICEState, dataset: Dataset) -> tuple[ValueDICEState, Metrics]:
        recorded = dataset.pool.transitions(state.steps.sample(jax.random.fold_in(key, 0), config.batch))
        batch = triples(jax.random.fold_in(key, 1), recorded, state.scaling, state.endings, spec.actions)
        (value, (after, logits)), (up, down) = jax.value_and_grad(saddle, argnums=(0, 1), has_aux=True)(
            state.actor, state.critic, jax.random.fold_in(key, 2), batch
        )
        smooth = jax.grad(penalty)(state.critic, jax.random.fold_in(key, 3), batch, after)
        down = jax.tree.map(lambda g, s: g + config.gradient_penalty * s, down, smooth)
        skewness, straighten = jax.value_and_grad(orthogonality)(state.actor)
        up = jax.tree.map(lambda g, o: config.orthogonality * o - g, up, straighten)
        actor_step, actor_state = actor_optimiser.update(up, state.actor_optimiser)
        critic_step, critic_state = critic_optimiser.update(down, state.critic_optimiser)
        real = batch.state[:, -1] == 0
        policy_loss = cross_entropy(logits, batch.action.argmax(axis=-1)).sum(where=real) / jnp.maximum(real.sum(), 1)
        return state._replace(
            actor=optax.apply_updates(state.actor, actor_step),
            critic=optax.apply_updates(state.critic, critic_step),
            actor_optimiser=actor_state,
            critic_optimiser=critic_state,
        ), {"policy_loss": policy_loss, "objective": value, "orthogonality": skewness}

    return Algorithm(init, update, batch=config.batch)


def value_dice(spec: Spec, config: ValueDICEConfig) -> Algorithm:
    """ValueDICE as three pure functions: nu sees state and action side by side, actions are drawn."""

    def nu(critic: Network, state: Array, action: Array) -> Array:
        # No bias at the output: a constant cancels in the objective, and rounding alone would move it.
        inputs = jnp.concatenate([state, action], axis=-1)
        return (critic.features(inputs, critic.depth - 1) @ critic.output.weight)[:, 0]

    def act(key: PRNGKeyArray, logits: Array) -> Array:
        return gumbel_softmax(key, logits, config.temperature, config.straight_through)

    def slopes(critic: Network, state: Array, action: Array) -> Array:
        total = lambda state, action: nu(critic, state, action).sum()  # noqa: E731
        return jnp.concatenate(jax.grad(total, argnums=(0, 1))(state, action), axis=-1)

    return dice(spec, config, 1 + spec.actions, 1, nu, act, slopes)


ENTRY = Entry(
    make=value_dice,
    presets={"default": ValueDICEConfig(), "paper": ValueDICEConfig(), "long": ValueDICEConfig()},
    needs="triples",
    reference="Kostrikov, Nachum and Tompson (2020)",
    titles={"default": "ValueDICE", "long": "ValueDICE, 500,000 updates"},
    # The EDM paper's 10,000 updates; the original's 5 updates for each of 100,000 steps.
    updates={"default": 10_000, "long": 500_000},
)
