"""EDM on the states that the policy itself would visit. They take the place of Langevin samples.

    L    = L_pi + weight * mean_h E(s_h)
    L_pi = -mean log pi(a|s),                         pi = softmax f(s)
    s_0 demonstrated,  a_h ~ pi(.|s_h),               s_{h+1} = s_h + g(s_h)[a_h]
    E(s) = -log mean_l exp(-|s - s_l|^2 / (2 width)), over demonstrated states s_l

Needs triples. States are standardised, and E has mean 0 and deviation 1 over the demonstrated states. The energy is
fitted once; the policy cannot move it. With one step the mean over actions is exact. With more steps actions are drawn,
and gradients pass straight through them (Jang, Gu and Poole 2017, "Categorical Reparameterization with
Gumbel-Softmax"). The dynamics g learn from the same minibatches by a loss of their own. If no successor was recorded, g
stays zero, and this is BC. Bica, Jarrett and van der Schaar (2021), "Invariant Causal Imitation Learning", proposed an
energy of next states; their code takes no gradient of it. docs/choosing.md says what this method adds.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, adam, config, setting
from sbil.algorithms.bc import BCConfig, policy_loss
from sbil.dataset import Dataset, Spec, Transitions, features_of
from sbil.errors import UserError
from sbil.networks import MLP, Dense, Network, Scaling, mlp, policy_network, scaling


@config
class EDMImaginedConfig(BCConfig):
    """Settings of EDM on imagined states."""

    weight: float = setting(1.0, "weight of the state term; 0 is behavioural cloning")
    horizon: int = setting(1, "imagined steps; with 1 the mean over actions is exact", "H", low=1)
    starts: int = setting(16, "demonstrated states per update from which the policy acts", low=1)
    temperature: float = setting(1.0, "softness of drawn actions in gradients, if horizon > 1", open_low=True)
    centres: int = setting(512, "largest number of demonstrated states that make the energy", low=1)
    bandwidth: float = setting(1.0, "width of the energy, as a multiple of Scott's rule", open_low=True)
    dynamics_learning_rate: float = setting(1e-3, "step of Adam for the dynamics", open_low=True)
    dynamics_hidden: tuple[int, ...] = setting((32, 32), "hidden layers of the dynamics")


OfStates = Callable[[Array], Array]  # of standardised states [*batch, inputs]: logits, energies, or what follows


class Dynamics(eqx.Module):
    """g(s): one step per action, in units of a step. It is a linear part that actions share, plus a network."""

    linear: Dense
    heads: MLP

    def __call__(self, states: Float[Array, "*batch inputs"]) -> Float[Array, "*batch actions inputs"]:
        heads = self.heads(states)
        return self.linear(states)[..., None, :] + heads.reshape(*states.shape[:-1], -1, states.shape[-1])


class Units(NamedTuple):
    """The units of states and of their steps, and the box that imagined states stay in (standardised)."""

    scaling: Scaling
    step: Float[Array, " inputs"]
    low: Float[Array, " inputs"]
    high: Float[Array, " inputs"]

    def plain(self, states: Float[Array, "*batch inputs"]) -> Float[Array, "*batch inputs"]:
        """Return standardised states in the units of the data."""
        return states * self.scaling.scale + self.scaling.mean


class Density(NamedTuple):
    """The energy of standardised states."""

    centres: Float[Array, "centres inputs"]
    mask: Bool[Array, " centres"]
    width: Float[Array, ""]
    mean: Float[Array, ""]
    spread: Float[Array, ""]

    def energy(self, states: Float[Array, "*batch inputs"]) -> Float[Array, "*batch"]:
        """E(s), in standard deviations from its mean over the demonstrated states."""
        return (kernel_energy(states, self.centres, self.mask, self.width) - self.mean) / self.spread


class EDMImaginedState(NamedTuple):
    """The policy and the dynamics with their optimisers, and what is computed once from the demonstrations."""

    network: Network
    optimiser: optax.OptState
    dynamics: Dynamics
    dynamics_optimiser: optax.OptState
    units: Units
    density: Density


def kernel_energy(states: Array, centres: Array, mask: Array, width: Array | float) -> Float[Array, "*batch"]:
    """E(s) = -log mean_l exp(-|s - s_l|^2 / (2 width)) over the centres that the mask keeps."""
    squares = ((states[..., None, :] - centres) ** 2).sum(axis=-1)
    near = jax.nn.logsumexp(jnp.where(mask, -squares / (2 * width), -jnp.inf), axis=-1)
    return jnp.log(jnp.maximum(mask.sum(axis=-1), 1)) - near


def density_of(dataset: Dataset, scaling: Scaling, most: int, bandwidth: float | Array) -> Density:
    """Return the energy of all labelled states of a run, or of evenly spaced ones if there are more than `most`.

    The mean and the spread are those of every centre's energy under the other centres.
    """
    rows = dataset.labelled
    count = min(most, rows.indices.shape[-1])
    place, mask = jnp.arange(count), jnp.arange(count) < rows.size
    spaced = (place * (jnp.maximum(rows.size, count) / count)).astype(int)
    centres = jnp.where(mask[:, None], scaling(dataset.pool.before(rows.indices[spaced])), 0.0)
    used = mask.sum()
    width = bandwidth * used ** (-2 / (centres.shape[-1] + 4))  # Scott's rule
    own = kernel_energy(centres, centres, mask & ~jnp.eye(count, dtype=bool), width)
    own = jnp.where(used > 1, own, 0.0)
    spread = own.std(where=mask)
    return Density(centres, mask, width, own.mean(where=mask), jnp.where(spread > 1e-6, spread, 1.0))


def units_of(dataset: Dataset) -> Units:
    """Return the units of a run. The box is that of its states, with a further width on every side."""
    standard, rows, pool = scaling(dataset), dataset.labelled, dataset.pool
    counts = (rows.mask & pool.has_next[rows.indices])[:, None]
    change = jnp.where(counts, (pool.after(rows.indices) - pool.before(rows.indices)) / standard.scale, 0.0)
    step = jnp.sqrt((change**2).sum(axis=0) / jnp.maximum(counts.sum(), 1))
    low, high = (standard(side) for side in dataset.bounds())
    return Units(standard, jnp.where(step > 1e-6, step, 1.0), 2 * low - high, 2 * high - low)


def still_dynamics(key: PRNGKeyArray, spec: Spec, hidden: tuple[int, ...]) -> Dynamics:
    """Return the dynamics before they learn: nothing moves."""
    inputs = features_of(spec)
    heads = mlp(key, (inputs, *hidden, spec.actions * inputs))
    heads = eqx.tree_at(lambda whole: whole.output, heads, jax.tree.map(jnp.zeros_like, heads.output))
    return Dynamics(Dense(jnp.zeros((inputs, inputs)), jnp.zeros(inputs)), heads)


def prediction_loss(dynamics: Dynamics, units: Units, batch: Transitions) -> Float[Array, ""]:
    """Return the mean square of s' - s - g(s)[a], in units of a step, over the steps with a recorded successor."""
    before, after = units.scaling(batch.observation), units.scaling(batch.next_observation)
    steps = jnp.take_along_axis(dynamics(before), batch.action[:, None, None], axis=1)[:, 0]
    error = jnp.where(batch.has_next[:, None], (after - before) / units.step - steps, 0.0)
    return (error**2).mean(axis=-1).sum() / jnp.maximum(batch.has_next.sum(), 1)


