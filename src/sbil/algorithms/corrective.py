"""Corrective labels: BC on demonstrated states, and on states from which a learned model leads back to them.

    L = -mean log pi(a|s) - weight * mean log pi(a|s^G),   pi = softmax f(s)
    s^G = t - g(s^G)[a], refined from s^G = t:             from s^G, action a leads to the demonstrated state t

Needs triples. States are standardised. The model s' = s + g(s)[a] is that of `edm_imagined`, with a bound on the
spectral norm of each layer; it learns beside the policy. A label (s^G, a) is accepted if

    e[a] + 2 K |t - l| + K |last change of s^G| < tolerance * median length of a step,

where K is the Frobenius norm of the model's Jacobian at t, l the nearest demonstrated state with action a, and e[a] the
model's error on a fifth of the triples, from which it does not learn. With `actions="taken"`, t is the state of a
triple and a its action, so l = t. With "every", t is also the next state of a triple that did not end, with every
action. A label is refused if a demonstrated state with another action is nearer to s^G than t is.

While the model is poor nothing is accepted, and this is BC. An action without a held-out triple, as any in a draw of
fewer than five steps, has the error of a whole step: no label with a tolerance up to 1. Ke et al. (2024), "CCIL:
Continuity-based Data Augmentation for Corrective Imitation Learning", have continuous actions; the form for discrete
actions and the test of a label are ours.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, adam, config, cross_entropy, setting
from sbil.algorithms.bc import BCConfig, policy_loss
from sbil.algorithms.ckil import squares
from sbil.algorithms.edm_imagined import Dynamics, Units, prediction_loss, still_dynamics, units_of
from sbil.dataset import Dataset, Spec, Transitions
from sbil.errors import UserError
from sbil.networks import Network, Scaling, policy_network
from sbil.spectral import Vectors, bounded, iterate, start_vectors

HELD_OUT = 5  # every fifth step is held out from the model
FORGET = 0.02  # share of the newest error in the running mean
CENTRES = 1024  # the largest number of demonstrated states with which labels are compared


@config
class CorrectiveConfig(BCConfig):
    """Settings of corrective labels."""

    weight: float = setting(1.0, "weight of the corrective labels; 0 is behavioural cloning")
    tolerance: float = setting(0.5, "largest error bound of a label, in median steps; 0 is behavioural cloning")
    spectral: float = setting(2.0, "bound on the spectral norm of each layer of the model", "c", open_low=True)
    refine: int = setting(1, "fixed-point steps towards s^G", "m", low=1, high=4)
    actions: Literal["taken", "every"] = setting("taken", "actions that get labels: the one taken, or every one too")
    dynamics_hidden: tuple[int, ...] = setting((64, 64), "hidden layers of the model")
    dynamics_learning_rate: float = setting(1e-3, "step of Adam for the model", open_low=True)


Model = Callable[[Array], Array]  # g: standardised states [*batch, inputs] -> their steps [*batch, actions, inputs]


class Shown(NamedTuple):
    """Demonstrated states, standardised, with which labels are compared."""

    state: Float[Array, "centres inputs"]
    action: Int[Array, " centres"]
    mask: Bool[Array, " centres"]
    followed: Bool[Array, " centres"]  # the successor was recorded too


class Labels(NamedTuple):
    """States that should lead to a target by an action."""

    state: Float[Array, "labels inputs"]
    action: Int[Array, " labels"]
    distance: Float[Array, " labels"]  # from the target
    bound: Float[Array, " labels"]  # on how far from the target the action truly leads
    known: Bool[Array, " labels"]  # there is a target


class Helper(NamedTuple):
    """The dynamics, what they learn with, and how wrong they are."""

    dynamics: Dynamics
    optimiser: optax.OptState
    vectors: Vectors  # of the power iteration
    error: Float[Array, " actions"]  # running mean over held-out triples


class CorrectiveState(NamedTuple):
    """The policy, the model beside it, and what is computed once from the demonstrations."""

    network: Network
    optimiser: optax.OptState
    helper: Helper
    shown: Shown
    units: Units
    step: Float[Array, ""]  # the median length of a step


def model_of(dynamics: Dynamics, units: Units) -> Model:
    """Return g."""
    return lambda states: units.step * dynamics(states)


def chosen(values: Array, action: Int[Array, "*batch"]) -> Array:
    """Return what belongs to an action out of values [*batch, actions, ...]."""
    place = action.reshape(*action.shape, *[1] * (values.ndim - action.ndim))
    return jnp.take_along_axis(values, place, axis=action.ndim).squeeze(action.ndim)


def length(vectors: Float[Array, "*batch inputs"]) -> Float[Array, "*batch"]:
    """Return the Euclidean norm."""
    return jnp.sqrt((vectors**2).sum(axis=-1))


def led_back(model: Model, targets: Array, action: Array, refine: int) -> tuple[Array, Float[Array, "*batch"]]:
    """Return s^G, from which an action leads to the targets, and how far its last refinement moved it."""
    states = before = targets
    for _ in range(refine):
        states, before = targets - chosen(model(states), action), states
    return states, length(states - before)


def steepness(model: Model, states: Float[Array, "batch inputs"]) -> Float[Array, "batch actions"]:
    """K: the Frobenius norm of the model's Jacobian, per action. It is at least the Lipschitz number near a state."""
    slopes = jax.vmap(jax.jacfwd(model))(states)
    return jnp.sqrt((slopes**2).sum(axis=(-2, -1)))


