"""An ensemble of networks for tables: columns in pieces, dropout, and an early stop on held-out episodes.

    f(s) = mean over members of f_m(z(s)),   z(s) is each column squashed, and its place in each of its ranges
    L_m  = -mean log pi_m(a|s),              pi_m = softmax f_m with dropout, on all episodes but those of one fold

Needs pairs whose states are rows of numbers. Each member holds out one fold of the episodes (or groups), and keeps the
weights with which the log-loss there was smallest. All members learn at once, in one program. Pieces are from
Gorishniy et al. (2022), "On embeddings for numerical features in tabular deep learning", and squashing is from
Holzmüller et al. (2024), "Better by default". Gorishniy et al. (2025), "TabM", show what ensembles gain.
"""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, config, cross_entropy, setting
from sbil.dataset import Dataset, Rows, Spec
from sbil.ensembles import ensemble
from sbil.mixtures import InPieces, Pieces
from sbil.networks import ACTIVATIONS, MLP, mlp

T = TypeVar("T")  # a network, or a pytree of networks
JUDGED = 4096  # held-out rows per member that are looked at after a round, at most
SHORTEST = 1e-5  # length of a range, in the units that the network is given


@config
class TableNetworkConfig:
    """Settings of networks for tables."""

    learning_rate: float = setting(2e-3, "first step of Adam; it falls to 0", open_low=True)
    weight_decay: float = setting(0.1, "decoupled weight decay (AdamW coefficient)")
    dropout: float = setting(0.4, "share of hidden numbers that are 0 in a step of learning", high=0.9)
    batch: int = setting(128, "pairs per step", low=1)
    hidden: tuple[int, ...] = setting((64, 64), "hidden layers of each member")
    ranges: int = setting(8, "ranges of each column, with about equally many rows each", low=1)
    members: int = setting(8, "networks whose logits are averaged", low=1)
    folds: int = setting(4, "parts of the episodes (or groups); each member holds out one of them (1: none)", low=1)
    steps: int = setting(25, "steps of Adam per round; the held-out part is looked at after each round", low=1)
    rounds: int = setting(60, "rounds of learning, if training gets no other number", low=1)


class Held(NamedTuple):
    """The rows of a run in the order of their folds: those of fold f are at first[f] up to first[f + 1]."""

    indices: Int[Array, " capacity"]
    first: Int[Array, " ends"]  # one more than there are folds

    def others(self, key: PRNGKeyArray, fold: Array, count: int) -> Int[Array, " count"]:
        """Draw rows of the other folds; if all rows are in one fold, draw from it."""
        low, high, rows = self.first[fold], self.first[fold + 1], self.first[-1]
        size = jnp.where(high - low == rows, 0, high - low)
        place = jax.random.randint(key, (count,), 0, jnp.maximum(rows - size, 1))
        return self.indices[jnp.where(place >= low, place + size, place)]

    def judged(self, fold: Array) -> Rows:
        """Return rows of a fold, evenly chosen, at most JUDGED."""
        low, size = self.first[fold], self.first[fold + 1] - self.first[fold]
        most = min(JUDGED, len(self.indices))
        number = jnp.arange(most)
        place = jnp.where(size > most, (number * (size / most)).astype(int), number)
        return Rows(self.indices[jnp.minimum(low + place, len(self.indices) - 1)], jnp.minimum(size, most))


class TableState(NamedTuple):
    """The ensemble that acts, its members with their smallest held-out loss, and the members that go on learning."""

    network: InPieces
    kept: MLP  # arrays of members have a leading axis of members
    best: Float[Array, " members"]
    members: MLP
    optimiser: optax.OptState
    held: Held


def table_network(spec: Spec, config: TableNetworkConfig) -> Algorithm:
    """Networks for tables as three pure functions."""
    optimiser = optax.adamw(falling(config), weight_decay=config.weight_decay)
    fold = jnp.arange(config.members) % config.folds

    def init(key: PRNGKeyArray, dataset: Dataset) -> TableState:
        pieces = pieces_of(dataset, config.ranges)
        sizes = (pieces.outputs, *config.hidden, spec.actions)
        members = jax.vmap(lambda own: mlp(own, sizes))(jax.random.split(jax.random.fold_in(key, 0), config.members))
        network, never = InPieces(pieces, together(members)), jnp.full(config.members, jnp.inf)
        held = in_folds(dataset, config.folds)
        return TableState(network, members, never, members, jax.vmap(optimiser.init)(members), held)

    def loss(member: MLP, key: PRNGKeyArray, observation: Array, action: Array, weight: Array | float) -> Array:
        return (cross_entropy(with_dropout(member, key, observation, config.dropout), action) * weight).mean()

    def update(key: PRNGKeyArray, state: TableState, dataset: Dataset) -> tuple[TableState, Metrics]:
        def seen(steps: Array) -> tuple[Array, Array, Array | float]:
            weight = 1.0 if dataset.pool.weight is None else dataset.pool.weight[steps]
            return state.network.pieces(dataset.pool.before(steps)), dataset.pool.action[steps], weight

        def learn(
            key: PRNGKeyArray, member: MLP, own: optax.OptState, fold: Array
        ) -> tuple[MLP, optax.OptState, Array]:
            rows, drop = jax.random.split(key)
            value, gradient = jax.value_and_grad(loss)(member, drop, *seen(state.held.others(rows, fold, config.batch)))
            change, own = optimiser.update(gradient, own, member)
            return optax.apply_updates(member, change), own, value

        def step(learners: tuple[MLP, optax.OptState], key: PRNGKeyArray) -> tuple[tuple[MLP, optax.OptState], Array]:
            members, own, losses = jax.vmap(learn)(jax.random.split(key, config.members), *learners, fold)
            return (members, own), losses.mean()

        def judge(member: MLP, fold: Array) -> Array:
            rows = state.held.judged(fold)
            observation, action, weight = seen(rows.indices)
            losses, counts = cross_entropy(member(observation), action), jnp.where(rows.mask, weight, 0.0)
            total = counts.sum()
            return jnp.where(total > 0, (losses * counts).sum(where=rows.mask) / jnp.where(total > 0, total, 1), 0.0)

        learners, keys = (state.members, state.optimiser), jax.random.split(key, config.steps)
        (members, own), losses = jax.lax.scan(step, learners, keys)
        found = jax.vmap(judge)(members, fold)
        kept = chosen(found < state.best, members, state.kept)
        best = jnp.minimum(found, state.best)
        network = InPieces(state.network.pieces, together(kept))
        metrics = {"policy_loss": losses.mean(), "held_out_loss": best.mean()}
        return TableState(network, kept, best, members, own, state.held), metrics

    return Algorithm(init, update, batch=config.batch)


