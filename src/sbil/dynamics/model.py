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
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.dynamics.triples import Triples
from sbil.folds import FOLDS
from sbil.networks import MLP, Dense, in_float32, mlp

MEMBERS = 4
HIDDEN = (64, 64)
UPDATES = 1000
BATCH = 64
LEARNING_RATE, WEIGHT_DECAY = 1.5e-2, 1e-3  # the rate falls to 0
PENALTIES = ((1e-3, 1.0), (1e-3, 1e-2), (1e-3, 1e3), (1.0, 1e3), (30.0, 1e3))  # of states and actions, of products
ROUNDING = 1e-6  # the penalty per step that float32 needs if columns depend on each other
GOLDEN = np.uint32(2654435769)  # 2**32 times the golden ratio: its multiples are spread evenly
LEAST_SPREAD = 1e-6  # of steps, in units of a step: what spreads less is the same step every time
MOST_PRODUCTS = 500  # of states and actions; with more, the regression has none
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
    groups: Int[Array, "groups columns"]

    @property
    def discrete(self) -> Bool[Array, " inputs"]:
        """Which columns have a few values only."""
        return ~jnp.isnan(self.levels).all(axis=-1)

    def standardised(self, states: Float[Array, "*batch inputs"]) -> Float[Array, "*batch inputs"]:
        """Return states in the units of the model."""
        return (states - self.mean) / self.scale

    def plain(self, states: Float[Array, "*batch inputs"]) -> Float[Array, "*batch inputs"]:
        """Return states in the units of the data."""
        return states * self.scale + self.mean


class Trust(NamedTuple):
    """How far a model can be trusted: by cross-validation within its draw."""

    r2: Float[Array, " inputs"]  # of one step; 1: exact, 0: as good as the mean step; NaN: every step is the same
    r2_after: Float[Array, "horizon inputs"]  # of the state after 1, 2, ... steps; NaN: too few were recorded in a row
    disagreement: Float[Array, ""]  # of the members about a step, in sizes of a step; 0 where the networks do not help

    @property
    def step(self) -> Float[Array, ""]:
        """The R2 of one step: the mean over columns, none below 0."""
        return jnp.nanmean(jnp.maximum(self.r2, 0), axis=-1)

    @property
    def after(self) -> Float[Array, " horizon"]:
        """The R2 of the state after 1, 2, ... steps: of the median column. Columns with equal steps do not count."""
        return jnp.nanmedian(jnp.where(jnp.isnan(self.r2)[..., None, :], jnp.nan, self.r2_after), axis=-1)

    def without_last(self, columns: int) -> "Trust":
        """The trust in the other columns: the last ones repeat what came before, so every model is right about them."""
        first = self.r2.shape[-1] - columns
        return self._replace(r2=jnp.where(jnp.arange(self.r2.shape[-1]) < first, self.r2, jnp.nan))


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
    """Learn the model of a draw, and how far to trust it.

    vmap this over draws on one device: LAPACK, which solves the regression, can hang on several CPU devices at once.
    Where no step can be held out the R2 is NaN; in a model of no successors nothing moves.
    """
    with in_float32():
        base = _units(triples)
        steps = _steps(base, triples, actions)
        among = steps.known * (triples.fold != jnp.arange(-1, FOLDS)[:, None])  # all steps; all but those of each fold
        inside = among * steps.has_next
        outside = (steps.has_next - inside) * inside.any(axis=1, keepdims=True)
        linear = _regressions(steps, inside, outside, base.discrete)
        fits = _fits(key, steps, linear, among, updates)
        whole = jax.tree.map(lambda leaf: leaf[0], fits)
        folds = Part(*jax.tree.map(lambda leaf: leaf[1:], (fits, inside, outside)))
        sums = _summed(jax.lax.map(partial(_judge, steps), folds))
        helps = (sums.with_networks < sums.linear).astype(jnp.float32)
        model = base._replace(linear=whole.linear, members=whole.members, helps=helps)
        error_after, spread_after = _summed(jax.lax.map(partial(_open_loop, model, steps, triples.following), folds))
    error = jnp.minimum(sums.linear, sums.with_networks)
    moves = sums.spread > LEAST_SPREAD * sums.steps
    trust = Trust(
        r2=jnp.where(moves, 1 - error / jnp.where(moves, sums.spread, 1), jnp.nan),
        r2_after=jnp.where(spread_after > 1e-6, 1 - error_after / jnp.maximum(spread_after, 1e-6), jnp.nan),
        disagreement=jnp.sqrt((sums.variance * helps).mean() / jnp.maximum(sums.steps, 1)),
    )
    return model, trust