def expected_energy(policy: OfStates, after: OfStates, energy: OfStates, starts: Array) -> Float[Array, ""]:
    """mean_s sum_a pi(a|s) E(s'(s, a)): one step, exact."""
    return (jax.nn.softmax(policy(starts)) * jax.lax.stop_gradient(energy(after(starts)))).sum(axis=-1).mean()


def rollout_energy(
    key: PRNGKeyArray,
    policy: OfStates,
    after: OfStates,
    energy: OfStates,
    starts: Array,
    horizon: int,
    temperature: float | Array,
) -> Float[Array, ""]:
    """mean_h E(s_h) over drawn actions: one-hot forward, softmax((f + Gumbel) / temperature) backward."""

    def step(states: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        logits = policy(states)
        drawn = logits + jax.random.gumbel(key, logits.shape)
        soft, hard = jax.nn.softmax(drawn / temperature), jax.nn.one_hot(drawn.argmax(axis=-1), logits.shape[-1])
        action = hard + (soft - jax.lax.stop_gradient(soft))
        states = (action[..., None] * after(states)).sum(axis=-2)
        return states, energy(states).mean()

    return jax.lax.scan(step, starts, jax.random.split(key, horizon))[1].mean()


def edm_imagined(spec: Spec, config: EDMImaginedConfig, follow: OfStates | None = None) -> Algorithm:
    """EDM on imagined states as three pure functions.

    follow: studies put known dynamics here: plain states -> the plain state after each action [*batch, actions, inputs]
    """
    optimiser, teacher = adam(config), optax.adam(config.dynamics_learning_rate)

    def init(key: PRNGKeyArray, dataset: Dataset) -> EDMImaginedState:
        if dataset.pool.images:
            raise UserError("edm_imagined needs rows of numbers, not images; use edm or bc.")
        network = policy_network(jax.random.fold_in(key, 0), spec, config.hidden)
        dynamics = still_dynamics(jax.random.fold_in(key, 1), spec, config.dynamics_hidden)
        units = units_of(dataset)
        density = density_of(dataset, units.scaling, config.centres, config.bandwidth)
        return EDMImaginedState(network, optimiser.init(network), dynamics, teacher.init(dynamics), units, density)

    def imagined_energy(network: Network, key: PRNGKeyArray, state: EDMImaginedState, starts: Array) -> Array:
        units, energy = state.units, state.density.energy

        def policy(states: Array) -> Array:
            return network(units.plain(states))

        def after(states: Array) -> Array:
            learned = states[..., None, :] + units.step * state.dynamics(states)
            return jnp.clip(units.scaling(follow(units.plain(states))) if follow else learned, units.low, units.high)

        if config.horizon == 1:
            return expected_energy(policy, after, energy, starts)
        return rollout_energy(key, policy, after, energy, starts, config.horizon, config.temperature)

    def loss(
        network: Network, key: PRNGKeyArray, state: EDMImaginedState, batch: Transitions, starts: Array
    ) -> tuple[Array, Metrics]:
        l_pi, imagined = policy_loss(network, batch), imagined_energy(network, key, state, starts)
        return l_pi + config.weight * imagined, {"policy_loss": l_pi, "imagined_energy": imagined}

    def update(key: PRNGKeyArray, state: EDMImaginedState, dataset: Dataset) -> tuple[EDMImaginedState, Metrics]:
        batch = dataset.batch(jax.random.fold_in(key, 0), config.batch)
        shown = dataset.pool.before(dataset.labelled.sample(jax.random.fold_in(key, 1), config.starts))
        drawn = jax.random.fold_in(key, 2), state, batch, state.units.scaling(shown)
        gradient, metrics = jax.grad(loss, has_aux=True)(state.network, *drawn)
        step, optimiser_state = optimiser.update(gradient, state.optimiser, state.network)
        network = optax.apply_updates(state.network, step)
        error, slope = jax.value_and_grad(prediction_loss)(state.dynamics, state.units, batch)
        step, teacher_state = teacher.update(slope, state.dynamics_optimiser)
        dynamics = optax.apply_updates(state.dynamics, step)
        new = EDMImaginedState(network, optimiser_state, dynamics, teacher_state, state.units, state.density)
        return new, metrics | {"prediction_loss": error}

    return Algorithm(init, update, batch=max(config.batch, config.starts))


ENTRY = Entry(
    make=edm_imagined,
    presets={"default": EDMImaginedConfig(), "rollouts": EDMImaginedConfig(horizon=5)},
    needs="triples",
    reference="after Jarrett, Bica and van der Schaar (2020)",
    titles={"default": "EDM on imagined states", "rollouts": "EDM on imagined states, 5 steps"},
    trains_energy=True,
    updates={"default": 10_000, "rollouts": 2_000},
)
