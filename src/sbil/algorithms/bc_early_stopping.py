"""Behavioural cloning with early stopping: the iterate whose log-loss on held-out decisions is the smallest is kept.

    keep the f of the round with the least -mean log pi(a|s) over the held-out decisions,   pi = softmax f(s)

Needs pairs of numbers. The last of `folds` parts of the trajectories (or groups) is held out, and BC learns from the
others. Of a single trajectory the last stretch of steps is held out; these are neighbours in time of those learned
from, so their loss tells less. If there is nothing to hold out, this is BC. It learns from less than BC does: the
metric `stopped_at` says after how many steps BC on everything would stop.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, choose, config, cross_entropy, setting
from sbil.algorithms.bc import BCConfig, BCState, bc
from sbil.algorithms.table_network import in_folds
from sbil.dataset import Dataset, Rows, Spec
from sbil.networks import Network


@config
class BCEarlyStoppingConfig(BCConfig):
    """Settings of behavioural cloning with early stopping."""

    folds: int = setting(5, "parts of the trajectories (or groups), of which the last is held out; 1: none is", low=1)
    steps: int = setting(100, "steps of Adam per round; the held-out part is looked at after each round", low=1)
    rounds: int = setting(100, "rounds after which learning ends", low=1)


class RunSplit(NamedTuple):
    """What a run learns from, and what it holds out."""

    training: Rows
    held_out: Rows
    nothing: Bool[Array, ""]  # whether nothing could be held out; everything is in both parts then


class StoppedState(NamedTuple):
    """The best iterate and its held-out loss, the one that learns, and the parts of the run."""

    network: Network
    best: Float[Array, ""]
    stopped_at: Int[Array, ""]
    learner: BCState
    split: RunSplit
    round: Int[Array, ""]


def split(dataset: Dataset, folds: int) -> RunSplit:
    """Hold out the last fold that has any rows, unless it has all of them."""
    dealt = in_folds(dataset, folds)
    rows = dealt.first[-1]
    last = jnp.searchsorted(dealt.first, rows) - 1
    nothing = dealt.first[last] == 0
    training = Rows(dealt.indices, jnp.where(nothing, rows, dealt.first[last]))
    return RunSplit(training, dealt.judged(last), nothing)


def held_out_loss(network: Network, rows: Rows, dataset: Dataset) -> Float[Array, ""]:
    """-mean log pi(a|s) over some rows."""
    losses = cross_entropy(network(dataset.pool.before(rows.indices)), dataset.pool.action[rows.indices])
    return losses.sum(where=rows.mask) / jnp.maximum(rows.size, 1)


def bc_early_stopping(spec: Spec, config: BCEarlyStoppingConfig) -> Algorithm:
    """Behavioural cloning with early stopping as three pure functions; an update is a round of steps."""
    one = bc(spec, config)

    def init(key: PRNGKeyArray, dataset: Dataset) -> StoppedState:
        learner = one.init(key, dataset)
        zero = jnp.int32(0)
        return StoppedState(learner.network, jnp.float32(jnp.inf), zero, learner, split(dataset, config.folds), zero)

    def update(key: PRNGKeyArray, state: StoppedState, dataset: Dataset) -> tuple[StoppedState, Metrics]:
        own = dataset._replace(labelled=state.split.training)
        # The first step of a round has the key of the round: with one step per round the minibatches are those of BC.
        others = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(1, config.steps))
        keys = jnp.concatenate([key[None], others])
        learner, metrics = jax.lax.scan(lambda learner, key: one.update(key, learner, own), state.learner, keys)
        found = held_out_loss(learner.network, state.split.held_out, dataset)
        learns = state.round < config.rounds
        better = learns & (state.split.nothing | (found < state.best))
        after = StoppedState(
            network=choose(better, learner.network, state.network),
            best=jnp.where(better, found, state.best),
            stopped_at=jnp.where(better, (state.round + 1) * config.steps, state.stopped_at),
            learner=choose(learns, learner, state.learner),
            split=state.split,
            round=state.round + learns,
        )
        numbers = {"held_out_loss": after.best, "stopped_at": after.stopped_at.astype(jnp.float32)}
        return after, jax.tree.map(jnp.mean, metrics) | numbers

    return Algorithm(init, update, batch=config.batch)


ENTRY = Entry(
    make=bc_early_stopping,
    presets={"default": BCEarlyStoppingConfig()},
    needs="numeric pairs",
    reference="control of later methods",
    titles={"default": "BC, early stopping"},
    rounds=lambda config: config.rounds,
    chunk=5,
)