def follow(
    model: Model, states: Float[Array, "members batch inputs"], action: Float[Array, "members batch actions"]
) -> tuple[Float[Array, "members batch inputs"], Bool[Array, "members batch"]]:
    """Return what each member says of its own states: the standardised states that follow, and whether all ends."""
    with in_float32():
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
        low=jnp.where(known.any(), (low - mean) / scale, 0.0),
        high=jnp.where(known.any(), (high - mean) / scale, 0.0),
        levels=(triples.levels - mean[:, None]) / scale[:, None],
        groups=triples.groups,
    )


def _moments(values: Array, mask: Array) -> tuple[Array, Array]:
    count = jnp.maximum(mask.sum(), 1)
    mean = jnp.where(mask, values, 0.0).sum(axis=0) / count
    return mean, jnp.sqrt(jnp.where(mask, (values - mean) ** 2, 0.0).sum(axis=0) / count)


def _steps(base: Model, triples: Triples, actions: int) -> Steps:
    known, has_next = triples.known[:, None], triples.has_next[:, None]
    state = jnp.where(known, base.standardised(triples.state), 0.0)
    delta = jnp.where(has_next, (triples.after - triples.state) / (base.scale * base.step), 0.0)
    masks = (triples.has_next, triples.known, triples.terminal)
    return Steps(state, jax.nn.one_hot(triples.action, actions), delta, *(mask.astype(jnp.float32) for mask in masks))


def _features(state: Array, action: Array) -> Array:
    """State, action and, if they are not too many, their products."""
    parts = [state, action]
    if state.shape[-1] * action.shape[-1] <= MOST_PRODUCTS:
        products = state[..., :, None] * action[..., None, :]
        parts.append(products.reshape(*state.shape[:-1], -1))
    return jnp.concatenate(parts, axis=-1)


def _regressions(
    steps: Steps, inside: Array, outside: Array, discrete: Bool[Array, " inputs"]
) -> Float[Array, "fits features inputs"]:
    """Return the regression of every fit, with the penalties that predict held-out steps best, column by column.

    Discrete columns keep the first penalties: a step that is made small would never reach the next value.
    """
    features = _features(steps.state, steps.action)

    def each(part: tuple[Array, Array]) -> tuple[Array, Array]:
        linear = _ridge(steps, features, part[0])
        predicted = jnp.einsum("nf,kfi->kni", features, linear)
        return linear, (((predicted - steps.delta) ** 2) * part[1][:, None]).sum(axis=1)

    linear, errors = jax.lax.map(each, (inside, outside))
    best = jnp.where(discrete, 0, errors.sum(axis=0).argmin(axis=0))
    return jnp.take_along_axis(linear, best[None, None, None], axis=1)[:, 0]


def _ridge(steps: Steps, features: Array, weight: Float[Array, " steps"]) -> Float[Array, "penalties features inputs"]:
    """Return a ridge regression with each pair of PENALTIES."""
    inputs, actions = steps.state.shape[-1], steps.action.shape[-1]
    count = jnp.maximum(weight.sum(), 1)
    mean = (steps.delta * weight[:, None]).sum(axis=0) / count
    weighted = (features * weight[:, None]).T
    products, right = weighted @ features, weighted @ (steps.delta - mean)
    number = jnp.arange(len(products))

    def solution(penalty: Array) -> Array:
        penalties = jnp.where(number < inputs + actions, penalty[0], penalty[1]) + ROUNDING * count
        return jax.scipy.linalg.solve(products + jnp.diag(penalties), right, assume_a="pos")

    linear = jnp.nan_to_num(jax.lax.map(solution, jnp.array(PENALTIES)))

    return linear.at[:, inputs : inputs + actions].add(mean)  # exactly one action is 1


