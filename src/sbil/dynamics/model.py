"""A model of what follows a decision, learned from the triples of a draw. Pure functions: vmap them over draws.

The step of a standardised state is a ridge regression on the state, the action and their products, plus a network on
what the regression leaves. Several networks with other beginnings, the members, show by their differences what the
data do not tell. Cross-validation within the draw says for which columns the networks help, and how far the model can
be trusted.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.dynamics.triples import Triples
from sbil.folds import FOLDS
from sbil.networks import MLP, mlp

MEMBERS = 4
HIDDEN = (64, 64)
UPDATES = 3000
BATCH = 64
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 1e-3
RIDGE, RIDGE_OF_PRODUCTS = 1e-3, 1.0
MOST_PRODUCTS = 2000  # of states and actions; with more, the regression has none
HORIZON = 50  # steps for which predictions are compared with what was recorded
STARTS = 512  # recorded states from which these predictions start
ROOM = 3.0  # ranges of a column beyond the recorded values, where imagined states are stopped


class Model(NamedTuple):
    """A learned model of one draw."""

    mean: Float[Array, " inputs"]
    scale: Float[Array, " inputs"]
    step: Float[Array, " inputs"]  # the size of a step of a standardised state
    linear: Float[Array, "features inputs"]
    members: MLP  # stacked: what the regression leaves, and the logit of the end
    helps: Float[Array, " inputs"]  # 1: the networks help in this column, 0: they do not
    ends: Float[Array, ""]  # 1: ends are predicted, 0: no episode ends
    low: Float[Array, " inputs"]  # of the recorded states, standardised
    high: Float[Array, " inputs"]
    levels: Float[Array, "inputs levels"]  # standardised; NaN: none
    group: Int[Array, " inputs"]

    def standardised(self, states: Float[Array, "*batch inputs"]) -> Float[Array, "*batch inputs"]:
        """Return states in the units of the model."""
        return (states - self.mean) / self.scale

    def plain(self, states: Float[Array, "*batch inputs"]) -> Float[Array, "*batch inputs"]:
        """Return states in the units of the data."""
        return states * self.scale + self.mean


class Trust(NamedTuple):
    """How far a model can be trusted: by cross-validation within its draw."""

    r2: Float[Array, " inputs"]  # of one step; 1: exact, 0: as good as the mean step; NaN: the column never changes
    r2_after: Float[Array, " horizon"]  # of the state after 1, 2, ... steps; NaN: too few steps were recorded in a row
    disagreement: Float[Array, ""]  # of the members about a step, in standard deviations of a step

    @property
    def step(self) -> Float[Array, ""]:
        """The R2 of one step: the mean over columns, none below 0."""
        return jnp.nanmean(jnp.maximum(self.r2, 0), axis=-1)


class Fit(NamedTuple):
    """The parts of a model that are learned."""

    linear: Float[Array, "features inputs"]
    members: MLP


class Steps(NamedTuple):
    """Triples in the units of the model."""

    state: Float[Array, "steps inputs"]
    action: Float[Array, "steps actions"]  # one-hot
    delta: Float[Array, "steps inputs"]
    has_next: Float[Array, " steps"]  # 1 or 0, as the two below
    known: Float[Array, " steps"]
    terminal: Float[Array, " steps"]


@partial(jax.jit, static_argnames=("actions", "updates"))
def learn(key: PRNGKeyArray, triples: Triples, actions: int, updates: int = UPDATES) -> tuple[Model, Trust]:
    """Learn the model of a draw, and how far to trust it."""
    base = _units(triples)
    steps = _steps(base, triples, actions)
    whole = _fit(jax.random.fold_in(key, 0), steps, steps.known, updates)

    def judged(number: Array) -> "Judged":
        inside = steps.known * (triples.fold != number)
        fit = _fit(jax.random.fold_in(key, number + 1), steps, inside, updates)
        return _judge(fit, base, steps, triples, number)

    folds = jax.lax.map(judged, jnp.arange(FOLDS))
    sums = jax.tree.map(lambda leaf: leaf.sum(axis=0), folds)
    helps = (sums.with_networks < sums.linear).astype(jnp.float32)
    model = base._replace(linear=whole.linear, members=whole.members, helps=helps)
    error = jnp.minimum(sums.linear, sums.with_networks)
    trust = Trust(
        r2=jnp.where(sums.spread > 1e-9, 1 - error / jnp.maximum(sums.spread, 1e-9), jnp.nan),
        r2_after=jnp.where(sums.spread_after > 1e-6, 1 - sums.error_after / sums.spread_after, jnp.nan),
        disagreement=jnp.sqrt(sums.variance / jnp.maximum(sums.steps, 1)),
    )
    return model, trust


def follow(
    model: Model, states: Float[Array, "members batch inputs"], action: Float[Array, "members batch actions"]
) -> tuple[Float[Array, "members batch inputs"], Bool[Array, "members batch"]]:
    """Return what each member says of its own states: the standardised states that follow, and whether all ends."""
    delta, end = _predict(Fit(model.linear, model.members), model.helps, states, action)
    after = states + delta * model.step
    room = ROOM * jnp.maximum(model.high - model.low, 1e-3)
    after = jnp.clip(jnp.nan_to_num(after), model.low - room, model.high + room)
    return _snapped(model, after), (model.ends > 0) & (end > 0)


def _units(triples: Triples) -> Model:
    """The parts of a model that are counted and not learned."""
    known, has_next = triples.known[:, None], triples.has_next[:, None]
    mean, deviation = _moments(triples.state, known)
    scale = jnp.where(deviation > 1e-6 * (1 + jnp.abs(mean)), deviation, 1.0)
    change = jnp.where(has_next, (triples.after - triples.state) / scale, 0.0)
    step = jnp.sqrt((change**2).sum(axis=0) / jnp.maximum(has_next.sum(), 1))
    both = jnp.concatenate([triples.state, jnp.where(has_next, triples.after, triples.state)])
    recorded = jnp.concatenate([known, known])
    low = jnp.min(both, axis=0, where=recorded, initial=jnp.inf)
    high = jnp.max(both, axis=0, where=recorded, initial=-jnp.inf)
    nothing: Any = None
    return Model(
        mean=mean,
        scale=scale,
        step=jnp.where(step > 1e-6, step, 1.0),
        linear=nothing,
        members=nothing,
        helps=jnp.zeros_like(mean),
        ends=triples.terminal.any().astype(jnp.float32),
        low=(low - mean) / scale,
        high=(high - mean) / scale,
        levels=(triples.levels - mean[:, None]) / scale[:, None],
        group=triples.group,
    )


def _moments(values: Array, mask: Array) -> tuple[Array, Array]:
    count = jnp.maximum(mask.sum(), 1)
    mean = jnp.where(mask, values, 0.0).sum(axis=0) / count
    return mean, jnp.sqrt(jnp.where(mask, (values - mean) ** 2, 0.0).sum(axis=0) / count)


def _steps(base: Model, triples: Triples, actions: int) -> Steps:
    state = base.standardised(triples.state)
    delta = jnp.where(triples.has_next[:, None], (base.standardised(triples.after) - state) / base.step, 0.0)
    masks = (triples.has_next, triples.known, triples.terminal)
    return Steps(state, jax.nn.one_hot(triples.action, actions), delta, *(mask.astype(jnp.float32) for mask in masks))


def _features(state: Array, action: Array) -> Array:
    """State, action and, if they are not too many, their products."""
    parts = [state, action]
    if state.shape[-1] * action.shape[-1] <= MOST_PRODUCTS:
        products = state[..., :, None] * action[..., None, :]
        parts.append(products.reshape(*state.shape[:-1], -1))
    return jnp.concatenate(parts, axis=-1)


def _fit(key: PRNGKeyArray, steps: Steps, among: Float[Array, " steps"], updates: int) -> Fit:
    """Learn from the steps where `among` is 1."""
    linear = _ridge(steps, among * steps.has_next)
    left = steps.delta - _features(steps.state, steps.action) @ linear
    members = jax.vmap(lambda own: _member(own, steps, left, among, updates))(jax.random.split(key, MEMBERS))
    return Fit(linear, members)


def _ridge(steps: Steps, weight: Float[Array, " steps"]) -> Float[Array, "features inputs"]:
    features = _features(steps.state, steps.action)
    plain = steps.state.shape[-1] + steps.action.shape[-1]
    penalty = jnp.where(jnp.arange(features.shape[-1]) < plain, RIDGE, RIDGE_OF_PRODUCTS)
    weighted = (features * weight[:, None]).T
    return jax.scipy.linalg.solve(weighted @ features + jnp.diag(penalty), weighted @ steps.delta, assume_a="pos")


def _member(key: PRNGKeyArray, steps: Steps, left: Array, among: Array, updates: int) -> MLP:
    """Train one network on what the regression leaves. It begins as zero."""
    inputs = jnp.concatenate([steps.state, steps.action], axis=-1)
    network = mlp(jax.random.fold_in(key, 0), (inputs.shape[-1], *HIDDEN, left.shape[-1] + 1))
    network = eqx.tree_at(lambda whole: whole.output, network, jax.tree.map(jnp.zeros_like, network.output))
    optimiser = optax.adamw(LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    order, count = jnp.argsort(-among, stable=True), among.sum().astype(jnp.int32)

    def loss(network: MLP, batch: Array) -> Array:
        outputs = network(inputs[batch])
        delta, end = outputs[:, :-1], outputs[:, -1]
        error = ((delta - left[batch]) ** 2).mean(axis=-1) * steps.has_next[batch]
        return (error + optax.sigmoid_binary_cross_entropy(end, steps.terminal[batch])).mean()

    def update(carry: tuple[MLP, Any], key: PRNGKeyArray) -> tuple[tuple[MLP, Any], None]:
        network, state = carry
        batch = order[jax.random.randint(key, (BATCH,), 0, jnp.maximum(count, 1))]
        change, state = optimiser.update(jax.grad(loss)(network, batch), state, network)
        return (optax.apply_updates(network, change), state), None

    start = network, optimiser.init(network)
    (network, _), _ = jax.lax.scan(update, start, jax.random.split(jax.random.fold_in(key, 1), updates))
    return network


def _predict(fit: Fit, helps: Array, state: Array, action: Array) -> tuple[Array, Array]:
    """(steps, logits of the end) of every member, for its own states [members, batch, inputs]."""
    outputs = jax.vmap(lambda network, inputs: network(inputs))(fit.members, jnp.concatenate([state, action], axis=-1))
    return _features(state, action) @ fit.linear + helps * outputs[..., :-1], outputs[..., -1]


def _snapped(model: Model, states: Array) -> Array:
    """States whose discrete columns have one of their values, and exactly one 1 per group of one-hot columns."""
    away = jnp.where(jnp.isnan(model.levels), jnp.inf, jnp.abs(states[..., None] - model.levels))
    index = away.argmin(axis=-1)
    nearest = jnp.take_along_axis(jnp.broadcast_to(model.levels, away.shape), index[..., None], axis=-1)[..., 0]
    snapped = jnp.where(jnp.isnan(model.levels[:, 0]), states, nearest)
    plain = jnp.moveaxis(model.plain(states), -1, 0)
    inputs = len(model.group)
    largest = jnp.moveaxis(jax.ops.segment_max(plain, model.group, inputs)[model.group], 0, -1)
    together = jax.ops.segment_sum(jnp.ones(inputs), model.group, inputs)[model.group] > 1
    chosen = model.standardised((model.plain(states) >= largest).astype(states.dtype))
    return jnp.where(together, chosen, snapped)


Carry = tuple[Array, Array, Array]  # the members' states, the places of the recorded steps, whether each counts


class Judged(NamedTuple):
    """Sums over held-out steps."""

    linear: Float[Array, " inputs"]  # squared errors of the regression alone
    with_networks: Float[Array, " inputs"]
    spread: Float[Array, " inputs"]  # squared differences from the mean step
    error_after: Float[Array, " horizon"]
    spread_after: Float[Array, " horizon"]
    variance: Float[Array, ""]  # of the members' steps, mean over columns
    steps: Float[Array, ""]


def _judge(fit: Fit, base: Model, steps: Steps, triples: Triples, number: Array) -> Judged:
    """Compare predictions with the held-out steps of one fold."""
    inside, outside = (steps.has_next * mask for mask in (triples.fold != number, triples.fold == number))
    state, action = (jnp.broadcast_to(x, (MEMBERS, *x.shape)) for x in (steps.state, steps.action))
    linear, _ = _predict(fit, jnp.zeros(1), state, action)
    full, _ = _predict(fit, jnp.ones(1), state, action)
    mean = (steps.delta * inside[:, None]).sum(axis=0) / jnp.maximum(inside.sum(), 1)

    def squares(predicted: Array) -> Array:
        return (((predicted - steps.delta) ** 2) * outside[:, None]).sum(axis=0)

    plain, with_networks = squares(linear[0]), squares(full.mean(axis=0))
    helps = (with_networks < plain).astype(jnp.float32)
    model = base._replace(linear=fit.linear, members=fit.members, helps=helps)
    error, spread = _open_loop(model, steps, triples, outside)
    variance = (full.var(axis=0).mean(axis=-1) * outside).sum()
    return Judged(plain, with_networks, squares(mean), error, spread, variance, outside.sum())


def _open_loop(model: Model, steps: Steps, triples: Triples, outside: Array) -> tuple[Array, Array]:
    """[HORIZON] summed squared errors of states predicted 1, 2, ... steps ahead, and their spread around the mean.

    The recorded actions are taken. Starts are held-out steps; only steps that were recorded in a row count.
    """
    starts = jnp.argsort(-outside, stable=True)[: max(STARTS, len(outside) // FOLDS)]
    starts = starts[:: -(-len(starts) // STARTS)]
    states = jnp.broadcast_to(steps.state[starts], (MEMBERS, len(starts), steps.state.shape[-1]))

    def step(carry: Carry, _unused: None) -> tuple[Carry, tuple[Array, Array]]:
        states, place, counts = carry
        action = jnp.broadcast_to(steps.action[place], (MEMBERS, *steps.action[place].shape))
        states, _ = follow(model, states, action)
        counts = counts * steps.has_next[place]
        truth = model.standardised(triples.after[place])
        error = (((states.mean(axis=0) - truth) ** 2).mean(axis=-1) * counts).sum()
        spread = ((truth**2).mean(axis=-1) * counts).sum()
        following = triples.following[place]
        return (states, jnp.maximum(following, 0), counts * (following >= 0)), (error, spread)

    _, (error, spread) = jax.lax.scan(step, (states, starts, outside[starts]), None, length=HORIZON)
    return error, spread