def nearest(shown: Shown, states: Float[Array, "batch inputs"], among: Bool[Array, "batch centres"]) -> Array:
    """Return the distance to the nearest demonstrated state among some; infinity if there is none."""
    return jnp.sqrt(jnp.where(among & shown.mask, squares(states, shown.state), jnp.inf).min(axis=-1))


def back_tracked(model: Model, batch: Transitions, scaling: Scaling, error: Array, refine: int) -> Labels:
    """Return labels that lead to the states of a minibatch by the actions taken there."""
    targets = scaling(batch.observation)
    states, moved = led_back(model, targets, batch.action, refine)
    bound = error[batch.action] + chosen(steepness(model, targets), batch.action) * moved
    return Labels(states, batch.action, length(states - targets), bound, batch.has_next)


def enumerated(model: Model, batch: Transitions, scaling: Scaling, error: Array, refine: int, shown: Shown) -> Labels:
    """Return labels that lead to the next states of a minibatch, one by each action."""
    targets, known = scaling(batch.next_observation), batch.has_next & ~batch.terminal
    steep = steepness(model, targets)

    def by(action: Array, slope: Array) -> Labels:
        actions = jnp.full(len(targets), action)
        states, moved = led_back(model, targets, actions, refine)
        gap = nearest(shown, targets, (shown.action == action) & shown.followed)
        near = jnp.isfinite(gap)
        bound = error[action] + 2 * slope * jnp.where(near, gap, 0.0) + slope * moved
        return Labels(states, actions, length(states - targets), bound, known & near)

    labels = jax.vmap(by)(jnp.arange(len(error)), steep.T)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), labels)


def accepted(labels: Labels, shown: Shown, largest: Float[Array, ""]) -> tuple[Array, Bool[Array, " labels"]]:
    """Return which labels are trusted, and which of these no demonstrated state with another action contradicts."""
    trusted = labels.known & (labels.bound < largest)
    other = nearest(shown, labels.state, shown.action != labels.action[:, None])
    return trusted, trusted & ~(other < labels.distance)


def corrective_loss(network: Network, states: Array, action: Array, kept: Bool[Array, " labels"]) -> Array:
    """-mean log pi(a|s^G) over the labels that are kept; 0 if none is."""
    return cross_entropy(network(states), action).sum(where=kept) / jnp.maximum(kept.sum(), 1)


def errors_of(model: Model, scaling: Scaling, batch: Transitions) -> Float[Array, " batch"]:
    """|s' - s - g(s)[a]|, standardised; 0 without a recorded successor."""
    before, after = scaling(batch.observation), scaling(batch.next_observation)
    return length(jnp.where(batch.has_next[:, None], after - before - chosen(model(before), batch.action), 0.0))


def running_mean(mean: Float[Array, " actions"], newest: Array, action: Array, counts: Bool[Array, " batch"]) -> Array:
    """Return the running mean per action after the newest values that count. An action without any keeps its mean."""
    own = (action == jnp.arange(len(mean))[:, None]) & counts
    change = (own * newest).sum(axis=1) / jnp.maximum(own.sum(axis=1), 1) - mean
    return mean + jnp.where(own.any(axis=1), FORGET * change, 0.0)


def shown_of(dataset: Dataset, scaling: Scaling, most: int = CENTRES) -> Shown:
    """Return all labelled states of a run, or evenly spaced ones if there are more than `most`."""
    rows, pool = dataset.labelled, dataset.pool
    count = min(most, rows.indices.shape[-1])
    place = jnp.arange(count)
    steps = rows.indices[(place * (jnp.maximum(rows.size, count) / count)).astype(int)]
    mask = place < rows.size
    return Shown(
        jnp.where(mask[:, None], scaling(pool.before(steps)), 0.0),
        pool.action[steps],
        mask,
        mask & pool.has_next[steps],
    )