class Rest(NamedTuple):
    """What a network learns: what a regression leaves, in units of its size."""

    left: Float[Array, "steps inputs"]
    size: Float[Array, " inputs"]
    among: Float[Array, " steps"]  # 1: learn from this step
    order: Int[Array, " steps"]  # these steps first
    total: Int[Array, ""]  # of them


def _rest(steps: Steps, linear: Array, among: Float[Array, " steps"]) -> Rest:
    left = steps.delta - _features(steps.state, steps.action) @ linear
    weight = among * steps.has_next
    size = jnp.sqrt((left**2 * weight[:, None]).sum(axis=0) / jnp.maximum(weight.sum(), 1))
    size = jnp.where(size > 1e-6, size, 1.0)
    return Rest(left / size, size, among, jnp.argsort(-among, stable=True), among.sum().astype(jnp.uint32))


def _fits(key: PRNGKeyArray, steps: Steps, linear: Array, among: Float[Array, "fits steps"], updates: int) -> Fit:
    """Learn what the regressions leave, each from the steps where its `among` is 1."""
    rests = jax.vmap(partial(_rest, steps))(linear, among)

    def member(key: PRNGKeyArray, fit: Array) -> MLP:
        return _member(key, steps, jax.tree.map(lambda leaf: leaf[fit], rests), updates)

    every = jnp.repeat(jnp.arange(len(linear)), MEMBERS)  # one axis compiles much faster than two
    members = jax.vmap(member)(jax.random.split(key, len(every)), every)
    return Fit(linear, jax.tree.map(lambda leaf: leaf.reshape(len(linear), MEMBERS, *leaf.shape[1:]), members))


def _member(key: PRNGKeyArray, steps: Steps, rest: Rest, updates: int) -> MLP:
    """Train one network on what the regression leaves. It begins as zero."""
    inputs = jnp.concatenate([steps.state, steps.action], axis=-1)
    network = mlp(key, (inputs.shape[-1], *HIDDEN, rest.left.shape[-1] + 1))
    network = eqx.tree_at(lambda whole: whole.output, network, jax.tree.map(jnp.zeros_like, network.output))
    optimiser = optax.adamw(optax.cosine_decay_schedule(LEARNING_RATE, updates), weight_decay=WEIGHT_DECAY)
    size, first = min(BATCH, len(inputs)), jax.random.bits(key)

    def loss(network: MLP, batch: Array) -> Array:
        outputs = network(inputs[batch])
        error = ((outputs[:, :-1] - rest.left[batch]) ** 2).mean(axis=-1) * steps.has_next[batch]
        error += optax.sigmoid_binary_cross_entropy(outputs[:, -1], steps.terminal[batch])
        return (error * rest.among[batch]).mean()

    def update(carry: tuple[MLP, Any], number: Array) -> tuple[tuple[MLP, Any], None]:
        network, state = carry
        place = first + (number * size + jnp.arange(size, dtype=jnp.uint32)) * GOLDEN  # over all of 2**32
        batch = rest.order[(place >> 16) * rest.total >> 16]
        change, state = optimiser.update(jax.grad(loss)(network, batch), state, network)
        return (optax.apply_updates(network, change), state), None

    start = network, optimiser.init(network)
    (network, _), _ = jax.lax.scan(update, start, jnp.arange(updates, dtype=jnp.uint32))
    unit = jnp.append(rest.size, 1.0)  # the logit of the end has no unit
    output = Dense(network.output.weight * unit, network.output.bias * unit)
    return eqx.tree_at(lambda whole: whole.output, network, output)


def _predict(fit: Fit, helps: Array, state: Array, action: Array) -> tuple[Array, Array]:
    """(steps, logits of the end) of every member, for its own states [members, batch, inputs]."""
    outputs = jax.vmap(lambda network, inputs: network(inputs))(fit.members, jnp.concatenate([state, action], axis=-1))
    return _features(state, action) @ fit.linear + helps * outputs[..., :-1], outputs[..., -1]