def falling(config: TableNetworkConfig) -> optax.Schedule:
    """Return the step of Adam, which falls to 0 along half a cosine."""
    return lambda count: (
        config.learning_rate * (1 + jnp.cos(jnp.pi * jnp.minimum(count / (config.rounds * config.steps), 1))) / 2
    )


def together(members: MLP) -> MLP:
    """Return one network whose logits are the mean of those of stacked members."""
    return ensemble([pick(members, number) for number in range(len(members.output.bias))])


def pick(members: T, number: int) -> T:
    """Return one of stacked members."""
    return jax.tree.map(lambda leaf: leaf[number], members)


def chosen(which: Bool[Array, " members"], members: MLP, others: MLP) -> MLP:
    """Return members where `which` holds, and others elsewhere."""

    def choose(own: Array, other: Array) -> Array:
        return jnp.where(which.reshape(-1, *[1] * (own.ndim - 1)), own, other)

    return jax.tree.map(choose, members, others)


def with_dropout(member: MLP, key: PRNGKeyArray, x: Array, share: Array | float) -> Array:
    """Return the member's logits while a share of its hidden numbers is 0 and the others are larger instead."""
    *hidden, output = member.layers
    for number, layer in enumerate(hidden):
        x = ACTIVATIONS[member.activation](layer(x))
        draws = jax.random.uniform(jax.random.fold_in(key, number), x.shape)
        x = jnp.where(draws < share, 0.0, x / (1 - share))
    return output(x)


def in_folds(dataset: Dataset, folds: int) -> Held:
    """Deal the trajectories (or groups) of a run into folds; cut a single one into stretches."""
    labelled = dataset.labelled
    capacity, padding = len(labelled.indices), jnp.iinfo(jnp.int32).max
    units = jnp.where(labelled.mask, dataset.pool.unit[labelled.indices], padding)
    _, unit = jnp.unique(units, return_inverse=True, size=capacity, fill_value=padding)
    several = jnp.where(labelled.mask, unit, 0).max() > 0
    stretch = jnp.arange(capacity) * folds // jnp.maximum(labelled.size, 1)
    fold = jnp.where(labelled.mask, jnp.where(several, unit % folds, stretch), folds)
    order = jnp.argsort(fold, stable=True)
    indices = jnp.where(labelled.mask, labelled.indices, 0)
    return Held(indices[order], jnp.searchsorted(fold[order], jnp.arange(folds + 1)))


def pieces_of(dataset: Dataset, ranges: int) -> Pieces:
    """Return ranges between quantiles of each column, and what brings its middle half to size 1.

    If the middle half is one value, the whole column comes to -1 to 1. A range without length and a constant column
    give 0.
    """
    labelled = dataset.labelled
    rows = dataset.pool.before(labelled.indices)
    rows = jnp.sort(jnp.where(labelled.mask[:, None], rows, jnp.inf), axis=0)
    last = jnp.maximum(labelled.size, 1) - 1

    def quantiles(shares: Array) -> Array:
        return rows[jnp.round(shares * last).astype(int)]

    low, quarter, middle, third, high = quantiles(jnp.array([0, 0.25, 0.5, 0.75, 1]))
    half, whole = third - quarter, high - low
    factor = jnp.where(half > SHORTEST, inverse(half), 2 * inverse(whole))
    centre = jnp.where(half > SHORTEST, middle, (low + high) / 2)
    ends = quantiles(jnp.linspace(0, 1, ranges + 1)).T
    return Pieces(centre, factor, ends[:, :-1], inverse(jnp.diff(ends)))


def inverse(length: Array) -> Array:
    """Return 1 / length, or 0 for a length of nearly 0."""
    return jnp.where(length > SHORTEST, 1 / jnp.maximum(length, SHORTEST), 0.0)


ENTRY = Entry(
    make=table_network,
    presets={"default": TableNetworkConfig()},
    needs="numeric pairs",
    reference="Gorishniy et al. (2022); Holzmüller et al. (2024)",
    weighs=True,
    titles={"default": "networks for tables"},
    rounds=lambda config: config.rounds,
    chunk=5,
)