def median_step(dataset: Dataset, scaling: Scaling) -> Float[Array, ""]:
    """Return the median length of a standardised step; 0 if no successor was recorded."""
    rows, pool = dataset.labelled, dataset.pool
    steps = length((pool.after(rows.indices) - pool.before(rows.indices)) / scaling.scale)
    counts = rows.mask & pool.has_next[rows.indices]
    return jnp.nan_to_num(jnp.nanmedian(jnp.where(counts, steps, jnp.nan)))


def corrective(spec: Spec, config: CorrectiveConfig) -> Algorithm:
    """Corrective labels as three pure functions."""
    optimiser, teacher = adam(config), optax.adam(config.dynamics_learning_rate)

    def init(key: PRNGKeyArray, dataset: Dataset) -> CorrectiveState:
        if dataset.pool.images:
            raise UserError("corrective needs rows of numbers, not images; use bc.")
        network = policy_network(jax.random.fold_in(key, 0), spec, config.hidden)
        dynamics = still_dynamics(jax.random.fold_in(key, 1), spec, config.dynamics_hidden)
        units = units_of(dataset)
        step = median_step(dataset, units.scaling)
        error = jnp.full(spec.actions, step)  # of dynamics in which nothing moves
        helper = Helper(dynamics, teacher.init(dynamics), start_vectors(dynamics), error)
        shown = shown_of(dataset, units.scaling)
        return CorrectiveState(network, optimiser.init(network), helper, shown, units, step)

    def make_labels(state: CorrectiveState, batch: Transitions) -> Labels:
        model = model_of(bounded(state.helper.dynamics, state.helper.vectors, config.spectral), state.units)
        common = model, batch, state.units.scaling, state.helper.error, config.refine
        labels = back_tracked(*common)
        if config.actions == "every":
            labels = jax.tree.map(lambda *parts: jnp.concatenate(parts), labels, enumerated(*common, state.shown))
        return labels

    def loss(network: Network, batch: Transitions, states: Array, labels: Labels, kept: Array) -> tuple[Array, Metrics]:
        l_pi, l_back = policy_loss(network, batch), corrective_loss(network, states, labels.action, kept)
        return l_pi + config.weight * l_back, {"policy_loss": l_pi, "corrective_loss": l_back}

    def taught(helper: Helper, units: Units, batch: Transitions, held_out: Array) -> tuple[Helper, Array]:
        """Return the helper after one step, and its loss."""
        to_learn = batch._replace(has_next=batch.has_next & ~held_out)

        def loss(dynamics: Dynamics) -> Array:
            return prediction_loss(bounded(dynamics, helper.vectors, config.spectral), units, to_learn)

        value, slope = jax.value_and_grad(loss)(helper.dynamics)
        step, optimiser_state = teacher.update(slope, helper.optimiser)
        dynamics = optax.apply_updates(helper.dynamics, step)
        model = model_of(bounded(helper.dynamics, helper.vectors, config.spectral), units)
        errors = errors_of(model, units.scaling, batch)
        error = running_mean(helper.error, errors, batch.action, held_out & batch.has_next)
        return Helper(dynamics, optimiser_state, iterate(dynamics, helper.vectors), error), value

    def update(key: PRNGKeyArray, state: CorrectiveState, dataset: Dataset) -> tuple[CorrectiveState, Metrics]:
        places = dataset.labelled.places(jax.random.fold_in(key, 0), config.batch)
        batch = dataset.pool.transitions(dataset.labelled.indices[places])
        # The policy takes labels as constants: nothing of its loss reaches the model.
        labels = jax.lax.stop_gradient(make_labels(state, batch))
        trusted, kept = accepted(labels, state.shown, config.tolerance * state.step)
        states = state.units.plain(jnp.where(kept[:, None], labels.state, 0.0))
        gradient, metrics = jax.grad(loss, has_aux=True)(state.network, batch, states, labels, kept)
        step, optimiser_state = optimiser.update(gradient, state.optimiser, state.network)
        network = optax.apply_updates(state.network, step)
        helper, value = taught(state.helper, state.units, batch, places % HELD_OUT == HELD_OUT - 1)
        metrics |= {"prediction_loss": value, "accepted": kept.mean(), "contradicted": (trusted & ~kept).mean()}
        unit = jnp.where(state.step > 0, state.step, 1.0)
        metrics |= {f"model_error_{action}": error / unit for action, error in enumerate(helper.error)}
        return CorrectiveState(network, optimiser_state, helper, state.shown, state.units, state.step), metrics

    made = 1 + spec.actions if config.actions == "every" else 1  # labels per triple
    return Algorithm(init, update, batch=config.batch * made)


ENTRY = Entry(
    make=corrective,
    presets={"default": CorrectiveConfig(), "every": CorrectiveConfig(actions="every")},
    needs="triples",
    reference="after Ke et al. (2024)",
    titles={"default": "Corrective labels", "every": "Corrective labels, every action"},
)