def _snapped(model: Model, states: Array) -> Array:
    """States whose discrete columns have one of their values, and exactly one 1 per group of one-hot columns."""
    found, distance = states, jnp.full_like(states, jnp.inf)
    for level in model.levels.T:  # a few; none if every column is continuous
        nearer = jnp.abs(states - level) < distance  # never where the level is NaN
        found = jnp.where(nearer, level, found)
        distance = jnp.where(nearer, jnp.abs(states - level), distance)
    for group in model.groups:
        plain = jnp.take(model.plain(states), group, axis=-1, mode="fill", fill_value=-jnp.inf)
        chosen = jax.nn.one_hot(plain.argmax(axis=-1), len(group))
        mean, scale = (leaf.at[group].get(mode="fill", fill_value=1) for leaf in (model.mean, model.scale))
        found = found.at[..., group].set((chosen - mean) / scale, mode="drop")
    return found


Carry = tuple[Array, Array, Array]  # the members' states, the places of the recorded steps, whether each counts


class Part(NamedTuple):
    """The fit of one fold, with weights: 1 for steps that it learned from, or is compared with."""

    fit: Fit
    inside: Float[Array, " steps"]
    outside: Float[Array, " steps"]


class Judged(NamedTuple):
    """Sums over held-out steps."""

    linear: Float[Array, " inputs"]  # squared errors of the regression alone
    with_networks: Float[Array, " inputs"]
    spread: Float[Array, " inputs"]  # squared differences from the mean step
    variance: Float[Array, " inputs"]  # of the members' steps
    steps: Float[Array, ""]


def _summed(folds: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.sum(axis=0), folds)


def _judge(steps: Steps, part: Part) -> Judged:
    """Compare predictions with the held-out steps of one fold."""
    fit, inside, outside = part
    linear = _features(steps.state, steps.action) @ fit.linear
    inputs = jnp.concatenate([steps.state, steps.action], axis=-1)
    full = linear + jax.vmap(lambda network: network(inputs)[..., :-1])(fit.members)
    mean = (steps.delta * inside[:, None]).sum(axis=0) / jnp.maximum(inside.sum(), 1)

    def squares(predicted: Array) -> Array:
        return (((predicted - steps.delta) ** 2) * outside[:, None]).sum(axis=0)

    variance = (full.var(axis=0) * outside[:, None]).sum(axis=0)
    return Judged(squares(linear), squares(full.mean(axis=0)), squares(mean), variance, outside.sum())


def _open_loop(model: Model, steps: Steps, following: Int[Array, " steps"], part: Part) -> tuple[Array, Array]:
    """[HORIZON, inputs] squared errors of states predicted 1, 2, ... steps ahead, summed, and their spread.

    The recorded actions are taken. Starts are held-out steps; only held-out steps that were recorded in a row count.
    """
    model, outside = model._replace(linear=part.fit.linear, members=part.fit.members), part.outside
    starts = jnp.argsort(-outside, stable=True)[: max(STARTS, len(outside) // FOLDS)]
    starts = starts[:: -(-len(starts) // STARTS)]
    states = jnp.broadcast_to(steps.state[starts], (MEMBERS, len(starts), steps.state.shape[-1]))
    after = steps.state + steps.delta * model.step

    def step(carry: Carry, _unused: None) -> tuple[Carry, tuple[Array, Array]]:
        states, place, counts = carry
        action = jnp.broadcast_to(steps.action[place], (MEMBERS, *steps.action[place].shape))
        states, _ = follow(model, states, action)
        counts = counts * outside[place]
        truth = after[place]
        error = (((states.mean(axis=0) - truth) ** 2) * counts[:, None]).sum(axis=0)
        spread = ((truth**2) * counts[:, None]).sum(axis=0)
        then = following[place]
        return (states, jnp.maximum(then, 0), counts * (then >= 0)), (error, spread)

    _, (error, spread) = jax.lax.scan(step, (states, starts, outside[starts]), None, length=HORIZON)
    return error, spread
